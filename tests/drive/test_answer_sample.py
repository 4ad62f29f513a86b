"""The answers that are checked are from the whole measured window, and few enough to keep."""

from __future__ import annotations

import json
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from tests.drive.support import document, run
from tsbench.check.sample import rank, sampled
from tsbench.drive import answer_sample
from tsbench.drive.answer_sample import AnswerSample
from tsbench.model import Latest, Raw, Rows, Window
from tsbench.results.process import GivenAnswers
from tsbench.scenario.use_case import built_in_spec
from tsbench.workload.world import World

if TYPE_CHECKING:
    from pathlib import Path


WORLD = World(built_in_spec("cpu-only", 10, 1, 0, 10**10))
QUERY = Latest(WORLD.measurements[0], ("usage_user",))
RAW = Raw(WORLD.measurements[0], ("usage_user",), Window(0, 10**9))
ROWS = Rows(QUERY.columns, [(10**9, f"host_{i}", 0.5 * i) for i in range(10)])

TIMES_NS = (10**18, 10**18 + 5)


def lines_of(sample: AnswerSample, path: Path) -> list[dict[str, Any]]:
    sample.write(path)
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_lowest_hashes_of_each_kind_are_kept(tmp_path: Path) -> None:
    sample = AnswerSample(3, 20, tmp_path)
    for number in range(1_000):
        for kind in ("a", "b"):
            sample.add(kind, number, QUERY, ROWS, TIMES_NS)
    lines = lines_of(sample, tmp_path / "x")
    for kind in ("a", "b"):
        numbers = [line["number"] for line in lines if line["op"] == kind]
        assert numbers == sorted(range(1_000), key=lambda number: rank(3, kind, number))[:20]
        assert max(numbers) > 800
    assert sample.given == {"a": GivenAnswers(1_000, 1_000 * len(ROWS)), "b": GivenAnswers(1_000, 1_000 * len(ROWS))}
    assert lines[0]["rows"] == [list(row) for row in ROWS.records]
    assert (lines[0]["sent_ns"], lines[0]["ended_ns"]) == TIMES_NS


def test_what_is_kept_is_bounded_in_bytes_and_still_has_the_lowest_hashes(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(answer_sample, "KEPT_BYTES", 10_000)
    sample = AnswerSample(3, 2_000, tmp_path)
    for number in range(1_000):
        sample.add("a", number, QUERY, ROWS, TIMES_NS)
        if number % 20 == 0:
            sample.add("b", number, QUERY, ROWS, TIMES_NS)
    lines = lines_of(sample, tmp_path / "x")
    assert 10 < len(lines) < 60
    for kind, count in (("a", 1_000), ("b", 1_000)):
        numbers = [line["number"] for line in lines if line["op"] == kind]
        offered = range(0, count, 20 if kind == "b" else 1)
        assert numbers == sorted(offered, key=lambda number: rank(3, kind, number))[: len(numbers)]


def test_of_a_large_answer_its_count_and_a_share_of_its_rows_are_kept(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(answer_sample, "WHOLE_BYTES", 1_000)
    monkeypatch.setattr(answer_sample, "PART_BYTES", 500)
    rows = Rows(QUERY.columns, [(10**9, f"host_{i}", 0.5 * i) for i in range(1_000)])
    sample = AnswerSample(3, 20, tmp_path)
    sample.add("a", 0, QUERY, rows, TIMES_NS)
    (line,) = lines_of(sample, tmp_path / "x")
    assert line["count"] == 1_000
    assert 0 < len(line["rows"]) < 20


def test_a_large_answer_with_a_value_that_none_can_contain_is_a_wrong_one(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(answer_sample, "WHOLE_BYTES", 100)
    rows = Rows(("time", "usage_user"), [(b"x", 1.0), (b"y", 1.0)])
    sample = AnswerSample(3, 20, tmp_path)
    sample.add("a", 0, RAW, rows, TIMES_NS)
    (line,) = lines_of(sample, tmp_path / "x")
    assert "an answer holds a bytes" in str(line["wrong"])


def test_no_sample_keeps_nothing(tmp_path: Path) -> None:
    sample = AnswerSample(3, 0, tmp_path)
    sample.add("a", 0, QUERY, ROWS, TIMES_NS)
    assert lines_of(sample, tmp_path / "x") == []
    assert sample.given == {"a": GivenAnswers(1, len(ROWS))}


@pytest.mark.slow
def test_the_answers_of_a_run_are_sampled_over_its_whole_window(tmp_path: Path) -> None:
    summary = run(
        tmp_path,
        document(
            drive={"processes": 2, "wait": "10ms", "warmup": "2s", "duration": "3s"},
            op=[{"query": "raw-one"}, {"query": "lastpoint"}],
            check={"sample": 30, "answers": 4},
        ),
    )
    given = {name: op["count"] for name, op in summary["measured"]["ops"].items()}
    assert summary["answers"]["given"] == sum(given.values())  # those of the warm-up do not count
    assert summary["answers"]["sampled"] == sum(min(30, count) for count in given.values())
    assert summary["answers"]["by_kind"]["raw-one"] == min(30, given["raw-one"]) + 2
    assert summary["validity"]["checks"]["answers"]["state"] == "valid"
    (place,) = tmp_path.glob("*/process")
    numbers = [number for _, number in sampled(place.glob("*.answers.jsonl"), 1, 30)]
    assert max(numbers) > 0.5 * max(given.values())  # the first thirty of each process were kept before


def test_keeping_answers_takes_hardly_any_memory(tmp_path: Path) -> None:
    sample = AnswerSample(3, 2_000, tmp_path)
    tracemalloc.start()
    try:
        for number in range(3_000):
            rows = [(10**9, f"host_{number}", 0.5 * number * i) for i in range(100)]
            sample.add("a", number, QUERY, Rows(QUERY.columns, rows), TIMES_NS)
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert used < 4_000_000  # the rows themselves take 30 MB
    assert len(lines_of(sample, tmp_path / "x")) == 2_000
