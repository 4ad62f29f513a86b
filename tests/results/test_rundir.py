from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import pytest

from tsbench.errors import Broken, UserMistake
from tsbench.results.json_files import read_json
from tsbench.results.reading import read_bytes
from tsbench.results.rundir import FORMAT, RunDir, find_runs, new_set, undated, write_json

if TYPE_CHECKING:
    from pathlib import Path


def complete(results: Path, cell: str) -> RunDir:
    run = RunDir.create(results, cell)
    run.write_json("spec.json", {"id": cell})
    return run.finish("complete")


def test_a_run_is_partial_until_it_is_complete(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "a-1")
    assert run.path.name == "a-1.partial"
    assert (run / "latency").is_dir()
    assert (run / "process").is_dir()
    done = run.finish("complete")
    assert (done.path.name, done.cell_id, run.cell_id) == ("a-1", "a-1", "a-1")
    assert not run.path.exists()
    assert done.status().state == "complete"
    assert done.status().format == FORMAT


def test_a_failed_run_stays_partial_and_keeps_its_evidence(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "a")
    (run / "server.log").write_text("out of memory")
    failed = run.finish("failed", error="the server died")
    assert failed.path.name == "a.partial"
    assert (failed / "server.log").read_text() == "out of memory"
    assert (failed.status().state, failed.status().error) == ("failed", "the server died")


def test_a_run_without_a_status_was_interrupted(tmp_path: Path) -> None:
    status = RunDir.create(tmp_path, "a").status()
    assert (status.state, status.format) == ("interrupted", FORMAT)
    assert status.error


def test_a_new_attempt_replaces_a_failed_one_and_then_a_complete_one(tmp_path: Path) -> None:
    first = RunDir.create(tmp_path, "a")
    (first / "old").write_text("x")
    second = RunDir.create(tmp_path, "a")
    assert not second.has("old")
    second.write_json("spec.json", {"attempt": 2})
    second.finish("complete")
    third = RunDir.create(tmp_path, "a")
    third.write_json("spec.json", {"attempt": 3})
    assert read_json(tmp_path / "a" / "spec.json") == {"attempt": 2}, "kept until the new one is complete"
    assert third.finish("complete").read_json("spec.json") == {"attempt": 3}
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_json_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"name": "naïve ☃", "n": 1})
    assert read_json(path) == {"name": "naïve ☃", "n": 1}
    with pytest.raises(TypeError):
        write_json(path, {"n": object()})
    assert read_json(path)["n"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_what_cannot_be_written_is_told_with_the_cure(tmp_path: Path) -> None:
    with pytest.raises(Broken, match=r"cannot write .*x\.json: .*; free some room or choose another place with --out"):
        write_json(tmp_path / "missing" / "x.json", {})
    (tmp_path / "file").write_text("")
    with pytest.raises(UserMistake, match="choose another place with --out"):
        RunDir.create(tmp_path / "file", "a")


@pytest.mark.parametrize("content", ["", "{", "[1]", "nonsense", '{"a": '])
def test_a_damaged_file_is_named_in_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "summary.json"
    path.write_text(content)
    with pytest.raises(UserMistake, match=r"summary\.json is damaged") as caught:
        read_json(path)
    assert "\n" not in str(caught.value)
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(UserMistake, match="damaged"):
        read_json(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match=r"summary\.json is missing"):
        RunDir(tmp_path).read_json("summary.json")


def test_the_runs_of_a_result_set_are_found_by_name_complete_or_not(tmp_path: Path) -> None:
    complete(tmp_path, "b")
    complete(tmp_path, "a")
    RunDir.create(tmp_path, "c").write_json("spec.json", {})
    RunDir.create(tmp_path, "no-spec-yet")
    (tmp_path / "report.html").write_text("")
    assert [run.path.name for run in find_runs(tmp_path)] == ["a", "b", "c.partial"]


def test_a_run_is_a_result_set_of_its_own(tmp_path: Path) -> None:
    complete(tmp_path, "a")
    assert [run.cell_id for run in find_runs(tmp_path / "a")] == ["a"]


def test_a_directory_without_runs_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match="holds no run of tsbench"):
        list(find_runs(tmp_path))
    with pytest.raises(UserMistake, match="is not a directory"):
        list(find_runs(tmp_path / "nothing"))


def test_a_run_of_another_format_is_refused_with_the_cure(tmp_path: Path) -> None:
    complete(tmp_path, "a").write_json("status.json", {"format": FORMAT + 1, "state": "complete"})
    with pytest.raises(UserMistake, match=f"newer tsbench .format {FORMAT + 1} > {FORMAT}.; update tsbench"):
        list(find_runs(tmp_path))
    RunDir(tmp_path / "a").write_json("status.json", {"format": FORMAT - 1, "state": "complete"})
    with pytest.raises(UserMistake, match=f"earlier tsbench .format {FORMAT - 1}, now {FORMAT}.; run the"):
        list(find_runs(tmp_path))
    RunDir(tmp_path / "a").write_json("status.json", {"format": FORMAT, "state": "complete"})
    assert len(list(find_runs(tmp_path))) == 1


def test_sets_that_begin_in_one_second_have_a_directory_each(tmp_path: Path) -> None:
    made = [new_set(tmp_path / "out", "load-sqlite") for _ in range(3)]
    assert len(set(made)) == 3
    assert all(path.is_dir() and undated(path) == "load-sqlite" for path in made)


@pytest.mark.parametrize("out", ["file", "file/below"])
def test_a_place_that_takes_no_results_is_named_with_the_cure(tmp_path: Path, out: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserMistake, match=r"cannot write to .*; choose another place with --out"):
        new_set(tmp_path / out, "load-sqlite")


def test_a_small_file_takes_little_memory_however_large_it_might_be(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"seven B")
    tracemalloc.start()
    try:
        assert read_bytes(tmp_path / "log", 100_000_000) == b"seven B"
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
