from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.encode.test_bson_columns import MS, decoded, expected
from tsbench.encode import bson_hours
from tsbench.encode.sql import Inexact
from tsbench.testing import data
from tsbench.testing.data import CPU, DISK, LAG, ODD, START_NS

if TYPE_CHECKING:
    from tsbench.model import Batch, Measurement

HOUR_NS = 3_600_000 * MS


def points_of(update: dict[str, Any], key: str | None) -> dict[Any, dict[str, Any]]:
    """The points that an update sets, by series and time, as documents of one point each."""
    assert list(update) == ["q", "u", "upsert"]
    assert update["upsert"] is True
    found = {}
    tags = update["u"].get("$setOnInsert", {}).get("tags")
    for name, point in update["u"]["$set"].items():
        hour, time = update["q"]["_id"]["hour"], point["time"]
        assert (time - hour).total_seconds() * 1_000 == pytest.approx(int(name.removeprefix("points.")))
        assert (hour.minute, hour.second, hour.microsecond) == (0, 0, 0)
        series = None if key is None else tags[key]
        assert update["q"]["_id"] == ({"hour": hour} if key is None else {"key": series, "hour": hour})
        found[series, time] = {**({"tags": tags} if tags else {}), **point}
    return found


def wanted(batch: Batch) -> dict[Any, dict[str, Any]]:
    """The points of a batch in the same form: the later of two at the same time."""
    documents = [expected(batch, row) for row in range(len(batch))]
    return {(one["tags"][batch.measurement.key] if "tags" in one else None, one["time"]): one for one in documents}


@given(
    measurement=st.sampled_from([CPU, DISK, LAG]),
    names=st.lists(st.sampled_from([*ODD, "a", "ü" * 40]), min_size=1, max_size=4, unique=True),
    rows=st.lists(st.tuples(st.integers(-9_000_000, 9_000_000), st.integers(0, 5)), max_size=40),
    again=st.integers(0, 9),
    apart=st.booleans(),
)
def test_pymongo_decodes_the_updates_to_the_points(
    measurement: Measurement, names: list[str], rows: list[tuple[int, int]], again: int, *, apart: bool
) -> None:
    rows = [*rows, *rows[:again]]  # some points come twice
    series = [which % len(names) if measurement.tags else 0 for _, which in rows]
    batch = data.batch(
        measurement, data.shared_tags(names=tuple(names)), time_ns=[ms * MS for ms, _ in rows], series=series
    )
    found = bson_hours.hours(batch, apart=apart)
    updates = decoded(bytes(found.documents.data))
    assert [decoded(one)[0] for one in found.documents] == updates
    points: dict[Any, dict[str, Any]] = {}
    for number, update in enumerate(updates):
        its = points_of(update, measurement.key)
        points |= its
        owned = found.rows[found.bounds[number] : found.bounds[number + 1]].tolist()
        assert its.keys() == wanted(batch.where(owned)).keys()
    assert points == wanted(batch)
    assert sorted(found.rows.tolist()) == list(range(len(batch)))
    hours = {(int(s), int(t) // HOUR_NS) for s, t in zip(batch.series, batch.time_ns, strict=True)}
    assert len(updates) == (len(batch) if apart else len(hours))


def test_times_finer_than_a_millisecond_are_refused() -> None:
    with pytest.raises(Inexact, match="milliseconds"):
        bson_hours.hours(data.batch(CPU, data.shared_tags(), time_ns=[START_NS + 1_000]))
