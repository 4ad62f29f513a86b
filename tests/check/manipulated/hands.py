"""Hands of the InfluxDB versions, on clients that are not tsbench's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from influxdb_client.client.write_api import SYNCHRONOUS

from tests.check.manipulated.influxdb import Hand
from tests.targets.influxdb import test_v1 as v1
from tests.targets.influxdb import test_v2 as v2
from tsbench.targets.influxdb.flux import moment

if TYPE_CHECKING:
    from tsbench.testing.oracle import Oracle
    from tsbench.testing.stand import Stand


def of_version_1(stand: Stand, oracle: Oracle) -> Hand:
    """Return a hand on HTTP and InfluxQL."""

    def delete(measurement: str, host: str | None, start_ns: int, end_ns: int) -> None:
        only = f" AND \"hostname\" = '{host}'" if host else ""
        v1.ask(stand.url, f'DELETE FROM "{measurement}" WHERE time >= {start_ns} AND time < {end_ns}{only}')

    return Hand(stand, oracle, lambda line: v1.write(stand.url, line.encode(), "&rp=tsbench"), delete)


def of_version_2(stand: Stand, oracle: Oracle) -> Hand:
    """Return a hand on influxdb-client."""

    def write(line: str) -> None:
        with v2.client(stand.url) as other:
            other.write_api(write_options=SYNCHRONOUS).write(v2.bucket_of(stand.url), record=line)

    def delete(measurement: str, host: str | None, start_ns: int, end_ns: int) -> None:
        only = f' AND hostname="{host}"' if host else ""
        with v2.client(stand.url) as other:
            span = moment(start_ns), moment(end_ns - 1)  # whose end is deleted too
            other.delete_api().delete(*span, f'_measurement="{measurement}"{only}', bucket=v2.bucket_of(stand.url))

    return Hand(stand, oracle, write, delete)
