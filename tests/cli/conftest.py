"""Fixtures of commands' tests: a place of their own, and the embedded PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.support import nothing_left, scenario

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tsbench.targets.postgres.server import PostgresServer


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """The command's working directory with a scenario; when the test ends, nothing that it started may be left."""
    scenario(tmp_path)
    with nothing_left():
        yield tmp_path


@pytest.fixture
def embedded(postgres_server: PostgresServer) -> None:
    """Skip the test without the embedded PostgreSQL."""
