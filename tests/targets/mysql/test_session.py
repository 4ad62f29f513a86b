from __future__ import annotations

import struct
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import pytest

from tests.targets.mysql.support import bare, new_database
from tsbench.errors import UserMistake
from tsbench.model import Count, OpError, Outcome, WriteMode
from tsbench.targets.base import Statement
from tsbench.targets.mysql import MARIADB, MYSQL
from tsbench.testing import data
from tsbench.testing.data import CPU, START_NS, S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tsbench.targets.base import Session
    from tsbench.targets.mysql.server import MariadbServer, MysqlServer
    from tsbench.targets.target import Target

SCHEMA = MARIADB.schemas["innodb"]
SLOW = "SELECT 1 FROM information_schema.schemata WHERE SLEEP(60)"
"""MySQL ends a SELECT without a table at its time limit as if it were done."""
ENDLESS = {
    "mariadb": Statement("SET STATEMENT max_statement_time = 0 FOR SELECT SLEEP(60)"),
    "mysql": Statement("SELECT /*+ MAX_EXECUTION_TIME(600000) */ SLEEP(60)"),
}
"""Which the server's own time limit does not end."""
BOTH = [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ENDLESS]


@pytest.fixture(params=BOTH)
def url(request: pytest.FixtureRequest, mysql_server: Callable[[str], MariadbServer | MysqlServer]) -> Iterator[str]:
    with new_database(mysql_server(request.param).endpoint) as url:
        yield url


def target_of(url: str) -> Target:
    return {"mariadb": MARIADB, "mysql": MYSQL}[url.partition(":")[0]]


def connected(url: str, *, timeout_s: float = 30.0) -> Any:
    return target_of(url).connect(url, SCHEMA, timeout_s=timeout_s)


def failure(act: Callable[[], Any]) -> tuple[Outcome, str]:
    with pytest.raises(OpError) as caught:
        act()
    return caught.value.outcome, caught.value.cause


def ask(session: Session, text: str) -> Any:
    return session.query(Statement(text), ("x",)).records[0][0]


# --- time limits and broken connections


def test_the_servers_time_limit_is_unknown_and_the_connection_stays(url: str) -> None:
    session = connected(url, timeout_s=1.0)
    own = ask(session, "SELECT CONNECTION_ID()")
    assert failure(lambda: ask(session, SLOW)) == (Outcome.UNKNOWN, "timeout")
    assert ask(session, "SELECT CONNECTION_ID()") == own
    session.run([Statement("DO SLEEP(1.5)")], timeout_s=60)  # which has a limit of its own
    assert ask(session, "SELECT CONNECTION_ID()") == own
    session.close()


def test_a_server_that_does_not_answer_in_time_is_left_and_the_next_op_has_another_connection(url: str) -> None:
    session = connected(url, timeout_s=1.0)
    own = ask(session, "SELECT CONNECTION_ID()")
    began = time.monotonic()
    assert failure(lambda: session.query(ENDLESS[target_of(url).name], ("x",))) == (Outcome.UNKNOWN, "timeout")
    assert time.monotonic() - began < 30
    assert ask(session, "SELECT CONNECTION_ID()") != own
    session.close()


def test_a_session_that_is_closed_in_the_middle_of_its_query_ends_it_and_not_the_process(url: str) -> None:
    program = """
import sys, threading, time
from tsbench.model import OpError
from tests.targets.mysql.test_session import ENDLESS, connected, target_of
sessions = [connected(sys.argv[1], timeout_s=60) for _ in range(8)]
ended = []
def use(session):
    try:
        session.query(ENDLESS[target_of(sys.argv[1]).name], ("x",))
    except OpError as error:
        ended.append(error.cause)
threads = [threading.Thread(target=use, args=(session,)) for session in sessions]
for thread in threads:
    thread.start()
time.sleep(1)
for session in sessions:
    session.close()
    session.close()
for thread in threads:
    thread.join(60)
print(len(ended), *sorted(set(ended)))
"""
    done = subprocess.run([sys.executable, "-c", program, url], capture_output=True, text=True, check=True, timeout=240)
    assert done.stdout.split() == ["8", "timeout"]


