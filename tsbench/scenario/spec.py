"""A scenario file asks one question: TOML -> Scenario -> expand() -> one RunSpec per cell of its matrix."""

from __future__ import annotations

import difflib
import fnmatch
import itertools
import math
import tomllib
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from tsbench import units
from tsbench.caps import ServerPart
from tsbench.errors import UserMistake
from tsbench.measure.gates import Gate, checked_gate, expect_fit, parse_gate
from tsbench.model import WriteMode
from tsbench.scenario import matrix
from tsbench.scenario.messages import explain, known_keys
from tsbench.scenario.types import FILE, DurationNs, SecondsNs, TimeNs, Whole
from tsbench.timeouts import DEFAULTS, TimeoutPart
from tsbench.workload.world import Disorder, World, WorldSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def _many(mode: WriteMode) -> WriteMode:
    if mode is WriteMode.SINGLE:
        raise ValueError("must be 'multi' or 'bulk'; single writes are an [[op]]'s")
    return mode


MAX_SCALE = 10_000_000
"""More series than this do not fit into memory, at about 170 bytes each."""
Share = Annotated[float, Field(ge=0, le=0.5)]


class _Part(BaseModel):
    """A table of the file: unknown keys are mistakes, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class WorldPart(_Part):
    """[world]: which data, from which seed."""

    use_case: str
    scale: Annotated[Whole, Field(ge=1, le=MAX_SCALE)] = 100
    interval: Annotated[DurationNs, Field(gt=0)] = 10 * units.NS_PER_S
    start: TimeNs = 1_451_606_400 * units.NS_PER_S  # 2016-01-01, as the peers
    seed: Annotated[int, Field(ge=0)] = 1
    streams: Annotated[int, Field(ge=1)] = 8
    form: Literal["bounded", "peer"] = "bounded"
    decimals: Annotated[int, Field(ge=0, le=15)] | None = None
    late: Share = 0.0
    out_of_order: Share = 0.0
    duplicate: Share = 0.0
    missing: Share = 0.0

    def spec(self) -> WorldSpec:
        """The world's own form of it; never more streams than series."""
        disorder = Disorder(
            late=self.late, out_of_order=self.out_of_order, duplicate=self.duplicate, missing=self.missing
        )
        return WorldSpec(
            use_case=self.use_case,
            scale=self.scale,
            seed=self.seed,
            start_ns=self.start,
            interval_ns=self.interval,
            streams=min(self.streams, self.scale),
            form=self.form,
            decimals=self.decimals,
            disorder=disorder,
        )


class LoadPart(_Part):
    """[load]: what is stored before anything is measured, and how."""

    window: DurationNs = 3_600 * units.NS_PER_S
    batch: Annotated[int, Field(ge=1)] = 10_000
    workers: Annotated[int, Field(ge=1, le=64)] = 2
    mode: Annotated[WriteMode, AfterValidator(_many)] = WriteMode.BULK


class Step(_Part):
    """One step of a load shape: so many users for so long, reached gradually if `ramp`."""

    users: Annotated[Whole, Field(ge=1)]
    duration: SecondsNs
    ramp: bool = False


