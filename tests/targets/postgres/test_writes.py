"""Writes with encoded parameters, and queries: statements that vanish, plans, late errors, and waits that end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import psycopg
import pytest

from tsbench.model import OpError, Outcome, WriteMode
from tsbench.targets.base import Statement
from tsbench.targets.postgres import TARGET
from tsbench.targets.postgres.schemas import BTREE
from tsbench.testing import data
from tsbench.testing.data import CPU, START_NS, S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tsbench.targets.base import Payload, Session

pytestmark = pytest.mark.postgres


@pytest.fixture
def session(postgres_endpoint: str) -> Iterator[Session]:
    session = opened(postgres_endpoint)
    yield session
    session.close()


def opened(endpoint: str, timeout_s: float = 9) -> Session:
    """A session with empty tables."""
    session = TARGET.connect(endpoint, BTREE, timeout_s=timeout_s)
    session.run(BTREE.create([CPU], data.shared_tags()))
    return session


def points(count: int, mode: WriteMode) -> Payload:
    times = [START_NS + i * S for i in range(count)]
    return BTREE.encode(data.batch(CPU, data.shared_tags(), time_ns=times), mode)


def stored(endpoint: str) -> int:
    with psycopg.connect(endpoint) as connection:
        (count,) = connection.execute("SELECT count(*) FROM cpu").fetchall()[0]
    return int(count)


def test_what_a_write_sends_was_encoded_before() -> None:
    for payload in (points(1, WriteMode.SINGLE), points(9, WriteMode.MULTI), points(20_000, WriteMode.MULTI)):
        assert {type(value) for value in payload.data} == {bytes}
        assert payload.nbytes == sum(map(len, payload.data))


def test_the_round_trip_that_prepares_a_statement_is_not_taken_for_an_interrupted_send(session: Session) -> None:
    arrival = session.arrival
    assert arrival is not None
    is_timed = []
    for _ in range(2):
        arrival.begin()
        assert session.write(points(1, WriteMode.SINGLE)) == 1
        is_timed.append(arrival.sent_ns > arrival.began_ns)
    assert is_timed == [False, True]


@pytest.mark.parametrize("forget", ["DEALLOCATE ALL", "DISCARD ALL", "DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$"])
def test_a_statement_that_the_server_forgot_is_prepared_again(
    session: Session, postgres_endpoint: str, forget: str
) -> None:
    for _ in range(2):
        assert session.write(points(1, WriteMode.SINGLE)) == 1
        assert session.query(Statement("SELECT $1::int", (7,)), ("x",)).records == [(7,)]
    session.run([Statement(forget)])
    for _ in range(2):
        assert session.query(Statement("SELECT $1::int", (7,)), ("x",)).records == [(7,)]
        assert session.write(points(1, WriteMode.SINGLE)) == 1
    session.run([Statement(f"DEALLOCATE {name}") for (name,) in _prepared(session)])  # and not the others
    assert session.write(points(1, WriteMode.SINGLE)) == 1
    assert stored(postgres_endpoint) == 5


def _prepared(session: Session) -> list[tuple[str]]:
    names = session.query(Statement("SELECT name FROM pg_prepared_statements WHERE statement LIKE 'INSERT%'"), ("n",))
    return list(names.records)


def test_a_query_is_planned_with_its_values_however_often_it_comes(session: Session) -> None:
    """A statement that is kept prepared is planned for any values from its sixth execution on."""
    for number in range(9):
        session.query(Statement("SELECT count(*) FROM cpu WHERE tags_id = $1::int", (number,)), ("points",))
    plans = "SELECT coalesce(sum(generic_plans), 0)::int FROM pg_prepared_statements WHERE statement LIKE 'SELECT%'"
    assert session.query(Statement(plans), ("plans",)).records == [(0,)]


def test_a_connection_that_was_opened_again_prepares_its_statements_again(
    session: Session, postgres_endpoint: str
) -> None:
    session.write(points(1, WriteMode.SINGLE))
    pid = session.query(Statement("SELECT pg_backend_pid()"), ("pid",)).records[0][0]
    with psycopg.connect(postgres_endpoint, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
    with pytest.raises(OpError) as caught:
        session.write(points(1, WriteMode.SINGLE))
    assert (caught.value.outcome, caught.value.cause) == (Outcome.UNKNOWN, "connection")
    assert session.write(points(1, WriteMode.SINGLE)) == 1
    assert stored(postgres_endpoint) == 2


@pytest.mark.parametrize("mode", list(WriteMode))
def test_an_error_at_the_commit_is_an_error_of_the_write(
    session: Session, postgres_endpoint: str, mode: WriteMode
) -> None:
    """The server reports a deferred check after it has reported the rows."""
    session.run(
        [
            Statement(
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS\n$$ BEGIN RAISE unique_violation; END $$"
            ),
            Statement(
                "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON cpu DEFERRABLE INITIALLY DEFERRED\n"
                "FOR EACH ROW EXECUTE FUNCTION refuse()"
            ),
        ]
    )
    with pytest.raises(OpError) as caught:
        session.write(points(1, mode))
    assert (caught.value.outcome, caught.value.cause) == (Outcome.FAILED, "constraint")
    assert stored(postgres_endpoint) == 0
    session.run([Statement("DROP TRIGGER late ON cpu"), Statement("DROP FUNCTION refuse")])
    assert session.write(points(1, mode)) == 1


def test_a_server_that_talks_while_it_is_written_to_stops_no_write(session: Session, postgres_endpoint: str) -> None:
    """Both sides would wait for the other to read: 40 MB of notices are more than the sockets hold."""
    session.run(
        [
            Statement("SET client_min_messages = notice"),
            Statement(
                "CREATE FUNCTION talk() RETURNS trigger LANGUAGE plpgsql AS\n"
                "$$ BEGIN RAISE NOTICE '%', repeat('x', 2000); RETURN NEW; END $$"
            ),
            Statement("CREATE TRIGGER talk BEFORE INSERT ON cpu FOR EACH ROW EXECUTE FUNCTION talk()"),
        ]
    )
    try:
        assert session.write(points(20_000, WriteMode.BULK)) == 20_000
        assert session.write(points(20_000, WriteMode.MULTI)) == 20_000
    finally:
        session.run([Statement("DROP FUNCTION talk CASCADE")])
    assert stored(postgres_endpoint) == 40_000


@pytest.mark.slow
def test_a_write_to_a_server_that_hangs_ends_at_its_limit(postgres_endpoint: str) -> None:
    session = opened(postgres_endpoint, timeout_s=1.0)
    session.write(points(1, WriteMode.SINGLE))
    for mode in WriteMode:
        pid = session.query(Statement("SELECT pg_backend_pid()"), ("pid",)).records[0][0]
        os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        try:
            with pytest.raises(OpError) as caught:
                # More than the sockets hold, so that the write waits for room as well as for the answer.
                session.write(points(1 if mode is WriteMode.SINGLE else 200_000, mode))
        finally:
            os.kill(pid, signal.SIGCONT)
        assert (caught.value.outcome, caught.value.cause) == (Outcome.UNKNOWN, "timeout")
        assert time.monotonic() - began < 60
    session.close()


@pytest.mark.slow
def test_the_servers_time_limit_leaves_a_write_unknown_and_the_connection_open(postgres_endpoint: str) -> None:
    session = opened(postgres_endpoint, timeout_s=1.0)
    pid = session.query(Statement("SELECT pg_backend_pid()"), ("pid",)).records
    with psycopg.connect(postgres_endpoint) as other:
        other.execute("LOCK TABLE cpu")
        for mode in WriteMode:
            with pytest.raises(OpError) as caught:
                session.write(points(1, mode))
            assert (caught.value.outcome, caught.value.cause) == (Outcome.UNKNOWN, "timeout")
    assert session.write(points(1, WriteMode.SINGLE)) == 1
    assert session.query(Statement("SELECT pg_backend_pid()"), ("pid",)).records == pid
    session.close()


def test_a_write_waits_for_a_lock_as_long_as_its_limit_allows(session: Session, postgres_endpoint: str) -> None:
    with psycopg.connect(postgres_endpoint) as other:
        other.execute("LOCK TABLE cpu")
        timer = threading.Timer(0.3, other.rollback)
        timer.start()
        assert session.write(points(1, WriteMode.SINGLE)) == 1
        timer.join()


def test_writes_of_greenlets_wait_beside_each_other_and_a_killed_one_drops_its_connection(
    postgres_endpoint: str,
) -> None:
    opened(postgres_endpoint).close()
    program = """
