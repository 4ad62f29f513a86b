"""Writing of collectors' rows into a run directory, on its time axis; and of sysstat's files, afterwards."""

from __future__ import annotations

import math
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from tsbench.collect import sysstat
from tsbench.collect.counters import CounterCollector
from tsbench.collect.processes import HostCollector, NodesCollector, ServerCollector
from tsbench.errors import Broken, UserMistake, missing, typed_line
from tsbench.results.json_files import read_part
from tsbench.results.manifest import Manifest
from tsbench.results.panels import FILE as PANELS_FILE
from tsbench.results.process import TIMES, Times
from tsbench.results.reading import TABLES, keeps_tables
from tsbench.results.rundir import COLLECTED, RunDir, find_runs
from tsbench.text import listed
from tsbench.units import NS_PER_S, format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import polars as pl

    from tsbench.collect.counters import Source
    from tsbench.collect.processes import Tree
    from tsbench.collect.sampler import Collector, Row

_AT_ONCE = 50_000
COUNTERS_TIMEOUT_S = 10.0
"""How long the server's counters are waited for, each time."""


def collectors_for(
    run: RunDir,
    server: Callable[[], Sequence[int]],
    sources: Callable[[], Sequence[Source]],
    client: Tree | None = None,
    nodes: Mapping[str, Callable[[], Sequence[int]]] | None = None,
) -> tuple[Collector, ...]:
    """Return all collectors of a run: host, load processes (`client`), server, its several `nodes`, counters, sar."""
    return (
        *([NodesCollector(nodes)] if nodes else ()),
        HostCollector(client),
        ServerCollector(server),
        CounterCollector(sources, run / PANELS_FILE),
        sysstat.SarCollector(run / "sar.data"),
    )


@contextmanager
def watching(run: RunDir, collectors: Sequence[Collector]) -> Iterator[None]:
    """Run collectors during a `with` block, then write their rows on the measured window's time axis."""
    troubles: list[str] = []
    with ExitStack() as stack:  # each one is stopped, also if the rows of another cannot be written
        if not keeps_tables():
            troubles.append(f"no tables of seconds were kept: {listed(missing(TABLES))} not installed")
        stack.callback(lambda: warn(run, [*troubles, *(one.trouble for one in collectors if one.trouble)]))
        for collector in collectors:
            stack.enter_context(_collecting(run, collector, troubles))
        yield


@contextmanager
def _collecting(run: RunDir, collector: Collector, troubles: list[str]) -> Iterator[None]:
    """Run one collector. No figure depends on its rows, so an error that it did not expect is only a warning."""
    rows: Sequence[Mapping[str, float | str]] = ()
    try:
        collector.start()
    except Exception as error:  # noqa: BLE001 - see above
        troubles.append(f"the collector '{collector.name}' could not begin: {typed_line(error)}")
    try:
        yield
    finally:
        try:
            rows = collector.stop()
        except Exception as error:  # noqa: BLE001 - as before
            troubles.append(f"the collector '{collector.name}' did not end well: {typed_line(error)}")
        write_rows(run, collector.name, rows)


def write_rows(run: RunDir, name: str, rows: Sequence[Mapping[str, float | str]]) -> None:
    """Write a collector's rows as `<name>.parquet`; seconds count from the start of the measured window."""
    if not keeps_tables():
        return
    from tsbench.results.tables import write_parquet  # noqa: PLC0415 - load workers do without polars

    clock = _clock(run)
    write_parquet(_frame(name, rows, 0.0 if clock is None else clock.start_s), run / f"{name}.parquet")


def warn(run: RunDir, texts: Sequence[str]) -> None:
    """Add warnings to the manifest, where the report finds them."""
    if texts and (manifest := Manifest.read(run)) is not None:
        manifest.with_warnings(texts).write(run)


@dataclass(frozen=True, slots=True)
class Attached:
    """The time of a run that a recorded file covers."""

    cell: str
    host: str
    covered_s: float
    whole_s: float


