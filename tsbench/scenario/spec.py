"""The specification of runs: TOML -> Scenario -> expand() -> one RunSpec per cell of the matrix."""

from __future__ import annotations

import fnmatch
import math
from collections import Counter
from hashlib import sha256
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from tsbench import units
from tsbench.errors import UserMistake
from tsbench.measure.gates import Gate, checked_gate, expect_fit, parse_gate
from tsbench.model import Field as Column
from tsbench.model import Kind, Measurement, Window
from tsbench.results.limits import LIMITS
from tsbench.scenario import matrix, prepared
from tsbench.scenario.events import EventPart, expect_sequence
from tsbench.scenario.file import explain, known_keys, naming, odd_text, read_document
from tsbench.scenario.file_keys import SEARCH_REPEAT, SearchPart, check_keys, read_search
from tsbench.scenario.own_queries import (
    KnownPart,
    QueryPart,
    expect_answerable,
    known_differences,
    tags_of,
    with_queries,
)
from tsbench.scenario.parts import (
    DEFAULTS,
    CheckPart,
    DrivePart,
    LoadPart,
    Op,
    ServerPart,
    Step,
    TargetPart,
    TimeoutPart,
    WorldPart,
)
from tsbench.scenario.types import FILE, Part
from tsbench.scenario.use_case import resolved
from tsbench.targets.registry import TARGETS
from tsbench.text import listed
from tsbench.workload import queries
from tsbench.workload.world import World, last_world, layouts_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

ROUND = "-round="
"""Part of a repeated cell's id before the number of its round."""


class QueryFilePart(Part):
    """A file of queries that the users ask in its order, each once; `count` of them after `burn_in`."""

    name: str
    count: Annotated[int, Field(ge=1)]
    burn_in: Annotated[int, Field(ge=0)] = 0
    """Number of queries that are asked before the measured ones."""
    functions: bool = False
    """Whether to make the functions first that the texts of another program call."""
    checked: str = ""
    """Path of these queries, each a line that was read and found whole; it ends with the command."""
    kinds: Annotated[tuple[str, ...], Field(strict=False)] = ()


StepName = Literal["start", "create", "load", "adopt", "settle", "rehearse", "burn in", "cold", "drive", "check"]
"""The steps of a run (`run.steps`)."""
LOAD: tuple[StepName, ...] = ("start", "create", "load", "settle")
LOAD_FILE: tuple[StepName, ...] = ("start", "load", "settle")
ADOPT: tuple[StepName, ...] = ("start", "adopt")
ASK_FILE: tuple[StepName, ...] = ("start", "burn in", "drive")
MEASURE: tuple[StepName, ...] = ("rehearse", "cold", "drive", "check")


