"""What the server deletes as `expireAfterSeconds` asks is no loss; what it must keep and has not, is one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.cli.support import Command, content, failed_gates, only
from tests.targets.mongodb import bare
from tsbench.check.audit import count_stored
from tsbench.check.expiry import Expiry
from tsbench.scenario.use_case import built_in_spec
from tsbench.targets.mongodb import TARGET
from tsbench.targets.mongodb.schemas import BUCKETED, PER_POINT, PER_POINT_INDEXED, PER_VALUE
from tsbench.testing import data
from tsbench.testing.data import CPU
from tsbench.testing.stand import SEED, Stand
from tsbench.units import NS_PER_S
from tsbench.workload.world import World

if TYPE_CHECKING:
    from pathlib import Path

    from tsbench.targets.base import Schema

pytestmark = pytest.mark.mongodb

TICKS, INTERVAL_S, EXPIRED = 60, 600, 40
DEADLINE_S = 240
"""MongoDB looks for expired documents every minute."""


@pytest.mark.nightly
def test_rows_that_the_server_deleted_since_they_were_old_are_no_loss(mongodb_endpoint: str, tmp_path: Path) -> None:
    after_s = (TICKS - EXPIRED) * INTERVAL_S + INTERVAL_S // 2
    start_ns = (int(time.time()) - TICKS * INTERVAL_S) * NS_PER_S
    world = World(built_in_spec("cpu-only", 4, SEED, start_ns, INTERVAL_S * NS_PER_S, 2))
    url = f"{mongodb_endpoint}?expireAfterSeconds={after_s}"
    assert TARGET.parse(mongodb_endpoint).expire_after_s is None
    expiry = Expiry.of(TARGET.parse(url).expire_after_s)
    stand = Stand(world, TARGET, PER_POINT, url, TICKS, expiry=expiry).load().write(tmp_path, 4)
    session, deadline = stand.connect(), time.monotonic() + DEADLINE_S
    while count_stored(session, PER_POINT, world.measurements) > 4 * (TICKS - EXPIRED) + 40:
        assert time.monotonic() < deadline, "the server has not deleted what is past the limit"
        time.sleep(1)
    session.close()
    assert stand.false_verdicts(stand.gold()) == set()
    stand.expiry = None
    assert stand.false_verdicts(stand.gold()) == {"rows", "count"}
    with bare.bare(mongodb_endpoint) as database:
        assert database["cpu"].delete_one({"time": bare.at(world.time_ns(TICKS - 1))}).deleted_count
    stand.expiry = expiry
    assert stand.false_verdicts(stand.gold()) == {"rows", "count"}


@pytest.mark.parametrize("schema", [PER_POINT, PER_POINT_INDEXED, PER_VALUE, BUCKETED], ids=lambda schema: schema.name)
def test_every_layout_has_one_index_by_which_documents_expire(mongodb_endpoint: str, schema: Schema) -> None:
    session = TARGET.connect(f"{mongodb_endpoint}?expireAfterSeconds=100", schema)
    session.run(schema.create([CPU], data.shared_tags()))
    session.close()
    with bare.bare(mongodb_endpoint) as database:
        (name,) = database.list_collection_names()
        found = [index for index in database[name].list_indexes() if "expireAfterSeconds" in index]
    hours = 3_600 if schema is BUCKETED else 0
    assert [(dict(one["key"]), one["expireAfterSeconds"]) for one in found] == [
        ({"_id.hour" if hours else "time": 1}, 100 + hours)
    ]


TINY = """
question = "Is a run valid although the server deletes what is older than six hours?"
world = { use_case = "cpu-only", scale = 5, start = "now-10h", interval = "10m", seed = 3 }
load = { window = "10h" }
drive = { users = 1, warmup = "0s", duration = "2s", wait = "20ms" }
op = [{ write = 1 }, { query = "single-groupby-1-1-1" }, { query = "lastpoint" }]
check = { answers = 6 }
target = { name = "mongodb" }
"""


@pytest.mark.nightly
@pytest.mark.slow
def test_a_run_on_a_server_that_deletes_old_points_is_right_and_counts_them(
    mongodb_endpoint: str, tmp_path: Path
) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    endpoint = f"{mongodb_endpoint}?expireAfterSeconds={6 * 3_600}"
    command = Command(tmp_path, "tsbench", "run", "tiny.toml", "--endpoint", endpoint)
    assert command.wait() in {0, 1}, command.stderr
    summary = content(only(tmp_path, "results/*/*/summary.json"))
    assert failed_gates(summary) == {}
    checks = summary["validity"]["checks"]
    assert [checks[name]["state"] for name in ("answers", "writes")] == ["valid", "valid"], checks
    assert 4 * 6 * 5 <= summary["writes"]["expirable"] <= 4 * 6 * 5 + 5
    assert summary["answers"]["expired"] > 0
    assert "may have expired" in only(tmp_path, "results/*/report.html").read_text()
