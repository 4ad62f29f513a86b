"""A load process that is killed takes the end of its ledger with it; its rows are judged as what they are."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.cli.support import complaint, content, nothing_left, only, says, scenario, started
from tsbench.collect.processes import LOCUST

if TYPE_CHECKING:
    from pathlib import Path

    from tsbench.targets.postgres.server import PostgresServer

POSTGRES = ("--set", "target.name=postgres")


@pytest.fixture
def embedded(postgres_server: PostgresServer) -> None:
    """Skip the test without the embedded PostgreSQL."""


@pytest.mark.nightly
@pytest.mark.postgres
def test_rows_of_a_lost_load_process_are_judged_as_such(tmp_path: Path, embedded: None) -> None:
    """Its ledger lacks the writes since its last flush, which are stored, and which answers under load had."""
    scenario(tmp_path, ('wait = "5ms"', 'wait = "0s"'), ("users = 2", "users = 8"), ('"raw-one"', '"lastpoint"'))
    with nothing_left():
        command = started(tmp_path, *POSTGRES, "--set", "drive.duration=15s", "--set", "drive.processes=2")
        command.until_measured()
        (master,) = (p for p in psutil.Process(command.process.pid).children() if LOCUST in p.cmdline())
        random.choice(master.children()).kill()
        assert command.wait() == 1, command.stderr
    says(complaint(command.stderr), "1 of 2 workers ended early: worker-", "killed by SIGKILL")
    summary = content(only(tmp_path, "results/*/postgres/summary.json"))
    checks, points = summary["validity"]["checks"], summary["writes"]
    assert (checks["answers"]["state"], points["unexpected"], points["lost"]) == ("valid", 0, 0), checks
    assert checks["writes"]["state"] == "valid"
    assert points["stored"] - points["expected"] - points["unknown"] == points["of_lost_processes"]
    if points["of_lost_processes"]:
        says(checks["writes"]["reason"], "rows of a lost load process (worker-")