class PacePart(Part):
    """How much to load, how fast and how long; None is no limit."""

    limit: int | None = None
    """Points at most."""
    per_s: float | None = None
    """Points per second over all workers."""
    duration_s: float | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all points are stored."""
        return self.limit is None and self.duration_s is None


class Job(Part):
    """The keys that the specifications of all runs have, whatever their points are."""

    id: str
    scenario: str
    question: str = ""
    """The question that the scenario answers; reports begin with it."""
    labels: dict[str, str] = Field(default_factory=dict)
    world: Any = None
    """The simulated world, if the points are those of one."""
    steps: Annotated[tuple[StepName, ...], Field(strict=False)] = (*LOAD, *MEASURE)
    load: LoadPart = LoadPart()
    pace: PacePart = PacePart()
    drive: DrivePart = DrivePart()
    op: Annotated[tuple[Op, ...], Field(strict=False, max_length=LIMITS.ops)] = ()
    query_file: QueryFilePart | None = None
    """The queries of the run, in place of `op`."""
    event: Annotated[tuple[EventPart, ...], Field(strict=False, max_length=100)] = ()
    check: CheckPart = CheckPart()
    gates: Annotated[tuple[Annotated[str, AfterValidator(checked_gate)], ...], Field(strict=False)] = ()
    """Conditions for the run to pass, such as `write:p99<50ms`."""
    target: TargetPart
    server: ServerPart = ServerPart()
    timeout: TimeoutPart = DEFAULTS

    @property
    def demands(self) -> tuple[Gate, ...]:
        """The parsed gates."""
        return tuple(map(parse_gate, self.gates))

    def measurements(self) -> tuple[Measurement, ...]:
        """Return the measurements that the run stores."""
        return ()

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        kinds = {op.name: "write" if op.query is None else "query" for op in self.op}
        kinds |= dict.fromkeys(self.query_file.kinds if self.query_file is not None else (), "query")
        expect_fit(self.gates, kinds, self.drive.loop)
        return self

    @property
    def writes(self) -> tuple[Op, ...]:
        """The ops that write."""
        return tuple(op for op in self.op if op.write is not None)

    @property
    def queries(self) -> tuple[Op, ...]:
        """The ops that query."""
        return tuple(op for op in self.op if op.query is not None)

    @property
    def ends_early(self) -> bool:
        """Whether the ops may come to an end before the measured time is over."""
        return self.query_file is not None

    @property
    def block_points(self) -> int:
        """Rows that a stream hands out at a time."""
        return 1

    @property
    def seed(self) -> int:
        """Seed of whatever is random in the run."""
        return 1

    @property
    def streams(self) -> int:
        """The largest number of load processes: each writes at least one stream of a world."""
        return self.drive.processes


class FilePart(Part):
    """A file of points, and the measurements that it turned out to have: names of tags, own tags and fields."""

    name: str
    unit_ns: int = 1
    """Length of the unit of its times."""
    round_times: bool = False
    """Whether times are cut to the finest unit that the database has."""
    tags: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = Field(default_factory=dict)
    fields: dict[str, dict[str, tuple[Kind, bool]]] = Field(default_factory=dict)
    """Fields of each measurement, with their kinds, and whether some points lack them."""

    model_config = ConfigDict(strict=False)


class FileSpec(Job):
    """The specification of a run that loads a file."""

    file: FilePart
    steps: Annotated[tuple[StepName, ...], Field(strict=False)] = LOAD_FILE

    def measurements(self) -> tuple[Measurement, ...]:
        def made(name: str, kinds: Mapping[str, tuple[Kind, bool]]) -> Measurement:
            tags, own = self.file.tags[name]
            fields = (Column(field, kind, nullable=nullable) for field, (kind, nullable) in kinds.items())
            return Measurement(name, tags, (), own).having(fields)

        return tuple(starmap(made, self.file.fields.items()))

    def with_measurements(self, measurements: Sequence[Measurement]) -> FileSpec:
        """Return the specification with the measurements that the file turned out to have."""
        tags = {m.name: (m.tags, m.own_tags) for m in measurements}
        fields = {m.name: {one.name: (one.kind, one.nullable) for one in m.fields} for m in measurements}
        return self.model_copy(update={"file": self.file.model_copy(update={"tags": tags, "fields": fields})})


class RunSpec(Job):
    """The complete specification of one run (one cell of the matrix)."""

    relative_start: bool = False
    """True if `world.start` is relative to now, so that it differs each time the file is read."""
    resolution_ns: int = 1
    """Coarsest time resolution of the scenario's targets in ns, so that all targets run the same queries."""
    world: WorldPart
    query: Annotated[tuple[QueryPart, ...], Field(strict=False, max_length=1_000)] = ()
    """Kinds of query of the scenario's own, by parts."""
    block: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    first_block: Annotated[int, Field(ge=0)] = 0
    """First block of each stream that the run writes; runs before it wrote the others, into the same data."""

    @model_validator(mode="after")
    def _consistent(self) -> RunSpec:
        names = [op.name for op in self.op]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(
                f"op: '{twice}' occurs twice; results could not distinguish the two, so add up their weights in one op"
            )
        if self.target.cold and self.drive.warmup:
            raise ValueError(
                "drive.warmup: a run with target.cold has none, since it measures the first ops; take it out"
            )
        if self.query and (layouts := layouts_of(self.world.spec())):
            case = self.world.spec().case
            expect_answerable(
                self.query, layouts, tags_of(case), taken={*queries.QUERIES, *(case.queries if case else ())}
            )
        expect_sequence(self.event, self.drive, self.server)
        return self

    def measurements(self) -> tuple[Measurement, ...]:
        return self.world_at().measurements

    @property
    def ends_early(self) -> bool:
        return super().ends_early or (bool(self.writes) and (self.world.is_recorded or self.drive.window is not None))

    @property
    def seed(self) -> int:
        return self.world.seed

    @property
    def streams(self) -> int:
        return super().streams if self.query_file is not None else self.world.spec().streams

    @property
    def block_points(self) -> int:
        """Rows that a stream hands out at a time: a multiple of every write's points.

        Rows are encoded by blocks, and in a block of 4,000 a row costs half of what it costs in one of 1,000. But a
        block has rows of one measurement only: where there are several, small blocks let slow writers come to all.
        """
        if self.block is not None:
            return self.block
        is_one = len(layouts_of(self.world.spec())) == 1
        if not self.op:  # the writes of a bare locustfile are known only when it makes them
            return 10_000 if is_one else 1_000
        sizes = [op.write for op in self.op if op.write is not None]
        if self.drive.arrivals == "recorded" and len(sizes) > 1:  # each kind of write has blocks of its own
            return block_points(sizes, 64)
        return block_points(sizes, 4_096 if is_one else 512)

    @property
    def points_of_an_op(self) -> float:
        """Mean number of points that an op writes."""
        return sum(op.weight * (op.write or 0) for op in self.op) / sum(op.weight for op in self.op)

    @property
    def seconds(self) -> float:
        """Length of the warm-up and of the measured window."""
        return (self.drive.longest_warmup + self.drive.measured_ns) / units.NS_PER_S

    def recorded_due_ns(self) -> NDArray[np.int64]:
        """Return when the ops of a run in its recording's rhythm are due, in ns from the first moment.

        An op is due when the points that the ops before it write on average have been recorded.
        """
        world = self.world_at()
        assert world.recorded is not None  # noqa: S101 - `paced` refuses other worlds
        speed, begin_ns = self.drive.speed or 1.0, self.loaded(world).end_ns - world.later_ns
        end_ns = begin_ns + round(self.seconds * speed * units.NS_PER_S)
        times = world.recorded.times_ns(begin_ns, end_ns, every=self.points_of_an_op)
        return np.rint((times - begin_ns) / speed).astype(np.int64)

    def paced(self) -> RunSpec:
        """Return the specification with the rate of its recording, if it has that rhythm.

        Raises
        ------
        UserMistake
            If it cannot have it.
        """
        if self.drive.arrivals != "recorded":
            return self
        world, wanted = self.world_at(), "drive.arrivals: 'recorded' needs "
        if world.recorded is None:
            raise UserMistake(f"{wanted}a use case with a recording; these points are simulated")
        if self.drive.rate is not None or any(event.rate is not None for event in self.event):
            raise UserMistake(f"{wanted}no rate, since the recording sets it; take rate out, and say speed")
        if not self.writes:
            raise UserMistake(f"{wanted}ops that write, of which the recording knows when; add write = POINTS")
        left_s = (world.recorded.last_ns + 1 + world.later_ns - self.loaded(world).end_ns) / units.NS_PER_S
        most = left_s / self.seconds
        if most < (self.drive.speed or 1.0):
            raise UserMistake(
                f"drive.speed: {left_s:,.0f} s of the recording are left after the load, enough for a speed of "
                f"{most:,.{0 if most >= 10 else 2}f} in the {self.seconds:g} s of warm-up and duration; lower it, or "
                "load less"
            )
        if not (ops := len(self.recorded_due_ns())):
            raise UserMistake("drive.speed: nothing was recorded in the time that would be replayed; raise it")
        rate = ops / self.seconds
        return self.model_copy(update={"drive": self.drive.model_copy(update={"rate": rate})})

    @property
    def kinds_with_gold(self) -> list[str]:
        """Kinds of the run's queries whose right answer is said as SQL, by the scenario or the use case."""
        golden = {part.name for part in (*self.world.queries, *self.query) if part.gold}
        return [op.query for op in self.queries if op.query in golden]

    @property
    def known_differences(self) -> dict[str, str]:
        """Kinds of query whose answers differ on the run's target as is known, each with the reason."""
        return known_differences((*self.world.queries, *self.query), self.target.name)

    def world_at(self) -> World:
        """Return the simulated world of the run, with the scenario's own kinds of query; the same again, if it is."""
        said = f"{self.resolution_ns} {self.model_dump_json(include={'world', 'query'})}"
        return last_world(said, lambda: World(with_queries(self.world.spec(self.resolution_ns), self.query)))

    def write_ticks(self, world: World) -> tuple[int, int | None]:
        """Return the first tick of the run's writes and the one after the last (None: no end).

        `world` is the run's (`world_at`); the ticks before are those of the bulk load.
        """
        first = world.ticks(self.load.window)
        last = None if world.recorded is None else world.recorded.ticks
        if self.drive.window is None:
            return first, last
        end = first + world.ticks(self.drive.window)
        return first, end if last is None else min(end, last)

    def loaded(self, world: World) -> Window:
        """Return the time range of the bulk load in `world`, the run's (`world_at`)."""
        return Window(world.time_ns(0), world.time_ns(world.ticks(self.load.window)))


