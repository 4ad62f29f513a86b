from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pytest

from tsbench.errors import Unreachable, UserMistake
from tsbench.model import OpError, Outcome, WriteMode
from tsbench.targets.base import Statement, Unsupported
from tsbench.targets.duckdb import TARGET
from tsbench.targets.duckdb.schemas import COLUMNS
from tsbench.testing import data
from tsbench.testing.contract import TargetContract
from tsbench.testing.data import CPU, START_NS, S

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tsbench.model import Measurement
    from tsbench.targets.base import Payload, Schema, Session
    from tsbench.targets.target import Target
    from tsbench.testing.contract_base import Alteration, Point

ENDLESS = Statement("SELECT count(*) FROM range(10000000000) a, range(10000000000) b WHERE a.range + b.range < 0")


class TestDuckdb(TargetContract):
    name = "duckdb"
    wrong_endpoints = ("nonsense", "duckdb://relative.duckdb", "duckdb:///no/such/directory/x.duckdb")

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"duckdb://{tmp_path / 'test.duckdb'}"

    @staticmethod
    def stored(url: str, measurement: Measurement) -> Sequence[Point]:
        connection = duckdb.connect(url.removeprefix("duckdb://"))
        found = connection.execute(f'SELECT * FROM tsbench."{measurement.name}"')
        columns = [column[0] for column in found.description or ()]
        rows = [dict(zip(columns, row, strict=True)) for row in found.fetchall()]
        connection.close()
        return [
            (
                round(row["time"].replace(tzinfo=UTC).timestamp() * 1_000_000) * 1_000,
                row["tags_id"] if measurement.tags else None,
                *(float(row[name]) for name in measurement.field_names),
                json.loads(row["additional_tags"]) if measurement.own_tags else None,
            )
            for row in rows
        ]

    @staticmethod
    def alter(url: str, alteration: Alteration) -> None:
        with duckdb.connect(url.removeprefix("duckdb://")) as connection:
            time = f"make_timestamp({alteration.time_ns // 1_000})"
            for statement in alteration.sql(time, within="tsbench."):
                connection.execute(statement)

    def refused_in_part(
        self, session: Session, target: Target, url: str, schema: Schema, mode: WriteMode
    ) -> tuple[Session, Payload, int]:
        with duckdb.connect(url.removeprefix("duckdb://")) as connection:
            connection.execute("CREATE UNIQUE INDEX one ON tsbench.cpu (time, tags_id)")
        batch = data.batch(CPU, data.shared_tags(), time_ns=[START_NS, START_NS + S, START_NS])
        return session, schema.encode(batch, mode), 1


def test_ctrl_c_in_the_middle_of_a_statement_is_ctrl_c_and_no_error_of_the_database(tmp_path: Path) -> None:
    session = TARGET.connect(f"duckdb://{tmp_path / 'x.duckdb'}", COLUMNS, timeout_s=60)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            session.query(ENDLESS, ("n",))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    session.close()


def test_a_file_that_is_no_database_is_the_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "x.duckdb").write_text("this is a letter to somebody " * 50)
    with pytest.raises(UserMistake, match="not a valid DuckDB database file"):
        TARGET.connect(f"duckdb://{tmp_path / 'x.duckdb'}", COLUMNS)


def test_somebody_elses_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "theirs.duckdb"
    with duckdb.connect(path) as theirs:
        theirs.execute("CREATE TABLE cpu AS SELECT 1 AS n")
    with pytest.raises(UserMistake, match=r"not tsbench's; name a file that is not there yet"):
        TARGET.connect(f"duckdb://{path}", COLUMNS)
    with duckdb.connect(path) as theirs:
        assert theirs.execute("SELECT n FROM cpu").fetchall() == [(1,)]


def test_a_file_that_another_process_has_open_is_unreachable_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    program = f"import duckdb, time; c = duckdb.connect({str(path)!r}); print('open', flush=True); time.sleep(600)"
    other = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(Unreachable, match="Could not set lock") as caught:
            TARGET.connect(f"duckdb://{path}", COLUMNS)
        assert "\n" not in str(caught.value)
    finally:
        other.kill()
        other.communicate(timeout=60)


@pytest.mark.slow
def test_a_statement_is_interrupted_at_its_time_limit(tmp_path: Path) -> None:
    session = TARGET.connect(f"duckdb://{tmp_path / 'x.duckdb'}", COLUMNS, timeout_s=1.0)
    for act in (lambda: session.query(ENDLESS, ("n",)), lambda: session.run([ENDLESS], timeout_s=1.0)):
        began = time.monotonic()
        with pytest.raises(OpError) as caught:
            act()
        assert (caught.value.outcome, caught.value.cause) == (Outcome.FAILED, "timeout")
        assert time.monotonic() - began < 60
        assert session.query(Statement("SELECT 1"), ("n",)).records == [(1,)]
    session.close()


