"""A master and workers that come with what they need, or without."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import psutil
import pytest

from tests.cli.support import Command, content, nothing_left, only
from tests.drive.cluster.test_encryption import SECRET, master, worker
from tsbench.servers.process import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tsbench.targets.postgres.server import PostgresServer

LOCUSTFILE = str(Path(__file__).parents[3] / "locustfiles" / "postgres.py")
PREPARED = {"TSBENCH_SCALE": "10", "TSBENCH_LOAD_WINDOW": "2h", "TSBENCH_CLUSTER_SECRET": SECRET}


@pytest.fixture
def login(postgres_server: PostgresServer) -> tuple[str, str]:
    """An endpoint that does not say where the password is, and the password."""
    passfile = parse_qs(urlsplit(postgres_server.endpoint).query)["passfile"][0]
    return postgres_server.endpoint.partition("?")[0], Path(passfile).read_text().strip().rpartition(":")[2]


@pytest.fixture
def place(login: tuple[str, str], tmp_path: Path) -> Iterator[Path]:
    with nothing_left():
        yield tmp_path


def started(place: Path, name: str, words: list[str], password: str | None) -> Command:
    (place / name).mkdir()
    env = {**PREPARED, "TSBENCH_PASSWORD": password, "PGPASSWORD": None, "PGPASSFILE": "/nonexistent"}
    return Command(place / name, "locust", "-f", LOCUSTFILE, "--only-summary", *words, env=env)


@pytest.mark.slow
@pytest.mark.postgres
def test_a_worker_without_the_password_is_named_even_if_it_answers_last(place: Path, login: tuple[str, str]) -> None:
    endpoint, password = login
    port = str(free_port())
    good, bad = (started(place, name, worker(port), given) for name, given in (("good", password), ("bad", None)))
    head = started(place, "head", master(port, "--expect-workers", "2", "--endpoint", endpoint), password)
    try:
        head.wait_until(lambda: "2 workers connected" in head.stderr)
        late = psutil.Process(bad.process.pid)  # the master still stores the first data
        late.suspend()
        try:
            head.wait_until(lambda: [*head.place.rglob("worker-*.ops.jsonl")])  # the other one is ready
            time.sleep(0.5)
        finally:
            late.resume()
        assert head.wait() == 2, head.stderr
        said = [line for line in head.stderr.splitlines() if "ERROR/tsbench" in line]
        assert "Traceback" not in head.stderr
        assert re.search(r"worker-[01] \(\S+\) cannot take part: .*set TSBENCH_PASSWORD", said[0]), said
        assert bad.wait() == 2
        assert "tsbench: this worker cannot take part: cannot connect" in bad.stderr
        assert content(only(head.place, "results/*/*/status.json"))["state"] == "failed"
    finally:
        for command in (good, bad, head):
            command.end()
