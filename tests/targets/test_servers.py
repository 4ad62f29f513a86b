"""What every server that is a process of ours does: it keeps what it acknowledged, and it ends with tsbench."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.servers.test_process import gone
from tests.targets.mysql.support import bare
from tsbench.errors import UserMistake
from tsbench.model import Count, WriteMode
from tsbench.targets.registry import TARGETS
from tsbench.testing import data
from tsbench.testing.data import CPU, START_NS, S

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tsbench.servers.base import Server
    from tsbench.targets.base import Schema

pytestmark = pytest.mark.every_user

POINTS = 5_000
PASSWORD = "let me in"


@dataclass(frozen=True)
class Kind:
    """A server of a target with these settings, and the schemas in which data must survive."""

    mark: str
    target: str
    schemas: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    processes: int = 1
    """How many it has at least."""

    def made(self, place: Path) -> Any:
        """Return the server, not yet started; skip where its driver is not installed."""
        target = TARGETS[self.target]
        pytest.importorskip(target.driver.module if target.driver else "sys")
        return target.new_server(place, self.settings)


_INNODB = {"innodb-buffer-pool-size": "64M"}
KINDS = (
    Kind("postgres", "postgres", ("btree",), {"shared_buffers": "16MB"}, 5),
    Kind("mariadb", "mariadb", ("innodb", "rocksdb"), {**_INNODB, "innodb_log_file_size": "64M"}),
    Kind("mysql", "mysql", ("innodb",), {**_INNODB, "innodb_redo_log_capacity": "64M"}),
    Kind("mongodb", "mongodb", ("per-point",), {"shared_buffers": "64MB", "ordered": "false"}, 3),
    Kind("influxdb-1.6", "influxdb1", ("tags",), {"version": "1.6"}),
    Kind("influxdb-1.8", "influxdb1", ("tags",), {"version": "1.8"}),
    Kind("influxdb-2", "influxdb2", ("tags",)),
)


def of(kinds: tuple[Kind, ...]) -> pytest.MarkDecorator:
    """Return the parameters of a test of these kinds, each marked with the server that it needs."""
    found = [pytest.param(kind, id=kind.mark, marks=getattr(pytest.mark, kind.mark)) for kind in kinds]
    return pytest.mark.parametrize("kind", found)


def written(kind: Kind, schema: Schema, endpoint: str) -> int:
    """Store points, and return the bytes that the database then says it takes."""
    times = [START_NS + i * S for i in range(POINTS)]
    batch = data.batch(CPU, data.shared_tags(), time_ns=times)
    with closing(TARGETS[kind.target].connect(endpoint, schema)) as session:
        session.run(schema.create([CPU], data.shared_tags()))
        payloads = schema.encode_each(batch, POINTS, WriteMode.MULTI)
        assert sum(map(session.write, payloads)) == POINTS
        return sum(session.sizes([CPU]).values())


def expect_stored(kind: Kind, schema: Schema, endpoint: str, size: int) -> None:
    """Verify that all points are there, and take as much room as before where that depends on nothing else."""
    with closing(TARGETS[kind.target].connect(endpoint, schema)) as session:
        assert session.query(schema.compile(Count(CPU)), ("points",)).records == [(POINTS,)]
        if kind.target.startswith("influxdb"):
            assert sum(session.sizes([CPU]).values()) == pytest.approx(size, rel=0.01)


@pytest.mark.nightly
@of(KINDS)
def test_what_was_acknowledged_survives_a_kill_and_a_cold_start(
    own_server: Callable[[Any], Any], tmp_path: Path, kind: Kind
) -> None:
    server: Server = own_server(kind.made(tmp_path / "server"))
    endpoint, before = server.endpoint, server.size()
    for name in kind.schemas:
        schema = TARGETS[kind.target].schemas[name]
        size = written(kind, schema, endpoint)
        assert server.size() > before + 10_000
        processes = [psutil.Process(pid) for pid in server.pids()]
        assert len(processes) >= kind.processes
        for act in (server.kill, server.cold, server.stop)[: 3 if name == kind.schemas[-1] else 1]:
            act()
            if act == server.kill:
                assert (server.alive(), server.ended()) == (False, "killed by SIGKILL")
                assert all(gone(process, within_s=60) for process in processes)
            server.start()
            assert (server.alive(), server.endpoint) == (True, endpoint)
            expect_stored(kind, schema, endpoint, size)
    if kind.target in {"mariadb", "mysql"}:
        expect_our_configuration(endpoint, server)
    server.stop()
    server.stop()
    assert (server.alive(), list(server.pids())) == (False, [])
    server.remove()
    assert server.size() == 0


def expect_our_configuration(endpoint: str, server: Any) -> None:
    """Verify settings of MariaDB and MySQL, and that nobody else logs in."""
    with bare(endpoint) as cursor:
        cursor.execute("SELECT @@innodb_buffer_pool_size, @@tmpdir")
        size, temporary = cursor.fetchone()
        assert size == 64 << 20
        assert temporary.startswith(str(server.place)), "the next server that starts there deletes temporary tables"
        cursor.execute("SELECT count(*) FROM mysql.user WHERE user = '' OR host = '%'")
        assert cursor.fetchone() == (0,)


STARTED = """
import json, sys, time
from pathlib import Path
from tsbench.errors import UserMistake
from tsbench.targets.registry import TARGETS
target, place, settings = sys.argv[1:]
server = TARGETS[target].new_server(Path(place), json.loads(settings))
try:
    server.start()
