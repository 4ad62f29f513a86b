"""chDB keeps tsbench's contract of targets; points are read and changed by the bare driver."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import chdb
import pyarrow as pa
import pytest

from tsbench.errors import UserMistake
from tsbench.testing.contract import TargetContract
from tsbench_chdb import TARGET
from tsbench_chdb.schemas import MERGETREE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tsbench.model import Measurement
    from tsbench.testing.contract_base import Alteration, Point


class TestChdb(TargetContract):
    name = "chdb"
    wrong_endpoints = ("nonsense", "chdb://relative", "chdb:///no/such/directory/x", "chdb:///etc")

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"chdb://{tmp_path / 'db'}"

    @staticmethod
    def stored(url: str, measurement: Measurement) -> Sequence[Point]:
        connection = chdb.connect(url.removeprefix("chdb://"))
        answer = connection.query(f'SELECT * FROM tsbench."{measurement.name}"', "Arrow").bytes()
        connection.close()
        table = pa.ipc.open_file(pa.BufferReader(answer)).read_all()
        times = table.column("time").cast(pa.int64()).to_pylist()
        return [
            (
                time,
                row["tags_id"] if measurement.tags else None,
                *(float(row[name]) for name in measurement.field_names),
                json.loads(row["additional_tags"]) if measurement.own_tags else None,
            )
            for time, row in zip(times, table.to_pylist(), strict=True)
        ]

    @staticmethod
    def alter(url: str, alteration: Alteration) -> None:
        connection = chdb.connect(url.removeprefix("chdb://"))
        connection.query("SET mutations_sync = 1")
        time = f"fromUnixTimestamp64Nano(toInt64({alteration.time_ns}), 'UTC')"
        if alteration.action == "part":  # columns have no NULL unless somebody changes them
            columns = connection.query(
                "SELECT name, type FROM system.columns WHERE database = 'tsbench' AND type IN ('Float64', 'Int64')\n"
                f"AND table = '{alteration.measurement}'",
                "JSONCompact",
            )
            for name, kind in json.loads(str(columns))["data"]:
                connection.query(f"ALTER TABLE tsbench.{alteration.measurement} MODIFY COLUMN {name} Nullable({kind})")
        for statement in alteration.sql(time, within="tsbench."):
            connection.query(
                re.sub(r"^UPDATE (\S+) SET", r"ALTER TABLE \1 UPDATE", statement).replace(
                    "more INTEGER", "more Nullable(Int32)"
                )
            )
        connection.close()


def test_a_directory_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("to somebody")
    with pytest.raises(UserMistake, match="not chDB's"):
        TARGET.connect(f"chdb://{tmp_path}", MERGETREE)
    assert [path.name for path in tmp_path.iterdir()] == ["letter"]
