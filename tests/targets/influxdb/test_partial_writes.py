"""A run whose writes are refused in part: ledger, audit, summary and report account for every point."""

from __future__ import annotations

import urllib.request
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from tests.cli.support import Command, content, disturbances, failed_gates, only
from tests.targets.influxdb.test_v1 import ask
from tsbench.model import Outcome
from tsbench.results.ledger import read_ledgers
from tsbench.targets.influxdb.server import InfluxServer1

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


SCENARIO = """
question = "What becomes of points that are older than the retention policy?"
[world]
use_case = "cpu-only"
scale = 10
start = "now-56h"  # a write of 500 ticks spans 8 h 20 min: the fourth one crosses the age of a day
interval = "1m"
streams = 1
[load]
window = "10m"
[drive]
loop = "open"
rate = 2
users = 1
warmup = "0s"
duration = "4s"
[[op]]
write = 5000
[check]
answers = 0
[target]
name = "influxdb1"
"""


@pytest.fixture
def server(own_server: Callable[[InfluxServer1], InfluxServer1], tmp_path: Path) -> InfluxServer1:
    """A server that does not yet delete what has grown too old."""
    settings = {"version": "1.8", "retention.check-interval": "24h"}
    return own_server(InfluxServer1(tmp_path / "server", settings))


def shorten_retention(url: str) -> None:
    """Refuse, from now on, what is older than a day."""
    place, database = url.rsplit("/", 1)
    text = f'ALTER RETENTION POLICY "tsbench" ON "{database}" DURATION 1d SHARD DURATION 1h'
    urllib.request.urlopen(f"{place}/query", f"q={quote(text)}".encode()).close()


def stored(url: str) -> int:
    series = ask(url, 'SELECT count(usage_user) FROM "cpu"')
    return int(series[0]["values"][0][1]) if series else 0


@getattr(pytest.mark, "influxdb-1.8")
@pytest.mark.nightly
@pytest.mark.slow
def test_a_run_accounts_for_every_point_of_a_write_that_was_refused_in_part(
    server: InfluxServer1, tmp_path: Path
) -> None:
    (tmp_path / "old.toml").write_text(SCENARIO)
    # A point that is too old is taken all the same if a shard covers it, so that shards must be short.
    command = Command(tmp_path, "tsbench", "run", "old.toml", "--endpoint", f"{server.endpoint}?shard=1h")
    try:
        command.until_phase("measure")
        shorten_retention(server.endpoint)
        assert command.wait() == 1, "ops that failed break the built-in gate"
    finally:
        command.end()
    summary = content(only(tmp_path, "results/*/influxdb1/summary.json"))
    ledger = read_ledgers([only(tmp_path, "results/*/influxdb1/process/*.ledger")])
    (in_part,) = ledger["acknowledged"][ledger["outcome"] == Outcome.PARTIAL].tolist()
    assert 890 <= in_part <= 1_510, "ten hosts, 90 minutes of the write are younger than a day, and its shard's hour"
    writes, loaded, whole = summary["writes"], summary["load"]["points"], len(ledger) - 4
    assert writes["acknowledged"] == loaded + in_part + 5_000 * whole == stored(server.endpoint)
    assert writes["refused"] == 3 * 5_000 + 5_000 - in_part
    assert (writes["lost"], writes["unexpected"], writes["unknown"]) == (0, 0, 0)
    measured = summary["measured"]["write"]  # the first ops may be from before the measured window
    assert (measured["partial"], measured["unknown"]) == (1, 0)
    assert measured["points"] == in_part + 5_000 * measured["ok"]
    assert measured["causes"]["partial write"] == 1
    disturbances(summary)  # else valid
    assert "1 writes were refused in part" in failed_gates(summary)["failed ops<=0%"]
    page = only(tmp_path, "results/*/report.html").read_text(encoding="utf-8")
    assert "refused in part" in page
    assert f"{writes['refused']:,}" in page
