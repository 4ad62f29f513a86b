"""A fault is reported by its cause, leaves nothing behind, and its set can be resumed; Ctrl-C leaves nothing, ever.

The quick faults and five interrupts; `make faults` carries out all of them.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from tests.faults import nodes
from tests.faults.__main__ import ALL
from tests.faults.bench import carry_out
from tests.faults.interrupts import TARGETS, interrupt, moments
from tests.skips import skip_if_not_installed

if TYPE_CHECKING:
    from tests.faults.bench import Fault
    from tests.faults.interrupts import Moment

MARKS = {
    "SQLite": (),
    "DuckDB": (),
    "MariaDB": (pytest.mark.mariadb,),
    "PostgreSQL": (pytest.mark.postgres,),
    "InfluxDB 1.8": (getattr(pytest.mark, "influxdb-1.8"),),
    "VictoriaMetrics": (pytest.mark.victoria,),
    "QuestDB": (pytest.mark.questdb,),
    "PostgreSQL, three nodes": (pytest.mark.postgres,),
    "MariaDB, three nodes": (pytest.mark.galera,),
}


def marks_of(database: str, fault: Fault) -> tuple[pytest.MarkDecorator, ...]:
    differs = database == "PostgreSQL" and fault.at == "started"  # by the user: tsbench starts the server
    return (
        *MARKS[database],
        *((pytest.mark.root,) if fault.of_root else ()),
        *((pytest.mark.every_user,) if differs else ()),
        *(() if FIRST.get(fault.name) == database else (pytest.mark.nightly,)),
    )


QUICK = [
    (database, fault)
    for database, faults in ALL
    for fault in faults
    if fault.quick and (faults is not nodes.FAULTS or database == "PostgreSQL, three nodes")
]
"""The quick ones; those of three nodes, which are about the nodes and not the database, with the quicker of the two."""
AT_ONCE = {
    "load process killed (SIGKILL)", "SIGTERM in the measurement", "disk full in the load",
    "server killed in the measurement", "server suspended in the measurement", "Ctrl-C twice in the load",
    "lie: 1 of 10 writes acknowledged and not stored",
}  # fmt: skip
"""What is carried out at each submission, on the first database that has it; the other quick ones nightly."""
FIRST = {name: next(database for database, fault in QUICK if fault.name == name) for name in AT_ONCE}


def test_eighty_faults_are_known_by_different_names() -> None:
    names = [(database, fault.name) for database, faults in ALL for fault in faults]
    assert len(set(names)) == len(names) >= 80
    assert len(QUICK) >= 20
    of_nodes = [fault.name for _, fault in QUICK if fault in nodes.FAULTS]
    assert sorted(of_nodes) == sorted(fault.name for fault in nodes.FAULTS if fault.quick), "each once"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("database", "fault"),
    [
        pytest.param(database, fault, id=f"{database}, {fault.name}", marks=marks_of(database, fault))
        for database, fault in QUICK
    ],
)
def test_a_fault_is_named_and_leaves_nothing_behind(database: str, fault: Fault) -> None:
    with TemporaryDirectory() as place:
        Path(place).chmod(0o755)  # servers that root starts run as `nobody`, and must be able to enter
        result = carry_out(fault, database, Path(place, "fault"), resume=fault.quick_resumed)
    if result.skipped:
        pytest.skip(result.skipped)
    skip_if_not_installed(str(result.wrong))
    assert result.wrong == [], result.line


FIVE = [
    pytest.param(m, marks=[*MARKS[m.database], *([pytest.mark.nightly] if number > 1 else [])], id=m.text)
    for number, m in enumerate(moments(10, seed=29)[5:])
]
"""Ctrl-C twice while something of a run's start, load, settling, cold start and checks goes on, a database each."""


@pytest.mark.slow
@pytest.mark.parametrize("moment", FIVE)
def test_ctrl_c_at_any_moment_leaves_nothing_behind(moment: Moment, tmp_path: Path) -> None:
    _, wrong = interrupt(moment, tmp_path / "fault")
    skip_if_not_installed(str(wrong))
    assert wrong == []


def test_moments_are_of_all_databases_once_and_twice() -> None:
    found = moments(100, seed=1)
    assert found == moments(100, seed=1)
    assert {(moment.database, moment.again_s is None) for moment in found} == {
        (name, once) for name in TARGETS for once in (False, True)
    }