class DrivePart(_Part):
    """[drive]: how ops are driven. Rates are ops per second over all processes."""

    loop: Literal["closed", "open"] = "closed"
    users: Annotated[Whole, Field(ge=1)] = 8
    processes: Annotated[int, Field(ge=1, le=256)] = 1
    wait: tuple[DurationNs, DurationNs] = (0, 0)
    rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    arrivals: Literal["constant", "poisson"] = "constant"
    late_after: DurationNs = 10_000_000
    warmup: SecondsNs = 2 * units.NS_PER_S
    duration: Annotated[SecondsNs, Field(gt=0)] = 10 * units.NS_PER_S
    window: DurationNs | None = None
    stop_timeout: SecondsNs = 30 * units.NS_PER_S
    timeout: DurationNs = 30 * units.NS_PER_S
    steps: tuple[Step, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _one_wait(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("wait"), str):
            return {**data, "wait": [data["wait"], data["wait"]]}
        return data

    @model_validator(mode="after")
    def _consistent(self) -> DrivePart:
        if self.loop == "open" and self.rate is None:
            raise ValueError("loop = 'open' needs a rate in ops per second; add rate = 100, say")
        if self.loop == "closed" and self.rate is not None:
            raise ValueError("a rate needs loop = 'open'; set that, or take the rate out")
        if self.wait[1] < self.wait[0]:
            raise ValueError("wait must be [shortest, longest]")
        if self.loop == "open" and self.wait != (0, 0):
            raise ValueError("wait belongs to loop = 'closed'; an open loop takes its times from the rate")
        if self.users < self.processes:
            raise ValueError(f"{self.users} users cannot be spread over {self.processes} processes")
        return self


class Op(_Part):
    """[[op]]: one kind of op and its weight in the mix. Either `write` (points per request) or `query` (a kind)."""

    write: Annotated[int, Field(ge=1, le=100_000)] | None = None
    mode: WriteMode | None = None
    query: str | None = None
    weight: Annotated[int, Field(ge=1)] = 1

    @model_validator(mode="after")
    def _one_of(self) -> Op:
        if (self.write is None) == (self.query is None):
            raise ValueError("needs either write = POINTS or query = 'KIND'")
        if self.query is not None and self.mode is not None:
            raise ValueError("mode belongs to a write")
        if self.mode is WriteMode.SINGLE and self.write != 1:
            raise ValueError(f"mode = 'single' takes one point, not {self.write}; set write = 1, or mode = 'multi'")
        return self

    @property
    def name(self) -> str:
        """What results call it."""
        return self.query if self.query is not None else f"write-{self.write}"

    @property
    def write_mode(self) -> WriteMode:
        """How it writes: as given, else single for one point and multi for more."""
        return self.mode or (WriteMode.SINGLE if self.write == 1 else WriteMode.MULTI)


class CheckPart(_Part):
    """[check]: how much of what was answered and stored is compared with gold."""

    answers: Annotated[int, Field(ge=0)] = 200
    sample: Annotated[int, Field(ge=0)] = 2_000
    readback: Annotated[int, Field(ge=0)] = 1_000_000
    failures: Share = 0.0


class TargetPart(_Part):
    """[target]: which database, in which layout, started by tsbench or found at `endpoint`."""

    name: str
    schema_: Annotated[str | None, Field(alias="schema")] = None
    endpoint: str | None = None
    cold: bool = False
    settings: dict[str, str] = {}

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class RunSpec(_Part):
    """One cell: everything that decides what a run does."""

    id: str
    scenario: str
    question: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    relative_start: bool = False
    """Whether `world.start` was given as a distance from now, so that it differs each time the file is read."""
    world: WorldPart
    load: LoadPart = LoadPart()
    drive: DrivePart = DrivePart()
    op: tuple[Op, ...] = ()
    block: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    check: CheckPart = CheckPart()
    gates: tuple[Annotated[str, AfterValidator(checked_gate)], ...] = ()
    target: TargetPart
    server: ServerPart = ServerPart()
    timeout: TimeoutPart = DEFAULTS

    @model_validator(mode="after")
    def _consistent(self) -> RunSpec:
        names = [op.name for op in self.op]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"op: '{twice}' is there twice; results could not tell them apart, so join their weights")
        kinds = {op.name: "write" if op.query is None else "query" for op in self.op}
        expect_fit(self.gates, kinds, self.drive.loop)
        return self

    @property
    def demands(self) -> tuple[Gate, ...]:
        """The gates, parsed."""
        return tuple(map(parse_gate, self.gates))

    @property
    def writes(self) -> tuple[Op, ...]:
        """The ops that write."""
        return tuple(op for op in self.op if op.write is not None)

    @property
    def queries(self) -> tuple[Op, ...]:
        """The ops that ask."""
        return tuple(op for op in self.op if op.query is not None)

    @property
    def block_points(self) -> int:
        """Rows that a stream hands out at a time: a multiple of every write's points, about 500 at least."""
        if self.block is not None:
            return self.block
        sizes = [op.write for op in self.op if op.write is not None]
        return block_points(sizes)

    def world_at(self) -> World:
        """The simulated world it runs in."""
        return World(self.world.spec())


def block_points(sizes: Sequence[int]) -> int:
    """The rows of a block from which writes of these sizes are cut without a remainder.

    Raises
    ------
    ValueError
        If the sizes have no common multiple of at most 1,000,000.
    """
    common = math.lcm(*sizes) if sizes else 1
    if common > 1_000_000:
        raise ValueError(f"writes of {', '.join(map(str, sizes))} points have no common multiple below 1,000,000")
    return common * max(1, math.ceil(512 / common))


