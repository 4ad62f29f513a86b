from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from tsbench.errors import UserMistake
from tsbench.model import Aggregated, Measurement, OpError, Outcome, Window, WriteMode
from tsbench.servers.process import free_port
from tsbench.targets.base import Statement, Unsupported
from tsbench.targets.pgwire.login import parameters
from tsbench.targets.postgres import TARGET, TIMESCALE
from tsbench.targets.postgres.schemas import BRIN, BTREE, COMPRESSED, HYPERTABLE
from tsbench.testing import data
from tsbench.testing.contract import TargetContract
from tsbench.testing.data import CPU, LAG, START_NS, S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tsbench.targets.base import Payload, Schema, Session
    from tsbench.targets.target import Target
    from tsbench.testing.contract_base import Alteration, Point

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Contract(TargetContract):
    wrong_endpoints = (
        "nonsense",
        "http://127.0.0.1:1/x",
        "postgresql://h:port/x",
        "postgresql://postgres@127.0.0.1:1/x",
    )

    @staticmethod
    def stored(url: str, measurement: Measurement) -> Sequence[Point]:
        key = ["tags_id"] if measurement.tags else []
        columns = ", ".join(f'"{c}"' for c in ["time", *key, *measurement.field_names, "additional_tags"])
        with psycopg.connect(url) as connection:
            rows = connection.execute(f'SELECT {columns} FROM "{measurement.name}"').fetchall()
        return [
            (
                (row[0] - _EPOCH) // timedelta(microseconds=1) * 1_000,
                *(row[1 : 1 + len(key)] or (None,)),
                *row[1 + len(key) :],
            )
            for row in rows
        ]

    @staticmethod
    def alter(url: str, alteration: Alteration) -> None:
        time = f"timestamptz 'epoch' + {alteration.time_ns // 1_000} * interval '1 microsecond'"
        with psycopg.connect(url) as connection:
            for statement in alteration.sql(time):
                connection.execute(statement.encode())

    def refused_in_part(
        self, session: Session, target: Target, url: str, schema: Schema, mode: WriteMode
    ) -> tuple[Session, Payload, int]:
        with psycopg.connect(url) as connection:
            connection.execute("CREATE UNIQUE INDEX ON cpu (time, tags_id)")
        batch = data.batch(CPU, data.shared_tags(), time_ns=[START_NS, START_NS + S, START_NS])
        return session, schema.encode(batch, mode), 1


@pytest.mark.postgres
class TestPostgres(_Contract):
    name = "postgres"
    variants = {"brin": "btree"}  # noqa: RUF012

    @pytest.fixture
    def url(self, postgres_endpoint: str) -> str:
        return postgres_endpoint

    def test_a_session_that_waits_for_a_lock_is_counted(self, url: str, session: Session) -> None:
        assert session.counters()["waits.lock"] == 0
        with psycopg.connect(**parameters(url)) as holder, psycopg.connect(**parameters(url)) as waiter:
            holder.execute("SELECT pg_advisory_xact_lock(12)")
            thread = threading.Thread(target=waiter.execute, args=("SELECT pg_advisory_xact_lock(12)",))
            thread.start()
            give_up = time.monotonic() + 30
            while not (waiting := session.counters()["waits.lock"]) and time.monotonic() < give_up:
                time.sleep(0.05)
            holder.rollback()
            thread.join(30)
        assert waiting == 1


@pytest.mark.timescaledb
class TestTimescaledb(_Contract):
    name = "timescaledb"
    not_made = ("unsupported", "timescaledb-community")

    @pytest.fixture
    def url(self, timescaledb_endpoint: str) -> str:
        return timescaledb_endpoint

    def test_a_chunk_holds_as_much_time_as_is_asked_for_and_sizes_are_of_all_chunks(
        self, url: str, target: Target, schema: Schema
    ) -> None:
        times = [START_NS + i * 600 * S for i in range(6 * 24)]
        for interval, chunks in (("", 2), ("6 hours", 4), ("1 hour", 24)):
            session = target.connect(f"{url}%20-ctsbench.chunk_interval%3D{interval.replace(' ', '%5C%20')}", schema)
            session.run(schema.create([CPU, LAG], data.shared_tags()))
            session.write(schema.encode(data.batch(CPU, data.shared_tags(), time_ns=times), WriteMode.BULK))
            assert session.counters()["chunks"] == chunks
            sizes = session.sizes([CPU, LAG])
            assert min(sizes["table"], sizes["index"]) >= chunks * 8_192
            assert sum(sizes.values()) == _sum_of_files(url)
            session.close()


def _sum_of_files(url: str) -> int:
    """The bytes of a namespace's tables and those that inherit from them, with their indexes."""
    text = (
        "SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c WHERE relkind = 'r' AND (\n"
        "  relnamespace = current_schema()::regnamespace OR c.oid IN (\n"
        "    SELECT inhrelid FROM pg_inherits JOIN pg_class p ON p.oid = inhparent\n"
        "    WHERE p.relnamespace = current_schema()::regnamespace))"
    )
    with psycopg.connect(url) as connection:
        ((found,),) = connection.execute(text).fetchall()
    return int(found)


