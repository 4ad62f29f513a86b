"""What Locust counts is what the files have, however late an op ends."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.drive.support import document, run
from tsbench.model import Outcome
from tsbench.results.ledger import read_ledgers
from tsbench.run import locust_process

if TYPE_CHECKING:
    from pathlib import Path

LATE = """
import gevent

from tsbench.drive.coordinator import Coordinator
from tsbench.drive.locustfile import *
from tsbench.model import OpError, Outcome
from tsbench.targets.null import NullSession
from tsbench.targets.target import Target

began = []


@events.init.add_listener
def _know(environment, **_):
    Coordinator.of(environment).began.append(began.append)


def end_late(*_, **__):
    while not began[0].closed:
        gevent.sleep(0.01)
    gevent.sleep(0.2)
    raise OpError(Outcome.UNKNOWN, "connection", "the server is gone")


{late} = end_late
"""
"""A locustfile in which ops or connections fail just after the load process has written its files."""


@pytest.fixture
def late(tmp_path, monkeypatch):
    """Return the summary and directory of a run whose ops end late."""

    def made(what, **drive):
        locustfile = tmp_path / "late.py"
        locustfile.write_text(LATE.replace("{late}", what))
        monkeypatch.setattr(locust_process, "LOCUSTFILE", locustfile)
        drive = {"users": 4, "duration": "1s", "wait": "0s", "stop_timeout": "1s", **drive}
        summary = run(tmp_path, document(drive=drive, op=[{"write": 1}], target={"name": "null"}, check={"answers": 0}))
        (cell,) = tmp_path.glob("null*")
        return summary, cell

    return made


def locust_count(cell: Path) -> int:
    return int(json.loads((cell / "process" / "locust.json").read_text())["requests"])


@pytest.mark.slow
def test_an_op_that_fails_after_the_end_counts_as_unknown_everywhere(late):
    summary, cell = late("NullSession.write")
    assert summary["validity"]["checks"]["counts"]["reason"] == ""
    count = summary["measured"]["write"]["count"]
    assert 1 <= count <= 4  # of each user that came to an op, which on a busy machine some may not
    assert locust_count(cell) == count
    assert list(summary["failures"].values()) == [count]
    outcomes = read_ledgers(sorted((cell / "process").glob("*.ledger")))["outcome"]
    assert np.array_equal(outcomes, [Outcome.UNKNOWN] * count)


@pytest.mark.slow
def test_an_arrival_that_ends_after_the_end_is_unfinished_and_its_write_unknown(late):
    summary, cell = late("NullSession.write", loop="open", rate=20)
    assert summary["validity"]["checks"]["counts"]["reason"] == ""
    unfinished = summary["schedule"]["unfinished"]
    assert 1 <= unfinished <= 4
    assert locust_count(cell) == 0
    assert len(read_ledgers(sorted((cell / "process").glob("*.ledger")))) == unfinished


@pytest.mark.slow
def test_a_connection_that_fails_after_the_end_counts_as_a_failed_one(late):
    summary, cell = late("Target.connect")
    assert summary["validity"]["checks"]["counts"]["reason"] == ""
    assert 1 <= locust_count(cell) <= 4
    failed = next(gate for gate in summary["gates"] if gate["gate"].startswith("failed connections"))
    assert failed["state"] == "fail"
