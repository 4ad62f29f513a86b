"""Tables of targets, use cases, queries and scenarios (`tsbench list`), and of what a run will do (`--dry-run`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tsbench import plugins
from tsbench.cli.output import stdout
from tsbench.errors import UserMistake
from tsbench.text import printable_line
from tsbench.units import format_duration, format_rough_duration, format_size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tsbench.scenario.spec import RunSpec, Scenario

SCENARIOS = Path("scenarios")
_WIDE = 2_000


def scenario_names(beginning: str) -> list[str]:
    """Return the names of the scenarios that tsbench brings, for a shell's completion."""
    from tsbench.scenario.file import shipped

    return [name for name in shipped() if name.startswith(beginning)]


def target_names(beginning: str) -> list[str]:
    """Return the names of the targets, for a shell's completion."""
    from tsbench.targets.registry import TARGETS

    return [name for name in TARGETS if name.startswith(beginning)]


def target_table() -> Table:
    """Return a table of the targets, their schemas and their abilities."""
    from tsbench.targets.registry import TARGETS

    table = empty_table(
        "target", "schemas (first: default)", "durable", "several nodes", "driver yields", "times in ns", "opened by"
    )
    for name, target in TARGETS.items():
        nodes = "no" if not target.cluster else "copies" if target.nodes_are_copies else "shares"
        able = (
            yes_or_no(target.durable),
            nodes,
            yes_or_no(target.cooperative),
            str(target.resolution_ns),
            target.access,
        )
        table.add_row(name, ", ".join(target.schemas), *able)
    for name, why in TARGETS.broken.items():
        table.add_row(_plain(name), _plain(f"of an installed package, and cannot be used: {why}"))
    return table


def use_case_table() -> Table:
    """Return a table of the use cases with their measurements, fields and tags."""
    from tsbench.scenario.use_case import built_in_cases

    table = empty_table("use case", "measurements", "fields", "tags", "forms")
    cases = built_in_cases()
    for name, case in cases.items():
        form = next(iter(case.forms))
        layouts = case.forms[form]
        fields = sum(len(layout.fields) for layout in layouts)
        names = ", ".join(layout.name for layout in layouts)
        table.add_row(name, names, str(fields), ", ".join(tag.name for tag in case.tags), ", ".join(case.forms))
    for name, point in plugins.points(plugins.USE_CASES).items():
        if name not in cases:
            table.add_row(_plain(name), _plain(f"of the package {point.dist.name if point.dist else point.value}"))
    return table


def use_case_page(name: str) -> str:
    """Return the tags, fields and kinds of query of a use case, by its name or file, and points of each measurement."""
    from tsbench.encode import line_protocol
    from tsbench.scenario.spec import world as world_of
    from tsbench.workload.world import BUILT_IN

    try:
        world = world_of(name, streams=1)
    except ValueError as error:
        raise UserMistake(f"{name}: {error}") from None
    case = world.spec.case
    tags = [f"{tag} ({_examples(world.texts(tag))})" for tag in world.tags()]
    lines = [case.doc if case is not None else "", "", f"tags: {', '.join(tags) or 'none, a single series'}"]
    if (churn := world.churn) is not None:
        life = format_duration(churn.lifetime_ns)
        lines += [f"churn: {world.spec.scale:,} series at a time, each for {life}, {world.series:,} in all"]
    for m in world.measurements:
        batch = next(world.batches(0, points=1_000, only={m.name}))
        every = f", every {format_duration(world.interval_ns(m.name))}" if world.in_order_of_time else ""
        own = f", own tags {', '.join(m.own_tags)}" if m.own_tags else ""
        size = len(line_protocol.encode(batch)) / len(batch)
        fields = f"{len(m.fields)} field{'s' * (len(m.fields) > 1)}"
        lines += ["", f"{m.name}: {fields}{own}{every}, {size:.0f} bytes a point as line protocol"]
        lines += [f"  {field.name}: {field.kind}{f', {field.unit}' if field.unit else ''}" for field in m.fields]
        lines += ["", *(line.decode() for line in line_protocol.encode_singles(batch.rows(0, 5)))]
    told = (kind if made.doc == kind else f"{kind}: {made.doc}" for kind, made in world.kinds.items())
    lines += ["", *(f"query {text}" for text in told)]
    lines += ["", f"as a file: {BUILT_IN[name]}"] if name in BUILT_IN else []
    return "\n".join(map(printable_line, lines)).rstrip()


def _examples(texts: Sequence[str]) -> str:
    more = ", ..." if len(texts) > 3 else ""
    return ", ".join(texts[:3]) + more