def test_a_killed_connection_is_unknown_and_the_next_op_opens_another(url: str) -> None:
    session = connected(url)
    own = ask(session, "SELECT CONNECTION_ID()")

    def kill() -> None:
        with bare(url) as cursor:
            cursor.execute(f"KILL {own}")

    timer = threading.Timer(0.5, kill)
    timer.start()
    assert failure(lambda: ask(session, SLOW)) == (Outcome.UNKNOWN, "connection")
    timer.join()
    assert ask(session, "SELECT CONNECTION_ID()") != own
    session.close()


# --- writes


def test_a_row_that_the_server_would_change_or_skip_is_not_loaded_nor_are_the_others(url: str) -> None:
    session = connected(url)
    session.run(SCHEMA.create([CPU], data.shared_tags()))
    batch = data.batch(CPU, data.shared_tags(), time_ns=[START_NS, START_NS + S, START_NS + 2 * S])
    session.run([Statement('ALTER TABLE "cpu" MODIFY "count" TINYINT')])
    payload = SCHEMA.encode(batch, WriteMode.BULK)
    assert failure(lambda: session.write(payload)) == (Outcome.FAILED, "data")
    assert session.query(SCHEMA.compile(Count(CPU)), ("points",)).records == [(0,)]
    session.close()


def test_a_write_beyond_max_allowed_packet_is_divided_and_stored_whole_or_not_at_all(url: str) -> None:
    session = connected(url)
    session.run(SCHEMA.create([CPU], data.shared_tags()))
    times = [START_NS + i * S for i in range(30_000)]
    batch = data.batch(CPU, data.shared_tags(), time_ns=times)
    payload = SCHEMA.encode(batch, WriteMode.MULTI)
    limit = ask(session, "SELECT @@max_allowed_packet")
    assert payload.nbytes > limit == 1 << 20
    assert max(map(len, payload.data)) < limit
    assert session.write(payload) == 30_000
    assert session.query(SCHEMA.compile(Count(CPU)), ("points",)).records == [(30_000,)]
    session.run([Statement('TRUNCATE "cpu"'), Statement('ALTER TABLE "cpu" ADD CHECK ("time" < \'2016-01-01 08:00\')')])
    assert failure(lambda: session.write(payload)) == (Outcome.FAILED, "constraint")
    assert session.query(SCHEMA.compile(Count(CPU)), ("points",)).records == [(0,)]
    payload.data[0] = bytes(payload.data[0]) * 9
    assert failure(lambda: session.write(payload)) == (Outcome.FAILED, "too large")
    session.close()


@pytest.mark.parametrize("mode", WriteMode)
def test_minus_zero_is_stored_and_read_back_by_mysql_and_is_zero_for_mariadb(url: str, mode: WriteMode) -> None:
    values = np.array([-0.0, 0.0, -0.0, 0.123456789, -0.0, -1e-300, -0.05, -0.0])
    texts = []
    for options in ("", "&ssl-mode=REQUIRED") if target_of(url) is MYSQL else ("",):
        session = connected(url + options)
        session.run(SCHEMA.create([CPU], data.shared_tags()))
        batch = data.batch(CPU, data.shared_tags(), time_ns=[START_NS + i * S for i in range(len(values))])
        batch.fields["busy"][:], batch.fields["load"][:] = values, -np.abs(values[::-1])
        single = mode is WriteMode.SINGLE
        payloads = SCHEMA.encode_each(batch, 1, mode) if single else [SCHEMA.encode(batch, mode)]
        assert sum(session.write(payload) for payload in payloads) == len(values)
        found = session.query(Statement('SELECT "busy", "load" FROM "cpu" ORDER BY "time"'), ("busy", "load")).records
        session.close()
        with bare(url) as cursor:
            cursor.execute('SELECT busy, "load" FROM cpu ORDER BY "time"')
            texts += [found, list(cursor.fetchall())]
    zero = 0.0 if target_of(url) is MARIADB else -0.0  # added to -0.0, the first one makes it 0.0
    wanted = [struct.pack("dd", a + zero, b + zero) for a, b in zip(values, -np.abs(values[::-1]), strict=True)]
    for rows in texts:
        assert [struct.pack("dd", *row) for row in rows] == wanted


