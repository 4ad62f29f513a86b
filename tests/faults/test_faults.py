"""A fault is reported by its cause, leaves nothing behind, and its set can be resumed; Ctrl-C leaves nothing, ever.

Twelve faults and five interrupts; `make faults` carries out all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.__main__ import ALL
from tests.faults.bench import carry_out
from tests.faults.interrupts import TARGETS, interrupt, moments

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.bench import Fault
    from tests.faults.interrupts import Moment

MARKS = {
    "SQLite": (),
    "DuckDB": (),
    "MariaDB": (pytest.mark.mariadb,),
    "PostgreSQL": (pytest.mark.postgres,),
    "InfluxDB 1.8": (getattr(pytest.mark, "influxdb-1.8"),),
}
RESUMED = {
    "load process killed (SIGKILL)",
    "file damaged by another process in the measurement",
    "Ctrl-C twice in the load",
}
"""Faults whose sets are resumed here as well; that takes another run."""
CHOSEN = (
    ("SQLite", "load process killed (SIGKILL)"),
    ("SQLite", "1 of 2 workers crashes (SIGSEGV)"),
    ("SQLite", "load process told to end (SIGTERM)"),
    ("SQLite", "SIGTERM in the measurement"),
    ("SQLite", "disk full in the load"),
    ("SQLite", "file damaged by another process in the measurement"),
    ("PostgreSQL", "Ctrl-C twice in the load"),
    ("PostgreSQL", "tsbench killed while its load process is suspended"),
    ("PostgreSQL", "lie: 1 of 10 writes acknowledged and not stored"),
    ("InfluxDB 1.8", "server killed in the measurement"),
    ("InfluxDB 1.8", "answers cut in the middle"),
    ("InfluxDB 1.8", "lie: the answers of another query"),
)


def chosen() -> list[object]:
    known = {(database, fault.name): fault for database, faults in ALL for fault in faults}
    return [pytest.param(known[one], one[0], id=", ".join(one), marks=MARKS[one[0]]) for one in CHOSEN]


def test_sixty_faults_are_known_by_different_names() -> None:
    names = [(database, fault.name) for database, faults in ALL for fault in faults]
    assert len(set(names)) == len(names) >= 60
    assert len(CHOSEN) == 12


@pytest.mark.parametrize(("fault", "database"), chosen())
def test_a_fault_is_named_and_leaves_nothing_behind(fault: Fault, database: str, tmp_path: Path) -> None:
    result = carry_out(fault, database, tmp_path / "fault", resume=fault.name in RESUMED)
    if result.skipped:
        pytest.skip(result.skipped)
    assert result.wrong == [], result.line


@pytest.mark.parametrize("moment", [pytest.param(m, marks=MARKS[m.database], id=m.text) for m in moments(5, seed=10)])
def test_ctrl_c_at_any_moment_leaves_nothing_behind(moment: Moment, tmp_path: Path) -> None:
    _, wrong = interrupt(moment, tmp_path / "fault")
    assert wrong == []


def test_moments_are_of_all_databases_once_and_twice() -> None:
    found = moments(100, seed=1)
    assert found == moments(100, seed=1)
    assert {(moment.database, moment.again_s is None) for moment in found} == {
        (name, once) for name in TARGETS for once in (False, True)
    }
