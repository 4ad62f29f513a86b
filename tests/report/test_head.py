"""The head of a page: what is one side, how its figures stand in the table, and what its charts mark."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from rich.console import Console

from tsbench.measure.statistics import Bounds
from tsbench.report import head_plots, markdown
from tsbench.report.answer import answer, answer_of
from tsbench.report.cells import ResultSet, load_cells
from tsbench.report.console import print_summary
from tsbench.report.export import Exports
from tsbench.report.findings import told_once
from tsbench.report.head import head_of
from tsbench.report.manifest import DURATIONS, SIZES, TIMES, compared
from tsbench.report.sides import Side, Sides, sides_of
from tsbench.report.tables import Mark
from tsbench.results.summary import GateResult
from tsbench.scenario.spec import RunSpec

from .synthetic import Shape, make_results, ramp, rounds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def ramped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_results(tmp_path_factory.mktemp("ramp") / "r", [replace(one, seconds=8, warmup=0) for one in ramp()])


@pytest.fixture(scope="module")
def repeated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_results(tmp_path_factory.mktemp("rounds") / "r", [replace(one, seconds=4) for one in rounds()])


def sides(results: Path) -> Sides:
    return sides_of(load_cells(results))


@pytest.mark.slow
def test_repeats_are_one_side_and_its_row_has_the_median_and_the_interval(repeated: Path):
    found = sides(repeated)
    assert [(side.name, side.repeats, side.at) for side in found.sides] == [
        ("alpha-wide", 8, None),
        ("beta-narrow", 8, None),
    ]
    head = head_of(found)
    rates = sorted(one.estimate for one in found.sides[0].figures["write_points_per_s"])
    entry = head.rows[0].entries[0]
    assert isinstance(entry, tuple)
    figure, interval = entry
    assert str(figure) == f"{(rates[3] + rates[4]) / 2:,.0f}"
    assert str(interval) == f"{rates[0]:,.0f} to {rates[7]:,.0f}"
    assert len(head.titles) + 2 <= 9
    assert "median of runs" in head.note
    first, *_ = head_plots.draw(found)
    assert len(first[0].axes[0].patches) == 2, "a bar per side, not per run"


def test_the_median_stands_where_there_are_too_few_ops_for_a_p99(tmp_path: Path, repeated: Path):
    few = Shape(cell="x", seconds=1, warmup=0, rate=5, labels=(("target", "x"),))
    titles = head_of(sides(make_results(tmp_path / "r", [few]))).titles
    assert {"write p50", "query p50"} & {*titles}
    assert not {"write p99", "query p99"} & {*titles}
    assert not {"write p50", "query p50"} & {*head_of(sides(repeated)).titles}
    both = sides(make_results(tmp_path / "both", [few, replace(few, cell="y", seed=2, labels=(("target", "y"),))]))
    (times,) = [figure for figure, name, _ in head_plots.draw(both, wanted=lambda name: name == "head-write_p99_ns")]
    beside = [text.get_text() for text in times.axes[0].texts]
    assert len([text for text in beside if text.endswith(" (median)")]) == 2


def test_the_time_that_most_sides_have_is_shown_and_drawn():
    def side(name: str, *times: str) -> Side:
        return Side(name, figures={f"query_{time}_ns": (Bounds(1e6, 1e6, 1e6),) for time in times})

    every = side("a", "p99", "p50", "mean")
    for others, shown in (
        (("mean",), "query mean"),
        (("p50", "mean"), "query p50"),
        (("p99", "p50", "mean"), "query p99"),
    ):
        found = Sides("closed", "", (every, side("b", *others)))
        assert head_of(found).titles == (shown,)
        ((figure, _, _),) = head_plots.draw(found)
        drawn = [line for line in figure.axes[0].lines if line.get_marker() in {"o", "D"}]
        assert len(drawn) == (2 if shown == "query mean" else 3 if shown == "query p50" else 4)


def test_a_time_of_which_only_the_least_is_known_is_shown_as_that_and_compared_with_none(tmp_path: Path):
    first, second = load_cells(make_results(tmp_path / "r", [Shape(cell=name, seconds=6, warmup=0) for name in "ab"]))
    measured = second.summary.measured
    assert measured is not None
    assert measured.write is not None
    write = measured.write.model_copy(update={"response_at_least": ("p50", "p99", "mean")})
    summary = second.summary.model_copy(update={"measured": measured.model_copy(update={"write": write})})
    head = head_of(sides_of([first, replace(second, summary=summary)]))
    shown = [row.entries[head.titles.index("write p99")] for row in head.rows]
    texts = [str(entry[0] if isinstance(entry, tuple) else entry) for entry in shown]
    assert [text.startswith(">= ") for text in texts] == [False, True], texts


@pytest.mark.parametrize(
    ("searched", "titles"),
    [("load:points/s", ("loaded, points/s", "bytes per point")), ("", ("write p50", "bytes per point"))],
)
def test_the_ends_of_searches_among_loads_are_shown_by_their_loads(searched: str, titles: tuple[str, ...]):
    def side(name: str, rate: float) -> Side:
        figures = {"load_points_per_s": rate, "write_p50_ns": 4e5, "bytes_per_point": 14.0}
        return Side(name, figures={key: (Bounds(value, value, value),) for key, value in figures.items()})

    head = head_of(Sides("closed", "", (side("a", 171_680), side("b", 41_894)), searched))
    assert head.titles == titles
    if searched:
        assert head.rows[0].entries[0] == Mark("171,680", "best")
        assert head.rows[1].entries[0] == "41,894"


def test_no_side_is_the_best_in_the_time_of_queries_that_the_others_were_not_asked():
    sides = [
        Side(name, figures={"query_p99_ns": (Bounds(time, time, time),)}, kinds=frozenset({kind}))
        for name, time, kind in (("a", 1e6, "raw-one"), ("b", 9e8, "raw-all"))
    ]
    for kinds, best in ((sides, 0), ([replace(side, kinds=frozenset({"raw-one"})) for side in sides], 1)):
        entries = [row.entries[0] for row in head_of(Sides("closed", "", tuple(kinds))).rows]
        assert sum(isinstance(entry, Mark) and entry.kind == "best" for entry in entries) == best


@pytest.mark.slow
def test_a_numeric_key_is_the_axis_and_the_rest_is_the_name(ramped: Path):
    found = sides(ramped)
    assert found.axis == "drive.rate"
    assert [(side.name, side.at) for side in found.sides[:2]] == [("alpha-wide", 500.0), ("alpha-wide", 1000.0)]
    assert head_of(found).rows[0].name == "alpha-wide at a rate of 500"


def test_the_chart_over_the_load_has_a_line_per_side_the_gate_and_a_cross_where_it_breaks(ramped: Path):
    figures = {name: figure for figure, name, _ in head_plots.draw(sides(ramped))}
    (axes,) = figures["head-write_p99_ns"].axes
    lines = {str(line.get_label()): line for line in axes.lines}
    assert np.asarray(lines["gamma-columns"].get_xdata()).tolist() == [500, 1000, 2000, 4000]
    assert np.asarray(lines["write:p99<50ms"].get_ydata()).tolist() == [50e6, 50e6]
    crosses = [np.asarray(line.get_xdata()).tolist() for line in axes.lines if line.get_marker() == "X"]
    assert sorted(crosses) == [[], [2000], [4000], [4000]], "and one in the legend"


def test_runs_that_labels_do_not_tell_apart_stand_alone_under_their_own_names(tmp_path: Path):
    shapes = [Shape(cell=f"x-{n}", seconds=1, warmup=0, rate=5, labels=(("target", "x"),)) for n in range(3)]
    found = sides(make_results(tmp_path / "r", shapes))
    assert [side.name for side in found.sides] == ["x-0", "x-1", "x-2"]


def test_a_repeat_that_is_invalid_is_left_out_while_others_stand(tmp_path: Path):
    shapes = [replace(one, seconds=1, warmup=0) for one in rounds()[:6]]
    shapes[0] = replace(shapes[0], validity="invalid", wrong=1, reason="1 answer is wrong", doubted="answers")
    found = sides(make_results(tmp_path / "r", shapes))
    assert [(side.repeats, side.stands) for side in found.sides] == [(2, True), (3, True)]
    assert found.sides[0].rounds == (2, 3)
    assert "Open: 1 of 3 runs of alpha-wide is left out: less valid than the others." in answer(found)


def test_a_round_that_has_no_summary_yet_belongs_to_its_side(tmp_path: Path):
    shapes = [replace(one, seconds=1, warmup=0) for one in rounds()[:4]]
    shapes[3] = replace(shapes[3], state="interrupted")
    results = make_results(tmp_path / "r", shapes)
    (spec,) = results.glob("*.partial/spec.json")
    spec.write_text(json.dumps(json.loads(spec.read_text()) | {"labels": dict(shapes[3].labels)}))
    assert [(side.name, side.repeats, len(side.cells)) for side in sides(results).sides] == [
        ("alpha-wide", 2, 2),
        ("beta-narrow", 1, 2),
    ]


def test_the_best_are_marked_as_the_answer_has_them_and_ratios_are_to_each_side(repeated: Path):
    head = head_of(sides(repeated))
    entries = [row.entries[0] if isinstance(row.entries[0], tuple) else () for row in head.rows]
    marks = [[part.kind for part in entry if isinstance(part, Mark)] for entry in entries]
    assert marks == [["best", "small"], ["small"]]
    assert list(head.ratios) == ["alpha-wide", "beta-narrow"]
    assert str(head.ratios["beta-narrow"][1].entries[0]) == "1.00x"


def test_an_undecided_gate_is_neither_held_nor_broken(tmp_path: Path):
    shapes = [replace(one, seconds=1, warmup=0) for one in ramp()[:2]]
    unsure = GateResult("write:p99<50ms", 4e7, "undecided", "40.0 ms")
    shapes[1] = replace(shapes[1], gates=(unsure,))
    said = answer(sides(make_results(tmp_path / "r", shapes)))
    assert said[0].startswith("Limit: alpha-wide holds a rate of 500")
    assert "Open: a longer run would show whether alpha-wide at a rate of 1,000 passes write:p99<50ms." in said


def test_an_undecided_gate_at_a_low_load_does_not_hide_that_higher_ones_held(tmp_path: Path):
    shapes = [replace(one, seconds=1, warmup=0) for one in ramp()[-4:-2]]
    shapes[0] = replace(shapes[0], gates=(GateResult("write:p99<50ms", 4e7, "undecided", "40.0 ms"),))
    said = answer(sides(make_results(tmp_path / "r", shapes)))
    assert said[0] == "Limit: gamma-columns holds a rate of 1,000, the highest that was tried."
    assert "Open: a longer run would show whether gamma-columns at a rate of 500 passes write:p99<50ms." in said


def test_a_set_that_no_scenario_made_is_told_how_runs_are_repeated(tmp_path: Path):
    results = make_results(tmp_path / "r", [Shape(seconds=2, warmup=0, rate=5)])
    assert "; --repeat 8 shows" in answer_of(ResultSet.read(results))[-1]
    (results / "scenario.toml").unlink()
    assert "; tsbench run SCENARIO --repeat 8 shows" in answer_of(ResultSet.read(results))[-1]


def test_sides_of_which_the_same_gate_is_undecided_are_named_at_once(tmp_path: Path):
    unsure = (GateResult("write:p99<50ms", 4e7, "undecided", "40.0 ms"),)
    shapes = [Shape(cell=cell, seconds=2, warmup=0, rate=5, gates=unsure) for cell in ("a-x", "b-x")]
    said = answer(sides(make_results(tmp_path / "r", shapes)))
    assert "Open: a longer run would show whether a-x and b-x pass write:p99<50ms." in said


def test_the_loads_at_which_a_gate_is_undecided_are_named_at_once_and_none_of_them_has_passed(tmp_path: Path):
    unsure = GateResult("write:p99<50ms", 4e7, "undecided", "40.0 ms")
    shapes = [replace(one, seconds=1, warmup=0, gates=(unsure,)) for one in ramp()]
    found = sides(make_results(tmp_path / "r", shapes))
    said = answer(found)
    loads = "500, 1,000, 2,000 and 4,000"
    for name in ("alpha-wide", "beta-narrow", "gamma-columns"):
        assert f"Open: a longer run would show whether {name} at a rate of {loads} passes write:p99<50ms." in said
    assert {row.verdict.text for row in head_of(found).rows} == {"undecided"}


def test_console_markdown_and_json_have_the_same_answer(ramped: Path, tmp_path: Path):
    said = answer(sides(ramped))
    out = io.StringIO()
    print_summary(Console(file=out, width=2_000), ramped)
    assert [re.sub(": +", ": ", line, count=1) for line in out.getvalue().splitlines()[: len(said)]] == list(said)
    page = markdown.document([ResultSet.read(ramped)])
    lines = [line.partition(": ") for line in said]
    assert all(f"- **{label}**: {text.replace('<', '&lt;')}" in page for label, _, text in lines)
    Exports(json=tmp_path / "x.json").write([ramped])
    assert json.loads((tmp_path / "x.json").read_text())["answer"] == list(said)


def keys_with_units() -> Iterator[tuple[str, str]]:
    schema = RunSpec.model_json_schema()

    def walk(node: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
        if "$ref" in node:
            node = schema["$defs"][node["$ref"].rpartition("/")[2]]
        if "unit" in node:
            yield path, node["unit"]
            return
        for inner in (*node.get("anyOf", ()), *([node["items"]] if isinstance(node.get("items"), dict) else [])):
            yield from walk(inner, path)
        for key, inner in node.get("properties", {}).items():
            yield from walk(inner, f"{path}.{key}" if path else key)

    return walk(schema, "")


def test_every_key_that_a_scenario_writes_with_a_unit_is_printed_with_one():
    units = {"duration": DURATIONS, "seconds": DURATIONS, "wait": DURATIONS, "warmup": DURATIONS}
    found = {key: unit for key, unit in keys_with_units() if unit in {*units, "time", "size"}}
    assert {key for key, unit in found.items() if unit in units} == DURATIONS
    assert {key for key, unit in found.items() if unit == "time"} == TIMES
    assert {key for key, unit in found.items() if unit == "size"} == SIZES
    spec = {"drive": {"duration": 10_000_000_000, "wait": [30_000_000, 70_000_000], "steps": [{"duration": 10**9}]}}
    common = compared([spec]).common
    assert [common[key] for key in ("drive.duration", "drive.wait", "drive.steps.0.duration")] == [
        "10s",
        "30ms, 70ms",
        "1s",
    ]
    file = {
        "churn": {"lifetime": 300 * 10**9},
        "measurement": [{"fields": {"state": {"stays": 60 * 10**9, "first": 5}}}],
    }
    common = compared([{"world": {"described": file}}]).common
    assert [*common.values()] == ["5m", "1m", "5"]


def test_what_differs_in_percentages_or_cores_only_is_said_once_with_the_range():
    said = [
        ("a", "5% later (at most 2%)"),
        ("b-1", "31% later (at most 2%)"),
        ("b-2", "late"),
        ("c", "late, like x-1"),
        ("a", "used 10 of 16 cores"),
        ("c", "used 9.5 of 16 cores"),
        ("c", "used 9.5 of 8 cores"),
        ("a", "took 7 % (steal)"),
        ("c", "took 12 % (steal)"),
        ("x", "1.2.3% and 9,,9 % of ٣% and 1.2.3 of 4 cores"),  # a set of others says anything
    ]
    assert told_once(said) == [
        (["a", "b-1"], "5% to 31% later (at most 2%)"),
        (["b-2"], "late"),
        (["c"], "late, like x-1"),
        (["a", "c"], "used 9.5 to 10 of 16 cores"),
        (["c"], "used 9.5 of 8 cores"),
        (["a", "c"], "took 7 % to 12 % (steal)"),
        (["x"], "1.2.3% and 9,,9 % of ٣% and 1.2.3 of 4 cores"),
    ]


def test_loads_are_shown_where_nothing_else_was_written():
    def side(name: str, **figures: float) -> Side:
        return Side(name, figures={key: (Bounds(value, value, value),) for key, value in figures.items()})

    loaded, reused = side("a", load_points_per_s=5e4, query_p99_ns=1e6), side("b", query_p99_ns=2e6)
    assert head_of(Sides("closed", "", (loaded, reused))).titles == ("loaded, points/s", "query p99")
    written = side("c", load_points_per_s=5e4, write_p50_ns=1e5, query_p99_ns=1e6)
    assert "loaded, points/s" not in head_of(Sides("closed", "", (written, reused))).titles


def test_a_rate_that_the_load_generator_held_back_is_at_least_that():
    def side(limit: str) -> Side:
        figures = {key: (Bounds(500.0, 500.0, 500.0),) for key in ("write_points_per_s", "load_points_per_s")}
        return Side("a", figures=figures, limited_by=limit)

    for limit, shown in (("load generator", ">= 500"), ("database", "500")):
        (row,) = head_of(Sides("closed", "", (side(limit),))).rows
        assert [str(entry) for entry in row.entries] == [shown]
