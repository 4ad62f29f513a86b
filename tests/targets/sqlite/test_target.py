from __future__ import annotations

import json
import signal
import sqlite3
import time
from typing import TYPE_CHECKING, Any

import pytest

from tsbench.errors import UserMistake
from tsbench.model import Measurement, OpError, Outcome, WriteMode
from tsbench.targets.base import Statement
from tsbench.targets.sqlite import TARGET
from tsbench.targets.sqlite.schemas import WAL
from tsbench.testing import data
from tsbench.testing.contract import TargetContract
from tsbench.testing.data import CPU, START_NS, S

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tsbench.targets.base import Payload, Schema, Session
    from tsbench.targets.target import Target
    from tsbench.testing.contract_base import Alteration, Point


class TestSqlite(TargetContract):
    name = "sqlite"
    wrong_endpoints = ("nonsense", "sqlite://relative.db", "sqlite:///no/such/directory/x.db")

    @pytest.fixture
    def url(self, sqlite_endpoint: str) -> str:
        return sqlite_endpoint

    @staticmethod
    def stored(url: str, measurement: Measurement) -> Sequence[Point]:
        connection = sqlite3.connect(url.removeprefix("sqlite://"))
        connection.row_factory = sqlite3.Row
        rows = connection.execute(f'SELECT * FROM "{measurement.name}"').fetchall()
        connection.close()
        return [
            (
                row["time"],
                row["tags_id"] if measurement.tags else None,
                *(float(row[name]) for name in measurement.field_names),
                json.loads(row["additional_tags"]) if measurement.own_tags else None,
            )
            for row in rows
        ]

    @staticmethod
    def alter(url: str, alteration: Alteration) -> None:
        connection = sqlite3.connect(url.removeprefix("sqlite://"))
        for statement in alteration.sql(str(alteration.time_ns)):
            connection.execute(statement)
        connection.commit()
        connection.close()

    def refused_in_part(
        self, session: Session, target: Target, url: str, schema: Schema, mode: WriteMode
    ) -> tuple[Session, Payload, int]:
        connection = sqlite3.connect(url.removeprefix("sqlite://"))
        refusal = "CREATE TRIGGER no BEFORE INSERT ON cpu WHEN NEW.time > {} BEGIN SELECT RAISE(ABORT, 'no'); END"
        connection.execute(refusal.format(START_NS))
        connection.close()
        batch = data.batch(CPU, data.shared_tags(), time_ns=[START_NS, START_NS - S, START_NS + S])
        return session, schema.encode(batch, mode), 1


def test_a_file_that_is_no_database_is_the_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("this is a letter to somebody " * 50)
    with pytest.raises(UserMistake, match="file is not a database"):
        TARGET.connect(f"sqlite://{tmp_path / 'x.db'}", WAL)


def test_a_write_that_waits_too_long_for_its_turn_is_busy(sqlite_endpoint: str) -> None:
    session = TARGET.connect(sqlite_endpoint, WAL, timeout_s=1.0)
    session.run(WAL.create([CPU], data.shared_tags()))
    other = sqlite3.connect(sqlite_endpoint.removeprefix("sqlite://"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    payload = WAL.encode(data.batch(CPU, data.shared_tags(), time_ns=[START_NS]), WriteMode.BULK)
    with pytest.raises(OpError) as caught:
        session.write(payload)
    assert (caught.value.outcome, caught.value.cause) == (Outcome.FAILED, "busy")
    other.execute("ROLLBACK")
    assert session.write(payload) == 1
    other.close()
    session.close()


def test_run_waits_for_a_lock_until_its_own_limit(sqlite_endpoint: str) -> None:
    session = TARGET.connect(sqlite_endpoint, WAL, timeout_s=30)
    session.run(WAL.create([CPU], data.shared_tags()))
    other = sqlite3.connect(sqlite_endpoint.removeprefix("sqlite://"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    for statements in (WAL.drop([CPU]), WAL.settle([CPU])):
        began = time.monotonic()
        with pytest.raises(OpError) as caught:
            session.run(statements, timeout_s=0.1)
        assert (caught.value.outcome, caught.value.cause) == (Outcome.FAILED, "timeout")
        assert time.monotonic() - began < 25
    other.execute("ROLLBACK")
    session.run(WAL.drop([CPU]), timeout_s=60)
    other.close()
    session.close()


def test_a_query_is_interrupted_at_its_time_limit(sqlite_endpoint: str) -> None:
    session = TARGET.connect(sqlite_endpoint, WAL, timeout_s=1.0)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    with pytest.raises(OpError) as caught:
        session.query(Statement(endless), ("n",))
    assert (caught.value.outcome, caught.value.cause) == (Outcome.FAILED, "timeout")
    assert session.query(Statement("SELECT 1"), ("n",)).records == [(1,)]
    session.close()


def test_a_full_disk_is_told_and_nothing_of_the_write_stays(sqlite_endpoint: str) -> None:
    session = TARGET.connect(sqlite_endpoint, WAL)
    session.run([*WAL.create([CPU], data.shared_tags()), Statement("PRAGMA max_page_count = 40")])
    batch = data.batch(CPU, data.shared_tags(), time_ns=[START_NS + i * 1_000 for i in range(9_000)])
    with pytest.raises(OpError) as caught:
        session.write(WAL.encode(batch, WriteMode.BULK))
    assert (caught.value.outcome, caught.value.cause) == (Outcome.FAILED, "disk full")
    assert session.query(Statement("SELECT count(*) FROM cpu"), ("n",)).records == [(0,)]
    session.close()


def test_ctrl_c_in_the_middle_of_a_statement_is_ctrl_c_and_no_error_of_the_database(sqlite_endpoint: str) -> None:
    session = TARGET.connect(sqlite_endpoint, WAL, timeout_s=60)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            session.query(Statement(endless), ("n",))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert session.query(Statement("SELECT 1"), ("n",)).records == [(1,)]
    session.close()


def test_an_interrupted_write_is_unknown_only_if_the_interrupt_may_have_met_the_commit(sqlite_endpoint: str) -> None:
    session: Any = TARGET.connect(sqlite_endpoint, WAL, timeout_s=0.5)
    shared = data.shared_tags()
    session.run(WAL.create([CPU], shared))
    times = [START_NS + i * S for i in range(500)]
    session.write(WAL.encode(data.batch(CPU, shared, time_ns=times), WriteMode.BULK))
    slow = "SELECT count(*) FROM cpu a, cpu b, cpu c, cpu d, cpu e WHERE a.time + b.time + c.time + d.time < e.time"
    session.run([Statement(f"CREATE TRIGGER slow AFTER INSERT ON cpu BEGIN {slow}; END")])
    one = data.batch(CPU, shared, time_ns=[START_NS - S])
    for mode, outcome in ((WriteMode.SINGLE, Outcome.UNKNOWN), (WriteMode.MULTI, Outcome.FAILED)):
        with pytest.raises(OpError) as caught:
            session.write(WAL.encode(one, mode))
        assert (caught.value.outcome, caught.value.cause) == (outcome, "timeout"), mode
        assert session.query(Statement("SELECT count(*) FROM cpu"), ("n",)).records == [(500,)]
    session.close()
