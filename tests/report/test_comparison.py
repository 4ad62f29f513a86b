"""Comparisons of sets and cells made by hand, so that the truth is known; and every odd input that there may be."""

from __future__ import annotations

import json
import math
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.results.made import limit, load, measured, op_figures, size
from tsbench.cli.main import main
from tsbench.errors import UserMistake
from tsbench.measure.statistics import Bounds
from tsbench.report.baseline import compared, expect_baseline, parse_relative
from tsbench.report.cells import load_cells
from tsbench.report.comparison import Comparison, compare, lines, pairs, ratio_text
from tsbench.report.sides import side_of_runs
from tsbench.results.manifest import Manifest
from tsbench.results.rundir import COMPLETE, RunDir
from tsbench.results.summary import SetSummary, Summary, Validity

if TYPE_CHECKING:
    from pathlib import Path

MS = 1e6


def make_run(results: Path, cell: str, p99_ms: float, rate: float = 1_000.0, **changes: Any) -> Path:
    """Write a complete run with these figures of writes."""
    run = RunDir.create(results, cell)
    known = changes.get("delayed", 0.0)
    times = {"p50": p99_ms * MS / 4, "p99": p99_ms * MS, "mean": p99_ms * MS / 3, "max": 2 * p99_ms * MS}
    without = {name: value * (1 - known) for name, value in times.items()}
    figures = {"count": 5_000, "ok": 5_000, "ops_per_s": rate / 10, "points_per_s": rate}
    by_time = {"response_ns": times, "service_ns": times, "response_undelayed_ns": without}
    op = op_figures(kind="write", **figures, **by_time, margins=changes.get("margins", {}))
    name, _, number = cell.partition("-round=")
    state = changes.get("validity", "valid")
    run.write_json("spec.json", {"id": cell, "scenario": "s", "target": {"name": name}})
    of_this_run = {"port": f"4{len(cell)}{int(rate)}", "data_directory": f"/r/s/{cell}.partial/server/data"}
    Manifest(world_version=changes.get("world", 2), server={"version": "X 1", **of_this_run}).write(run)
    Summary(
        cell=cell,
        scenario="s",
        target=name,
        labels={"target": name, **({"round": number} if number else {})},
        loop=changes.get("loop", "closed"),
        validity=Validity(state, "" if state == "valid" else "an answer is wrong"),
        measured=measured(op, **{"write-10": op}),
        limit=limit(disturbed=changes.get("disturbed", "")),
        load=load(rate * 50),
        size=size(96.5),
    ).write(run)
    return run.finish(str(changes.get("state", COMPLETE))).path


def make_set(place: Path, sides: dict[str, float], rounds: int = 0, noise: float = 0.02, seed: int = 1) -> Path:
    """Write a set whose sides have these p99 in ms, with noise, and a machine that slows down by 3 % each round."""
    rng = np.random.default_rng(seed)
    place.mkdir(parents=True)
    (place / "scenario.toml").write_text("")
    for number in range(1, rounds + 1) if rounds else [0]:
        drift = 1.03**number
        for name, p99_ms in sides.items():
            cell = f"{name}-round={number}" if number else name
            level = drift * rng.lognormal(0, noise)
            make_run(place, cell, p99_ms * level, 1_000 / level * p99_ms / p99_ms)
    SetSummary(scenario="s").write(place)
    return place


def test_the_margin_of_a_time_that_lies_between_two_holds_both(tmp_path: Path) -> None:
    for delayed, least_ms in ((0.0, 8.0), (0.3, 8.0 * 0.7)):
        make_run(tmp_path / str(delayed), "a", 10.0, loop="open", delayed=delayed, margins={"p99": (8 * MS, 13 * MS)})
        side = side_of_runs("a", None, load_cells(tmp_path / str(delayed)))
        margin, (figure,) = side.margins["write_p99_ns"], side.figures["write_p99_ns"]
        assert [margin.least, margin.most] == pytest.approx([least_ms * MS, 13 * MS], rel=0.01)
        assert margin.least < figure.least <= figure.most < margin.most


