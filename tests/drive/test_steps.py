"""Steps: the users of each begin, and those who are too many go, at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.drive.support import document, run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.nightly
@pytest.mark.parametrize("processes", [1, 2])
def test_users_that_are_too_many_go_at_once(tmp_path: Path, processes: int) -> None:
    steps = [{"users": 40, "duration": "3s"}, {"users": 2, "duration": "4s"}]
    drive = {"steps": steps, "wait": "200ms", "duration": "7s", "warmup": "0s", "processes": processes}
    summary = run(tmp_path, document(drive=drive, op=[{"write": 1}], target={"name": "null"}))
    assert "measured" in summary, summary["validity"]["reason"]
    (table,) = tmp_path.glob("*/ops.parquet")
    ops = dict(pl.read_parquet(table).group_by("second").agg(pl.col("done").sum()).iter_rows())
    # Two users with rests of 200 ms have at most ten ops a second, and two that had begun; Locust asks once a second.
    assert max(ops.get(second, 0) for second in (5, 6)) <= 12
    assert max(ops.values()) > 60
