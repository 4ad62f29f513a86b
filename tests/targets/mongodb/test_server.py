from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pymongo
import pytest

from tests.servers.test_process import gone
from tsbench.errors import UserMistake
from tsbench.targets.mongodb.server import FerretdbServer

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.mongodb
def test_what_was_acknowledged_survives_a_kill_and_a_cold_start(
    ferretdb_server: FerretdbServer, tmp_path: Path
) -> None:
    server = FerretdbServer(tmp_path / "db", {"shared_buffers": "64MB", "ordered": "false"})
    server.start()
    try:
        endpoint, pids = server.endpoint, server.pids()
        assert endpoint.endswith("/tsbench?ordered=false")
        names = {psutil.Process(pid).name() for pid in pids}
        assert {"ferretdb", "postgres"} <= names
        with pymongo.MongoClient[dict[str, int]]("127.0.0.1", int(endpoint.split(":")[2].partition("/")[0])) as client:
            points = client["tsbench"]["kept"]
            points.insert_many([{"n": n} for n in range(1_000)])
            server.kill()
            assert (server.alive(), server.ended()) == (False, "killed by SIGKILL")
            assert all(gone(psutil.Process(pid), within_s=60) for pid in pids if psutil.pid_exists(pid))
            server.start()
            assert (server.endpoint, points.count_documents({})) == (endpoint, 1_000)
            server.cold()
            assert points.count_documents({}) == 1_000
        server.stop()
        assert (server.alive(), list(server.pids())) == (False, [])
        assert server.size() > 1_000_000
    finally:
        server.kill()
        server.remove()


@pytest.mark.mongodb
def test_neither_process_outlives_a_killed_parent(ferretdb_server: FerretdbServer, tmp_path: Path) -> None:
    program = """
import sys, time
from pathlib import Path
from tsbench.targets.mongodb.server import FerretdbServer
server = FerretdbServer(Path(sys.argv[1]), {"shared_buffers": "64MB"})
server.start()
print(*server.pids(), flush=True)
time.sleep(99)
"""
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "db")], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        processes = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        os.kill(parent.pid, signal.SIGKILL)
    assert len(processes) > 2
    assert all(gone(process, within_s=60) for process in processes)


def test_a_missing_program_is_answered_with_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TSBENCH_SERVERS", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserMistake, match=r"FerretDB is not installed; run tsbench servers install ferretdb"):
        FerretdbServer(tmp_path / "db").start()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ordered": "maybe"}, "settings: ordered=maybe: there are true, false"),
        ({"w": "0"}, "settings: w=0: .* cannot be accounted for"),
        ({"port": "1"}, "settings: port: tsbench sets it itself"),
    ],
)
def test_a_wrong_setting_is_refused_before_anything_starts(settings: dict[str, str], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match=said):
        FerretdbServer(tmp_path / "db", settings)
