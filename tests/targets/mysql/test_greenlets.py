from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.targets.mysql.support import new_database

if TYPE_CHECKING:
    from collections.abc import Callable

    from tsbench.targets.mysql.server import MariadbServer, MysqlServer

IN_GREENLETS = """
from gevent import monkey
monkey.patch_all()
import sys, time, gevent
from tsbench.testing import data
from tsbench.testing.data import CPU, START_NS, S
from tsbench.drive.session_calls import GreenletWaiter
from tsbench.model import Count, OpError, WriteMode
from tsbench.targets.base import Statement
from tsbench.targets.mysql import MARIADB

SCHEMA = MARIADB.schemas["innodb"]

def ask(session, text):
    return session.query(Statement(text), ("x",)).records[0][0]

def opened(timeout_s=60):
    return MARIADB.connect(sys.argv[1], SCHEMA, timeout_s=timeout_s, waiter=Counted)

class Counted(GreenletWaiter):
    calls = 0

    @staticmethod
    def in_thread(function, *args):
        Counted.calls += 1
        return GreenletWaiter.in_thread(function, *args)

def in_threads(ask, *args):
    # The answer, and the number of calls that it took in a thread.
    before = Counted.calls
    return ask(*args), Counted.calls - before

opened().run(SCHEMA.create([CPU], data.shared_tags()))

# Others go on while one waits, whatever it waits for.
sessions, ticks = [opened() for _ in range(8)], []
ticking = gevent.spawn(lambda: [(gevent.sleep(0.001), ticks.append(1)) for _ in iter(int, 1)])
began = time.monotonic()
asked = [gevent.spawn(ask, session, "SELECT SLEEP(0.5)") for session in sessions]
gevent.joinall(asked, raise_error=True)
assert time.monotonic() - began >= 0.5 and len(ticks) > 20, len(ticks)
session = sessions[0]
for text, rows in (("SELECT seq FROM seq_1_to_500000", 500_000), ("SELECT SLEEP(0.01) FROM seq_1_to_50", 50)):
    ticks.clear()
    assert len(session.query(Statement(text), ("x",)).records) == rows
    assert len(ticks) > 3, (text, len(ticks))
long = "x" * (5 << 20)
session.run([Statement("SET GLOBAL max_allowed_packet = 16777216")])
wide = opened()
# What does not fit into the kernel's buffers would block all users: a long statement, and a long answer.
assert in_threads(ask, wide, f"SELECT length('{long}')") == (len(long), 1)
assert in_threads(ask, wide, f"SELECT repeat('x', {len(long)})") == (long.encode(), 1)
assert in_threads(ask, wide, "SELECT 1") == (1, 0)
session.run([Statement("SET GLOBAL max_allowed_packet = 1048576")])
batch = data.batch(CPU, data.shared_tags(), time_ns=[START_NS + i * S for i in range(2_000)])
assert session.write(SCHEMA.encode(batch, WriteMode.BULK)) == 2_000
assert session.query(SCHEMA.compile(Count(CPU)), ("points",)).records == [(2_000,)]
ticking.kill()

# A limit, a user that is killed, and a session that another greenlet closes; in the middle of a wait and of a thread.
def failure(session, text):
    try:
        return session.query(Statement(text), ("x",)).records
    except OpError as error:
        return error.cause

endless = "SET STATEMENT max_statement_time = 0 FOR SELECT {} FROM seq_1_to_100000"
waits, flows = endless.format("SLEEP(60)"), endless.format("REPEAT('x', 1000), SLEEP(seq > 1000)")
for text in (waits, flows):
    short = opened(0.2)
    own = ask(short, "SELECT CONNECTION_ID()")
    assert failure(short, text) == "timeout"
    assert ask(short, "SELECT CONNECTION_ID()") != own
    user = gevent.spawn(failure, short, text)
    gevent.sleep(0.1)
    user.kill()
    short.close()
    closed = opened()
    user = gevent.spawn(failure, closed, text)
    gevent.sleep(0.5)
    closed.close()
    closed.close()
    assert user.get(timeout=60) in ("timeout", "connection"), user.value
for session in sessions:
    session.close()
print("done")
"""


@pytest.mark.mariadb
@pytest.mark.slow
def test_users_in_greenlets_wait_without_threads_and_leave_no_call_behind(
    mysql_server: Callable[[str], MariadbServer | MysqlServer],
) -> None:
    with new_database(mysql_server("mariadb").endpoint) as url:
        command = [sys.executable, "-c", IN_GREENLETS, url]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


SHORT_ANSWERS = """
from gevent import monkey
monkey.patch_all()
import sys
from tsbench.drive.session_calls import GreenletWaiter
from tsbench.measure.op_times import Direct
from tsbench.targets.base import Statement
from tsbench.targets.registry import get

url = sys.argv[1]
target = get(url.partition(":")[0])

class Counted(GreenletWaiter):
    calls = 0

    @staticmethod
    def in_thread(function, *args):
        Counted.calls += 1
        return GreenletWaiter.in_thread(function, *args)


session = target.connect(url, target.schemas["innodb"], waiter=Counted)
none = "SELECT 1 FROM information_schema.schemata WHERE 1 = 0"
asked = {"SELECT 1": [(1,)], "SELECT 1 UNION ALL SELECT 2": [(1,), (2,)], none: []}
asked |= {"x": "statement", "DO 1": "protocol"}
for text, records in asked.items():
    Counted.calls = 0
    timed = Direct.call(session.arrival, session.query, (Statement(text), ("x",)))
    assert (timed.error.cause if isinstance(records, str) else timed.value.records) == records, timed
    print("thread" if Counted.calls else "none")
session.close()
"""


@pytest.mark.parametrize(
    ("name", "options", "read_in"),
    [
        pytest.param("mariadb", "", "none", marks=pytest.mark.mariadb),
        pytest.param("mysql", "", "none", marks=pytest.mark.mysql),
        # What an encrypted answer holds is not to be seen.
        pytest.param("mysql", "&ssl-mode=REQUIRED", "thread", marks=pytest.mark.mysql),
    ],
)
def test_short_answers_are_read_in_no_thread_unless_they_are_encrypted(
    mysql_server: Callable[[str], MariadbServer | MysqlServer], name: str, options: str, read_in: str
) -> None:
    command = [sys.executable, "-c", SHORT_ANSWERS, mysql_server(name).endpoint + options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, [read_in] * 5, "")
