from __future__ import annotations

import stat
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tsbench.errors import UserMistake
from tsbench.model import WriteMode
from tsbench.servers.programs import cached_program
from tsbench.targets.influxdb.http_api import COLD
from tsbench.targets.influxdb.server import InfluxServer1, InfluxServer2
from tsbench.targets.registry import get
from tsbench.testing import data
from tsbench.testing.data import CPU, START_NS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tsbench.servers.base import Server

pytestmark = pytest.mark.every_user

VERSIONS = [pytest.param(v, marks=getattr(pytest.mark, f"influxdb-{v}")) for v in ("1.6", "1.8", "2")]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("cold", [None, "10m"])
@pytest.mark.slow
def test_what_a_server_of_ours_has_at_rest_is_in_shards_and_not_in_the_log(
    own_server: Callable[[Any], Any], tmp_path: Path, version: str, cold: str | None
) -> None:
    """With the default of ten minutes, which a scenario may set, little data stays in the log and takes more room."""
    target = get("influxdb2" if version == "2" else "influxdb1")
    settings = {} if version == "2" else {"version": version}
    if cold is not None:
        settings[f"{'storage-' if version == '2' else 'data.'}{COLD}"] = cold
    server, schema = own_server(target.new_server(tmp_path / "i", settings)), target.schemas["tags"]
    with closing(target.connect(server.endpoint, schema)) as session:
        session.run(schema.create([CPU], data.shared_tags()))
        batch = data.batch(CPU, data.shared_tags(), time_ns=[START_NS + i * 10**10 for i in range(5_000)])
        session.write(schema.encode(batch, WriteMode.BULK))
        before, log = session.sizes([CPU]).values()
        assert (before, log > 0) == (0, True)
        session.run(schema.settle([CPU]))
        shards, left = session.sizes([CPU]).values()
        assert (shards > 0, left) == (cold is None, 0 if cold is None else log)


@pytest.mark.parametrize("version", VERSIONS)
def test_it_listens_on_loopback_only_and_keeps_the_configuration(
    influxdb_server: Callable[[str], Server], version: str
) -> None:
    server = influxdb_server(version)
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
def test_settings_reach_the_server(own_server: Callable[[Any], Any], tmp_path: Path) -> None:
    settings = {"data.index-version": "tsi1", "data.cache-snapshot-memory-size": "1m"}
    server = own_server(InfluxServer1(tmp_path, settings))
    target = get("influxdb1")
    session = target.connect(server.endpoint, target.schemas["tags"])
    assert session.facts()["data.cache-snapshot-memory-size"] == str(2**20)
    session.close()


def test_settings_of_a_wrong_form_are_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match=r"section\.key"):
        InfluxServer1(tmp_path, {"wal-fsync-delay": "1s"})
    with pytest.raises(UserMistake, match=r"1\.6 and 1\.8"):
        InfluxServer1(tmp_path, {"version": "1.7"})


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
