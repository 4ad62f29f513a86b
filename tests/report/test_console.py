"""The console table prints every figure at every width, and a reason for every run that is not valid."""

from __future__ import annotations

import io
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from tests.targets.test_registry import imported_by
from tsbench.report.cells import load_cells
from tsbench.report.console import print_summary
from tsbench.report.html import write_report
from tsbench.report.metrics import COLUMNS, COMPARED, MISSING, load_text, used_columns
from tsbench.report.run_tables import ops_table

from .synthetic import Shape, make_results

if TYPE_CHECKING:
    from pathlib import Path

    from tsbench.report.cells import Cell
    from tsbench.results.figures import OpFigures


def printed(results: Path, width: int, *, styled: bool = False) -> str:
    out = io.StringIO()
    print_summary(
        Console(file=out, width=width, force_terminal=styled, color_system="truecolor" if styled else None), results
    )
    return out.getvalue()


def test_the_summary_with_the_servers_cpu_time_needs_no_pandas(mixed: Path):
    cpu = "sides_of(load_cells(path)).sides[0].figures"
    program = (
        "from pathlib import Path\nfrom rich.console import Console\nfrom tsbench.report.cells import load_cells\n"
        "from tsbench.report.sides import sides_of\nfrom tsbench.report.console import print_summary\n"
        f"path = Path({str(mixed)!r})\nprint_summary(Console(), path)\nassert 'server_cores' in {cpu}, {cpu}"
    )
    found = imported_by(program)
    assert "pyarrow" in found
    assert not found & {"pandas.core", "matplotlib"}


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_no_line_is_wider_than_the_console_and_no_figure_is_cut(mixed: Path, width: int):
    text = printed(mixed, width)
    tables = text.partition("\n\n")[2].split("p50, p99 and max are")[0]  # the answer is not cut where no terminal is
    assert max(len(line.rstrip()) for line in tables.splitlines()) <= width
    assert "…" not in text
    for cell in load_cells(mixed):
        for column in used_columns([cell]):
            assert column.text(cell) in text


def test_it_says_which_time_it_prints(mixed: Path, single: Path):
    assert "p50, p99 and max are response times (open, 10 users)." in printed(mixed, 120)
    assert "p50, p99 and max are service times (closed, 10 users)." in printed(single, 120)


def test_users_are_those_that_there_were_and_counts_in_a_row_have_one_base(tmp_path: Path):
    results = make_results(tmp_path / "r", [Shape(cell="a", loop="closed", seconds=8, warmup=1, rate=40)])
    path = results / "a" / "summary.json"
    summary = json.loads(path.read_text())
    op = summary["measured"]["ops"]["write"]
    for of in (op, summary["measured"]["write"]):  # seven more ended in the window than were due in it
        of.update(count=2, ok=8, failed=1, unknown=0, partial=0)
    path.write_text(json.dumps(summary | {"users": 12, "users_least": 6}))
    (cell,) = load_cells(results)
    assert load_text(cell) == "closed, 6 to 12 users"
    assert "(closed, 6 to 12 users)" in printed(results, 120)
    table = ops_table(cell)
    assert table is not None
    (row,) = (row for row in table.rows if row[0] == "write")
    shown = dict(zip(table.heads, row, strict=True))
    assert [shown[head] for head in ("ended", "ok", "failed", "unknown")] == ["9", "8", "1", "0"]
    assert [part for part, text in shown.items() if text == MISSING] == ["p90", "p99", "p99.9"], "of two ops"
    assert COMPARED["write_p99_ns"].text(cell) == MISSING


def test_runs_of_both_loops_each_say_their_own(tmp_path: Path):
    small = {"seconds": 2, "warmup": 0, "rate": 5}
    shapes = [Shape(cell="a-open", loop="open", **small), Shape(cell="b-closed", loop="closed", **small)]  # type: ignore[arg-type]
    text = printed(make_results(tmp_path / "r", shapes), 200)
    assert "open, 10 users" in text
    assert "closed, 10 users" in text
    assert "response (open) / service (closed) times" in text


def test_every_run_that_is_not_valid_has_its_reason_in_one_line(mixed: Path):
    lines = printed(mixed, 120).splitlines()
    assert "postgres-brin: inconclusive: its event loop used 93% of a core" in lines
    assert "mongodb-wide: invalid: 3 answers are wrong" in lines
    assert "influxdb-native: inconclusive: failed: the server died (signal 9)" in lines
    assert not any(line.startswith("postgres-btree:") for line in lines)


