"""A run from bare Locust leaves what a run from a scenario leaves: the same files with the same parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.support import Command, content, nothing_left, only, scenario

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tsbench.targets.postgres.server import PostgresServer

OPS = ("measured.ops.", "answers.by_kind.", "labels.", "load.")
"""Parts whose names come from the scenario or locustfile, and those that follow from its options."""


LOCUSTFILE = """
from locust import between, task

from tsbench.drive import TimeSeriesUser, standalone

standalone()


class User(TimeSeriesUser):
    target = "{target}"
    wait_time = between(0.005, 0.005)

    @task(10)
    def write_one_point(self):
        self.write(1)

    @task(1)
    def one_series(self):
        self.query("raw-one")
"""


@pytest.fixture
def embedded(postgres_server: PostgresServer) -> None:
    """Skips where there is no embedded PostgreSQL; to be asked for before `place`, since it leaves a server running."""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    with nothing_left():
        yield tmp_path


def names(content: Any, path: str = "") -> set[str]:
    """The paths of all entries, without those in OPS."""
    if not isinstance(content, dict):
        return set() if path.startswith(OPS) else {path}
    return {name for key, value in content.items() for name in names(value, f"{path}.{key}" if path else key)}


def left_by(command: Command, pattern: str) -> Path:
    """Return the directory of a run that ended well."""
    command.ended_well(f"{pattern}/summary.json")
    return only(command.place, f"{pattern}/summary.json").parent


def from_locust(place: Path, target: str) -> Path:
    file = place / "locustfile.py"
    file.write_text(LOCUSTFILE.format(target=target))
    words = ("--headless", "-u", "2", "-r", "2", "-t", "600s", "--scale", "5", "--load-window", "10m", "--warmup", "0s")
    command = Command(place, "locust", "-f", str(file), *words, "--results", "bare")
    command.interrupt_once_recorded()
    return left_by(command, "bare/*/*")


def from_scenario(place: Path, target: str) -> Path:
    scenario(place)
    command = Command(place, "tsbench", "run", "tiny.toml", "--set", f"target.name={target}")
    return left_by(command, "results/*/*")


def expect_the_same(one: Path, other: Path) -> None:
    for file in ("env.json", "summary.json", "status.json", "validate.json", "audit.json"):
        assert names(content(one / file)) == names(content(other / file)), file
    left_by_locust = {path.name for path in one.iterdir()}
    assert left_by_locust == {path.name for path in other.iterdir()} - {"locust.log"}  # bare Locust's log is its user's
    assert content(one / "summary.json")["started"]


@pytest.mark.slow
def test_both_callers_leave_the_same_parts(place: Path) -> None:
    expect_the_same(from_locust(place, "sqlite"), from_scenario(place, "sqlite"))


@pytest.mark.nightly
@pytest.mark.postgres
def test_both_callers_leave_the_same_parts_of_a_server(embedded: None, place: Path) -> None:
    expect_the_same(from_locust(place, "postgres"), from_scenario(place, "postgres"))