def only(found: Comparison, figure: str = "write:p99") -> str:
    return next(one.difference for one in found.findings if one.figure == figure)


def test_a_slower_cell_is_worse_and_an_equal_one_is_not_though_the_machine_drifts(tmp_path: Path) -> None:
    place = make_set(tmp_path / "set", {"a": 10, "b": 11, "c": 10}, rounds=8)
    found = {new.name: compare(base, new) for base, new in pairs(place / "a", place)}
    assert set(found) == {"b", "c"}
    assert only(found["b"]) == "worse"
    assert only(found["c"]) == "no difference found"
    assert found["b"].is_worse
    assert not found["c"].is_worse
    text = "\n".join(lines(found["b"]))
    assert [line for line in text.splitlines() if "differs" in line] == ["differs: scenario.target.name: a | b"]
    assert "write:p99" in text
    assert "corrected for 4 figures at once (Benjamini-Hochberg)" in text
    assert " would be)" in "\n".join(lines(found["c"]))
    assert all(finding.test.paired for finding in found["b"].findings)


def test_too_few_rounds_say_how_many_are_needed(tmp_path: Path) -> None:
    place = make_set(tmp_path / "set", {"a": 10, "b": 20}, rounds=3)
    ((base, new),) = pairs(place / "a", place / "b")
    found = compare(base, new)
    assert {one.difference for one in found.findings} == {"too few runs"}
    text = "\n".join(lines(found))
    assert "worse in all 3 rounds; 8 are needed to test it" in text  # b takes twice as long in each round
    assert "no difference found in 3 rounds; 8 are needed to test it" in text
    assert "runs of each side needed to find a difference of 5 %: " in text
    assert " for write:points/s, whose runs differ by " in text
    alone = compare(base, new, ["write:p99"])
    assert "worse in all 3 rounds; 6 are needed to test it" in "\n".join(lines(alone))


def test_sets_of_different_days_are_compared_by_ranks_and_that_is_said(tmp_path: Path) -> None:
    old = make_set(tmp_path / "old", {"a": 10, "b": 10}, rounds=8, seed=1)
    new = make_set(tmp_path / "new", {"a": 14, "b": 10, "c": 3}, rounds=7, seed=2)
    found = {one.name: compare(one, other) for one, other in pairs(old, new)}
    assert set(found) == {"a", "b"}
    assert only(found["a"]) == "worse"
    assert not any(finding.test.paired for finding in found["a"].findings)
    assert any("a drift of the machine looks like a difference" in note for note in found["a"].notes)
    assert only(compare(*pairs(new / "a", old / "a")[0])) == "better"


def test_single_runs_are_too_few(tmp_path: Path) -> None:
    old, new = make_set(tmp_path / "old", {"a": 10}), make_set(tmp_path / "new", {"a": 30})
    ((base, other),) = pairs(old, new)
    text = "\n".join(lines(compare(base, other)))
    assert "worse in the one run of each; 5 are needed to test it" in text
    assert "run with --repeat" in text


def test_it_is_said_that_something_else_used_the_machine(tmp_path: Path) -> None:
    place = make_set(tmp_path / "set", {"a": 10, "b": 13}, rounds=3)
    for cell, cores, endpoint in (
        ("a-round=1", 0.9, None),
        ("b-round=1", 1.7, None),
        ("b-round=2", 0.3, None),
        ("a-round=3", 1.9, "http://me@db.example/x"),  # which may be the server
    ):
        shutil.rmtree(place / cell)
        run = make_run(place, cell, 10, disturbed=f"other processes used {cores} of 2 cores")
        spec = json.loads((run / "spec.json").read_text())
        (run / "spec.json").write_text(json.dumps({**spec, "target": {**spec["target"], "endpoint": endpoint}}))
    ((base, new),) = pairs(place / "a", place / "b")
    (said,) = [note for note in compare(base, new).notes if "cores" in note]
    assert said.startswith("other processes used 0.3 to 1.7 of 2 cores while base and new were measured: measure again")


