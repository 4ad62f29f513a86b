"""The first data of a run: those of a world, or the points of a file."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tsbench.encode.file_columns import Points, outline, read_points
from tsbench.encode.file_letters import Odd
from tsbench.encode.line_grammar import parse, unescaped
from tsbench.encode.point_files import Lines, good_part, opened, refused_line
from tsbench.errors import Broken
from tsbench.model import Field, Measurement, OpError
from tsbench.run import cleanup
from tsbench.run.bulk_load import BURST_POINTS, Piece, Shared, bulk_load, store
from tsbench.run.file_tables import Refused, Tables
from tsbench.run.time_limits import Deadline
from tsbench.scenario.spec import FileSpec
from tsbench.text import short_path
from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tsbench.encode.line_grammar import ParsedLine
    from tsbench.model import WriteMode
    from tsbench.run.trial import Trial
    from tsbench.targets.base import Command, Schema


def store_world(trial: Trial) -> None:
    """Store the first data of a world as [load] says; the specification then has the window that is stored."""
    spec = trial.of_world
    world, asked = spec.world_at(), spec.load
    ticks = world.ticks(asked.window)
    points, limit = world.count(None, 0, ticks), spec.pace.limit
    trial.progress.phase("load", min(points, limit) if points and limit else limit or points)
    deadline = None if asked.duration is None else Deadline(world, asked.duration / NS_PER_S)
    bulk_load(
        *(world, trial.parts.target, trial.parts.schema, trial.parts.server.endpoint),
        last_tick=ticks,
        workers=asked.workers,
        batch=asked.batch,
        mode=asked.mode,
        progress=trial.progress.advance,
        timeout=spec.timeout,
        deadline=deadline,
        pace=spec.pace,
        total=trial.total,
    )
    if deadline is not None and deadline.end_ns is not None:
        window = min(asked.window, deadline.end_ns - world.time_ns(0))
        trial.write_spec(spec.model_copy(update={"load": asked.model_copy(update={"window": window})}))


def store_file(trial: Trial) -> None:
    """Store the points of a file, and make the tables that it turns out to need."""
    spec, schema, pace = trial.spec, trial.parts.schema, trial.spec.pace
    assert isinstance(spec, FileSpec)  # noqa: S101 - the step asks
    trial.progress.phase("load", pace.limit)
    made = _Tables(spec, trial)
    with opened(spec.file.name) as blocks:
        batch, as_lines = spec.load.batch, schema.takes_lines and spec.file.unit_ns == 1
        points = read_points(blocks, batch if as_lines else _block(batch), pace.limit, columns=not as_lines)
        step_ns = trial.parts.target.resolution_ns
        tables = Tables(schema.nulls, schema.kinds, spec.file.unit_ns, step_ns, rounds=spec.file.round_times)
        source = FileSource(points, schema, spec.load.mode, batch, made.create, None if as_lines else tables)
        if as_lines:
            made.create_empty()
        source.begin()
        sources = [Shared(source)] * spec.load.workers
        progress, total = trial.progress.advance, trial.total
        try:
            store(sources, trial.parts.target, schema, trial.limits, progress=progress, pace=pace, total=total)
        finally:
            made.note(source.measurements())
    if not total.points:
        raise Broken(f"no point was stored: '{spec.file.name}' has none, or --duration was over before")


@contextmanager
def saying_what_is_left(trial: Trial) -> Iterator[None]:
    """Add to an interrupt or an error of a run that only loads what became of the points, and how to remove them."""
    if "drive" in trial.spec.steps:
        yield
        return

    def left(*, in_flight: bool = False) -> str:
        total, command = trial.total, f"tsbench cleanup {short_path(trial.run.path)}"
        if trial.progress.current != "load":
            return f"remove what was created with: {command}"
        said = [f"{total.points:,} points were acknowledged", f"{total.refused:,} refused" if total.refused else ""]
        if total.unknown or in_flight:
            said.append(f"and {f'{total.unknown:,} ' if total.unknown else ''}more may be stored")
        return f"{', '.join(filter(None, said))}; remove them with: {command}"

    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted by the user; {left(in_flight=True)}") from None
    except Broken as error:
        raise Broken(f"{error}; {left()}") from error


@dataclass(slots=True)
class _Tables:
    """Creates the tables that a file turns out to need, through a session of its own thread's."""

    spec: FileSpec
    trial: Trial
    created: bool = False

    def create_empty(self) -> None:
        """Create what points need that carry their names and tags; drop what an earlier load left."""
        self._run(self.trial.parts.schema.create((), {}))
        self._note_made()

    def create(self, tables: Tables, new: Sequence[Measurement], first: int) -> None:
        """Create the tables of new measurements, and the series from number `first` on."""
        schema = self.trial.parts.schema
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
            self._note_made()

    def note(self, measurements: Sequence[Measurement]) -> None:
        """Write the measurements into the specification, for whoever cleans up."""
        self.trial.write_spec(self.spec.with_measurements(measurements))

    def _note_made(self) -> None:
        cleanup.note_made(self.trial.run, self.trial.spec, self.trial.session)

    def _run(self, commands: Sequence[Command]) -> None:
        with self.trial.limits.step("create", "creating the tables") as timeout_s:
            self.trial.session.run(commands, timeout_s=timeout_s)


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
            return self.tables.whole_measurements()
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
            self._failure = refused_line(lines, refused.index, refused.why)
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
