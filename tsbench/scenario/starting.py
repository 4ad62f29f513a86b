"""A scenario and a locustfile to start from that are about a user's own use case (`tsbench init --use-case`)."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tsbench import units
from tsbench.errors import Broken, UserMistake
from tsbench.model import Window
from tsbench.results.rundir import write_atomically
from tsbench.scenario.parts import WorldPart
from tsbench.scenario.prepared import cache
from tsbench.scenario.use_case import resolved
from tsbench.scenario.validation import decimals_for, expect_room_for, expect_values, points_of
from tsbench.targets.base import Unsupported
from tsbench.targets.registry import get
from tsbench.workload import queries
from tsbench.workload.world import World

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tsbench.targets.base import Schema
    from tsbench.targets.target import Target

_MOST_QUERIES = 8
_WRITES_A_QUERY = 20
_LEAST_LOAD_NS = 2 * 3_600 * units.NS_PER_S
_MEASURED_S = 32
"""Length of the measured window and of the warm-up before it, in which the second half of a recording is written."""
_MOST_PER_S = 100.0
_SIZES = (1, 10, 100, 1_000)


@dataclass(frozen=True, slots=True)
class Start:
    """What the two files say: about a use case, on a target, with its queries, and those that it has no words for."""

    use_case: str
    target: str
    world: World
    asked: tuple[str, ...]
    left_out: Mapping[str, str]
    load_ns: int
    """Time that is loaded of simulated points: the longest window of a query."""

    @classmethod
    def of(cls, use_case: str, target: Target) -> Self:
        """Read a use case.

        Raises
        ------
        UserMistake
            If there is none, it is wrong, or the target does not hold its points.
        """
        try:
            part = WorldPart.of(resolved({"use_case": use_case}, Path()))
            world = World(part.spec())
        except ValueError as error:
            raise UserMistake(f"--use-case {use_case}: {error}") from None
        schema = next(iter(target.schemas.values()))
        expect_room_for(world, target, schema)
        if (decimals := decimals_for(world, [schema])) is not None:
            world = World(replace(world.spec, decimals=decimals))
            expect_values(world, schema)
        own = [query.name for query in part.queries] or [*(world.spec.case.queries if world.spec.case else ())]
        load_ns = max([_LEAST_LOAD_NS, *(query.window or 0 for query in part.queries)])
        reasons = {kind: _why_not(kind, world, load_ns, schema) for kind in own}
        asked = tuple(kind for kind, why in reasons.items() if not why)[:_MOST_QUERIES]
        left_out = {kind: why for kind, why in reasons.items() if why}
        return cls(use_case, target.name, world, asked, left_out, load_ns)

    @property
    def scenario(self) -> str:
        """The text of a scenario."""
        world, is_recorded = self.world, self.world.recorded is not None
        load, drive, size = self._recorded() if is_recorded else self._simulated()
        scale = [] if is_recorded or not world.spec.case or world.key is None else [f"scale = {world.spec.scale}"]
        lines = [
            "# A scenario to start from: one question, and the load that answers it. Run it: tsbench run scenario.toml",
            "# All keys: tsbench schema --markdown. Several databases or layouts: a [matrix], as in quickstart.",
            f'question = "Does {self.target} answer in time while points of {world.spec.use_case} are written?"',
            'gates = ["write:p95<500ms", "failures<0.1%"]    # what must hold; else the exit code is 1',
            "",
            "[world]",
            f"use_case = {json.dumps(self.use_case)}",
            *scale,
            *(
                []
                if world.spec.decimals is None
                else [f"decimals = {world.spec.decimals}    # {self.target} keeps no more digits"]
            ),
            "",
            "[load]                     # stored before anything is measured",
            *load,
            "",
            "[drive]",
            *drive,
            "",
            "[[op]]",
            f"{f'write = {size}':<27}# points per request",
            f"weight = {_WRITES_A_QUERY}",
        ]
        for kind in self.asked:
            lines += ["", "[[op]]", f'query = "{kind}"']
        lines += ["", *(f"# '{kind}' is left out: {why}" for kind, why in self.left_out.items())]
        return "\n".join([*lines, "[target]", f'name = "{self.target}"            # tsbench list targets', ""])

    def _simulated(self) -> tuple[list[str], list[str], int]:
        """Return the lines of [load] and [drive], and the points of a write."""
        points = points_of(self.world.spec, self.world.ticks(self.load_ns))
        drive = ["users = 10                 # each waits for its answer, then for a time in `wait`"]
        drive += ['wait = ["30ms", "70ms"]', 'warmup = "2s"', 'duration = "30s"']
        window = units.format_exact_duration(self.load_ns)
        return [f'window = "{window}"              # {points:,} points'], drive, _SIZES[0]

    def _recorded(self) -> tuple[list[str], list[str], int]:
        """Return the same: the second half of the points is written in the time of the run."""
        recorded = self.world.recorded
        assert recorded is not None  # noqa: S101 - the caller has looked
        points, left = recorded.rows, recorded.rows_from(self.world.time_ns(recorded.ticks_of(0.5)))
        if not left:
            raise UserMistake(f"--use-case {self.use_case}: has no points after its first half to write; record more")
        each = _WRITES_A_QUERY / (_WRITES_A_QUERY + len(self.asked))
        # How many are due by chance varies as the square root: with two deviations less they seldom end before the run.
        due = {size: max(left - 2 * math.sqrt(left * size), left / 2) for size in _SIZES}
        rates = {size: due[size] / size / _MEASURED_S / each for size in _SIZES}
        size = next((one for one, rate in rates.items() if rate <= _MOST_PER_S), _SIZES[-1])
        rate = _three_digits_of(min(rates[size], _MOST_PER_S))
        drive = ['loop = "open"              # ops are due at this rate, however long the database takes']
        drive += [f"rate = {rate:g}", "users = 10", 'warmup = "2s"', 'duration = "30s"']
        load = f"share = 0.5                # most of the other {left:,} of {points:,} points are written"
        return [load], drive, size

    @property
    def locustfile(self) -> str:
        """The text of a locustfile."""
        about = f"{self.target}: writes the points of {self.world.spec.use_case}, and asks its queries."
        lines = [f'"""{about}', "", "locust -f locustfile.py                      # web UI"]
        lines += ["locust -f locustfile.py --headless -u 10 -r 10 -t 20s", '"""', ""]
        lines += ["from locust import between, task", "", "from tsbench.drive import TimeSeriesUser, standalone"]
        lines += ["", "standalone()", *self._user("Writer", "Writes points", 3, "between(0.01, 0.03)")]
        lines += ["    @task", "    def write_points(self) -> None:", "        self.write(10)"]
        if self.asked:
            lines += self._user("Reader", "Asks about them", 1, "between(0.1, 0.3)")
        for kind in self.asked:
            name = re.sub(r"\W", "_", kind)
            lines += ["    @task", f"    def ask_{name}(self) -> None:", f'        self.query("{kind}")', ""]
        return "\n".join(lines).rstrip() + "\n"

    def kept_locustfile(self) -> Path:
        """Write a locustfile into the cache, since nobody will change it, and return its path.

        Raises
        ------
        UserMistake
            If the directory cannot be made or written to.
        """
        path = cache() / "web" / f"{self.target}-{self.world.spec.use_case}.py"
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(path, replace(self, use_case=str(Path(self.use_case).resolve())).locustfile.encode())
        except (OSError, Broken) as error:
            raise UserMistake(f"{path}: cannot be written: {error}; set TSBENCH_CACHE") from None
        return path

    def _user(self, name: str, does: str, weight: int, wait: str) -> list[str]:
        head = ["", "", f"class {name}(TimeSeriesUser):", f'    """{does}."""', "", f'    target = "{self.target}"']
        return [
            *head,
            f"    use_case = {json.dumps(self.use_case)}",
            f"    weight = {weight}",
            f"    wait_time = {wait}",
            "",
        ]


