"""The load of a file or of a simulated world as a run of its own: what `tsbench load` does."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from tsbench.encode.file_columns import Points, outline, read_points
from tsbench.encode.file_letters import Odd
from tsbench.encode.line_grammar import parse, unescaped
from tsbench.encode.point_files import Lines, good_part, not_a_line, opened
from tsbench.errors import Broken
from tsbench.model import Field, Measurement, OpError, Verdict
from tsbench.run import assessment, cleanup, preparation
from tsbench.run.assessment import Findings
from tsbench.run.bulk_load import (
    BURST_POINTS,
    UNLIMITED,
    Loaded,
    Pace,
    Piece,
    Shared,
    batch_pieces,
    mixed_batches,
    store,
)
from tsbench.run.file_tables import Refused, Tables
from tsbench.run.lifecycle import first_session, naming_death, real_parts, run_steps
from tsbench.run.preparation import create, expect_plausible
from tsbench.run.standing import Standing
from tsbench.scenario.spec import FileSpec, RunSpec
from tsbench.text import short_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tsbench.encode.line_grammar import ParsedLine
    from tsbench.model import WriteMode
    from tsbench.results.rundir import RunDir
    from tsbench.results.summary import Summary
    from tsbench.run.lifecycle import Parts
    from tsbench.run.phases import Phases, Progress
    from tsbench.run.time_limits import LimitedSession, Limits
    from tsbench.targets.base import Command, Schema


def load(
    spec: RunSpec | FileSpec,
    results: Path,
    progress: Progress,
    *,
    limit: int | None = None,
    pace: Pace = UNLIMITED,
) -> tuple[Summary, Standing]:
    """Store the points of a specification on its server, and return the summary and the server.

    The tables are made anew. `limit` is the largest number of points, `pace` how fast and how long to load. A world
    that is stored whole is kept for campaigns (`Standing.record`), by this process if the server is one of tsbench's.

    Raises
    ------
    KeyboardInterrupt
        With what is stored in its text.
    UserMistake
        If the file cannot be read or the server not be reached.
    """
    standing = Standing(results, stays=True)
    parts = partial(real_parts, spec, standing=standing)
    if isinstance(spec, RunSpec):
        standing.share(spec, ())
    summary = run_steps(spec, results, progress, _Steps(spec, limit, pace, standing), parts, standing)
    standing.keep()
    return summary, standing


@dataclass(slots=True)
class _Steps:
    """The steps of a load, as a method section would list them."""

    spec: RunSpec | FileSpec
    limit: int | None
    pace: Pace
    standing: Standing
    total: Loaded = field(default_factory=Loaded)

    def __call__(self, run: RunDir, parts: Parts, phases: Phases) -> Summary:
        spec, schema = self.spec, parts.schema
        phases.phase("start")
        parts.server.start()
        with naming_death(parts), first_session(run, spec, parts) as (session, limits):
            try:
                if isinstance(spec, RunSpec):
                    measurements = self._of_world(spec, run, parts, phases, session, limits)
                else:
                    measurements = self._of_file(spec, run, parts, phases, session, limits)
            except KeyboardInterrupt:
                raise KeyboardInterrupt(f"interrupted by the user; {self._left(run, in_flight=True)}") from None
            except Broken as error:
                raise Broken(f"{error}; {self._left(run)}") from error
            phases.phase("settle")
            limits.settle(session, schema, measurements)
            stored = expect_plausible(session, schema, measurements, self.total.points)
        figures = self.total.figures(workers=spec.load.workers, batch=spec.load.batch, mode=spec.load.mode)
        heading = preparation.heading(run, spec, parts.target, schema)
        heading |= dict.fromkeys(("loop", "users", "processes"))  # nobody drives a load
        writes = Findings(checks={"writes": Verdict(True, "", {"acknowledged": self.total.points})})
        summary = assessment.conclude(run, spec, {**heading, "load": figures}, writes, phases)
        if isinstance(spec, RunSpec) and self.limit is None and self.pace.duration_s is None:
            self.standing.end(run, figures, summary, stored=stored, needs=("writes",))
        return summary

    def _left(self, run: RunDir, *, in_flight: bool = False) -> str:
        """Return what became of the points, and how to remove those that are stored."""
        total = self.total
        said = [f"{total.points:,} points were acknowledged", f"{total.refused:,} refused" if total.refused else ""]
        if total.unknown or in_flight:
            said.append(f"and {f'{total.unknown:,} ' if total.unknown else ''}more may be stored")
        return f"{', '.join(filter(None, said))}; remove them with: tsbench cleanup {short_path(run.path)}"

    def _of_world(
        self, spec: RunSpec, run: RunDir, parts: Parts, phases: Phases, session: LimitedSession, limits: Limits
    ) -> Sequence[Measurement]:
        world = spec.world_at()
        create(session, parts.schema, world, limits)
        cleanup.note_made(run, spec, session)
        ticks = world.ticks(spec.load.window)
        points = world.count(None, 0, ticks)
        phases.phase("load", min(points, self.limit) if points and self.limit else self.limit or points)
        # In the order of `tsbench generate`, so that a world is the same points by either road.
        batches = mixed_batches(world, range(world.spec.streams), points=spec.load.batch, first_tick=0, last_tick=ticks)
        self._store(batch_pieces(batches, parts.schema, spec.load.mode, self.limit), parts, phases, limits)
        return world.measurements

    def _of_file(
        self, spec: FileSpec, run: RunDir, parts: Parts, phases: Phases, session: LimitedSession, limits: Limits
    ) -> Sequence[Measurement]:
        phases.phase("load", self.limit)
        made = _Tables(spec, run, session, parts, limits)
        with opened(spec.file.name) as blocks:
            batch, as_lines = spec.load.batch, parts.schema.takes_lines and spec.file.unit_ns == 1
            points = read_points(blocks, batch if as_lines else _block(batch), self.limit, columns=not as_lines)
            tables = Tables(parts.schema.nulls, parts.schema.kinds, spec.file.unit_ns)
            source = FileSource(points, parts.schema, spec.load.mode, batch, made.create, None if as_lines else tables)
            if as_lines:
                made.create_empty()
            source.begin()
            try:
                self._store(source, parts, phases, limits)
            finally:
                made.note(source.measurements())
        if not self.total.points:
            raise Broken(f"no point was stored: '{spec.file.name}' has none, or --duration was over before")
        return source.measurements()

    def _store(self, pieces: Iterator[Piece], parts: Parts, phases: Phases, limits: Limits) -> None:
        sources = [Shared(pieces)] * self.spec.load.workers
        store(sources, parts.target, parts.schema, limits, progress=phases.advance, pace=self.pace, total=self.total)


@dataclass(slots=True)
class _Tables:
    """Creates the tables that a file turns out to need, through a session of its own thread's."""

    spec: FileSpec
    run: RunDir
    session: LimitedSession
    parts: Parts
    limits: Limits
    created: bool = False

    def create_empty(self) -> None:
        """Create what points need that carry their names and tags; drop what an earlier load left."""
        self._run(self.parts.schema.create((), {}))
        cleanup.note_made(self.run, self.spec, self.session)

    def create(self, tables: Tables, new: Sequence[Measurement], first: int) -> None:
        """Create the tables of new measurements, and the series from number `first` on."""
        schema, session = self.parts.schema, self.session
        if not self.created:
            empty = {tag: replace(codes, codes=codes.codes[:0], values=()) for tag, codes in tables.tags().items()}
            # All is compiled before anything is dropped: what cannot be created is refused here.
            create, series = schema.create(new, empty), schema.extend((), tables.tags(), 0)
            self._run(schema.drop(new))
            self._run(create)
            self._run(series)  # in which "" is a tag that a series lacks
            self.created = True
        else:
            self._run(schema.extend(new, tables.tags(first), first))
        if new:
            self.note(tables.measurements)
            cleanup.note_made(self.run, self.spec, session)

    def note(self, measurements: Sequence[Measurement]) -> None:
        """Write the measurements into the specification, for whoever cleans up."""
        self.spec = self.spec.with_measurements(measurements)
        self.run.write_json("spec.json", self.spec.model_dump(mode="json", by_alias=True))

    def _run(self, commands: Sequence[Command]) -> None:
        with self.limits.step("create", "creating the tables") as timeout_s:
            self.session.run(commands, timeout_s=timeout_s)