def spec_of(content: Mapping[str, Any]) -> RunSpec | FileSpec:
    """Return the specification in a run's spec.json; raises pydantic's ValidationError if it is none."""
    return FileSpec.model_validate(content) if "file" in content else RunSpec.model_validate(content)


def block_points(sizes: Sequence[int], least: int) -> int:
    """Return the number of rows of a block, at least `least`, that writes of these sizes divide without a remainder.

    Raises
    ------
    ValueError
        If the sizes have no common multiple of at most 1,000,000.
    """
    common = math.lcm(*sizes) if sizes else 1
    if common > 1_000_000:
        raise ValueError(f"writes of {', '.join(map(str, sizes))} points have no common multiple below 1,000,000")
    return common * max(1, math.ceil(least / common))


class Scenario:
    """A parsed file, before its matrix is expanded."""

    def __init__(self, path: Path, document: dict[str, Any]) -> None:
        self.path = path
        self.knee = document.get("knee") is True
        self.reuse = document.get("reuse") is True
        self.repeat = document.get("repeat", SEARCH_REPEAT if "search" in document else 1)
        self.name = matrix.file_name(str(document.get("name", path.stem))) or "scenario"
        self.only: Sequence[str] = ()
        """Patterns of the cells that run if none are asked for."""
        self._document = document

    @property
    def search(self) -> SearchPart | None:
        """The [search] of the file, None without one; raises UserMistake if it is malformed."""
        with naming(f"{self.path}: "):
            return read_search(self._document)

    @classmethod
    def load(cls, path: Path, *, overrides: Sequence[str] = ()) -> Scenario:
        """Read a file and apply `key=value` overrides (dotted keys, TOML values or bare text).

        Raises
        ------
        UserMistake
            If the file is missing or not TOML, an override has no `=`, or any of them holds a secret (the results will
            contain a copy of the file).
        """
        for override in overrides:
            matrix.refuse_secrets(override)
        text, document = read_document(path)
        matrix.refuse_secrets_in_file(document, text, path)
        with naming(f"{path}: "):
            short, wanted = matrix.taken_short(document), matrix.SHORT in overrides
        if wanted:
            matrix.shorten(document, short, path)
        for override in (one for one in overrides if one != matrix.SHORT):
            matrix.override(document, override)
        if "short" in document:
            raise UserMistake(f"--set short: write --set {matrix.SHORT}, or leave it out")
        if odd := odd_text(document):
            raise UserMistake(f"{path}: {odd}")
        scenario = cls(path, document)
        if wanted:
            scenario.name, scenario.only = f"{scenario.name}-short", short.get("only", [])
        return scenario

    def demand(self, gates: Sequence[str]) -> None:
        """Add gates to the file's own."""
        own = self._document.setdefault("gates", [])
        if isinstance(own, list):  # else `expand` raises an error
            self._document["gates"] = [*own, *(gate for gate in gates if gate not in own)]

    def repeated(self, cells: Sequence[RunSpec]) -> list[RunSpec]:
        """Return the cells of all rounds, each round with every cell once in an order of its own.

        A machine that slows down in the course of an hour slows all cells alike then, and none is always first. The
        order follows from the world's seed, and does not depend on the number of rounds.

        Raises
        ------
        UserMistake
            If these are more runs than a result set may have.
        """
        if self.repeat == 1:
            return list(cells)
        if len(cells) * self.repeat > matrix.MAX_CELLS:
            most = matrix.MAX_CELLS // len(cells)
            raise UserMistake(f"{self.path}: repeat: {len(cells)} cells can be repeated up to {most} times")
        specs: list[RunSpec] = []
        for number in range(1, self.repeat + 1):
            of_round = [_in_round(cell, number) for cell in cells]
            if self.search is not None:  # which takes them in an order of its own
                specs += of_round
                continue
            specs += sorted(of_round, key=lambda cell: sha256(f"{cell.world.seed} {cell.id}".encode()).digest())
        return specs

    def expand(self) -> list[RunSpec]:
        """Return one RunSpec per cell of the matrix (a single one without a matrix), with distinct ids.

        Raises
        ------
        UserMistake
            One line with the file, the key, the mistake and the cure.
        """
        base = {key: value for key, value in self._document.items() if key not in SCENARIO_KEYS}
        with naming(f"{self.path}: "):
            search = check_keys({"name": self.path.stem, **self._document}, self.repeat)
            axes = self._document.get("matrix", {})
            if search is not None and isinstance(axes, dict):  # else `combinations` raises an error
                axes = {**axes, **search.values}
            cells = [self._cell(base, chosen) for chosen in matrix.combinations(axes)]
            name, count = Counter(cell.id for cell in cells).most_common(1)[0]
            if count > 1:
                raise UserMistake(f"matrix: two cells are called {name}; give them different values")
        resolution_ns = max(map(_resolution_ns, cells))
        return [cell.model_copy(update={"resolution_ns": resolution_ns}) for cell in cells]

    def _cell(self, base: Mapping[str, Any], chosen: Mapping[str, Any]) -> RunSpec:
        document = matrix.copied(base)
        for key, value in chosen.items():
            with naming(f"matrix.{key}: ", ValueError):
                matrix.choose(document, key, value)
        if "world" in document:
            document["world"] = resolved(document["world"], self.path.parent)
            document["load"] = loaded_share(document)
        if matrix.value_at(document, "target.cold") is True:
            document["drive"] = _without_warmup(document.get("drive", {}))
        taken = next((key for key in document if key in INTERNAL), None)
        if taken is not None:
            known = known_keys((), RunSpec, _PARTS, hidden=INTERNAL, more=sorted(SCENARIO_KEYS))
            raise UserMistake(f"{taken}: unknown key; known are {', '.join(known)}")
        whole = next((key for key in chosen if key in SCENARIO_KEYS), None)
        if whole is not None:
            raise UserMistake(f"matrix.{whole}: concerns all cells, so they cannot differ in it; take it out")
        labels = matrix.labels_of(chosen, document.get("target"))
        made = {
            "id": matrix.slug_of(labels, document.get("target")),
            "scenario": self.name,
            "labels": labels,
            "relative_start": units.is_relative_time(matrix.value_at(document, "world.start")),
        }
        if not document.get("op"):
            raise UserMistake("op: is missing; add [[op]] tables with write = POINTS or query = 'KIND'")
        try:
            cell = RunSpec.model_validate({**document, **made}, context=FILE)
        except ValidationError as error:
            raise UserMistake(explained(error)) from None
        if len(cell.id) > matrix.MAX_ID:
            text = f"a cell's name would have {len(cell.id)} characters, more than {matrix.MAX_ID}"
            raise UserMistake(f"matrix: {text}; use case = [{{name = '...', ...}}] to name cells")
        return cell.paced()


