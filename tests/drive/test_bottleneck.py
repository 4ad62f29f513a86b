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


@pytest.mark.slow
def test_a_process_that_burns_its_cpu_is_called_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(locust_process, "LOCUSTFILE", Path(__file__).parent / "burning.py")
    monkeypatch.setenv("BURN_S", "0.025")  # longer than think time and answer, however little CPU others leave it
    summary = run(tmp_path, MILLISECOND)
    assert summary["limited_by"] == "load generator"
    assert summary["validity"]["checks"]["limit"]["reason"].startswith("the load generator was the limit")


@pytest.mark.slow
def test_the_same_load_without_the_burner_is_not(tmp_path):
    summary = run(tmp_path, MILLISECOND)
    limit = summary["limit"]
    assert summary["limited_by"] != "load generator" or limit["disturbed"], limit


@pytest.mark.slow
@pytest.mark.postgres
def test_a_busy_client_does_not_stretch_the_think_time(tmp_path, monkeypatch, postgres_endpoint):
    monkeypatch.setattr(locust_process, "LOCUSTFILE", Path(__file__).parent / "burning.py")
    monkeypatch.setenv("BURN_S", "0.006")  # for 60 % of the time
    monkeypatch.setenv("REST_S", "0.004")
    summary = run(
        tmp_path,
        document(
            drive={"users": 20, "wait": "50ms", "warmup": "1s", "duration": "5s"},
            op=[{"write": 1}],
            target={"name": "postgres", "endpoint": postgres_endpoint},
        ),
    )
    if summary["limit"]["hub_lag_p99_ns"] > 100_000_000:
        pytest.skip("the machine gave the load process no CPU for more than a tenth of a second")
    written = summary["measured"]["write"]
    # An op's cycle: from its arrival on 50 ms of thinking, and the time of the next op on the wire.
    per_s = 20 / (0.05 + written["service_ns"]["mean"] / 1e9)
    says_so = summary["limited_by"] == "load generator" and summary["validity"]["checks"]["limit"]["state"]
    assert summary["limit"]["in_time_per_s"] == pytest.approx(per_s, rel=0.05)
    assert says_so or written["ops_per_s"] == pytest.approx(per_s, rel=0.05)


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_histograms_locust_and_ledger_count_the_same(tmp_path, processes):
    summary = run(tmp_path, document(drive={"processes": processes}, op=[{"write": 1}]))
    counts = summary["validity"]["checks"]["counts"]
    assert counts["state"] == "valid"
    assert len(set(counts["counts"].values())) == 1
    loaded = summary["load"]["points"]
    assert summary["writes"]["acknowledged"] - loaded == counts["counts"]["locust"]
    disturbances(summary)  # else valid
