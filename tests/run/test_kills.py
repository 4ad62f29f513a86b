"""What was acknowledged is stored after a node was killed, and the loss is counted where nothing waits for a copy.

The quick cases, nightly; `make kills` runs all of them, at many moments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kills import CASES, MOMENTS
from tsbench.errors import UserMistake

if TYPE_CHECKING:
    from pathlib import Path

MARKS = {"victoriametrics": "victoria", "influxdb1": "influxdb-1.8", "mariadb": "galera", "postgres": "postgres"}


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "at_s"),
    [
        pytest.param(name, MOMENTS[number], id=name, marks=getattr(pytest.mark, MARKS[case.target]))
        for number, (name, case) in enumerate(CASES.items())
        if case.quick
    ],
)
def test_what_was_acknowledged_is_stored_or_its_loss_is_counted(tmp_path: Path, name: str, at_s: float) -> None:
    tmp_path.chmod(0o755)
    try:
        summary = CASES[name].run(tmp_path, at_s)
    except UserMistake as mistake:
        pytest.skip(str(mistake))
    assert CASES[name].wrong(summary, at_s) == [], (summary["writes"], summary["events"], summary["validity"])