def own_locustfile(target: str, use_cases: Sequence[str]) -> tuple[Path, list[str]] | None:
    """Return a locustfile about the first file among use cases, and the options for its data; None without a file.

    Raises
    ------
    UserMistake
        If the use case is wrong, the target is unknown or does not hold its points, or nothing can be written.
    """
    case = next((one for one in use_cases if one.endswith(".toml")), None)
    if case is None:
        return None
    start = Start.of(case, get(target))
    window = [] if start.world.recorded is not None else ["--load-window", units.format_exact_duration(start.load_ns)]
    return start.kept_locustfile(), window


def _three_digits_of(rate: float) -> float:
    """Return a rate that is not higher: an open loop needs as many recorded points as are due."""
    step = 10.0 ** (2 - math.floor(math.log10(rate)))
    return math.floor(rate * step) / step


def _why_not(kind: str, world: World, load_ns: int, schema: Schema) -> str:
    """Return why a kind of query cannot be asked, "" if it can."""
    end = world.ticks(load_ns) if world.recorded is None else world.recorded.ticks_of(0.5)
    try:
        schema.compile(queries.make(kind, world, Window(world.time_ns(0), world.time_ns(end)), world.spec.seed, 0))
    except (Unsupported, ValueError) as why:
        return str(why)
    return ""