@pytest.mark.slow
def test_time_limits_hold_in_threads_of_a_process_that_gevent_has_patched(tmp_path: Path) -> None:
    program = """
from gevent import monkey; monkey.patch_all()
import sys, time, gevent
from gevent.threadpool import ThreadPool
from tests.targets.duckdb.test_target import ENDLESS
from tsbench.model import OpError
from tsbench.targets.duckdb import TARGET
from tsbench.targets.duckdb.schemas import COLUMNS
pool = ThreadPool(1)
session = pool.spawn(lambda: TARGET.connect(sys.argv[1], COLUMNS, timeout_s=2.0)).get()
asked = pool.spawn(session.query, ENDLESS, ("n",))
began, ticks = time.monotonic(), 0
while not asked.ready() and time.monotonic() - began < 60:
    gevent.sleep(0.01)
    ticks += 1
assert ticks > 5, ticks
try:
    asked.get(timeout=60)
except OpError as error:
    assert error.cause == "timeout", error
else:
    raise AssertionError("it ended")
session.close()
"""
    command = [sys.executable, "-c", program, f"duckdb://{tmp_path / 'x.duckdb'}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.root
def test_a_full_disk_is_told(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(small)], check=False)
    if mounted.returncode:
        pytest.skip("this root may not mount a file system")
    try:
        session = TARGET.connect(f"duckdb://{small / 'x.duckdb'}", COLUMNS)
        session.run(COLUMNS.create([CPU], data.shared_tags()))
        times = (START_NS + np.arange(100_000) * 1_000).tolist()
        payload = COLUMNS.encode(data.batch(CPU, data.shared_tags(), time_ns=times), WriteMode.BULK)
        with pytest.raises(OpError) as caught:
            sum(session.write(payload) for _ in range(20))
        assert (caught.value.outcome, caught.value.cause) == (Outcome.FAILED, "disk full")
        session.close()
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_write_that_fails_in_its_middle_leaves_nothing(tmp_path: Path) -> None:
    session = TARGET.connect(f"duckdb://{tmp_path / 'x.duckdb'}", COLUMNS)
    session.run(COLUMNS.create([CPU], data.shared_tags()))
    batch = data.batch(CPU, data.shared_tags(), time_ns=[START_NS, START_NS + 1_000])
    pieces = COLUMNS.encode(batch, WriteMode.MULTI)
    pieces.data.append(Statement("INSERT INTO cpu VALUES (1)"))
    with pytest.raises(OpError):
        session.write(pieces)
    assert session.query(Statement("SELECT count(*) FROM cpu"), ("n",)).records == [(0,)]
    assert session.write(COLUMNS.encode(batch, WriteMode.BULK)) == 2
    session.close()


def test_times_and_buckets_finer_than_a_microsecond_are_refused() -> None:
    batch = data.batch(CPU, data.shared_tags(), time_ns=[START_NS + 1])
    for mode in WriteMode:
        with pytest.raises(Unsupported, match="microseconds"):
            COLUMNS.encode(batch, mode)


def test_facts_state_the_threads(tmp_path: Path) -> None:
    session = TARGET.connect(f"duckdb://{tmp_path / 'x.duckdb'}", COLUMNS)
    assert session.facts()["threads"] == "1"
    session.close()


@pytest.mark.slow
def test_an_interrupted_write_is_unknown_only_if_the_interrupt_may_have_met_the_commit(tmp_path: Path) -> None:
    session = TARGET.connect(f"duckdb://{tmp_path / 'x.duckdb'}", COLUMNS, timeout_s=1.0)
    session.run(COLUMNS.create([CPU], data.shared_tags()))
    batch = data.batch(CPU, data.shared_tags(), time_ns=[START_NS, START_NS + 1_000])
    endless = Statement(f"INSERT INTO cpu SELECT * FROM cpu WHERE ({ENDLESS.text}) = 0")
    session.write(COLUMNS.encode(batch, WriteMode.BULK))
    alone = replace(COLUMNS.encode(batch, WriteMode.BULK), text=endless.text)
    several = COLUMNS.encode(batch, WriteMode.MULTI)
    several.data.append(endless)
    for payload, outcome in ((alone, Outcome.UNKNOWN), (several, Outcome.FAILED)):
        with pytest.raises(OpError) as caught:
            session.write(payload)
        assert (caught.value.outcome, caught.value.cause) == (outcome, "timeout")
        assert session.query(Statement("SELECT count(*) FROM cpu"), ("n",)).records == [(2,)]
    session.close()


def test_nothing_is_printed_at_the_exit_of_a_process_that_froze_its_objects(tmp_path: Path) -> None:
    program = f"""
import gc
from tsbench.targets.registry import get
target = get("duckdb")
target.connect("duckdb://{tmp_path}/x.db", target.schemas["columns"]).close()
gc.collect()
gc.freeze()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == ""
