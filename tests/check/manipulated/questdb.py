"""Manipulations of what QuestDB has stored: those of line protocol, made by SQL.

It deletes rows only with their table: who deletes a point makes the table anew.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from tests.check.manipulated import influxdb
from tests.check.manipulated.bench import At, Manipulation, time_ns
from tests.check.manipulated.influxdb import Hand, of
from tests.targets.questdb.test_target import ask, deleting
from tsbench.check.stored_rows import Flaw

if TYPE_CHECKING:
    from tsbench.testing.oracle import Oracle
    from tsbench.testing.stand import Stand


def _moment(at_ns: int) -> str:
    return f"'{np.datetime64(at_ns, 'ns')}Z'"


def hand(stand: Stand, oracle: Oracle) -> Hand:
    """Return a hand on SQL that is not tsbench's; what it writes takes the place of a point's values."""
    tags = {m.name: (*m.tags, *m.own_tags) for m in oracle.world.measurements}

    def delete(measurement: str, host: str | None, start_ns: int, end_ns: int) -> None:
        start, end = (_moment(max(0, -(-at // 1_000) * 1_000)) for at in (start_ns, end_ns))
        only = f" AND hostname = '{host}'" if host else ""
        ask(stand.url, *deleting(f"tsbench_{measurement}", f'"time" >= {start} AND "time" < {end}{only}'))

    def write(line: str) -> None:
        series, fields, time = line.split(" ")
        measurement, *found = series.split(",")
        table = f"tsbench_{measurement}"
        given = {name: f"'{text}'" for name, text in (tag.split("=") for tag in found)}
        values = {name: text.removesuffix("i").replace('"', "'") for name, text in
                  (field.split("=") for field in fields.split(","))}  # fmt: skip
        there = {f'"time" = {_moment(int(time))}'}
        there |= {f"{tag} = {given.get(tag, 'null')}" for tag in tags.get(measurement, ())}
        ask(stand.url, f"CREATE TABLE IF NOT EXISTS {table} (time TIMESTAMP) TIMESTAMP(time) PARTITION BY DAY WAL")
        known = {row[0] for row in ask(stand.url, f"SHOW COLUMNS FROM {table}")[1]}
        new = dict.fromkeys(given, "SYMBOL") | {
            name: "VARCHAR" if "'" in text else "DOUBLE" for name, text in values.items()
        }
        adding = [f"ALTER TABLE {table} ADD COLUMN {name} {kind}" for name, kind in new.items() if name not in known]
        ask(stand.url, *adding)
        is_there = f"SELECT count() FROM {table} WHERE {' AND '.join(sorted(there))}"
        extra = [f"{name} = {text}" for name, text in given.items() if name not in tags.get(measurement, ())]
        if not extra and ask(stand.url, is_there)[1] != [(0,)]:
            changes = ", ".join(f"{name} = {text}" for name, text in values.items())
            ask(stand.url, f"UPDATE {table} SET {changes} WHERE {' AND '.join(sorted(there))}")
            return
        row = {"time": _moment(int(time)), **given, **values}
        ask(stand.url, f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join(row.values())})")

    return Hand(stand, oracle, write, delete)


def twice(hand_: Hand) -> None:
    """Store a point once more."""
    here = f"hostname = 'host_1' AND time = {_moment(time_ns(3))}"
    ask(hand_.stand.url, f"INSERT INTO tsbench_cpu SELECT * FROM tsbench_cpu WHERE {here}")


ONE_US = {sign: f"2016-01-01T00:0{text}Z" for sign, text in ((1, "3:00.000001"), (-1, "2:59.999999"))}
_CANNOT = re.compile(
    r"extra measurement|1 ns|in 1938|another one copied|named as a|text in place|truth value|a copy with a tag more"
)
"""Its times are microseconds from 1970 on, a column has one type, truth values are never missing."""
MANIPULATIONS: tuple[Manipulation[Hand], ...] = (
    *(one for one in influxdb.MANIPULATIONS if not _CANNOT.search(one.name)),
    influxdb.moved("a point 1 us late", time_ns(3) + 1_000, At(Flaw.UNWRITTEN, time=ONE_US[1])),
    influxdb.moved("a point 1 us early", time_ns(3) - 1_000, At(Flaw.UNWRITTEN, time=ONE_US[-1])),
    of("a copy 1 us later", lambda h: h.put(time=time_ns(3) + 1_000), At(Flaw.UNWRITTEN, time=ONE_US[1])),
    of("an extra measurement", influxdb.extra_measurement, At(Flaw.OTHER_TABLE, None, None, "tsbench_more")),
)
DUPLICATES = (of("a point stored twice", twice, At(Flaw.DUPLICATE)),)
