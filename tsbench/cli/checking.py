"""The command that looks at data before any server is involved: check."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path  # noqa: TC003 - typer reads it
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from tsbench.cli.learning import OfForm, OfTimes, OfZone, expect_writable
from tsbench.cli.output import stderr, stdout
from tsbench.errors import UserMistake, require
from tsbench.text import printable_line, shortened
from tsbench.units import NS_PER_S, format_duration, format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tsbench.scenario.data_facts import Facts
    from tsbench.workload.world import World


_MOST_HINT = 300
_ROWS = 200_000
"""Rows by which a use case is proposed."""


def check(
    file: Annotated[
        Path,
        typer.Argument(help="A use case (.toml), or recorded CSV, line protocol or Parquet."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Use case to write for a recording, such as town.toml; else it is printed.")
    ] = None,
    time: OfTimes = None,
    key: Annotated[str | None, typer.Option(help="Column that names the series. Default: guessed.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Further columns that are tags.")] = None,
    zone: OfZone = "UTC",
    time_format: OfForm = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
) -> int:
    """Show what data are, and what each database would make of them; propose a use case for a recording."""
    from tsbench.scenario.data_facts import facts_of, fits
    from tsbench.scenario.spec import world as world_of

    if file.suffix != ".toml":
        return _propose(file, out, time, key, tag or [], zone, time_format, force=force)
    if out is not None or time or key or tag or zone != "UTC" or time_format is not None:
        options = "--out, --time, --key, --tag, --zone and --time-format"
        raise UserMistake(f"{file}: says itself what its columns are; {options} do not")
    try:
        world = world_of(str(file), streams=1)
    except ValueError as error:
        raise UserMistake(f"{file}: {error}") from None
    facts, made = facts_of(world), list(fits(world))
    if as_json:
        stdout.print_json(
            json.dumps({"data": [asdict(one) for one in facts], "databases": [asdict(one) for one in made]})
        )
        return 0
    for one in facts:
        _show(one, world)
    for fit in made:
        said = "stored as they are" if fit.is_stored else f"not stored: {fit.why}"
        stdout.print(f"{fit.target:<16}{said}", markup=False, highlight=False, soft_wrap=True)
    able = [fit.target for fit in made if fit.is_stored]
    if file.suffix == ".toml" and able:
        note = f"next: tsbench init {able[0]} --use-case {file}"
        stderr.print(note, markup=False, highlight=False, soft_wrap=True)
    return 0


def _propose(
    file: Path,
    out: Path | None,
    time: str | None,
    key: str | None,
    tags: Sequence[str],
    zone: str,
    form: str | None,
    *,
    force: bool,
) -> int:
    """Write or print a use case for a recording."""
    require("polars", "files")
    from tsbench.scenario.learning import lacking_rows, mapped
    from tsbench.scenario.recorded_files import is_lines, measurements_and_tags
    from tsbench.scenario.recording import SERIES, TIME, may_name_series, read, recording

    expect_writable(out, force=force)
    if is_lines(file) and key is None:
        if tags:
            raise UserMistake(f"--tag {tags[0]}: line protocol says itself which are tags; leave it out")
        known = measurements_and_tags(file, _ROWS)
        tagged = {name: own for name, own in known.items() if own} or dict([next(iter(known.items()))])
        given = [
            recording(read(file, _ROWS, name), time=time, zone=zone, form=form, lines=(name, own))
            for name, own in tagged.items()
        ]
        if left := [name for name in known if name not in tagged]:
            said = f"left out, without tags, which name series: {', '.join(left)}"
            stderr.print(shortened(f"tsbench: {said}", _MOST_HINT), markup=False, highlight=False)
    else:
        given = [recording(read(file, _ROWS), time=time, key=key, tags=tags, zone=zone, form=form)]
    text = mapped(file, given)
    frame = given[0].frame
    known_columns = {given[0].time, TIME, SERIES}
    named = known_columns.union(given[0].keys, given[0].tags, given[0].fields)
    if left_out := [name for name in frame.columns if name not in named]:
        hint = f"tsbench: left out, for lack of numbers, texts or booleans: {', '.join(left_out)}"
        stderr.print(shortened(hint, _MOST_HINT), markup=False, highlight=False, soft_wrap=True)
    if lacking := sum(map(lacking_rows, given)):
        rows = sum(len(one.frame) + one.dropped for one in given)
        hint = f"tsbench: {lacking:,} of {rows:,} rows lack a time, a key or every value: incomplete in [recording]"
        stderr.print(hint, markup=False, highlight=False, soft_wrap=True)
    for word in given[0].nulls:
        hint = f"tsbench: '{printable_line(word)}' among numbers is taken for none: null in [recording]"
        stderr.print(shortened(hint, _MOST_HINT), markup=False, highlight=False, soft_wrap=True)
    if (names := [name for name in may_name_series(frame) if name not in known_columns]) and not given[0].keys:
        one_of = f"if a column names it, say --key COLUMN, one of {', '.join(names)}"
        hint = f"tsbench: all rows are taken for one series; {one_of}"
        stderr.print(shortened(hint, _MOST_HINT), markup=False, highlight=False, soft_wrap=True)
    if out is None:
        stdout.print(text, markup=False, highlight=False, soft_wrap=True, end="")
        note = f"tsbench: put this into a file beside {file.name} (--out town.toml), look through it, and check that"
    else:
        out.write_text(text, encoding="utf-8")
        note = f"tsbench: look through {out}, then: tsbench check {out}"
    stderr.print(note, markup=False, highlight=False, soft_wrap=True)
    return 0


def _show(one: Facts, world: World) -> None:
    """Print what the points of a measurement are."""
    lines = [
        f"{one.measurement}: {one.points:,} points of {one.series:,} series",
        f"times: {format_time(one.first_ns)} to {format_time(one.last_ns)}",
        f"points of a series: {one.least_points:,} to {one.most_points:,}, median {one.median_points:,.0f}",
    ]
    if one.gaps_ns:
        gaps = ", ".join(f"{name} {format_duration(round(gap))}" for name, gap in one.gaps_ns.items())
        lines.append(f"time between two points of a series: {gaps}")
    if one.begin_later or one.end_before:
        lines.append(
            f"series that begin after the first tenth of the time: {one.begin_later:,}; that end before the last: "
            f"{one.end_before:,}"
        )
    if (recorded := world.recorded) is not None:
        units = (("seconds", NS_PER_S), ("ms", 10**6), ("us", 10**3), ("ns", 1))
        lines.append(f"all times are whole {next(name for name, ns in units if recorded.step_ns >= ns)}")
        points = recorded.of(one.measurement)
        if points.skipped or points.replaced:
            lines.append(
                f"rows that are no points of their own: {points.skipped:,} without time, key or value, "
                f"{points.replaced:,} with the time of another one of their series"
            )
    for line in lines:
        stdout.print(line, markup=False, highlight=False, soft_wrap=True)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("field", "kind"):
        table.add_column(name)
    for name in ("missing", "least", "most", "texts"):
        table.add_column(name, justify="right")
    for field in one.fields:
        shown = (lambda value: str(round(value))) if field.kind == "int" else "{:.6g}".format
        ends = ["" if value is None else shown(value) for value in (field.least, field.most)]
        texts = "" if field.texts is None else f"{field.texts:,}"
        table.add_row(field.name, field.kind, f"{field.missing:.1%}" if field.missing else "", *ends, texts)
    stdout.print(table)
    stdout.print()
