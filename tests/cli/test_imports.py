"""What a command imports before it has looked at what it was given: each 0.1 s is paid at every start."""

from __future__ import annotations

import pytest

from tests.targets.test_registry import DRIVERS, HEAVY, imported_by


@pytest.mark.parametrize("words", [["--help"], ["run", "missing.toml"], ["list", "queries"], ["list", "use-cases"]])
def test_a_command_starts_without_drivers_reports_and_locust(words: list[str]) -> None:
    found = imported_by(f"from tsbench.cli.main import main; main({words!r})")
    assert not found & (DRIVERS | HEAVY | {"locust", "gevent"})


def test_a_load_process_imports_nothing_of_reports_and_no_driver() -> None:
    found = imported_by("import tsbench.drive.standalone_run")
    assert "locust" in found
    assert not found & (DRIVERS | HEAVY)
