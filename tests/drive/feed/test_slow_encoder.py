"""Encoding a write is in no op's time, however slow it is and whatever it holds while it lasts."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.drive.support import document, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HOOK = """
import time
from tsbench.targets.null import NullSchema

sleep, encode_each = time.sleep, NullSchema.encode_each
calls = 0


def burn(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def fail(_):
    global calls
    calls += 1
    if calls > 100:
        raise ValueError("no more\\nof this")


def slow(self, batch, points, mode):
    for payload in encode_each(self, batch, points, mode):
        if points > 1:
            {act}({seconds})
        yield payload


NullSchema.encode_each = slow
"""
"""Runs at the start of every Python process, before gevent replaces `time.sleep`."""
OPEN = {"loop": "open", "users": 20, "wait": "0s"}
MS = 1_000_000


@pytest.fixture
def encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Make encoding a write of many points slow in all new processes; return a directory for results."""

    def slow(act: str, seconds: float = 0.0) -> Path:
        hook, results = tmp_path / "hook", tmp_path / "results"
        hook.mkdir()
        results.mkdir()
        (hook / "sitecustomize.py").write_text(HOOK.format(act=act, seconds=seconds), encoding="utf-8")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(hook), *filter(None, [os.environ.get("PYTHONPATH")])]))
        return results

    return slow


def writes(*ops: dict[str, Any], **drive: Any) -> dict[str, Any]:
    return document(drive=drive, op=list(ops), target={"name": "null", "settings": {"service": "1ms"}})


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("act", ["sleep", "burn"])
def test_an_encoder_that_takes_100_ms_per_write_moves_no_percentile(encoder, act: str) -> None:
    # Five of these writes a second: encoding them on the event loop stopped all users half of the time, p90 was 160 ms.
    ops = {"write": 1, "weight": 19}, {"write": 500, "weight": 1}
    summary = run(encoder(act, 0.1), writes(*ops, **OPEN, rate=100, warmup="2s", duration="6s"))
    assert summary["schedule"]["scheduled"] == 600
    assert summary["encode_s"] > 1.6  # 16 writes before the start, the others meanwhile
    limit = summary["limit"]
    assert limit["hub_lag_p50_ns"] < 20 * MS or limit["disturbed"]
    for time_ns in ("response_ns", "service_ns"):
        found = summary["measured"]["write"][time_ns]
        assert found["p50"] < 100 * MS  # no op has an encoding in it
        assert found["p90"] < 100 * MS or limit["disturbed"]  # which delays the encoder until no write is left


@pytest.mark.nightly
def test_users_of_a_closed_loop_that_wait_for_the_encoder_measure_the_load_generator(encoder) -> None:
    summary = run(encoder("sleep", 0.2), writes({"write": 500}, users=4, wait="0s", warmup="2s", duration="4s"))
    found = summary["measured"]["write"]
    assert 1 <= found["count"] <= 30  # the encoder makes 5 a second
    assert found["response_ns"]["p50"] < 200 * MS  # every other op had 400 ms of encoding in it
    assert summary["limited_by"] == "load generator"
    assert "for writes to be encoded" in summary["validity"]["reason"] or summary["limit"]["disturbed"]


@pytest.mark.nightly
def test_arrivals_that_wait_for_the_encoder_are_the_load_generators_delay(encoder) -> None:
    drive = {**OPEN, "rate": 10, "warmup": "4s", "duration": "4s", "stop_timeout": "1s"}
    summary = run(encoder("sleep", 0.2), writes({"write": 500}, **drive))  # the encoder makes 5 a second
    schedule = summary["schedule"]
    assert schedule["scheduled"] - schedule["done"] > 5  # late, or on a busy machine dropped
    assert schedule["generator_late"] >= 0.5 * schedule["late"]  # all of them on a quiet machine
    assert summary["limited_by"] == "load generator"
    if schedule["late"]:
        assert summary["measured"]["write"]["service_ns"]["p50"] < 200 * MS


@pytest.mark.slow
def test_an_encoder_that_fails_ends_the_run_with_its_reason(encoder) -> None:
    results = encoder("fail")
    summary = run(results, writes({"write": 500}, users=2, wait="50ms", duration="30s"))
    (status,) = [json.loads(path.read_text()) for path in results.glob("*/status.json")]
    assert status["state"] == "failed"
    assert "writes cannot be encoded: ValueError: no more of this" in status["error"]
    assert summary["measured"]["write"]["count"] > 0  # what was measured is kept


@pytest.mark.slow
def test_an_encoder_that_is_killed_ends_the_run(tmp_path: Path) -> None:
    killed: list[int] = []

    def kill() -> None:
        give_up = time.monotonic() + 240
        while time.monotonic() < give_up and not (found := _measuring(tmp_path)):
            time.sleep(0.1)
        for pid in found:
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    killer = Thread(target=kill)
    killer.start()
    began = time.monotonic()
    run(tmp_path, writes({"write": 1}, users=4, wait="1ms", duration="600s"))
    assert time.monotonic() - began < 500
    killer.join()
    (status,) = [json.loads(path.read_text()) for path in tmp_path.glob("*/status.json")]
    assert len(killed) == 1
    assert status["state"] == "failed"
    assert "the encoder has ended" in status["error"]


def _measuring(directory: Path) -> list[int]:
    """Return the encoders below this process, once ops have been recorded."""
    if not any(path.stat().st_size for path in directory.glob("*/process/*.ledger")):
        return []
    return _encoders()


def _encoders() -> list[int]:
    """Return the encoders below this process; one that has ended has no command line any more."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "feed.encoder" in " ".join(child.cmdline()):
                found.append(child.pid)
    return found


@pytest.mark.slow
def test_no_encoder_outlives_its_run(tmp_path: Path) -> None:
    run(tmp_path, writes({"write": 1}, users=4, processes=2, wait="1ms", duration="2s"))
    assert _encoders() == []