def test_figures_of_runs_that_are_not_valid_are_struck_out(mixed: Path):
    text = printed(mixed, 200, styled=True)
    cells = load_cells(mixed)
    valid, invalid = (COMPARED["load_points_per_s"].text(cell) for cell in (cells[0], cells[2]))
    assert re.search(rf"\x1b\[2;9m *~{invalid}~", text)
    assert re.search(rf"[m ]{valid}", text)
    assert not re.search(rf"\x1b\[2;9m *~?{valid}", text)
    in_a_pipe = printed(mixed, 80)
    assert f"~{invalid}~" in in_a_pipe
    assert f"~{valid}" not in in_a_pipe
    assert "Figures between ~ are struck out: they are not valid." in in_a_pipe


def test_what_is_said_of_several_runs_is_said_once(mixed: Path, tmp_path: Path):
    assert "struck" not in printed(make_results(tmp_path / "valid", [Shape(seconds=2, warmup=0, rate=5)]), 80)
    same: dict[str, Any] = {"seconds": 2, "warmup": 0, "rate": 5, "validity": "inconclusive", "reason": "it was busy"}
    lines = printed(make_results(tmp_path / "r", [Shape(cell=name, **same) for name in ("a-x", "b-x", "c-x")]), 80)
    assert lines.count("it was busy") == 1 + lines.split("\n\n")[0].count("it was busy")
    assert "a-x, b-x and c-x: inconclusive: it was busy" in lines.splitlines()


@pytest.mark.slow
def test_the_reason_of_the_only_run_that_is_not_valid_is_said_once(tmp_path: Path):
    small: dict[str, Any] = {"seconds": 2, "warmup": 0, "rate": 5}
    shapes = [Shape(cell="a-x", **small), Shape(cell="b-x", validity="invalid", reason="3 answers are wrong", **small)]
    text = printed(make_results(tmp_path / "r", shapes), 80).replace("\n", " ")
    assert re.search(r"Invalid: +b-x does not count \(3 answers are wrong\)\.", text)
    assert text.count("3 answers are wrong") == 1
    first_screen = write_report(tmp_path / "r").read_text().partition("All figures")[0]
    assert first_screen.count("3 answers are wrong") == 1


def test_columns_that_no_run_has_are_left_out(single: Path):
    assert "write " not in printed(single, 200).split("p50, p99 and max")[0].replace("writes", "")


def test_every_column_is_made_of_known_metrics_and_a_missing_summary_prints_dashes(mixed: Path):
    interrupted = load_cells(mixed)[-1]
    for column in COLUMNS:
        assert set(column.keys) <= set(COMPARED)
        assert column.text(interrupted) == MISSING


def test_the_time_of_a_latency_follows_the_loop(mixed: Path, single: Path):
    in_open, in_closed = load_cells(mixed)[0], load_cells(single)[0]
    assert COMPARED["query_p99_ns"].value(in_open) == query_of(in_open).response_ns["p99"]
    assert COMPARED["query_p99_ns"].value(in_closed) == query_of(in_closed).service_ns["p99"]


def query_of(cell: Cell) -> OpFigures:
    assert cell.summary.measured is not None
    assert cell.summary.measured.query is not None
    return cell.summary.measured.query


def test_what_repeated_cold_starts_found_is_a_line_of_all_page_caches_and_one_per_cell(tmp_path: Path):
    names = ["a-round=1", "b-round=1", "b-round=2", "a-round=2"]
    place = make_results(tmp_path / "cold", [Shape(cell=name, seconds=2, warmup=0, rate=5) for name in names])
    for number, name in enumerate(names, 1):
        path = place / name / "summary.json"
        summary = json.loads(path.read_text())
        summary["cold"] = {"pages": 1_000 * number, "before": 500, "after": 0, "whole_cache": True}
        times = {"began_ns": 1, "response_ns": number * 2_000_000, "service_ns": number * 1_000_000, "outcome": "ok"}
        summary["firsts"] = {"raw-one": times}
        path.write_text(json.dumps(summary))
    said = [line for line in printed(place, 200).splitlines() if "after the cold start" in line]
    assert said == [
        (
            "a and b: pages of its files in the page cache after the cold start: 0 (of 1,000 to 4,000; 500 before), "
            "the machine's page cache dropped"
        ),
        "a: first raw-one after the cold start: 2.00 ms to 8.00 ms (service 1.00 ms to 4.00 ms)",
        "b: first raw-one after the cold start: 4.00 ms to 6.00 ms (service 2.00 ms to 3.00 ms)",
    ]
