"""The commands `report`, `export`, `history` and `compare`, which read results only, and what `run` prints of them."""

from __future__ import annotations

import shlex
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tsbench import units
from tsbench.cli.generate import parsed
from tsbench.cli.output import fail, say, stdout
from tsbench.errors import UserMistake
from tsbench.report import expect_packages
from tsbench.text import short_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tsbench.report.baseline import RelativeGate
    from tsbench.report.export import Exports
    from tsbench.study.campaign import Ran

_MOST_NAMED = 12
_MOST_COMPARED = 3
Figures = Annotated[
    list[str] | None, typer.Option("--figure", help="A figure to compare, as in gates: write:p99; six without any.")
]
Junit = Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write validity and gates as JUnit XML.")]
Markdown = Annotated[Path | None, typer.Option("--markdown", metavar="FILE", help="Write a summary as Markdown.")]
Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the summary (summary.json) there.")]


def report(
    results: Annotated[list[Path], typer.Argument(help="Result sets, for example results/20261120-101500-quickstart.")],
    junit: Junit = None,
    markdown: Markdown = None,
    json: Json = None,
    attach_sar: Annotated[
        Path | None, typer.Option(help="Add what sysstat recorded on the server: a file of sadc, or of sadf -j or -d.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Name of that machine.")] = None,
    sar_ahead: Annotated[str, typer.Option(help="Offset of local times in that file from UTC: 2h, -5h.")] = "",
) -> None:
    """Write report.html of result sets again, and print their tables; also of the sets of a series."""
    expect_packages()
    from tsbench.collect.recording import attach_sar as attach
    from tsbench.report.console import print_summary
    from tsbench.report.export import Exports
    from tsbench.report.html import write_report
    from tsbench.results.manifest import check_world
    from tsbench.results.rundir import find_runs, sets_in
    from tsbench.workload import WORLD_VERSION

    exports = Exports(junit, markdown, json)
    exports.check()
    series = {place: sets for place in results if (sets := sets_in(place)) != [place]}
    results = [one for place in results for one in series.get(place, [place])]
    for run in (run for result in results for run in find_runs(result)):
        check_world(run, WORLD_VERSION, may_be_earlier=True)
    ahead_s = parsed("--sar-ahead", sar_ahead, units.parse_offset_s) if sar_ahead else None
    for result, file in ((result, attach_sar) for result in results if attach_sar is not None):
        for covered in attach(result, file, host=host, ahead_s=ahead_s):
            seen = f"{covered.covered_s:.0f} of {covered.whole_s:.0f} s"
            say(f"{covered.cell}: {seen} seen by sar on {covered.host}")
    exports.write(results)
    damaged: list[str] = []
    for result in results:
        print_summary(stdout, result)
        say(f"report: {short_path(write_report(result, damaged))}")
    for place in series:
        show_overview(place)
    _expect_whole(damaged)


def show_overview(place: Path) -> None:
    """Write the page of a series, and print how many findings are reproduced."""
    from tsbench.report.html import write_overview

    verdict, page = write_overview(place)
    say(verdict)
    say(f"report: {short_path(page)}")


def _expect_whole(damaged: Sequence[str]) -> None:
    if damaged:
        raise UserMistake(damaged[0] + (f"; and so are {len(damaged) - 1} other files" if damaged[1:] else ""))


def history(
    results: Annotated[list[Path], typer.Argument(help="Result sets, or a directory of result sets, such as results.")],
    figure: Figures = None,
    out: Annotated[Path, typer.Option(help="Directory for the page and the files.")] = Path("history"),
) -> None:
    """Write a page of figures over the dates of many result sets, with changes marked, and files for Apache Otava."""
    expect_packages()
    from tsbench.report.history import read_history, write_history

    past = read_history(results, _figures(figure))
    page = write_history(past, out)
    for line in past.sentences():
        say(line)
    say(f"history: {short_path(page)}; for Apache Otava: {short_path(out / 'otava.yaml')}")
    _expect_whole(past.damaged)