except UserMistake as mistake:
    sys.exit(str(mistake))
print(*server.pids(), flush=True)
time.sleep(99)
"""


@of(tuple(kind for kind in KINDS if kind.mark in {"postgres", "mongodb", "influxdb-1.8"}))
@pytest.mark.slow
def test_no_process_outlives_a_killed_parent(tmp_path: Path, kind: Kind) -> None:
    """One of each kind: PostgreSQL, two programs, one program."""
    command = [sys.executable, "-c", STARTED, kind.target, str(tmp_path / "server"), json.dumps(kind.settings)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stderr is not None
        family = []
        for pid in (line := parent.stdout.readline()).split():
            with suppress(
                psutil.NoSuchProcess
            ):  # the session that asked whether the server is ready may be just ending
                family.append(psutil.Process(int(pid)))
        if not line:
            pytest.skip(parent.stderr.read().decode())
        assert len(family) >= kind.processes
        os.kill(parent.pid, signal.SIGKILL)
    assert all(gone(process, within_s=60) for process in family)


@pytest.mark.parametrize(
    ("target", "settings", "said"),
    [
        ("mysql", {}, "MySQL is not installed; run tsbench servers install mysql-9, or give"),
        ("mongodb", {}, "FerretDB is not installed; run tsbench servers install ferretdb"),
        ("influxdb1", {}, "is not installed; run tsbench servers install influxd-1.8"),
        ("influxdb1", {"version": "1.6"}, "is not installed; run tsbench servers install influxd-1.6"),
        ("influxdb2", {}, "is not installed; run tsbench servers install influxd-2"),
    ],
)
def test_a_missing_program_is_answered_with_the_cure(
    target: str, settings: dict[str, str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TSBENCH_SERVERS", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserMistake, match=said):
        TARGETS[target].new_server(tmp_path / "server", settings).start()


LOGINS = {
    "influxdb-1.8": ("influxdb1", {"version": "1.8", "http.auth-enabled": "true"}),
    "victoria": ("victoriametrics", {"httpAuth.username": "me", "httpAuth.password": PASSWORD}),
    "questdb": (
        "questdb",
        {f"{door}.{what}": word for door in ("http", "pg") for what, word in (("user", "me"), ("password", PASSWORD))},
    ),
}


@pytest.mark.parametrize("mark", [pytest.param(mark, marks=getattr(pytest.mark, mark)) for mark in LOGINS])
@pytest.mark.slow
def test_a_login_is_needed_where_the_server_wants_one(
    own_server: Callable[[Any], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    name, settings = LOGINS[mark]
    target = TARGETS[name]
    schema = next(iter(target.schemas.values()))
    server = own_server(target.new_server(tmp_path / "server", settings))
    if name == "influxdb1":
        text = f"q=CREATE USER me WITH PASSWORD '{PASSWORD}' WITH ALL PRIVILEGES"
        urllib.request.urlopen(f"{server.endpoint.rpartition('/')[0]}/query", text.encode()).close()
    endpoint = server.endpoint.replace("//", "//me@", 1)
    for value in (None, "wrong"):
        if value:
            monkeypatch.setenv("TSBENCH_PASSWORD", value)
        with pytest.raises(UserMistake, match="set TSBENCH_PASSWORD") as caught:
            target.connect(endpoint, schema)
        assert "wrong" not in str(caught.value)
    monkeypatch.delenv("TSBENCH_PASSWORD")
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    monkeypatch.setenv("TSBENCH_PASSWORD_FILE", str(tmp_path / "password"))
    with closing(target.connect(endpoint, schema)) as session:
        session.run(schema.create([CPU], data.shared_tags()))
        batch = data.batch(CPU, data.shared_tags(), time_ns=[START_NS])
        assert session.write(schema.encode(batch, WriteMode.MULTI)) == 1


WRONG_SETTINGS = [
    ("mariadb", "mariadb", {"inodb_buffer_pool_size": "64M"}, "unknown variable 'inodb_buffer_pool_size=64M'"),
    ("influxdb-1.8", "influxdb1", {"data.no-such": "1"}, r"data\.no-such: influxd-1\.8 has no such setting"),
    ("mariadb", "mariadb", {"port": "3306"}, "settings: port: tsbench sets it itself"),
    ("mongodb", "mongodb", {"ordered": "maybe"}, "settings: ordered=maybe: there are true, false"),
    ("mongodb", "mongodb", {"w": "0"}, "settings: w=0: .* cannot be accounted for"),
    ("mongodb", "mongodb", {"port": "1"}, "settings: port: tsbench sets it itself"),
    ("victoria", "victoriametrics", {"no.such.flag": "1"}, "no.such.flag"),
    ("victoria", "victoriametrics", {"storageDataPath": "/tmp"}, "is set by tsbench"),
    ("questdb", "questdb", {"no.such.key": "1"}, "no.such.key"),
    ("questdb", "questdb", {"cairo.max.uncommitted.rows": "lots"}, "cairo.max.uncommitted.rows"),
    ("questdb", "questdb", {"http.bind.to": "0.0.0.0:1"}, "is set by tsbench"),
    ("questdb", "questdb", {"jar": "/nowhere.jar"}, "jar = '/nowhere.jar' is no file"),
    ("questdb", "questdb", {"heap": "much"}, "heap = 'much': write Java's memory"),
]


@pytest.mark.parametrize(
    ("target", "settings", "said"),
    [
        pytest.param(target, settings, said, marks=getattr(pytest.mark, mark), id=f"{mark}-{next(iter(settings))}")
        for mark, target, settings, said in WRONG_SETTINGS
    ],
)
@pytest.mark.slow
def test_a_wrong_setting_is_named(target: str, settings: dict[str, str], said: str, tmp_path: Path) -> None:
    if said.startswith("unknown variable"):  # the server says so, whose start is looked at by its driver
        pytest.importorskip("MySQLdb", reason="mysqlclient is not installed; pip install 'tsbench[mysql]'")
    with pytest.raises(UserMistake) as caught:
        TARGETS[target].new_server(tmp_path / "server", settings).start()
    if "is not installed" in str(caught.value):
        pytest.skip(str(caught.value))
    assert re.search(said, str(caught.value))