def test_runs_that_are_not_valid_or_not_whole_are_left_out_and_named(tmp_path: Path) -> None:
    place = make_set(tmp_path / "set", {"a": 10, "b": 13}, rounds=9)
    shutil.rmtree(place / "b-round=9")
    make_run(place, "b-round=9", 13, validity="invalid")
    broken = place / "a-round=8" / "summary.json"
    broken.write_text("{")
    (place / "a-round=7").rename(place / "a-round=7.partial")  # is being written
    (place / "a-round=7.partial" / "status.json").unlink()
    found = compare(*pairs(place / "a", place / "b")[0])
    assert found.findings[0].test.runs == (6, 6)
    text = "\n".join(found.notes)
    assert "left out: b-round=9 is invalid: an answer is wrong" in text
    assert "left out: a-round=8: " in text
    assert "left out: a-round=7 is inconclusive" in text


def test_a_difference_that_is_the_clients_lateness_is_none(tmp_path: Path) -> None:
    place = tmp_path / "set"
    make_set(place, {"a": 10}, rounds=8)
    for number in range(1, 9):
        make_run(place, f"b-round={number}", 14 * 1.03**number, loop="open", delayed=0.3)
    found = compare(*pairs(place / "a", place / "b")[0])
    assert only(found) == "no difference found"
    assert "it depends on how late the load generator sent its ops" in "\n".join(lines(found))


def test_ratios_are_printed_as_changes_near_one_and_as_factors_far_from_it() -> None:
    assert ratio_text(Bounds(1.06, 1.02, 1.1)) == "+6.0 % (+2.0 to +10.0 %)"
    assert ratio_text(Bounds(3.2, 3.0, 3.4)) == "a factor of 3.2 (3 to 3.4)"
    assert ratio_text(Bounds(1 / 32, 1 / 40, 1 / 25)) == "a factor of 32 (25 to 40)"  # it was "0.0313 times"
    assert ratio_text(Bounds(0.2, 0.0, math.inf)) == "a factor of 5 (0 to inf)"


@pytest.mark.parametrize(("text", "state"), [("write:p99<1.3x", "pass"), ("write:p99<1.05x", "fail")])
def test_a_gate_on_a_ratio_is_judged_by_its_interval(tmp_path: Path, text: str, state: str) -> None:
    old = make_set(tmp_path / "old", {"a": 10}, rounds=8)
    new = make_set(tmp_path / "new", {"a": 11.5}, rounds=8, seed=5)
    # the drift of the machine is in both sets: its spread is what the interval is wide for
    ((_, (result,)),) = compared(old, new, [parse_relative(text)])
    assert result.state in {state, "undecided"}
    assert "times the baseline (" in result.text
    ((_, (near,)),) = compared(old, new, [parse_relative("write:p99<1.15x")])
    assert near.state == "undecided"
    ((_, (missing,)),) = compared(old, new, [parse_relative("query:p99<1.15x")])
    assert missing.state == "not judged"


def test_gates_on_ratios_need_a_baseline_and_a_baseline_needs_such_gates(tmp_path: Path) -> None:
    for baseline, asked, said in (
        (None, ["write:p99<1.1x"], "add --baseline DIR"),
        (tmp_path, [], "--baseline is for gates on ratios"),
        (tmp_path / "nowhere", ["write:p99<1.1x"], "no such result set"),
    ):
        with pytest.raises(UserMistake, match=said):
            expect_baseline(baseline, asked)


# --- odd input, by the command ----------------------------------------------------------------------------------------


