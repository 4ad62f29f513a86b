"""What a database deletes by itself follows from its endpoint."""

from __future__ import annotations

import pytest

from tsbench.targets.registry import TARGETS

DAY_S = 86_400


@pytest.mark.parametrize(
    ("target", "endpoint", "expected"),
    [
        ("mongodb", "mongodb://h/tsbench", None),
        ("mongodb", "mongodb://h/tsbench?w=1&expireAfterSeconds=604800", 7 * DAY_S),
        ("influxdb1", "http://h:8086/db", None),
        ("influxdb1", "http://h:8086/db?retention=inf", None),
        ("influxdb1", "http://h:8086/db?retention=0d", None),
        ("influxdb1", "http://h:8086/db?retention=30d", 30 * DAY_S),
        ("influxdb1", "http://h:8086/db?retention=2W", 14 * DAY_S),
        ("influxdb1", "http://h:8086/db?retention=90m", 5_400),
        ("sqlite", "sqlite:////tmp/x.db", None),
    ],
)
def test_points_expire_after_what_the_endpoint_asks_for(target: str, endpoint: str, expected: int | None) -> None:
    assert TARGETS[target].parse(endpoint).expire_after_s == expected