def loaded_share(document: Mapping[str, Any]) -> Any:
    """Return the [load] of a scenario; of a recording with the time that its share is of."""
    load, world, ops = (document.get(key, {}) for key in ("load", "world", "op"))
    described = world.get("described") if isinstance(world, dict) else None
    recording = () if described is None else described.recording
    if not isinstance(load, dict) or not recording or "window" in load:
        return load
    writes = isinstance(ops, list) and any(isinstance(op, dict) and "write" in op for op in ops)
    share = load.get("share", 0.8 if writes else 1.0)
    if not isinstance(share, int | float) or not 0 < share <= 1:
        return load
    recorded = prepared.recorded(recording)
    return {**load, "share": share, "window": f"{recorded.ticks_of(share) * recorded.interval_ns}ns"}


def _in_round(cell: RunSpec, number: int) -> RunSpec:
    """Return a cell as it is run in a round; repeats differ only in their label `round`."""
    labels = cell.labels or {"target": cell.id}
    return cell.model_copy(update={"id": f"{cell.id}{ROUND}{number}", "labels": {**labels, "round": str(number)}})


def explained(error: ValidationError) -> str:
    """Return a one-line message on the first error in the validation of a RunSpec."""
    return explain(error, RunSpec, _PARTS, hidden=INTERNAL, more=sorted(SCENARIO_KEYS))