def command(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main(["compare", *map(str, words)])
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return code, said.out, said.err


def test_the_exit_code_is_1_on_worse_and_0_on_better(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = make_set(tmp_path / "set", {"a": 10, "b": 13}, rounds=8)
    exported = tmp_path / "found.json"
    code, out, _ = command(capsys, place / "a", place / "b", "--json", exported)
    assert (code, "worse by" in out) == (1, True)
    content = json.loads(exported.read_text())
    assert content[0]["figures"]["write:p99"]["difference"] == "worse"
    code, out, _ = command(capsys, place / "b", place / "a")
    assert (code, "better by" in out) == (0, True)


def odd(place: Path) -> dict[str, tuple[list[object], str]]:
    good = make_set(place / "good", {"a": 10, "b": 10}, rounds=2)
    world = make_set(place / "world", {"a": 10})
    shutil.rmtree(world / "a")
    make_run(world, "a", 10, world=1)
    newer = make_set(place / "newer", {"a": 10})
    (newer / "a" / "env.json").write_text('{"format": 99}')
    other = make_set(place / "other", {"c": 10, "d": 10})
    failed = make_set(place / "failed", {})
    make_run(failed, "a", 10, state="failed")
    damaged = make_set(place / "damaged", {"a": 10})
    (damaged / "a" / "summary.json").write_bytes(b"\x00\xff")
    empty = place / "empty"
    empty.mkdir()
    return {
        "the same twice": ([good, good], "are the same runs; compare cells"),
        "the same cell twice": ([good / "a", good / "a"], "are the same runs"),
        "another world": ([good, world], "did not store the same data"),
        "a newer format": ([good, newer], "a newer tsbench"),
        "other cells": ([good, other], "have no cell in common; give one of each"),
        "many and one other": ([good, other / "c"], "has several cells, none of them c"),
        "a failed cell": ([good / "a", failed], "has no run to compare"),
        "damaged": ([good / "a", damaged], "has no run to compare"),
        "no set": ([good, empty], "holds no run of tsbench"),
        "no cell": ([good / "nope", good], "no such cell"),
        "no directory": ([good, place / "nowhere" / "set"], "is not a directory"),
        "no figure": ([good / "a", good / "b", "--figure", "write:pp"], "is not a figure"),
        "no gate": ([good / "a", good / "b", "--gate", "write:p99<1.1"], "is not a gate on a ratio"),
    }


def test_odd_input_is_one_line_and_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, (words, said) in odd(tmp_path).items():
        code, _, err = command(capsys, *words)
        assert code == 2, name
        assert said in err, name
        assert err.count("\n") == 1, name


def test_a_link_in_a_set_leads_nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = make_set(tmp_path / "set", {"a": 10, "b": 10}, rounds=2)
    (place / "a-round=3").symlink_to(place / "a-round=1")
    assert "(2 runs)" in command(capsys, place / "a", place / "b")[1]


def limited(run: Path) -> None:
    """Make the load generator the limit of the rates of a run."""
    content = json.loads((run / "summary.json").read_text())
    content["limited_by"] = "load generator"
    (run / "summary.json").write_text(json.dumps(content))


def test_rates_that_are_the_load_generators_are_not_compared(tmp_path: Path) -> None:
    place = make_set(tmp_path / "set", {"a": 10, "b": 10}, rounds=8)
    for number in range(1, 9):
        limited(place / f"b-round={number}")
    found = compare(*pairs(place / "a", place / "b")[0])
    assert [one.figure for one in found.findings] == ["write:p99", "load:points/s", "bytes/point"]
    assert "write:points/s is not compared: the load generator was the limit of 8 of 16 runs" in found.notes


def test_a_run_that_the_load_generator_limited_keeps_its_times_and_sizes(tmp_path: Path) -> None:
    place = make_set(tmp_path / "set", {"a": 10, "b": 10}, rounds=8)
    limited(place / "b-round=3")
    found = compare(*pairs(place / "a", place / "b")[0])
    assert {one.figure: one.test.runs for one in found.findings} == {
        "write:p99": (8, 8),
        "load:points/s": (8, 8),
        "bytes/point": (8, 8),
    }
    assert not [note for note in found.notes if note.startswith("left out")]


def test_a_run_that_is_less_valid_than_the_others_is_left_out(tmp_path: Path) -> None:
    place = make_set(tmp_path / "set", {"a": 10, "b": 10}, rounds=8)
    content = json.loads((place / "b-round=3" / "summary.json").read_text())
    content["validity"] = {"state": "inconclusive", "reason": "it was", "checks": {}}
    (place / "b-round=3" / "summary.json").write_text(json.dumps(content))
    found = compare(*pairs(place / "a", place / "b")[0])
    assert {one.test.runs for one in found.findings} == {(7, 7)}
    assert "left out: b-round=3 is inconclusive: it was" in found.notes
