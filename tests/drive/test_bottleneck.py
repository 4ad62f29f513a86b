"""A run that measured its own load generator is reported so, and no other run is."""

from pathlib import Path

import pytest

from tests.cli.support import disturbances
from tests.drive.support import document, run
from tsbench.run import locust_process

MILLISECOND = document(
    drive={"users": 8, "wait": "10ms", "duration": "2s"},
    op=[{"write": 1}],
    target={"name": "null", "settings": {"service": "1ms"}},
)


def test_a_process_that_burns_its_cpu_is_called_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(locust_process, "LOCUSTFILE", Path(__file__).parent / "burning.py")
    summary = run(tmp_path, MILLISECOND)
    assert summary["limited_by"] == "load generator"
    assert summary["validity"]["checks"]["limit"]["state"] == "inconclusive"


def test_the_same_load_without_the_burner_is_not(tmp_path):
    summary = run(tmp_path, MILLISECOND)
    limit = summary["limit"]
    assert summary["limited_by"] != "load generator" or limit["disturbed"], limit


def test_arrivals_that_the_load_process_overslept_are_not_the_databases(tmp_path, monkeypatch):
    monkeypatch.setattr(locust_process, "LOCUSTFILE", Path(__file__).parent / "burning.py")
    monkeypatch.setenv("BURN_S", "0.05")
    monkeypatch.setenv("REST_S", "0.45")
    # So many users that one is ready for every arrival, also if the machine stands still for a second.
    drive = {"loop": "open", "rate": 100, "users": 200, "wait": "0s", "duration": "4s"}
    summary = run(tmp_path, {**MILLISECOND, "drive": {**MILLISECOND["drive"], **drive}})
    schedule = summary["schedule"]
    assert schedule["late"] > 0.03 * schedule["scheduled"]
    # All of them on a quiet machine; a busy one holds up the ops too.
    assert schedule["generator_late"] > 0.5 * schedule["late"]
    assert summary["limited_by"] != "database"


@pytest.mark.parametrize("processes", [1, 2])
def test_histograms_locust_and_ledger_count_the_same(tmp_path, processes):
    summary = run(tmp_path, document(drive={"processes": processes}, op=[{"write": 1}]))
    counts = summary["validity"]["checks"]["counts"]
    assert counts["state"] == "valid"
    assert len(set(counts["counts"].values())) == 1
    loaded = summary["load"]["points"]
    assert summary["writes"]["acknowledged"] - loaded == counts["counts"]["locust"]
    disturbances(summary)  # else valid
