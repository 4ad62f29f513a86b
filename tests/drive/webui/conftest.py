"""Locust with its web UI, for tests that start something in it and for those that do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.support import nothing_left
from tests.drive.webui.served import Served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A Locust for tests that start nothing in it."""
    locust = Served(tmp_path_factory.mktemp("one")).ready()
    yield locust
    locust.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Starts Locust with its web UI; ended after the test, with nothing left of it."""
    started: list[Served] = []

    def start(*words: str, **more: Any) -> Served:
        started.append(Served(tmp_path, *words, **more))
        return started[-1].ready()

    with nothing_left():
        yield start
        for locust in started:
            locust.close()