def export(
    results: Annotated[list[Path], typer.Argument(help="Result sets, for example results/20261120-101500-quickstart.")],
    form: Annotated[
        list[str] | None,
        typer.Option("--format", help="csv (without any), parquet, hlog, hgrm, openmetrics, svg or png."),
    ] = None,
    chart: Annotated[
        list[str] | None, typer.Option(help="A plot by its name, such as latency; all without any.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Directory for the files.")] = Path("exported"),
) -> None:
    """Write result sets as files for other tools: tables, histograms, metrics, plots."""
    expect_packages()
    from tsbench.report.cells import ResultSet
    from tsbench.report.formats import FORMATS, Export
    from tsbench.results.rundir import sets_in

    asked = form or ["csv"]
    for name in asked:
        if name not in FORMATS:
            raise UserMistake(f"--format {name}: no such format; there are {', '.join(FORMATS)}")
    if chart and not {"svg", "png"} & set(asked):
        raise UserMistake("--chart is about plots; add --format svg or --format png")
    if out.exists() and not out.is_dir():
        raise UserMistake(f"--out {out}: is no directory; choose another one")
    sets = [ResultSet.read(one) for place in results for one in sets_in(place)]
    written = Export(sets, out).write(asked, chart or ())
    for path in written[:_MOST_NAMED]:
        say(short_path(path))
    if written[_MOST_NAMED:]:
        say(f"and {len(written) - _MOST_NAMED} more files in {short_path(out)}")


def _figures(names: Sequence[str] | None) -> list[str]:
    from tsbench.measure.gates import parse_figure
    from tsbench.report.comparison import FIGURES

    try:
        return [parse_figure(text).text for text in names or FIGURES]
    except ValueError as error:
        raise UserMistake(str(error)) from None


def compare(
    base: Annotated[Path, typer.Argument(help="A result set, or one cell in it (SET/CELL), to compare with.")],
    new: Annotated[list[Path], typer.Argument(help="Result sets or cells that are compared with it.")],
    figure: Figures = None,
    gate: Annotated[list[str] | None, typer.Option(help="Condition on a ratio, such as 'write:p99<1.1x'.")] = None,
    json: Json = None,
) -> int:
    """Compare result sets or cells: better, worse or no difference found; exit code 1 on worse."""
    from tsbench.report.baseline import compared, parse_relative
    from tsbench.report.comparison import lines, to_json
    from tsbench.report.export import Exports, write_file

    Exports(json=json).check()
    figures = _figures(figure)
    try:
        asked = [parse_relative(text) for text in gate or ()]
    except ValueError as error:
        raise UserMistake(str(error)) from None
    comparisons = [one for place in new for one in compared(base, place, asked, figures)]
    for number, (comparison, results) in enumerate(comparisons):
        for line in [*([""] if number else []), *lines(comparison), *(result.sentence for result in results)]:
            say(line)
    if json is not None:
        write_file(json, dumps([to_json(one, judged) for one, judged in comparisons], indent=1) + "\n")
    failed = any(result.state in {"fail", "not judged"} for _, results in comparisons for result in results)
    return int(failed or any(comparison.is_worse for comparison, _ in comparisons))


def show_repeats(ran: Ran) -> None:
    """Print how to compare repeated cells that did the same ops, and how many repeats their noise needs.

    A search compares by itself, and so do the findings of a study.
    """
    from tsbench.report.comparison import advice, compare, sides_at
    from tsbench.report.findings import names_of
    from tsbench.results.summary import SetSummary

    if not any("round" in summary.labels for summary in ran.summaries) or ran.is_search:
        return
    sides = [side for side in sides_at(ran.results) if side.runs]
    if not sides or SetSummary.read(ran.results).claims:
        return
    measured = [side.cells[0].summary.measured for side in sides]
    did = [of.ops.keys() if of else None for of in measured]
    first, *others = [side for side, ops in zip(sides, did, strict=True) if ops == did[0]]
    for other in others[:_MOST_COMPARED]:
        places = [short_path(side.results / side.name) for side in (first, other)]
        say(f"compare: {shlex.join(['tsbench', 'compare', *places])}")
        for line in advice(compare(first, other)):
            say(f"  {line}")
    if more := [side.name for side in others[_MOST_COMPARED:]]:
        say(f"  and so with {names_of(more)}")


def show_baseline(baseline: Path | None, results: Path, asked: Sequence[RelativeGate], exports: Exports) -> int:
    """Print how the runs compare with the baseline and whether the gates hold, and return the exit code.

    The files of `exports` are written again, with these gates.
    """
    from tsbench.report.baseline import compared
    from tsbench.report.comparison import lines

    failed: list[str] = []
    if baseline is None:
        return 0
    judged = compared(baseline, results, asked)
    exports.write([results], judged)
    for comparison, gates in judged:
        for line in [*lines(comparison), *(result.sentence for result in gates)]:
            say(line)
        failed += [result.sentence for result in gates if result.state in {"fail", "not judged"}]
    return fail(failed[0], 1) if failed else 0