from gevent import monkey; monkey.patch_all()
import sys, time, gevent, psycopg
from tests.targets.postgres.test_writes import points
from tsbench.drive.session_calls import GreenletWaiter
from tsbench.model import WriteMode
from tsbench.targets.postgres import TARGET
from tsbench.targets.postgres.schemas import BTREE
sessions = [TARGET.connect(sys.argv[1], BTREE, timeout_s=60, waiter=GreenletWaiter) for _ in range(3)]
payloads = [points(1 if mode is WriteMode.SINGLE else 5, mode) for mode in WriteMode]
with psycopg.connect(sys.argv[1]) as other:
    other.execute("LOCK TABLE cpu")
    writing = [gevent.spawn(s.write, p) for s, p in zip(sessions, payloads, strict=True)]
    gevent.sleep(0.2)
    TARGET.connect(sys.argv[1], BTREE, waiter=GreenletWaiter).facts()
    assert not any(w.ready() for w in writing)
    writing[0].kill()
gevent.joinall(writing[1:], timeout=60, raise_error=True)
assert [w.value for w in writing[1:]] == [p.points for p in payloads[1:]]
assert sessions[0]._connection is None  # the answer must not be read as the next one's
assert sessions[0].write(payloads[0]) == payloads[0].points
"""
    done = subprocess.run(
        [sys.executable, "-c", program, postgres_endpoint], capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
