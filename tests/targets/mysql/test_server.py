from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import pytest

from tests.servers.test_process import gone
from tests.targets import data
from tests.targets.data import CPU, START_NS, S
from tests.targets.mysql.support import bare
from tsbench.errors import UserMistake
from tsbench.model import Count, WriteMode
from tsbench.targets.mysql import MARIADB, MYSQL
from tsbench.targets.mysql.server import MariadbServer, MysqlServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tsbench.targets.target import Target


@pytest.mark.parametrize(
    ("target", "make", "schemas", "log"),
    [
        pytest.param(MARIADB, MariadbServer, ("innodb", "rocksdb"), "innodb_log_file_size", marks=pytest.mark.mariadb),
        pytest.param(MYSQL, MysqlServer, ("innodb",), "innodb_redo_log_capacity", marks=pytest.mark.mysql),
    ],
)
def test_what_was_acknowledged_survives_a_kill_and_a_cold_start(
    mysql_server: Callable[[str], MariadbServer | MysqlServer],
    tmp_path: Path,
    target: Target,
    make: type[MariadbServer | MysqlServer],
    schemas: tuple[str, ...],
    log: str,
) -> None:
    mysql_server(target.name)  # or this is skipped
    server = make(tmp_path / "db", {"innodb-buffer-pool-size": "64M", log: "64M"})
    server.start()
    try:
        endpoint = server.endpoint
        for name in schemas:
            schema = target.schemas[name]
            session = target.connect(endpoint, schema)
            session.run(schema.create([CPU], data.shared_tags()))
            times = [START_NS + i * S for i in range(1_000)]
            payload = schema.encode(data.batch(CPU, data.shared_tags(), time_ns=times), WriteMode.MULTI)
            assert session.write(payload) == 1_000
            pids = server.pids()
            server.kill()
            assert (server.alive(), server.ended()) == (False, "killed by SIGKILL")
            assert all(gone(psutil.Process(pid), within_s=60) for pid in pids if psutil.pid_exists(pid))
            server.start()
            assert server.endpoint == endpoint
            session = target.connect(endpoint, schema)
            assert session.query(schema.compile(Count(CPU)), ("points",)).records == [(1_000,)]
            session.close()
        server.cold()
        with bare(endpoint) as cursor:
            cursor.execute("SELECT count(*), @@innodb_buffer_pool_size FROM cpu")
            assert cursor.fetchone() == (1_000, 64 << 20)
            cursor.execute("SELECT @@tmpdir")  # or the next server that starts there deletes its temporary tables
            assert cursor.fetchone()[0].startswith(str(server.place))
            cursor.execute("SELECT count(*) FROM mysql.user WHERE user = '' OR host = '%'")
            assert cursor.fetchone() == (0,)
        server.stop()
        assert (server.alive(), list(server.pids())) == (False, [])
        assert server.size() > 1_000_000
    finally:
        server.kill()
        server.remove()


@pytest.mark.mariadb
def test_a_setting_that_the_server_does_not_know_is_named(
    mysql_server: Callable[[str], MariadbServer | MysqlServer], tmp_path: Path
) -> None:
    mysql_server("mariadb")  # or this is skipped
    server = MariadbServer(tmp_path / "db", {"inodb_buffer_pool_size": "64M"})
    with pytest.raises(UserMistake, match="unknown variable 'inodb_buffer_pool_size=64M'"):
        server.start()
    server.remove()


def test_a_missing_program_is_answered_with_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TSBENCH_SERVERS", str(tmp_path))
    with pytest.raises(UserMistake, match=r"^MySQL is not installed; run tsbench servers install mysql-9, or give"):
        MysqlServer(tmp_path / "db").start()
    with pytest.raises(UserMistake, match="settings: port: tsbench sets it itself"):
        MariadbServer(tmp_path / "db", {"port": "3306"})
