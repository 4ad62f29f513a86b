"""The command that describes recorded data as a use case: learn."""

from __future__ import annotations

from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from tsbench.cli.output import stderr, stdout
from tsbench.errors import UserMistake, require
from tsbench.text import suggestion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tsbench.scenario.learning import FieldSummary, Learned
    from tsbench.scenario.own_queries import QueryPart

OfTimes = Annotated[str | None, typer.Option(help="Column of times. Default: the one that looks like it.")]
OfZone = Annotated[str, typer.Option(help="Zone of times that have none, such as Europe/Berlin.")]
OfForm = Annotated[str | None, typer.Option(help="Form of times that are no ISO 8601, such as '%d/%m/%Y %H:%M'.")]


def learn(
    file: Annotated[Path | None, typer.Argument(help="CSV or line protocol (.gz or .zst, too), or Parquet.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Use case to write, such as meters.toml; else it is printed.")
    ] = None,
    time: OfTimes = None,
    key: Annotated[str | None, typer.Option(help="Column that names the series. Default: guessed.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Further columns that are tags.")] = None,
    zone: OfZone = "UTC",
    time_format: OfForm = None,
    measurement: Annotated[
        str | None, typer.Option(help="Of line protocol, the measurement to describe. Default: that of the first line.")
    ] = None,
    rows: Annotated[int, typer.Option(min=2, max=50_000_000, help="Rows to read, from the beginning.")] = 2_000_000,
    hashed: Annotated[
        bool, typer.Option("--hash", help="Number the values of tags and texts in place of their names.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    dashboard: Annotated[
        Path | None, typer.Option(help="A dashboard of Grafana (JSON): write a scenario that asks its queries.")
    ] = None,
    use_case: Annotated[str | None, typer.Option(help="The data that a dashboard is to ask about.")] = None,
    longest: Annotated[str, typer.Option("--window", help="Longest window of a dashboard's queries.")] = "6h",
) -> None:
    """Describe recorded data as a use case that simulates them, or a dashboard as a scenario that asks its queries."""
    if dashboard is not None:
        _learn_dashboard(dashboard, use_case, longest, out, force=force)
        return
    if file is None or use_case is not None:
        raise UserMistake("give a FILE of recorded data, or --dashboard and --use-case")
    require("polars", "report")
    from tsbench.scenario import learning
    from tsbench.scenario.recorded_files import is_lines, measurements_and_tags
    from tsbench.scenario.recording import read, recording

    expect_writable(out, force=force)
    known = measurements_and_tags(file, rows) if is_lines(file) else {}
    chosen = measurement or next(iter(known), "")
    if measurement is not None and measurement not in known:
        raise UserMistake(f"--measurement: {file} has no '{measurement}'; {suggestion(measurement, known)}")
    name = chosen or file.name.split(".")[0]
    lines = (chosen, known[chosen]) if known and key is None and not tag else None
    given = recording(
        read(file, rows, chosen), time=time, key=key, tags=tag or [], zone=zone, form=time_format, lines=lines
    )
    learned = learning.learn(name, given, hashed=hashed)
    if out is None:
        stdout.print(learned.text, markup=False, highlight=False, soft_wrap=True, end="")
    else:
        out.write_text(learned.text, encoding="utf-8")
    stderr.print(_fidelity(learned))
    notes = [f"{given.dropped:,} rows have no time or series and are left out"] if given.dropped else []
    if len(known) > 1:
        notes.append(f"only {chosen} is described, of {', '.join(known)}; --measurement chooses another one")
    if len(given.frame) + given.dropped == rows:
        notes.append(f"the first {rows:,} rows were read; --rows reads more")
    if out is not None:
        notes.append(f"look through {out}, then: tsbench check {out}")
    for note in notes:
        stderr.print(note, markup=False, highlight=False, soft_wrap=True)


def _learn_dashboard(path: Path, use_case: str | None, longest: str, out: Path | None, *, force: bool) -> None:
    """Write a scenario that asks a dashboard's queries, and say which were not understood."""
    from tsbench.check.own_texts import empty_gold
    from tsbench.cli.generate import parsed
    from tsbench.model import Window
    from tsbench.scenario.dashboards import Known, learn_dashboard, read_dashboard
    from tsbench.scenario.own_queries import tags_of, with_queries
    from tsbench.scenario.parts import WorldPart
    from tsbench.scenario.use_case import resolved
    from tsbench.scenario.validation import decimals_for
    from tsbench.targets.base import Unsupported
    from tsbench.targets.registry import TARGETS
    from tsbench.units import parse_duration_ns
    from tsbench.workload import queries
    from tsbench.workload.world import World, layouts_of

    expect_writable(out, force=force)
    if use_case is None:
        raise UserMistake("--dashboard needs --use-case: a name of `tsbench list use-cases`, or a file of yours")
    longest_ns = parsed("--window", longest, parse_duration_ns)
    content = read_dashboard(path)
    try:
        spec = WorldPart.of(resolved({"use_case": use_case}, Path())).spec()
        world = World(spec)
    except ValueError as error:
        raise UserMistake(f"--use-case {use_case}: {error}") from None
    gold = cache(partial(empty_gold, world, world.measurements))  # of an extra, that only SQL needs

    def targets(asked: QueryPart) -> list[str]:
        """Return the databases whose first layout understands a query."""
        loaded = Window(world.time_ns(0), world.time_ns(world.ticks(2 * longest_ns)))
        made = queries.make(asked.name, World(with_queries(spec, [asked])), loaded, 1, 0)
        names = []
        for name, target in TARGETS.items():
            with suppress(Unsupported):
                next(iter(target.schemas.values())).compile(made)
                names.append(name)
        return names

    def decimals(names: Sequence[str]) -> int | None:
        return decimals_for(world, (next(iter(TARGETS[name].schemas.values())) for name in names))

    known = Known(layouts_of(spec), tags_of(spec.case), lambda text: gold().columns(text), targets, decimals)
    learned = learn_dashboard(content, known, use_case, longest_ns)
    if gold.cache_info().currsize:
        gold().close()
    if out is None:
        stdout.print(learned.text, markup=False, highlight=False, soft_wrap=True, end="")
    else:
        out.write_text(learned.text, encoding="utf-8")
    many = len(learned.queries) + len(learned.left_out)
    stderr.print(f"{len(learned.queries)} of {many} queries are asked", highlight=False)
    for line in learned.left_out:
        stderr.print(f"not asked: {line}", markup=False, highlight=False, soft_wrap=True)


def expect_writable(out: Path | None, *, force: bool) -> None:
    """Verify that a use case can be written to `out`.

    Raises
    ------
    UserMistake
        If it is no .toml file, has a built-in one's name, or exists (unless `force`).
    """
    from tsbench.workload.world import BUILT_IN

    if out is not None and out.suffix != ".toml":
        raise UserMistake(f"--out {out}: a use case is a .toml file")
    if out is not None and out.stem in BUILT_IN:
        raise UserMistake(f"--out {out}: '{out.stem}' is a built-in use case; give another name")
    if out is not None and out.exists() and not force:
        raise UserMistake(f"--out {out} exists; give another name, or --force")


def _fidelity(learned: Learned) -> Table:
    """Return a table of what was recorded beside what the use case simulates."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("field")
    table.add_column("", no_wrap=True)
    for column in ("mean", "sd", "5 %", "median", "95 %", "as before", "missing", "zlib bytes"):
        table.add_column(column, justify="right", overflow="fold")
    for name, (recorded, simulated) in {"gap, s": learned.gaps, **learned.fields}.items():
        table.add_row(name, "recorded", *_texts(recorded))
        table.add_row("", "simulated", *_texts(simulated))
    return table


def _texts(figures: FieldSummary) -> list[str]:
    numbers = [f"{value:.4g}" for value in (figures.mean, figures.sd, figures.p5, figures.p50, figures.p95)]
    return [*numbers, f"{figures.same:.0%}", f"{figures.missing:.0%}", f"{figures.nbytes:.2g}"]