def _block(batch: int) -> int:
    """Return the number of lines to read at once, so that batches of some measurements get enough points each."""
    return max(batch, min(BURST_POINTS, 8 * batch))


# --- sources of a load ------------------------------------------------------------------------------------------------


class FileSource:
    """The pieces of a file, in its order, of at most `batch` points each.

    `create` is called before the first batch that needs new tables or series: with the tables, the measurements that
    are new, and the number of series that were known before. Without `tables` lines are sent as they are.
    """

    def __init__(
        self,
        lines: Iterator[Lines | Points],
        schema: Schema,
        mode: WriteMode,
        batch: int,
        create: Callable[[Tables, Sequence[Measurement], int], None],
        tables: Tables | None,
    ) -> None:
        self._lines, self._schema, self._mode, self._batch, self._create = lines, schema, mode, batch, create
        self._ready: list[Piece] = []
        self._failure: Exception | None = None
        self._made: set[str] = set()
        self._made_series = 0
        self.tables = tables
        self.names: dict[str, str] = {}
        """The first field of each measurement of lines that are sent as they are."""

    def measurements(self) -> tuple[Measurement, ...]:
        """Return the measurements so far; of lines that are sent as they are, only their names and a field."""
        if self.tables is not None:
            return self.tables.measurements
        return tuple(Measurement(name, (), (Field(first),)) for name, first in self.names.items())

    def __iter__(self) -> FileSource:
        return self

    def __next__(self) -> Piece:
        self.begin()
        if not self._ready and self._failure is not None:
            raise self._failure
        return self._ready.pop(0)

    def begin(self) -> None:
        """Read the first lines, so that the first tables exist, which sessions may need."""
        while not self._ready and self._failure is None:
            self._read()

    def _read(self) -> None:
        """Read the next lines; an error is raised when those before it have been handed out."""
        try:
            lines = next(self._lines)
            if self.tables is not None:
                self._ready += self._parsed(self.tables, lines)
                return
            assert isinstance(lines, Lines)  # noqa: S101 - nobody has read them by columns
            try:
                contents = _plain_contents(lines)
            except Odd:
                lines, parsed, self._failure = good_part(lines)
                contents = _contents(parsed)
            if lines.count:
                self._ready += self._sent_as_they_are(lines, *contents)
        except Exception as error:  # noqa: BLE001 - raised by `__next__`, also the end
            self._failure = error

    def _sent_as_they_are(self, lines: Lines, firsts: dict[str, int], values: int) -> list[Piece]:
        for name in firsts.keys() - self.names.keys():
            self.names[name] = parse(lines.split()[firsts[name]]).names[0]
        encode = partial(self._schema.encode_lines, lines.data, lines.count)
        return [Piece(encode, lines.count, values, partial(self._explained, lines), lines.first)]

    def _explained(self, lines: Lines, error: Exception) -> tuple[Piece | None, Exception]:
        """Return what to do about lines that the database refuses: the part before the first one that is none."""
        if not isinstance(error, OpError) or error.cause not in {"data", "partial write"}:
            return None, error
        before, parsed, problem = good_part(lines)
        if problem is None:
            last = lines.first + lines.count - 1
            return None, OpError(error.outcome, error.cause, f"lines {lines.first:,} to {last:,}: {error}")
        values = _contents(parsed)[1]
        encode = partial(self._schema.encode_lines, before.data, before.count)
        return Piece(encode, before.count, values, number=lines.first), problem

    def _parsed(self, tables: Tables, lines: Lines | Points) -> list[Piece]:
        try:
            batches = tables.batches(lines)
        except Refused as refused:
            if isinstance(lines, Points):
                return self._parsed(tables, lines.as_lines())
            self._failure = not_a_line(lines, refused.index, refused.why)
            return self._parsed(tables, lines.until(refused.index)) if refused.index else []
        new = [m for m in tables.measurements if m.name not in self._made]
        if new or len(tables.series) > self._made_series:
            self._create(tables, new, self._made_series)
            self._made |= {m.name for m in new}
            self._made_series = len(tables.series)
        starts = ((b, start) for b in batches for start in range(0, len(b), self._batch))
        some = [b.rows(start, start + self._batch) for b, start in starts]
        return [Piece(partial(self._schema.encode, b, self._mode), len(b), b.values) for b in some]


def _plain_contents(lines: Lines) -> tuple[dict[str, int], int]:
    """Return the same as `_contents`, of lines in the plain form only; raises `Odd` for others."""
    form = outline(lines)
    return {unescaped(name): i for name, i in form.names().items()}, int(form.counts.sum())


def _contents(lines: Sequence[ParsedLine]) -> tuple[dict[str, int], int]:
    """Return the index of a line of each measurement, and the number of field values of all lines."""
    return {line.measurement: i for i, line in enumerate(lines)}, sum(len(line.names) for line in lines)
