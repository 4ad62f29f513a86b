"""The client's floor: writes to a sink, a stand-in that acknowledges at once. No server is needed."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.drive.support import document, run
from tsbench.results.rundir import RunDir
from tsbench.run import client_floor as module
from tsbench.run.client_floor import NEAR_NS, client_floor
from tsbench.run.findings import Findings
from tsbench.scenario.spec import RunSpec, Scenario
from tsbench.targets.registry import SINKS, TARGETS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow a busy machine more time for the start of two processes."""
    monkeypatch.setattr(module, "LIMIT_S", 600.0)


def prepared(directory: Path, target: str, ops: list[dict[str, Any]]) -> tuple[RunDir, RunSpec]:
    """A run directory as it is after the load."""
    (spec,) = Scenario(directory / "test.toml", document(op=ops, target={"name": target})).expand()
    run = RunDir.create(directory, spec.id)
    run.write_json("spec.json", spec.model_dump(mode="json", by_alias=True))
    return run, spec


def found(p50_ns: dict[str, int]) -> Findings:
    """What was measured: the median of each op; queries are those that do not write."""
    ops = {
        name: {"kind": "write" if name.startswith("write-") else "query", "ok": 9, "service_ns": {"p50": ns}}
        for name, ns in p50_ns.items()
    }
    return Findings({"measured": {"ops": ops}})


def running() -> list[list[str]]:
    """Return the commands of sinks and of their clients that run."""
    commands = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            commands.append(child.cmdline())
    return [words for words in commands if {"tsbench.run.sink", "tsbench.drive.floor_writer"} & {*words}]


def test_sinks_are_of_targets() -> None:
    assert set(SINKS) <= set(TARGETS)
    for sink in SINKS.values():
        assert sink.endpoint.format(port=1) != sink.endpoint


@pytest.mark.parametrize("target", SINKS)
def test_the_floor_of_each_quick_write_is_known_no_password_is_sent_and_nothing_runs_on(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TSBENCH_PASSWORD_FILE", "TSBENCH_TOKEN_FILE"):  # which would be an error if they were read
        monkeypatch.setenv(name, str(tmp_path / "nothing"))
    ops: list[dict[str, Any]] = [{"write": 1}, {"write": 100}, {"write": 50, "mode": "bulk"}, {"query": "raw-one"}]
    place, spec = prepared(tmp_path, target, ops)
    medians = {"write-1": 100_000, "write-50": 100_000, "write-100": NEAR_NS + 1, "raw-one": 100_000}
    parts = client_floor(place, spec, found(medians)).parts
    assert "client_floor_error" not in parts, parts
    assert parts["client_floor_ns"].keys() == {"write-1", "write-50"}
    assert all(ns > 1_000 for ns in parts["client_floor_ns"].values()), parts
    assert running() == []


def test_a_target_without_a_sink_and_slow_writes_have_no_floor(tmp_path: Path) -> None:
    place, spec = prepared(tmp_path, "memory", [{"write": 1}])
    assert client_floor(place, spec, found({"write-1": 100_000})).parts == {"client_floor_ns": {}}
    place, spec = prepared(tmp_path / "other", next(iter(SINKS)), [{"write": 1}])
    assert client_floor(place, spec, found({"write-1": NEAR_NS + 1})).parts == {"client_floor_ns": {}}
    assert client_floor(place, spec, Findings()).parts == {"client_floor_ns": {}}


def test_a_floor_that_could_not_be_measured_is_unknown_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, spec = prepared(tmp_path, next(iter(SINKS)), [{"write": 1}])
    (place / "spec.json").write_text("{}", encoding="utf-8")
    parts = client_floor(place, spec, found({"write-1": 100_000})).parts
    assert parts["client_floor_ns"] == {}
    assert parts["client_floor_error"]
    monkeypatch.setattr(module, "LIMIT_S", 0.01)
    began = time.monotonic()
    assert "timed out" in client_floor(place, spec, found({"write-1": 100_000})).parts["client_floor_error"]
    assert time.monotonic() - began < 60


def test_the_floor_rises_with_what_the_client_does_for_a_write(tmp_path: Path) -> None:
    place, spec = prepared(tmp_path, next(iter(SINKS)), [{"write": 1}, {"write": 500}])
    parts = client_floor(place, spec, found({"write-1": 1, "write-500": 1})).parts
    assert "client_floor_error" not in parts, parts
    floors = parts["client_floor_ns"]
    assert floors["write-500"] > floors["write-1"]


def test_a_sink_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    place, spec = prepared(tmp_path, next(iter(SINKS)), [{"write": 1}])
    program = f"""
import os, sys, threading, time
from pathlib import Path
from tsbench.run import client_floor
from tsbench.results.rundir import RunDir
import psutil
def look():
    while len(children := psutil.Process().children()) < 2:
        time.sleep(0.01)
    print(*(child.pid for child in children), flush=True)
    os._exit(0)
threading.Thread(target=look, daemon=True).start()
client_floor._measure(RunDir(Path({str(place.path)!r})), {spec.target.name!r}, ["write-1"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=240)
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2, done.stderr
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], timeout=60)
    assert not [one for one in alive if one.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.postgres
def test_a_run_on_a_server_states_the_floor_of_its_writes(postgres_endpoint: str, tmp_path: Path) -> None:
    summary = run(tmp_path, document(target={"name": "postgres", "endpoint": postgres_endpoint}))
    assert summary.get("client_floor_error") is None
    assert summary["client_floor_ns"].keys() == {"write-1"}
    assert summary["client_floor_ns"]["write-1"] > 0
