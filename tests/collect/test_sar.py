from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from tsbench.collect import sar
from tsbench.collect.processes import HostCollector
from tsbench.collect.sar import SarCollector

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.sysstat


@pytest.fixture
def _sysstat() -> None:
    if sar.recorder() is None:
        pytest.skip("sysstat is not installed")


@pytest.mark.usefixtures("_sysstat")
def test_what_sadc_records_meets_what_is_sampled_beside_it(tmp_path: Path) -> None:
    recorded, sampled = SarCollector(tmp_path / "sar.data"), HostCollector()
    begun = time.time()
    recorded.start()
    sampled.start()
    process = recorded._process
    assert process is not None
    end = time.monotonic() + 1.5
    while time.monotonic() < end:  # a core for the first half
        pass
    time.sleep(end + 1.8 - time.monotonic())
    rows, others = recorded.stop(), sampled.stop()
    assert process.poll() is not None
    assert recorded.trouble == ""
    assert len(rows) >= 2
    assert all(abs(float(row["second"]) - begun - n) < 1.1 for n, row in enumerate(rows))
    idle = [float(row["cpu_idle_percent"]) + float(row["cpu_iowait_percent"]) for row in rows]
    busy = [float(row["cpu_percent"]) for row in others]
    # Within a tenth over their common time: the two cut their seconds at different moments.
    assert 100 - sum(idle) / len(idle) == pytest.approx(sum(busy) / len(busy), abs=15)
    assert (tmp_path / "sar.data").exists()


@pytest.mark.usefixtures("_sysstat")
def test_a_recorder_that_ended_early_is_told_and_breaks_nothing(tmp_path: Path) -> None:
    collector = SarCollector(tmp_path / "missing" / "sar.data")
    collector.start()
    time.sleep(0.2)
    assert list(collector.stop()) == []
    assert "sar recorded nothing" in collector.trouble


def test_without_sysstat_there_is_nothing_and_no_complaint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sar, "PLACES", ())
    collector = SarCollector(tmp_path / "sar.data")
    collector.start()
    assert (list(collector.stop()), collector.trouble) == ([], "")


@pytest.mark.usefixtures("_sysstat")
def test_a_recorder_that_does_not_stop_is_killed_and_named_and_its_samples_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sar, "STOP_S", 0.3)
    collector = SarCollector(tmp_path / "sar.data")
    collector.start()
    process = collector._process
    assert process is not None
    time.sleep(2.5)
    process.send_signal(signal.SIGSTOP)  # it does not hear SIGINT now
    rows = collector.stop()
    assert process.returncode == -signal.SIGKILL
    assert collector.trouble == "sadc did not end within 0.3 s and was killed; its last seconds may be missing"
    assert len(rows) >= 1