def _without_warmup(drive: Any) -> Any:
    """Return a [drive] table without warm-up, unless it names one: then validation refuses it."""
    return {"warmup": 0, **drive} if isinstance(drive, dict) else drive


def _resolution_ns(cell: RunSpec) -> int:
    """Return the time resolution of the cell's target in ns; 1 for an unknown one, which `check_spec` refuses."""
    target = TARGETS.get(cell.target.name)
    return 1 if target is None else target.resolution_ns


def select(cells: Sequence[RunSpec], only: Sequence[str]) -> list[RunSpec]:
    """Return the cells that match a pattern: by id, else by `postgres*`, else by part of the id; all if none is given.

    Raises
    ------
    UserMistake
        If a pattern matches no cell; the text lists the ids.
    """
    ids = [cell.id for cell in cells]
    named: set[str] = set()
    for pattern in only:
        ids_of = {pattern} & {*ids} or {*fnmatch.filter(ids, pattern)} or {name for name in ids if pattern in name}
        if not ids_of:
            raise UserMistake(f"--only {pattern}: no such cell; there are {listed(ids)}")
        named |= ids_of
    return [cell for cell in cells if not only or cell.id in named]


def world(use_case: str, **keys: Any) -> World:
    """Return a simulated world by its use case, or its file, and the keys of [world], such as `scale` and `interval`.

    Raises
    ------
    ValueError
        If a key is unknown, or its value wrong.
    """
    return World(WorldPart.of(resolved({"use_case": use_case, **keys}, Path())).spec())


INTERNAL = {"id", "scenario", "labels", "relative_start", "resolution_ns", "block", "first_block"}
INTERNAL |= {"query_file", "steps", "pace"}
"""Fields of a RunSpec that files cannot set."""
SCENARIO_KEYS = {"matrix", "name", "claim", "figure", "knee", "repeat", "reuse", "search", "short"}
"""Keys of a file that concern all cells."""
_PARTS: dict[str, type[BaseModel]] = {
    "world": WorldPart,
    "load": LoadPart,
    "drive": DrivePart,
    "steps": Step,
    "op": Op,
    "query": QueryPart,
    "known": KnownPart,
    "event": EventPart,
    "check": CheckPart,
    "target": TargetPart,
    "server": ServerPart,
    "timeout": TimeoutPart,
}
