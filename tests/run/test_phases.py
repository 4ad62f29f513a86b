"""A run keeps how long each of its phases took, also one that was broken off."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.run.test_lifecycle import Log, LoggedServer, cell, parts_of
from tsbench.errors import Broken
from tsbench.results.figures import Measured, Window
from tsbench.results.json_files import read_json
from tsbench.results.rundir import RunDir
from tsbench.run.lifecycle import run_job
from tsbench.run.phases import Phases, Quiet

if TYPE_CHECKING:
    from pathlib import Path


class Clock:
    """Seconds that a test sets."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_the_durations_of_all_phases_add_up_and_the_measuring_is_divided():
    clock = Clock()
    phases = Phases(Quiet(), clock)
    for name, taken_s in {"start": 2, "load": 30, "settle": 1, "measure": 77.5}.items():
        phases.phase(name)
        clock.now_s += taken_s
    phases.time("figures")
    assert phases.current == "measure"  # what an interrupt says
    clock.now_s += 3
    phases.phase("check")
    clock.now_s += 20
    found = phases.durations_s(window(12.5, 60))
    clock.now_s += 4
    assert found == {
        "total": 133.5,
        "start": 2,
        "load": 30,
        "settle": 1,
        "load processes": 5,
        "warm-up": 12.5,
        "measured window": 60,
        "figures": 3,
        "check": 20,
    }
    assert phases.durations_s()["measure"] == 77.5  # nothing is known of its parts
    assert phases.durations_s(window(600, 1))["measure"] == 77.5  # not reached
    assert phases.durations_s()["check"] == 24


def window(warmup_s: float, duration_s: float) -> Measured:
    of = Window(start_s=5, duration_s=duration_s, warmup_s=warmup_s)
    return Measured(duration_s=duration_s, window=of, ops={})


@pytest.mark.slow
@pytest.mark.parametrize("fail", [None, Broken("it broke")], ids=["complete", "failed"])
def test_the_summary_has_the_phases_that_the_run_reached(tmp_path: Path, fail: Broken | None):
    log, spec = Log(), cell(tmp_path)
    server = LoggedServer(log)
    run_job(spec, tmp_path, Quiet(), parts_of(log, server, fail=fail))
    place = RunDir(tmp_path / (f"{spec.id}.partial" if fail else spec.id))
    found = read_json(place / "summary.json")["durations_s"]
    total_s = found.pop("total")
    assert [*found] == ["start", "load", "settle", "measure", *([] if fail else ["figures", "check"])]
    assert total_s == pytest.approx(sum(found.values()), abs=0.01)