def attach_sar(results: Path, file: Path, *, host: str | None = None, ahead_s: float | None = None) -> list[Attached]:
    """Add rows that sysstat recorded elsewhere to the runs of the same time, in their sar.parquet.

    Parameters
    ----------
    results
        The directory of a result set or of one run.
    file
        A binary file of sadc, or the output of `sadf -j` or `sadf -d`. Rows are joined with existing ones of the same
        host and time: one file for CPU and another for disks is fine.
    host
        Name of the machine, instead of the one in the file.
    ahead_s
        Seconds by which the printed times are ahead of UTC, if they are local.

    Raises
    ------
    UserMistake
        If the file cannot be read, or overlaps no run in time.
    """
    rows = sysstat.read(file, ahead_s=ahead_s)
    if host is not None:
        if len({row["host"] for row in rows}) > 1:
            raise UserMistake(f"{file}: has several hosts, which cannot all be {host}; leave --host out")
        rows = [{**row, "host": host} for row in rows]
    runs = {run: clock for run in find_runs(results) if (clock := _clock(run)) is not None}
    if not runs:
        raise UserMistake(f"{results}: has no measured run, so nothing can be attached")
    done = [attached for run, clock in runs.items() for attached in _attach(run, clock, rows)]
    if not done:
        raise UserMistake(_no_overlap(results, file, rows, list(runs.values())))
    return done


def _attach(run: RunDir, clock: Times, rows: Sequence[Row]) -> list[Attached]:
    import polars as pl  # noqa: PLC0415 - load workers do without

    from tsbench.results.tables import read_frame, write_parquet  # noqa: PLC0415

    go_s, end_s = clock.go_s, clock.end_s
    inside = [row for row in rows if _covered_s([row], go_s, end_s) > 0]
    if not inside:
        return []
    new = _frame("sar", inside, clock.start_s)
    path = run / "sar.parquet"
    try:
        old = read_frame(path, COLLECTED["sar"]) if path.exists() else new.clear()
        joined = pl.concat([new, old]).group_by("second", "host").agg(pl.all().drop_nulls().first())
        write_parquet(joined.select(list(COLLECTED["sar"])).sort("host", "second"), path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise Broken(f"cannot write {path}: {error}") from None
    hosts = sorted({str(row["host"]) for row in inside})
    covered = {host: _covered_s([row for row in inside if row["host"] == host], go_s, end_s) for host in hosts}
    return [Attached(run.cell_id, host, covered_s, end_s - go_s) for host, covered_s in covered.items()]


def _clock(run: RunDir) -> Times | None:
    """Return the start of the load, and start and end of the measured window; None if nothing was measured."""
    return read_part(run / TIMES, Times) if run.has(TIMES) else None


def _covered_s(rows: Sequence[Row], begin_s: float, end_s: float) -> float:
    stretches = {(float(row["second"]), float(row["interval_s"])) for row in rows}
    return sum(max(0.0, min(begin + length, end_s) - max(begin, begin_s)) for begin, length in stretches)


def _no_overlap(results: Path, file: Path, rows: Sequence[Row], clocks: Sequence[Times]) -> str:
    """Return an error message for a sar file that does not overlap the runs in time, with the likely cause."""
    first = min(float(row["second"]) for row in rows)
    last = max(float(row["second"]) + float(row["interval_s"]) for row in rows)
    begin, end = min(clock.go_s for clock in clocks), max(clock.end_s for clock in clocks)
    text = f"{file} covers {_span(first, last)}, but the runs in {results} lasted {_span(begin, end)}"
    for hours in sorted(range(-14, 15), key=abs):
        if first + hours * 3_600 < end and last + hours * 3_600 > begin:
            return f"{text}; they would overlap if its times were {-hours:+d} h ahead of UTC: check that clock"
    return f"{text}; give the file of that day"


def _span(first_s: float, last_s: float) -> str:
    return f"from {format_time(round(first_s) * NS_PER_S)} to {format_time(round(last_s) * NS_PER_S)}"


def _frame(name: str, rows: Sequence[Mapping[str, float | str]], zero_s: float) -> pl.DataFrame:
    import polars as pl  # noqa: PLC0415 - load workers do without

    from tsbench.results.tables import frame  # noqa: PLC0415

    def shifted(row: Mapping[str, float | str]) -> dict[str, Any]:
        known = {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in row.items()}
        return {**known, "second": float(row["second"]) - zero_s}

    source, parts = map(shifted, rows), [frame([], COLLECTED[name])]
    while some := [*islice(source, _AT_ONCE)]:  # all of a long run at once would take ten times the memory
        parts.append(frame(some, COLLECTED[name]))
    return pl.concat(parts)