@pytest.mark.postgres
@pytest.mark.parametrize("schema", [HYPERTABLE, COMPRESSED], ids=lambda schema: schema.name)
def test_hypertables_on_plain_postgresql_say_in_one_line_what_is_missing(
    postgres_endpoint: str, schema: Schema
) -> None:
    session = TIMESCALE.connect(postgres_endpoint, schema)
    with pytest.raises(OpError) as caught:
        session.run(schema.create([CPU], data.shared_tags()))
    assert str(caught.value) == (
        "PostgreSQL: this server has no TimescaleDB, which hypertables need: install its extension, "
        "or take the target postgres"
    )
    session.close()


def test_buckets_are_timescaledbs_where_they_begin_when_those_of_the_epoch_do() -> None:
    day_ns = 24 * 3_600 * S
    for bucket_ns, is_own in ((S // 2, True), (60 * S, True), (day_ns, True), (7 * day_ns, False), (7 * S, False)):
        text = HYPERTABLE.compile(Aggregated.of(CPU, ("busy",), "max", bucket_ns, Window(START_NS, START_NS + 1))).text
        assert ("public.time_bucket(" in text, "date_bin" in text) == (is_own, not is_own), text


# --- logging in


def test_a_password_in_the_url_is_refused_and_not_repeated() -> None:
    for url in ("postgresql://me:secret@h/db", "postgresql://me@h/db?password=secret", "mysql://me:secret@h/db"):
        with pytest.raises(UserMistake) as caught:
            TARGET.connect(url, BTREE)
        assert "secret" not in str(caught.value)


def test_the_password_comes_from_the_environment_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "password").write_text("from file\n")
    assert "password" not in parameters("postgresql://me@h/db")
    monkeypatch.setenv("TSBENCH_PASSWORD_FILE", str(tmp_path / "password"))
    assert parameters("postgresql://me@h/db")["password"] == "from file"
    monkeypatch.setenv("TSBENCH_PASSWORD", "from environment")
    assert parameters("postgresql://me@h/db")["password"] == "from environment"
    monkeypatch.delenv("TSBENCH_PASSWORD")
    monkeypatch.setenv("TSBENCH_PASSWORD_FILE", str(tmp_path / "none"))
    with pytest.raises(UserMistake, match="cannot be read"):
        parameters("postgresql://me@h/db")


@pytest.mark.postgres
def test_passwords_for_another_server_do_not_disturb_the_embedded_one(
    postgres_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "another")
    monkeypatch.setenv("TSBENCH_PASSWORD", "another")
    TARGET.connect(postgres_endpoint, BTREE).close()


@pytest.mark.parametrize("hosts", ["h:99999", "h:0", "h:65536", "h:1,h:99999"])
def test_a_port_out_of_range_is_named_instead_of_asking_for_the_server(hosts: str) -> None:
    with pytest.raises(
        UserMistake, match=rf"^port {hosts.rpartition(':')[2]} in the endpoint .*out of range \(1-65535\)"
    ):
        TARGET.connect(f"postgresql://me@{hosts}/db", BTREE)


@pytest.mark.postgres
def test_a_refused_login_is_one_line_with_the_cure(postgres_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGPASSWORD", "PGPASSFILE"):
        monkeypatch.delenv(name, raising=False)
    bare = postgres_endpoint.partition("?")[0]
    wrong = {
        bare: "TSBENCH_PASSWORD",
        bare.rpartition(":")[0] + f":{free_port()}/x": "is the server running there",
        postgres_endpoint.replace("/postgres?", "/nowhere?"): "does not exist",
    }
    for endpoint, cure in wrong.items():
        with pytest.raises(UserMistake, match=cure) as caught:
            TARGET.connect(endpoint, BTREE)
        assert "\n" not in str(caught.value)
    monkeypatch.setenv("TSBENCH_PASSWORD", "wrong")
    with pytest.raises(UserMistake, match="password authentication failed"):
        TARGET.connect(bare, BTREE)


# --- errors


@pytest.mark.slow
@pytest.mark.postgres
def test_the_servers_time_limit_is_unknown_and_the_session_goes_on(postgres_endpoint: str) -> None:
    session = TARGET.connect(postgres_endpoint, BTREE, timeout_s=1.0)
    with pytest.raises(OpError) as caught:
        session.query(Statement("SELECT pg_sleep(90)"), ("x",))
    assert (caught.value.outcome, caught.value.cause) == (Outcome.UNKNOWN, "timeout")
    assert session.query(Statement("SELECT 1"), ("x",)).records == [(1,)]
    session.run([Statement("SELECT pg_sleep(1.5)")], timeout_s=60)  # which has a limit of its own
    session.close()


@pytest.mark.slow
@pytest.mark.postgres
def test_statements_of_run_have_one_limit_together_and_the_next_op_its_own(postgres_endpoint: str) -> None:
    session = TARGET.connect(postgres_endpoint, BTREE, timeout_s=60)
    with pytest.raises(OpError) as caught:  # none of them takes as long as that
        session.run([Statement("SELECT pg_sleep(0.3)")] * 9, timeout_s=1)
    assert (caught.value.outcome, caught.value.cause) == (Outcome.UNKNOWN, "timeout")
    session.query(Statement("SELECT pg_sleep(1.2)"), ("x",))
    session.close()


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.parametrize(
    ("limit_s", "ask"),
    [
        (30.0, lambda session: session.run([Statement("SELECT 1")], timeout_s=0.1)),
        (1.0, lambda session: session.query(Statement("SELECT 1"), ("x",))),
    ],
    ids=["run", "query"],
)
def test_a_server_that_hangs_is_unknown_after_the_limit_of_run_or_of_the_session(
    postgres_endpoint: str, limit_s: float, ask: Callable[[Session], object]
) -> None:
    session = TARGET.connect(postgres_endpoint, BTREE, timeout_s=limit_s)
    pid = session.query(Statement("SELECT pg_backend_pid()"), ("pid",)).records[0][0]
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(OpError) as caught:
            ask(session)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert (caught.value.outcome, caught.value.cause) == (Outcome.UNKNOWN, "timeout")
    assert session.query(Statement("SELECT 1"), ("x",)).records == [(1,)]
    session.run([Statement("SELECT 1")], timeout_s=60)
    session.close()


@pytest.mark.postgres
def test_a_broken_connection_is_unknown_and_the_next_op_opens_another(postgres_endpoint: str) -> None:
    session = TARGET.connect(postgres_endpoint, BTREE)
    pid = session.query(Statement("SELECT pg_backend_pid()"), ("pid",)).records[0][0]
    with psycopg.connect(postgres_endpoint, autocommit=True) as other:
        timer = threading.Timer(0.1, lambda: other.execute("SELECT pg_terminate_backend(%s)", (pid,)))
        timer.start()
        with pytest.raises(OpError) as caught:
            session.query(Statement("SELECT pg_sleep(90)"), ("x",))
        timer.join()
    assert (caught.value.outcome, caught.value.cause) == (Outcome.UNKNOWN, "connection")
    assert session.query(Statement("SELECT 1"), ("x",)).records == [(1,)]
    session.close()


@pytest.mark.postgres
def test_errors_have_short_stable_causes(postgres_endpoint: str) -> None:
    session = TARGET.connect(postgres_endpoint, BTREE)
    session.run([Statement("CREATE TABLE one (x int UNIQUE)"), Statement("INSERT INTO one VALUES (1)")])
    for text, cause in {
        "INSERT INTO one VALUES (1)": "constraint",
        "SELECT 1 / 0": "data",
        "SELECT x FROM two": "no table",
        "SELEKT": "statement",
    }.items():
        with pytest.raises(OpError) as caught:
            session.query(Statement(text), ("x",))
        assert (caught.value.outcome, caught.value.cause) == (Outcome.FAILED, cause)
    session.close()


# --- layout


def test_times_and_buckets_finer_than_a_microsecond_are_refused() -> None:
    batch = data.batch(CPU, data.shared_tags(), time_ns=[START_NS + 1])
    for mode in WriteMode:
        with pytest.raises(Unsupported, match="microseconds"):
            BTREE.encode(batch, mode)
    with pytest.raises(Unsupported, match="bucket of 1500 ns"):
        BTREE.compile(Aggregated.of(CPU, ("busy",), "max", 1_500, Window(START_NS, START_NS + 1)))


@pytest.mark.postgres
def test_the_brin_layout_reads_a_window_through_its_index(postgres_endpoint: str) -> None:
    session = TARGET.connect(postgres_endpoint, BRIN)
    session.run(BRIN.create([LAG], {}))
    times = [START_NS + i * 10_000_000_000 for i in range(60_000)]
    session.write(BRIN.encode(data.batch(LAG, {}, time_ns=times), WriteMode.BULK))
    session.run(BRIN.settle([LAG]))
    plan = session.query(Statement("EXPLAIN SELECT * FROM lag WHERE time < '2016-01-01 00:05:00Z'"), ("plan",))
    assert "Bitmap Index Scan on lag_time_idx" in str(plan.records)
    assert session.sizes([LAG])["index"] < 100_000
    session.close()


@pytest.mark.slow
@pytest.mark.postgres
def test_sessions_yield_to_gevent_when_it_is_patched_first(postgres_endpoint: str) -> None:
    program = """
from gevent import monkey; monkey.patch_all()
import sys, time, gevent
from tsbench.drive.session_calls import GreenletWaiter
from tsbench.targets.base import Statement
from tsbench.targets.postgres.schemas import BTREE
from tsbench.targets.postgres import TARGET, TIMESCALE
sessions = [TARGET.connect(sys.argv[1], BTREE, waiter=GreenletWaiter) for _ in range(5)]
began = time.monotonic()
gevent.joinall([gevent.spawn(s.query, Statement("SELECT pg_sleep(2)"), ("x",)) for s in sessions], raise_error=True)
assert time.monotonic() - began < 9, time.monotonic() - began
"""
    done = subprocess.run(
        [sys.executable, "-c", program, postgres_endpoint], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
