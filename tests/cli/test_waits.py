"""Servers that are locked or lost: every wait ends, its cause is named, and the next cell runs.

The table of faults (tests/faults) has more of them, in runs of one cell.
"""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.cli import support
from tests.cli.support import POSTGRES, Command, complaint, content, disturbances, failed_gates, only, says, scenario
from tsbench.drive.bare.helper import HelperProcess
from tsbench.errors import Broken, UserMistake
from tsbench.scenario.spec import Scenario
from tsbench.targets.postgres.server import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.every_user


TWO_CELLS = ('name = "sqlite"\n', 'name = "sqlite"\n[matrix]\n"drive.users" = [2, 3]\n')


@pytest.fixture
def own_server(place: Path, own_server: Callable[[PostgresServer], PostgresServer]) -> PostgresServer:
    """A PostgreSQL for the command's endpoint, which the test may damage."""
    return own_server(PostgresServer(place / "own", {"fsync": "off", "shared_buffers": "64MB"}))


def started(place: Path, *words: str, cells: tuple[tuple[str, str], ...] = ()) -> Command:
    scenario(place, *cells)
    return support.started(place, *words)


def limits(**seconds: float) -> list[str]:
    return [word for key, value in seconds.items() for word in ("--set", f"timeout.{key}={value}s")]


def at(server: PostgresServer, *words: str) -> tuple[str, ...]:
    return (*POSTGRES, "--endpoint", server.endpoint, *words)


def ended(command: Command, *words: str) -> dict[str, Any]:
    """The set's summary after a campaign that ended with exit code 1 and a complaint with these words."""
    assert command.wait() == 1, command.stderr
    says(complaint(command.stderr), *words)
    return content(only(command.place, "results/*/summary.json"))


@contextmanager
def locked(server: PostgresServer, mode: str) -> Iterator[None]:
    """Hold a lock on the table as soon as it exists."""
    with psycopg.connect(server.endpoint, autocommit=True) as other:
        give_up = time.monotonic() + support.PATIENCE_S
        while not other.execute("SELECT to_regclass('tsbench.cpu')").fetchall()[0][0]:
            assert time.monotonic() < give_up, "there is no table"
            time.sleep(0.02)
        with other.transaction():
            other.execute(f"LOCK TABLE tsbench.cpu IN {mode} MODE")
            yield


# --- what is locked


@pytest.mark.nightly
@pytest.mark.postgres
def test_a_locked_table_fails_its_cell_and_the_next_one_is_run(place: Path, own_server: PostgresServer) -> None:
    first = started(place, *at(own_server))
    first.ended_well()
    with locked(own_server, "ACCESS EXCLUSIVE"):
        command = started(place, *at(own_server, "--out", "more", *limits(create=5)), cells=(TWO_CELLS,))
        command.wait_until(lambda: "[2/2" in command.stderr)
    assert command.wait() == 1, command.stderr
    line = complaint(command.stderr)
    says(line, "of 2 cells", "dropping", 'DROP TABLE IF EXISTS "cpu"', "127.0.0.1", "--set timeout.create=10s")
    cells = content(only(place, "more/*/summary.json"))["cells"]
    assert cells[0]["validity"]["state"] == "inconclusive"
    disturbances(cells[1])  # else valid


@pytest.mark.slow
@pytest.mark.nightly
def test_a_locked_file_fails_the_run_at_the_limit(place: Path) -> None:
    file = place / "x.db"
    words = ("--endpoint", f"sqlite://{file}")
    first = started(place, *words)
    first.ended_well()
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    command = started(place, *words, "--out", "more", *limits(create=1))
    assert command.wait() == 1, command.stderr
    says(complaint(command.stderr), "dropping", "database is locked", str(file), "--set timeout.create=2s")
    other.close()


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.nightly
def test_a_helper_process_obeys_the_limits_of_its_run(place: Path, own_server: PostgresServer) -> None:
    path = scenario(place)
    overrides = ("target.name=postgres", "timeout.create=5s", f"target.endpoint={own_server.endpoint}")
    (spec,) = Scenario.load(path, overrides=overrides).expand()
    phases: dict[str, None] = {}

    def note(phase: str, _done: float, _total: float | None) -> None:
        phases.setdefault(phase)

    first = HelperProcess(spec, place / "results", note)
    first.await_ready()
    assert first.stop("it has shown enough", interrupted=True).state == "interrupted"
    assert [*phases] == ["start", "load", "settle", "measure"]
    with locked(own_server, "ACCESS EXCLUSIVE"):
        second = HelperProcess(spec, place / "results", note)
        with pytest.raises(Broken, match=r"dropping .* --set timeout\.create=10s"):
            second.await_ready()


# --- servers that are lost


@pytest.mark.nightly
@pytest.mark.postgres
def test_an_external_server_lost_while_it_is_measured_leaves_figures_and_the_next_cell_is_tried(
    place: Path, own_server: PostgresServer
) -> None:
    command = started(place, *at(own_server, "--set", "drive.duration=8s"), cells=(TWO_CELLS,))
    command.until_measured()
    own_server.kill()
    first, second = ended(command, "2 of 2 cells", "could not be reached any more")["cells"]
    assert first["measured"]["ops"]["write-1"]["count"] > 10
    says(failed_gates(first)["server deaths<=0"], "the server at postgresql://postgres@127.0.0.1", "any more (20", "Z)")
    assert second["validity"]["state"] == "inconclusive"
    says(second["validity"]["reason"], "the server could not be reached (20", "cannot connect to postgresql://")
    assert content(only(place, "results/*/users=3.partial/status.json"))["state"] == "failed"


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.nightly
def test_a_server_of_ours_that_died_is_named_and_the_next_cell_is_run(place: Path, embedded: None) -> None:
    command = started(place, *POSTGRES, "--set", "load.window=100h", cells=(TWO_CELLS,))
    command.until_phase("load")
    command.child("postgres").kill()
    first, second = ended(command, "of 2 cells")["cells"]
    assert first["validity"]["state"] == "inconclusive", first["validity"]
    assert failed_gates(first)["server deaths<=0"].startswith("the server died during the run")
    disturbances(second)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("timeout.check=0s", "timeout.check: must be from 1ms to 7d"),
        ("timeout.settle=8d", "timeout.settle: must be from 1ms to 7d"),
        ("timeout.create=5", "timeout.create: needs a unit; write for example '5s'"),
        ("timeout.chek=5s", "timeout.chek: unknown key; did you mean 'check'?"),
    ],
)
def test_a_limit_that_is_none_is_the_users_mistake(place: Path, text: str, why: str) -> None:
    path = scenario(place)
    with pytest.raises(UserMistake, match=why):
        Scenario.load(path, overrides=[text]).expand()


def test_limits_stand_in_the_runs_spec(place: Path) -> None:
    (spec,) = Scenario.load(scenario(place), overrides=["timeout.check=2s"]).expand()
    assert json.loads(spec.model_dump_json())["timeout"] == {
        "connect": 30 * 10**9,
        "create": 600 * 10**9,
        "load": 300 * 10**9,
        "settle": 3_600 * 10**9,
        "check": 2 * 10**9,
    }
