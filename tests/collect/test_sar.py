from __future__ import annotations

import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.collect.test_processes import running
from tsbench.collect import sysstat
from tsbench.collect.processes import HostCollector
from tsbench.collect.sysstat import SarCollector
from tsbench.errors import UserMistake

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.sysstat, pytest.mark.every_user]


@pytest.fixture
def _sysstat() -> None:
    if sysstat.recorder() is None:
        pytest.skip("sysstat is not installed")


def until_recorded(collector: SarCollector, rows: int) -> None:
    """Wait until so many rows can be read."""
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up:
        with suppress(UserMistake):
            if len(sysstat.read(collector._file)) >= rows:
                return
        time.sleep(0.2)
    raise AssertionError(f"there are no {rows} rows")


@pytest.mark.usefixtures("_sysstat")
def test_what_sadc_records_is_on_the_scale_of_what_is_sampled_beside_it(tmp_path: Path) -> None:
    with running("print('ready')\nwhile True: pass"):
        recorded, sampled = SarCollector(tmp_path / "sar.data"), HostCollector()
        begun = time.time()
        recorded.start()
        sampled.start()
        process = recorded._child
        assert process is not None
        until_recorded(recorded, 2)
        rows, others = recorded.stop(), sampled.stop()
        ended = time.time()
    assert not process.alive
    assert recorded.trouble == ""
    assert all(begun - 1.1 < float(row["second"]) < ended for row in rows)
    idle = [float(row["cpu_idle_percent"]) + float(row["cpu_iowait_percent"]) for row in rows]
    for busy in ([100 - percent for percent in idle], [float(row["cpu_percent"]) for row in others]):
        assert 60 / psutil.cpu_count() < sum(busy) / len(busy) <= 100  # a core is busy all the time


@pytest.mark.usefixtures("_sysstat")
def test_a_recorder_that_ended_early_is_told_and_breaks_nothing(tmp_path: Path) -> None:
    collector = SarCollector(tmp_path / "missing" / "sar.data")
    collector.start()
    time.sleep(0.2)
    assert list(collector.stop()) == []
    assert "sar recorded nothing" in collector.trouble


def test_without_sysstat_there_is_nothing_and_no_complaint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysstat, "PLACES", ())
    collector = SarCollector(tmp_path / "sar.data")
    collector.start()
    assert (list(collector.stop()), collector.trouble) == ([], "")


@pytest.mark.usefixtures("_sysstat")
def test_a_recorder_that_does_not_stop_is_killed_and_named_and_its_samples_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sysstat, "STOP_S", 0.3)
    collector = SarCollector(tmp_path / "sar.data")
    collector.start()
    child = collector._child
    assert child is not None
    until_recorded(collector, 1)
    child.send_signal(signal.SIGSTOP)  # it does not hear SIGINT now
    rows = collector.stop()
    assert child.ended() == "killed by SIGKILL"
    assert collector.trouble == "sadc did not end within 0.3 s and was killed; its last seconds may be missing"
    assert len(rows) >= 1
