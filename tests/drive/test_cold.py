"""A cold run measures from the first op on, and reports it by itself."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.drive.support import document, run
from tsbench.errors import UserMistake
from tsbench.report.html import write_report
from tsbench.scenario.spec import RunSpec, Scenario

if TYPE_CHECKING:
    from pathlib import Path

HOOK = """
import time
from tsbench.targets.sqlite import session

sleep, query = time.sleep, session.SqliteSession.query
is_first = True


def first_slow(self, statement, columns):
    global is_first
    if is_first:
        is_first = False
        sleep(0.5)
    return query(self, statement, columns)


session.SqliteSession.query = first_slow
"""
MS = 1_000_000


def cold(**drive: Any) -> dict[str, Any]:
    ops = [{"write": 1}, {"query": "raw-one"}]
    found = document(drive={"users": 1, **drive}, op=ops, target={"name": "sqlite", "cold": True})
    found["drive"] = {key: value for key, value in found["drive"].items() if value != "0s"}
    return found


def specs(tmp_path: Path, **drive: Any) -> list[RunSpec]:
    return Scenario(tmp_path / "cold.toml", cold(**drive)).expand()


@pytest.mark.slow
def test_the_first_op_of_each_kind_is_measured_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hook, results = tmp_path / "hook", tmp_path / "results"
    hook.mkdir()
    results.mkdir()
    (hook / "sitecustomize.py").write_text(HOOK, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(hook), *filter(None, [os.environ.get("PYTHONPATH")])]))
    summary = run(results, cold())
    monkeypatch.undo()
    (table,) = results.glob("*/ops.parquet")
    assert pl.read_parquet(table)["second"].min() == 0  # none before the window
    first, found = summary["firsts"]["raw-one"], summary["measured"]["ops"]["raw-one"]
    assert first["outcome"] == "ok"
    assert 500 * MS < first["service_ns"] <= first["response_ns"]
    assert found["response_ns"]["max"] >= first["response_ns"] * 0.99
    assert found["response_ns"]["p50"] < first["response_ns"] / 2
    assert summary["firsts"]["write-1"]["service_ns"] > 0
    text = re.sub(r"<[^>]+>", " ", write_report(results).read_text(encoding="utf-8"))
    assert summary["cold"]["pages"] > summary["cold"]["after"] == 0
    assert re.search(r"After the cold start\s.*first raw-one\s+[\d.]+ m?s \(service [\d.]+ m?s\)", text, re.DOTALL)
    assert re.search(r"pages of its files in the page cache\s+0 \(of \d+;", text)


@pytest.mark.slow
def test_a_run_that_is_not_cold_has_no_first_ops(tmp_path: Path) -> None:
    assert run(tmp_path, document(drive={"duration": "1s"}))["firsts"] == {}


def test_a_cold_run_has_no_warm_up(tmp_path: Path) -> None:
    assert [spec.drive.warmup for spec in specs(tmp_path)] == [0]
    assert [spec.drive.warmup for spec in specs(tmp_path, warmup=0)] == [0]
    again = [RunSpec.model_validate(spec.model_dump(mode="json", by_alias=True)) for spec in specs(tmp_path)]
    assert again == specs(tmp_path)


def test_a_warm_up_of_a_cold_run_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match=r"cold.toml: drive.warmup: a run with target.cold has none.*; take it out"):
        specs(tmp_path, warmup="3s")
