"""Manipulations of what VictoriaMetrics has stored: those of line protocol that it can store, and copies.

It deletes whole series only: who changes a point deletes its series and stores all the other points anew.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.check.manipulated import influxdb
from tests.check.manipulated.bench import At, Manipulation, time_ns
from tests.check.manipulated.influxdb import Hand, of
from tests.targets.victoriametrics import test_target as bare
from tsbench.check.stored_rows import Flaw

if TYPE_CHECKING:
    from collections.abc import Callable

    from tsbench.testing.oracle import Oracle
    from tsbench.testing.stand import Stand

MS = 1_000_000


def hand(stand: Stand, oracle: Oracle) -> Hand:
    """Return a hand on HTTP that is not tsbench's; what it writes takes the place of an equal series' values."""

    def keep(selector: str, wanted: Callable[[int], bool]) -> None:
        lines = [line for line in bare.deleted(stand.url, selector) if wanted(int(line.rpartition(" ")[2]) * MS)]
        if lines:
            bare.write(stand.url, "\n".join(lines), "ms")

    def delete(measurement: str, host: str | None, start_ns: int, end_ns: int) -> None:
        only = f',hostname="{host}"' if host else ""
        keep(f',__name__=~"{measurement}_.*"{only}', lambda at: not start_ns <= at < end_ns)

    def write(line: str) -> None:
        series, fields, time = line.split(" ")
        measurement, *tags = series.split(",")
        given = dict(tag.split("=") for tag in tags)
        known = {tag for m in oracle.world.measurements for tag in (*m.tags, *m.own_tags)}
        labels = "".join(f',{tag}="{given.get(tag, "")}"' for tag in sorted(known | given.keys()))
        names = "|".join(f"{measurement}_{field.partition('=')[0]}" for field in fields.split(","))
        keep(f',__name__=~"{names}"{labels}', lambda at: at != int(time) // MS * MS)
        bare.write(stand.url, line)

    return Hand(stand, oracle, write, delete)


def twice(hand_: Hand) -> None:
    """Store a point once more."""
    tags, fields = hand_.truth(3, "host_1", "cpu")
    series = ",".join(["cpu", *(f"{name}={value}" for name, value in tags.items())])
    values = ",".join(f"{name}={value}" for name, value in fields.items())
    bare.write(hand_.stand.url, f"{series} {values} {time_ns(3)}")


ONE_MS = {sign: f"2016-01-01T00:0{text}Z" for sign, text in ((1, "3:00.001"), (-1, "2:59.999"))}
_CANNOT = re.compile(r"extra measurement|ulp|1 ns|in 1970|in 1938|year 2200|another one copied")
"""Of a measurement only a metric's name is left; it has no doubles of 53 bits, no times of other years, and no ns."""
MANIPULATIONS: tuple[Manipulation[Hand], ...] = (
    *(one for one in influxdb.MANIPULATIONS if not _CANNOT.search(one.name)),
    influxdb.moved("a point 1 ms late", time_ns(3) + MS, At(Flaw.UNWRITTEN, time=ONE_MS[1])),
    influxdb.moved("a point 1 ms early", time_ns(3) - MS, At(Flaw.UNWRITTEN, time=ONE_MS[-1])),
    of("a copy 1 ms later", lambda h: h.put(time=time_ns(3) + MS), At(Flaw.UNWRITTEN, time=ONE_MS[1])),
    of("an extra measurement", influxdb.extra_measurement, At(Flaw.OTHER_TABLE, None, None, "more_usage_user")),
    of("a point stored twice", twice, At(Flaw.DUPLICATE)),
)
