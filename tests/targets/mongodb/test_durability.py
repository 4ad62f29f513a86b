"""Whether acknowledged writes survive a crash, by write concern and kind of server, as MongoDB's manual has it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tsbench.results.rundir import RunDir
from tsbench.run.environment import is_durable, manifest_of_host
from tsbench.targets.mongodb import TARGET
from tsbench.targets.mongodb.commands import durability, majority_journals
from tsbench.targets.mongodb.schemas import PER_POINT

if TYPE_CHECKING:
    from tsbench.targets.mongodb.server import FerretdbServer

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("concern", "is_replica_set", "expected"),
    [
        ({}, False, "no"),
        ({"w": "majority"}, False, "no"),
        ({"j": True}, False, "yes"),
        ({}, True, "yes"),
        ({"w": "majority"}, True, "yes"),
        ({"w": "majority", "j": False}, True, "no"),
        ({"w": 1}, True, "no"),
        ({"w": 2}, True, "no"),
        ({"w": 1, "j": True}, True, "yes"),
    ],
)
def test_durable_follows_from_write_concern_journal_and_kind_of_server(
    concern: dict[str, Any], expected: str, *, is_replica_set: bool
) -> None:
    kind = {"is_replica_set": is_replica_set, "majority_is_journaled": True}
    found, why = durability(concern, **kind, is_persistent=True)
    assert found == expected
    assert ("add journal=true" in why) is (expected == "no")
    assert "assumed" not in why
    assert durability(concern, **kind, is_persistent=False)[0] == "no"


@pytest.mark.parametrize(
    ("answer", "expected", "said"),
    [
        ({"config": {"writeConcernMajorityJournalDefault": True}}, "yes", "replica set"),
        ({"config": {"_id": "rs0"}}, "yes", "replica set"),
        ({"config": {"writeConcernMajorityJournalDefault": False}}, "no", "add journal=true"),
        ({}, "yes", "writeConcernMajorityJournalDefault is assumed to be true: it could not be read"),
    ],
    ids=["set", "left out", "off", "no answer"],
)
def test_what_majority_waits_for_is_the_replica_sets_setting(answer: dict[str, Any], expected: str, said: str) -> None:
    majority = majority_journals(answer)
    for concern in ({}, {"w": "majority"}):
        found, why = durability(concern, is_replica_set=True, is_persistent=True, majority_is_journaled=majority)
        assert found == expected
        assert said in why
        assert ("assumed" in why) is (not answer)


@pytest.mark.parametrize(("said", "durable"), [({}, True), ({"durable": "no"}, False), ({"durable": "yes"}, True)])
def test_a_run_is_as_durable_as_its_server_says(said: dict[str, str], tmp_path: Path, *, durable: bool) -> None:
    run = RunDir(tmp_path)
    manifest_of_host(()).with_server(said).write(run)
    assert is_durable(run, TARGET) is durable


@pytest.mark.mongodb
def test_a_real_server_says_whether_it_is_durable(mongodb_endpoint: str) -> None:
    session: Any = TARGET.connect(mongodb_endpoint, PER_POINT)
    facts = session.facts()
    assert facts["durable"] in {"yes", "no"}
    setting = majority_journals(session._permitted("replSetGetConfig"))
    assert (setting is None) is (facts["replica_set"] == "none")
    assert "FerretDB" not in session.version or (facts["durable"], "commit" in facts["acknowledged"]) == ("yes", True)
    session.close()


@pytest.mark.mongodb
def test_tests_take_a_server_by_its_url(ferretdb_server: FerretdbServer, tmp_path: Path) -> None:
    """Without programs of its own, so that no other server can be started."""
    one = "tests/targets/mongodb/test_target.py::test_sessions_of_a_process_share_one_client"
    environ = {**os.environ, "TSBENCH_TEST_MONGODB": ferretdb_server.endpoint, "TSBENCH_SERVERS": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--require", "mongodb", one]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