def query_table() -> Table:
    """Return a table of the query kinds, their use cases and what they ask for."""
    from tsbench.scenario.use_case import built_in_cases
    from tsbench.workload import queries

    table = empty_table("query", "use cases", "asks for")
    for name, kind in queries.QUERIES.items():
        table.add_row(name, "any", kind.doc)
    homes: dict[tuple[str, str], list[str]] = {}
    for use_case, case in built_in_cases().items():
        for name, kind in case.queries.items():
            homes.setdefault((name, kind.doc), []).append(use_case)
    for (name, doc), use_cases in homes.items():
        table.add_row(name, ", ".join(use_cases), doc)
    return table


def scenario_table() -> Table:
    """Return a table of the scenarios below ./scenarios and of those that tsbench brings, with their questions."""
    from tsbench.scenario.file import shipped
    from tsbench.scenario.spec import Scenario

    table = empty_table("scenario", "cells", "question")
    own = {str(path): path for path in sorted(SCENARIOS.rglob("*.toml"))}
    brought = {name: path for name, path in shipped().items() if path not in {one.absolute() for one in own.values()}}
    for name, path in (own | brought).items():
        try:
            cells = Scenario.load(path).expand()
        except UserMistake as error:
            table.add_row(_plain(name), "-", _plain(f"cannot be read: {error}"))
            continue
        table.add_row(_plain(name), str(len(cells)), _plain(cells[0].question))
    return table


def plan(asked: Scenario, cells: Sequence[RunSpec]) -> tuple[Table, str]:
    """Return what each cell of a scenario will do, or each search at first, and a line on what all of them take."""
    from tsbench.study.search import grouped, most_runs

    if (search := asked.search) is None:
        return plan_table(cells, reuse=asked.reuse)
    firsts = [next(iter(steps.values()))[0] for steps in grouped(search, cells).values()]
    table, _ = plan_table(firsts, reuse=False)
    most = most_runs(search, len(firsts), asked.repeat)
    text = f"these are the first runs of {len(firsts)} searches, which choose their steps themselves"
    return table, f"{text}: at most {most:,} runs, each step up to {asked.repeat}"


def plan_table(cells: Sequence[RunSpec], *, reuse: bool) -> tuple[Table, str]:
    """Return what each cell of a scenario will do, and a line on what all of them take at least."""
    from tsbench.run.standing import load_key
    from tsbench.scenario.validation import FASTEST_LOAD, first_bytes, first_points

    table = empty_table("cell", "target", "points first", "load", "warm-up", "measured")
    loads = {load_key(cell) if reuse else cell.id: cell for cell in reversed(cells)}  # each with its first cell
    loading = {cell.id for cell in loads.values()}
    for cell in cells:
        drive = cell.drive
        users = f"{drive.users} users" if drive.rate is None else f"{drive.rate:g} ops/s"
        load = f"{len(drive.steps)} steps" if drive.steps else users
        times = (format_duration(ns) for ns in (drive.longest_warmup, drive.measured_ns))
        schema = f" {cell.target.schema_}" if cell.target.schema_ else ""
        first = f"{first_points(cell):,}" if cell.id in loading else "as above"
        table.add_row(_plain(cell.id), _plain(cell.target.name + schema), first, load, *times)
    points = sum(map(first_points, loads.values()))
    driven_s = sum(cell.seconds for cell in cells)
    least = format_rough_duration(driven_s + points / FASTEST_LOAD)
    count = f"{len(cells):,} cell" + "s" * (len(cells) != 1)
    size = format_size(max(map(first_bytes, loads.values()), default=0))
    stored = f"{points:,} points stored first, at most {size} in a cell as plain numbers (databases differ widely)"
    return table, f"{count}, {stored}; at least {least}, and what servers and checks take"


def _plain(text: str) -> Text:
    """Return the text without markup: brackets stay brackets."""
    return Text(printable_line(text))


TABLES: dict[str, Callable[[], Table]] = {
    "targets": target_table,
    "use-cases": use_case_table,
    "queries": query_table,
    "scenarios": scenario_table,
}


def empty_table(*columns: str) -> Table:
    """Return a table with these columns and no rows."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def show(table: Table) -> None:
    """Print a table: on a terminal as wide as that is, elsewhere with a line per row, for `grep` and to be copied."""
    console = stdout if stdout.is_terminal else Console(width=_WIDE)
    console.print(unbroken(table), crop=False)


def unbroken(table: Table) -> Table:
    """Return a table whose columns are as wide as their longest word, so that no name is broken at any width."""
    for column in table.columns:
        texts = [column.header, *column.cells]
        words = [word for text in texts for word in str(text).split()]
        column.min_width = max(map(len, words), default=1)
    return table


def yes_or_no(value: bool) -> str:
    """Return the word for a table's cell."""
    return "yes" if value else "no"
