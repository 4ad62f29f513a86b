"""Files with a world's points, for other tools and for inspection."""

from __future__ import annotations

import errno
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeAlias

import zstandard

from tsbench.encode import csv, line_protocol, pgcopy
from tsbench.errors import Broken, UserMistake
from tsbench.workload.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from tsbench.model import Batch, Measurement
    from tsbench.workload.world import WorldSpec

Chunks: TypeAlias = "Iterable[bytes | memoryview]"

# Rows of a batch: enough to amortise the cost of a batch, few enough that memory hardly grows with the scale.
_ROWS = 30_000


@dataclass(frozen=True, slots=True)
class Format:
    """A file format for points. A `table` holds a single measurement."""

    table: bool
    begin: Callable[[Measurement], bytes]
    chunks: Callable[[Batch], Chunks]
    end: bytes


def _pgcopy_rows(batch: Batch) -> Chunks:
    stream = pgcopy.encode(batch, extra_json=bool(batch.measurement.own_tags))
    yield memoryview(stream)[len(pgcopy.HEADER) : -len(pgcopy.TRAILER)]


def _line_chunks(batch: Batch) -> Chunks:
    return (block.data for block in line_protocol.blocks(batch))


def _csv_chunks(batch: Batch) -> Chunks:
    return (block.data for block in csv.blocks(batch))


FORMATS: dict[str, Format] = {
    "influx": Format(False, lambda _: b"", _line_chunks, b""),
    "csv": Format(True, csv.header, _csv_chunks, b""),
    "pgcopy": Format(True, lambda _: pgcopy.HEADER, _pgcopy_rows, pgcopy.TRAILER),
}


@dataclass(frozen=True, slots=True)
class GenerateResult:
    """Numbers of points, values and bytes written; `nbytes` counts before compression."""

    points: int
    values: int
    nbytes: int
    seconds: float


def generate(
    spec: WorldSpec,
    end_ns: int,
    format: str,  # noqa: A002 - its name on the command line
    out: IO[bytes],
    progress: Callable[[int], None] = lambda _: None,
    *,
    measurement: str | None = None,
) -> GenerateResult:
    """Write the points of a world from its start to `end_ns` (excluded).

    Parameters
    ----------
    spec
        The world. Of several streams, batches are taken in turn.
    end_ns
        UTC nanoseconds since 1970.
    format
        `influx` (line protocol), `csv` (with a header) or `pgcopy` (a PostgreSQL binary COPY stream of the columns that
        `encode.pgcopy` documents). The latter two are tables, so they hold one measurement.
    out
        The file to write; see `output`.
    progress
        Function that is called with the number of points written since the last call.
    measurement
        The only one to write; None means all.

    Raises
    ------
    UserMistake
        If the spec, the end, the format or the choice of measurement is invalid.
    OSError
        If `out` does not take the bytes; inside `output` that becomes `Broken`.
    """
    started = time.perf_counter()
    form, world, last_tick, chosen = checked(spec, end_ns, format, measurement)
    points = values = 0
    head = form.begin(chosen[0])
    out.write(head)
    nbytes = len(head) + len(form.end)
    for batch in _batches(world, last_tick, [m.name for m in chosen]):
        for chunk in form.chunks(batch):
            out.write(chunk)
            nbytes += len(chunk)
        points += len(batch)
        values += batch.values
        progress(len(batch))
    out.write(form.end)
    return GenerateResult(points, values, nbytes, time.perf_counter() - started)


def checked(
    spec: WorldSpec, end_ns: int, format_name: str, measurement: str | None
) -> tuple[Format, World, int, list[Measurement]]:
    """Validate the arguments of `generate` and return the objects that it needs.

    Raises
    ------
    UserMistake
        If the spec, the end, the format or the choice of measurement is invalid.
    """
    form = FORMATS.get(format_name)
    if form is None:
        raise UserMistake(f"there is no format '{format_name}'; there are {', '.join(FORMATS)}")
    try:
        world = World(spec)
    except ValueError as mistake:
        raise UserMistake(str(mistake)) from None
    if end_ns <= spec.start_ns:
        raise UserMistake("the end is not after the start: there is nothing to generate; give a later --end")
    chosen = [m for m in world.measurements if measurement in {None, m.name}]
    names = ", ".join(m.name for m in world.measurements)
    if not chosen:
        raise UserMistake(f"'{spec.use_case}' has no measurement '{measurement}'; it has {names}")
    if form.table and len(chosen) > 1:
        raise UserMistake(f"a {format_name} file is one table: choose one measurement of {names} with --measurement")
    return form, world, world.ticks(end_ns - spec.start_ns), chosen


def _batches(world: World, last_tick: int, names: Collection[str]) -> Iterator[Batch]:
    series = -(-world.spec.scale // world.spec.streams)
    # Whole ticks where they fit: then no batch is pieced together from two computations.
    points = max(1, _ROWS // series) * series if series < 2 * _ROWS else _ROWS
    turns = [
        world.batches(stream, points=points, last_tick=last_tick, only=names) for stream in range(world.spec.streams)
    ]
    while turns:
        unfinished = []
        for batches in turns:
            batch = next(batches, None)
            if batch is not None:
                yield batch
                unfinished.append(batches)
        turns = unfinished


@contextmanager
def output(path: str) -> Iterator[IO[bytes]]:
    """Open a file to generate into: `-` is standard output, and a name that ends in `.zst` is compressed.

    Raises
    ------
    UserMistake
        If the file cannot be opened.
    Broken
        If a write fails, because the disk is full or the reader has gone. The message is one line.
    """
    name = "standard output" if path == "-" else f"'{path}'"
    try:
        raw = _open(path)
    except OSError as error:
        raise UserMistake(f"cannot write {name}: {error.strerror}") from None
    try:
        with raw:
            if path.endswith(".zst"):
                # One thread for zstd: it compresses while this thread generates.
                compressor = zstandard.ZstdCompressor(level=3, threads=1)
                with compressor.stream_writer(raw, closefd=False) as compressed:
                    yield compressed
            else:
                yield raw
    except BrokenPipeError:
        raise Broken(f"{name}: its reader went away before the end") from None
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        what = "the disk is full" if full else str(error.strerror)
        raise Broken(f"{name} is incomplete: {what}") from None


def _open(path: str) -> IO[bytes]:
    if path == "-":
        return open(sys.stdout.fileno(), "wb", closefd=False)
    return Path(path).open("wb")