def test_dropping_is_harmless_where_not_even_the_database_is(url: str) -> None:
    session = connected(url)
    session.run(SCHEMA.drop([CPU]))
    assert session.objects([CPU]) == []
    session.run(SCHEMA.create([CPU], data.shared_tags()))
    table, tags, database = session.objects([CPU])
    assert (database.name, database.holds) == (f"database {urlsplit(url).path[1:]}", 2)
    session.run([*table.remove, *tags.remove])
    (database,) = session.objects([CPU])
    assert database.holds == 0
    session.run(database.remove)
    assert session.objects([CPU]) == []
    session.close()


# --- logging in


def test_a_server_of_the_other_product_is_named(url: str) -> None:
    own = target_of(url)
    other = MYSQL if own is MARIADB else MARIADB
    said = rf"{own.product} [19]\S+ answers there, not {other.product}; name the target {own.name}$"
    with pytest.raises(UserMistake, match=said):
        other.connect(url.replace(f"{own.name}://", f"{other.name}://"), SCHEMA)


def test_a_refused_login_is_one_line_with_the_cure(url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare_url = url.partition("?")[0]
    with pytest.raises(UserMistake, match=r"Access denied for user .*; set TSBENCH_PASSWORD or TSBENCH_PASSWORD_FILE$"):
        connected(bare_url)
    options = dict(parse_qsl(url.partition("?")[2]))
    monkeypatch.setenv("TSBENCH_PASSWORD_FILE", options["password_file"])
    connected(bare_url).close()  # MySQL knows the password since the first log-in, and needs no key any more


def test_endpoints_are_parsed_and_mistakes_named() -> None:
    of = MARIADB.parse("mariadb://me@db.example/tsbench_x?password_file=/p")
    assert (of.host, of.port, of.user, of.path) == ("db.example", 3306, "me", "tsbench_x")
    for endpoint, said in {
        "mariadb://me@h:99999/tsbench": "h:99999/tsbench",
        "mariadb://me@h/sales": "name a database that begins with tsbench",
        "mariadb://me@h/tsbench?ssl=1": "the option 'ssl' does not exist; there are password_file, ssl-mode, ssl-ca, ",
        "mariadb://me@h/tsbench?ssl-mode=prefer": "ssl-mode=prefer does not exist; there are DISABLED, REQUIRED,",
        "mariadb://me@h/tsbench?ssl-ca=/p": "ssl-ca needs ssl-mode=VERIFY_IDENTITY; no other mode verifies the server",
        "mariadb://me@h/tsbench?ssl-mode=VERIFY_IDENTITY&ssl-ca=/no/file": "ssl-ca=/no/file is not a file",
        "mariadb://me@h/tsbench?auth-plugins=dialog;x": "auth-plugins is a list such as mysql_nat",
        "mariadb://me@a,b/tsbench": "is not an endpoint",
        "mysql://me@h/tsbench": "is not an endpoint of MariaDB; write mariadb://user@host:3306/tsbench",
        "mariadb:///tsbench": "is not an endpoint",
        "mariadb://me:secret@h/tsbench": "holds a password",
    }.items():
        with pytest.raises(UserMistake, match=said) as caught:
            MARIADB.parse(endpoint)
        assert "secret@" not in str(caught.value)
