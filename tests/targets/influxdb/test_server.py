from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.servers.test_process import gone
from tests.targets import data
from tests.targets.data import CPU, START_NS
from tsbench.errors import UserMistake
from tsbench.model import Count, WriteMode
from tsbench.servers.programs import cached_program
from tsbench.targets.influxdb.http_api import COLD
from tsbench.targets.influxdb.server import InfluxServer1, InfluxServer2
from tsbench.targets.registry import get

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tsbench.servers.base import Server

VERSIONS = [pytest.param(v, marks=getattr(pytest.mark, f"influxdb-{v}")) for v in ("1.6", "1.8", "2")]


@pytest.fixture(params=VERSIONS)
def server(
    request: pytest.FixtureRequest, tmp_path: Path, influxdb_server: Callable[[str], Server]
) -> Iterator[InfluxServer1 | InfluxServer2]:
    """A server of the test's own, which it may kill; `influxdb_server` skips where there is none."""
    influxdb_server(request.param)
    made = (
        InfluxServer2(tmp_path / "i")
        if request.param == "2"
        else InfluxServer1(tmp_path / "i", {"version": request.param})
    )
    made.start()
    yield made
    made.kill()
    made.remove()


def test_what_was_acknowledged_survives_a_kill_and_a_cold_start(server: InfluxServer1 | InfluxServer2) -> None:
    target = get("influxdb2" if isinstance(server, InfluxServer2) else "influxdb1")
    schema, endpoint = target.schemas["tags"], server.endpoint
    session = target.connect(endpoint, schema)
    session.run(schema.create([CPU], data.shared_tags()))
    batch = data.batch(CPU, data.shared_tags(), time_ns=[START_NS + i for i in range(5_000)])
    before = server.size()
    session.write(schema.encode(batch, WriteMode.BULK))
    session.close()
    assert server.size() > before + 10_000
    with closing(target.connect(endpoint, schema)) as session:
        sizes = dict(session.sizes([CPU]))
    for act in (server.kill, server.cold, server.stop):
        act()
        server.start()
        assert (server.alive(), len(server.pids()), server.endpoint) == (True, 1, endpoint)
        session = target.connect(endpoint, schema)
        assert session.query(schema.compile(Count(CPU)), ("points",)).records == [(5_000,)]
        assert sum(session.sizes([CPU]).values()) == pytest.approx(sum(sizes.values()), rel=0.01)
        session.close()
    server.stop()
    server.stop()
    assert (server.alive(), list(server.pids())) == (False, [])
    server.remove()
    assert server.size() == 0


@pytest.mark.parametrize("cold", [None, "10m"])
def test_what_a_server_of_ours_has_at_rest_is_in_shards_and_not_in_the_log(
    server: InfluxServer1 | InfluxServer2, cold: str | None
) -> None:
    """With the default of ten minutes, which a scenario may set, little data stays in the log and takes more room."""
    target = get("influxdb2" if isinstance(server, InfluxServer2) else "influxdb1")
    schema = target.schemas["tags"]
    if cold is not None:
        server.stop()
        server._settings |= {f"{'storage-' if target.name == 'influxdb2' else 'data.'}{COLD}": cold}
        server.start()
    with closing(target.connect(server.endpoint, schema)) as session:
        session.run(schema.create([CPU], data.shared_tags()))
        batch = data.batch(CPU, data.shared_tags(), time_ns=[START_NS + i * 10**10 for i in range(5_000)])
        session.write(schema.encode(batch, WriteMode.BULK))
        before, log = session.sizes([CPU]).values()
        assert (before, log > 0) == (0, True)
        session.run(schema.settle([CPU]))
        shards, left = session.sizes([CPU]).values()
        assert (shards > 0, left) == (cold is None, 0 if cold is None else log)


def test_it_listens_on_loopback_only_and_keeps_the_configuration(server: InfluxServer1 | InfluxServer2) -> None:
    (pid,) = server.pids()
    listening = {c.laddr.ip for c in psutil.Process(pid).net_connections() if c.status == psutil.CONN_LISTEN}
    assert listening == {"127.0.0.1"}
    assert (
        server.settings()["data.wal-fsync-delay" if isinstance(server, InfluxServer1) else "storage-wal-fsync-delay"]
        == "0s"
    )
    log = server.log()
    assert log is not None
    assert log.read_text()


@getattr(pytest.mark, "influxdb-2")
def test_the_token_is_for_its_owner_only_and_nobody_asks_without(
    influxdb_server: Callable[[str], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = influxdb_server("2")
    assert isinstance(server, InfluxServer2)
    assert stat.S_IMODE(server._token_file.stat().st_mode) == 0o600
    assert server._token_file.read_text() not in server.endpoint
    monkeypatch.setenv("TSBENCH_TOKEN", "another")
    target = get("influxdb2")
    target.connect(server.endpoint, target.schemas["tags"]).close()
    with pytest.raises(UserMistake, match="refuses the token"):
        target.connect(server.endpoint.partition("&token_file")[0], target.schemas["tags"])


@getattr(pytest.mark, "influxdb-1.8")
def test_settings_reach_the_server_and_unknown_ones_are_refused(
    influxdb_server: Callable[[str], Server], tmp_path: Path
) -> None:
    influxdb_server("1.8")
    server = InfluxServer1(tmp_path, {"data.index-version": "tsi1", "data.cache-snapshot-memory-size": "1m"})
    server.start()
    target = get("influxdb1")
    session = target.connect(server.endpoint, target.schemas["tags"])
    assert session.facts()["data.cache-snapshot-memory-size"] == str(2**20)
    session.close()
    server.stop()
    with pytest.raises(UserMistake, match=r"data\.no-such: influxd-1\.8 has no such setting"):
        InfluxServer1(tmp_path, {"data.no-such": "1"}).start()


def test_settings_of_a_wrong_form_are_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match=r"section\.key"):
        InfluxServer1(tmp_path, {"wal-fsync-delay": "1s"})
    with pytest.raises(UserMistake, match=r"1\.6 and 1\.8"):
        InfluxServer1(tmp_path, {"version": "1.7"})


def test_a_missing_program_is_answered_with_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TSBENCH_SERVERS", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    for server in (
        InfluxServer1(tmp_path / "1"),
        InfluxServer1(tmp_path / "1", {"version": "1.6"}),
        InfluxServer2(tmp_path),
    ):
        with pytest.raises(UserMistake, match=r"is not installed; run tsbench servers install influxd-"):
            server.start()


def test_the_cache_goes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (tmp_path / "bin", tmp_path / "path"):
        place.mkdir()
        (place / "influxd-2").write_text("#!/bin/sh\n")
        (place / "influxd-2").chmod(0o755)
    monkeypatch.setenv("TSBENCH_SERVERS", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    assert cached_program("influxd-2") == tmp_path / "bin" / "influxd-2"
    (tmp_path / "bin" / "influxd-2").unlink()
    assert cached_program("influxd-2") == tmp_path / "path" / "influxd-2"


@getattr(pytest.mark, "influxdb-1.8")
def test_it_does_not_outlive_a_killed_parent(influxdb_server: Callable[[str], Server], tmp_path: Path) -> None:
    influxdb_server("1.8")
    program = """
import sys, time
from pathlib import Path
from tsbench.targets.influxdb.server import InfluxServer1
server = InfluxServer1(Path(sys.argv[1]))
server.start()
print(*server.pids(), flush=True)
time.sleep(99)
"""
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        process = psutil.Process(int(parent.stdout.readline()))
        os.kill(parent.pid, signal.SIGKILL)
    assert gone(process, within_s=60)
