"""Files with a world's points, for other tools and for inspection."""

from __future__ import annotations

import errno
import os
import sys
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tsbench.encode.formats import FORMATS
from tsbench.encode.point_files import enlarge
from tsbench.errors import Broken, UserMistake, require
from tsbench.text import listed
from tsbench.workload.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from contextlib import AbstractContextManager

    from tsbench.encode.formats import Format
    from tsbench.model import Batch, Measurement
    from tsbench.scenario.spec import RunSpec
    from tsbench.workload.world import WorldSpec

# Rows of a batch: enough to amortise the cost of a batch, few enough that memory hardly grows with the scale.
_ROWS = 30_000


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
        `influx` (line protocol), `csv` (with a header), `parquet`, or `pgcopy` (a PostgreSQL binary COPY stream of the
        columns that `encode.pgcopy` documents). All but the first are tables, so they hold one measurement.
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
    points = values = nbytes = 0

    def counted() -> Iterator[Batch]:
        nonlocal points, values
        for batch in _batches(world, last_tick, [m.name for m in chosen]):
            yield batch
            points += len(batch)
            values += batch.values
            progress(len(batch))

    for chunk in form.chunks(chosen[0], counted()):
        out.write(chunk)
        nbytes += len(chunk)
    return GenerateResult(points, values, nbytes, time.perf_counter() - started)


def loaded_by(cells: Sequence[RunSpec]) -> tuple[WorldSpec, int]:
    """Return the world of a scenario's runs and the end of its initial load, for `generate`.

    Raises
    ------
    UserMistake
        If the runs do not load the same points.
    """
    loads = {(cell.world.spec(), cell.load.window): cell.id for cell in cells}
    if len(loads) > 1:
        ids = listed([*loads.values()])
        raise UserMistake(f"the scenario's runs load different points; choose one with --only; there are {ids}")
    ((world, window_ns),) = loads
    return world, world.start_ns + window_ns


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
def output(path: str, *, force: bool = False) -> Iterator[IO[bytes]]:
    """Open a file to generate into: `-` is standard output, and a name that ends in `.zst` is compressed.

    A file gets its name when it is complete, `<name>.partial` until then; after an error or an interrupt it is deleted.
    Devices and pipes are written directly; a pipe's reader must be there.

    Raises
    ------
    UserMistake
        If the file exists (unless `force`), cannot be opened, or the package that compresses is not installed.
    Broken
        If a write fails, because the disk is full or the reader has gone. The message is one line.
    """
    name = "standard output" if path == "-" else f"'{path}'"
    if path.endswith(".zst"):
        require("zstandard", "zstd")
    final = _regular(path)
    if final is not None and final.exists() and not force:
        raise UserMistake(f"{name} exists; choose another --out, or replace it with --force")
    partial = final.with_name(f"{final.name}.partial") if final is not None else None
    try:
        raw = _open(path) if partial is None else partial.open("wb")
    except OSError as error:
        alone = "nobody reads from it; start its reader first" if error.errno == errno.ENXIO else error.strerror
        raise UserMistake(f"cannot write {name}: {alone}") from None
    try:
        with raw, _compressed(raw) if path.endswith(".zst") else nullcontext(raw) as out:
            yield out
        if final is not None and partial is not None:
            partial.replace(final)
    except BrokenPipeError:
        raise Broken(f"{name}: its reader went away before the end") from None
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        what = "the disk is full" if full else str(error.strerror)
        raise Broken(f"{name} {'is incomplete' if partial is None else 'was not written'}: {what}") from None
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)


def _regular(path: str) -> Path | None:
    """Return the file that a name stands for, None for standard output, a device or a pipe."""
    file = Path(path)
    if path == "-" or (file.exists() and not file.is_file()):
        return None
    return file.resolve()  # of a link, the file is replaced and not the link


def _compressed(raw: IO[bytes]) -> AbstractContextManager[IO[bytes]]:
    import zstandard  # noqa: PLC0415 - an extra

    # One thread of zstd's own: it compresses while this one generates.
    writer: AbstractContextManager[IO[bytes]] = zstandard.ZstdCompressor(level=3, threads=1).stream_writer(
        raw, closefd=False
    )
    return writer


def _open(path: str) -> IO[bytes]:
    if path == "-" and sys.stdout is None:
        raise OSError(errno.EBADF, "it is closed")
    if path == "-":
        raw = open(sys.stdout.fileno(), "wb", closefd=False)  # noqa: SIM115 - the caller closes it
    else:
        raw = open(path, "wb", opener=_open_at_once)  # noqa: SIM115 - as before
        os.set_blocking(raw.fileno(), True)
    enlarge(raw.fileno())
    return raw


def _open_at_once(path: str, flags: int) -> int:
    """Open without waiting for the reader of a pipe, who may never come."""
    return os.open(path, flags | os.O_NONBLOCK)