class Scenario:
    """A parsed file, before its matrix is expanded."""

    def __init__(self, path: Path, document: dict[str, Any]) -> None:
        self.path = path
        self.knee = document.get("knee") is True
        self.name = matrix.file_name(str(document.get("name", path.stem))) or "scenario"
        self._document = document

    @classmethod
    def load(cls, path: Path, *, overrides: Sequence[str] = ()) -> Scenario:
        """Read a file and apply `key=value` overrides (dotted keys, TOML values or bare text).

        Raises
        ------
        UserMistake
            If the file is missing or not TOML, an override has no `=`, or one of them holds a secret: the file is kept
            with the results as it is.
        """
        for override in overrides:
            matrix.refuse_secrets(override)
        try:
            text = path.read_text(encoding="utf-8")
            document = tomllib.loads(text)
        except FileNotFoundError:
            near = difflib.get_close_matches(path.stem, [p.stem for p in path.parent.glob("*.toml")], 1)
            hint = f"did you mean {path.with_stem(near[0])}?" if near else "see `tsbench list scenarios`"
            raise UserMistake(f"{path}: no such scenario; {hint}") from None
        except OSError as error:
            raise UserMistake(f"{path}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UserMistake(f"{path}: not TOML: {error}") from None
        matrix.refuse_secrets_in_file(document, text, path)
        for override in overrides:
            matrix.override(document, override)
        return cls(path, document)

    def demand(self, gates: Sequence[str]) -> None:
        """Add gates to the file's own."""
        own = self._document.setdefault("gates", [])
        if isinstance(own, list):  # else `expand` tells what it must be
            self._document["gates"] = [*own, *(gate for gate in gates if gate not in own)]

    def expand(self) -> list[RunSpec]:
        """One RunSpec per cell of the matrix (one in all without a matrix), ids distinct.

        Raises
        ------
        UserMistake
            One line: file, key, what is wrong with it and the cure.
        """
        base = {key: value for key, value in self._document.items() if key not in WHOLE}
        axes = list(matrix.axes(self._document.get("matrix", {}), self.path))
        cells = [self._cell(base, dict(combination)) for combination in itertools.product(*axes)]
        twice = [cell.id for i, cell in enumerate(cells) if cell.id in {c.id for c in cells[:i]}]
        if twice:
            raise UserMistake(f"{self.path}: matrix: two cells are called {twice[0]}; make their values differ")
        return cells

    def _cell(self, base: Mapping[str, Any], chosen: Mapping[str, Any]) -> RunSpec:
        document = matrix.copied(base)
        for key, value in chosen.items():
            try:
                matrix.choose(document, key, value)
            except ValueError as error:
                raise UserMistake(f"{self.path}: matrix.{key}: {error}") from None
        taken = next((key for key in document if key in _INTERNAL), None)
        if taken is not None:
            known = known_keys((), RunSpec, _PARTS, hidden=_INTERNAL)
            raise UserMistake(f"{self.path}: {taken}: unknown key; known are {', '.join(known)}")
        labels = matrix.labels_of(chosen, document.get("target"))
        made = {
            "id": matrix.slug_of(labels, document.get("target")),
            "scenario": self.name,
            "labels": labels,
            "relative_start": units.is_relative_time(matrix.value_at(document, "world.start")),
        }
        if not document.get("op"):
            raise UserMistake(f"{self.path}: op: is missing; add [[op]] tables with write = POINTS or query = 'KIND'")
        try:
            return RunSpec.model_validate({**document, **made}, context=FILE)
        except ValidationError as error:
            raise UserMistake(f"{self.path}: {explain(error, RunSpec, _PARTS, hidden=_INTERNAL)}") from None


def select(cells: Sequence[RunSpec], only: Sequence[str]) -> list[RunSpec]:
    """The cells that a pattern names: by id, else by `postgres*`, else by a part of the id; all without patterns.

    Raises
    ------
    UserMistake
        If a pattern matches none: the text lists the ids.
    """
    ids = [cell.id for cell in cells]
    named: set[str] = set()
    for pattern in only:
        found = {pattern} & {*ids} or {*fnmatch.filter(ids, pattern)} or {name for name in ids if pattern in name}
        if not found:
            raise UserMistake(f"--only {pattern}: no such cell; there are {', '.join(ids)}")
        named |= found
    return [cell for cell in cells if not only or cell.id in named]


_INTERNAL = {"id", "scenario", "labels", "relative_start", "block"}
WHOLE = {"matrix", "name", "claim", "knee"}
"""Keys of a file that are about all of its cells."""
_PARTS: dict[str, type[BaseModel]] = {
    "world": WorldPart,
    "load": LoadPart,
    "drive": DrivePart,
    "steps": Step,
    "op": Op,
    "check": CheckPart,
    "target": TargetPart,
    "server": ServerPart,
    "timeout": TimeoutPart,
}
