"""Manipulations of what SQLite, DuckDB, MySQL and MariaDB have stored, as SQL that all of them understand."""

from __future__ import annotations

import math
import sqlite3
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import duckdb

from tests.check.manipulated.bench import NEWEST_MINUTE, WRITTEN_MINUTE, At, Manipulation, time_ns, truth
from tests.targets.mysql.support import bare
from tsbench.check.stored_rows import Flaw
from tsbench.encode.sql import EPOCH

if TYPE_CHECKING:
    from collections.abc import Callable

    from tsbench.testing.oracle import Oracle
    from tsbench.testing.stand import Stand

VALUE, PARTIAL, TAGS, EXTRA = Flaw.WRONG_VALUE, Flaw.PARTIAL, Flaw.OTHER_TAGS, Flaw.EXTRA
MISSING, UNWRITTEN, DUPLICATE = Flaw.MISSING, Flaw.UNWRITTEN, Flaw.DUPLICATE
LATE = 100_000
"""Minutes after the world's start, 69 days: long after the run."""
US = 1 / 60_000_000
"""A microsecond in minutes."""


@dataclass
class Hand:
    """Changes stored data by a driver of its own."""

    stand: Stand
    oracle: Oracle
    execute: Callable[..., None]

    def run(self, *statements: str) -> None:
        """Execute statements; `{0:3.5}` is a time by its minute, and each must change something."""
        minute = _Minute(self.stand.target.name)
        self.execute(self.stand, *(statement.format(minute) for statement in statements))

    def one_ulp(self, measurement: str, field: str) -> None:
        """Store the next larger number in place of a value."""
        _, fields = truth(self.oracle, 3, "host_1", measurement)
        larger = math.nextafter(fields[field], math.inf)
        self.run(f"UPDATE {measurement} SET {field} = {larger!r}e0 WHERE {HERE}")


class _Minute:
    """Formats a minute as a time of a database: `{0:3.5}`."""

    def __init__(self, target: str) -> None:
        self._target = target

    def __format__(self, minute: str) -> str:
        at_ns = time_ns(float(minute))
        if self._target == "sqlite":
            return str(at_ns)
        text = EPOCH + timedelta(microseconds=at_ns // 1_000)
        return f"TIMESTAMP '{text:%Y-%m-%d %H:%M:%S.%f}'"


def of_sqlite(stand: Stand, oracle: Oracle) -> Hand:
    """Return a hand on a file of SQLite."""

    def execute(stand: Stand, *statements: str) -> None:
        connection = sqlite3.connect(stand.path)
        for statement in statements:
            assert connection.execute(statement).rowcount != 0, f"nothing changed: {statement}"
        connection.commit()
        connection.close()

    return Hand(stand, oracle, execute)


def of_duckdb(stand: Stand, oracle: Oracle) -> Hand:
    """Return a hand on a file of DuckDB."""

    def execute(stand: Stand, *statements: str) -> None:
        with duckdb.connect(stand.url.removeprefix("duckdb://")) as connection:
            connection.execute("SET search_path = 'tsbench'")
            for statement in statements:
                found: Any = connection.execute(statement).fetchall()
                assert found != [(0,)], f"nothing changed: {statement}"

    return Hand(stand, oracle, execute)


def of_mysql(stand: Stand, oracle: Oracle) -> Hand:
    """Return a hand on MySQL or MariaDB."""

    def execute(stand: Stand, *statements: str) -> None:
        with bare(stand.url) as cursor:
            for statement in statements:
                is_definition = statement.startswith(("ALTER", "CREATE", "DROP", "TRUNCATE"))
                assert cursor.execute(statement) or is_definition, f"nothing changed: {statement}"

    return Hand(stand, oracle, execute)


def row(minute: float = 3, series: int = 1) -> str:
    """Return the condition for one row."""
    return f'"time" = {{0:{minute}}} AND tags_id = {series}'


HERE, WRITTEN, NEWEST = row(), row(WRITTEN_MINUTE, 2), row(NEWEST_MINUTE, 2)


def sql(name: str, *statements: str, found: At | tuple[At, ...]) -> Manipulation[Hand]:
    """Return a manipulation by statements."""
    return Manipulation(name, lambda hand: hand.run(*statements), found if isinstance(found, tuple) else (found,))


def copied(time: str, *changes: str) -> tuple[str, ...]:
    """Return statements that store a row once more at another time."""
    return (
        f"CREATE TEMPORARY TABLE one AS SELECT * FROM cpu WHERE {HERE}",
        f'UPDATE one SET "time" = {time}',
        *changes,
        "INSERT INTO cpu SELECT * FROM one",
    )


def series(number: int, *changes: str) -> tuple[str, ...]:
    """Return statements that add a row to the table of tags, like that of host_1."""
    return (
        "CREATE TEMPORARY TABLE one AS SELECT * FROM tags WHERE id = 1",
        f"UPDATE one SET {', '.join((f'id = {number}', *changes))}",
        "INSERT INTO tags SELECT * FROM one",
    )


def in_tags(kind: Flaw, host: str = "host_1", column: str = "") -> At:
    """Return a difference in the table of tags."""
    return At(kind, host, None, "tags", column)


OF_TAGS = (
    sql("a series without points", *series(9, "hostname = 'host_9'"), found=in_tags(UNWRITTEN, "host_9")),
    sql("a series without points like another one", *series(9), found=in_tags(UNWRITTEN)),
    sql("another region", "UPDATE tags SET region = 'mars' WHERE id = 1",
        found=(in_tags(TAGS), *(At(TAGS, minute=n, column="region") for n in range(2)))),
    sql("a tag emptied", "UPDATE tags SET os = '' WHERE id = 1",
        found=(in_tags(TAGS), *(At(TAGS, minute=n, column="os") for n in range(2)))),
    sql("a tag of a series whose points are gone", *(
        f"DELETE FROM {name} WHERE tags_id = 1" for name in (
            "cpu", "diskio", "disk", "kernel", "mem", "net", "nginx", "postgresl", "redis")),
        "UPDATE tags SET region = 'mars' WHERE id = 1",
        found=(*(At(MISSING, minute=n) for n in range(3)), in_tags(TAGS, column="region"))),
    sql("a host renamed", "UPDATE tags SET hostname = 'host_x' WHERE id = 1",
        found=(At(MISSING, minute=None), At(UNWRITTEN, "host_x", None), in_tags(TAGS, column="hostname"))),
    sql("a host without tags", "DELETE FROM tags WHERE id = 1",
        found=(in_tags(MISSING), At(MISSING, minute=None), At(UNWRITTEN, "(no hostname)", None))),
)  # fmt: skip

MANIPULATIONS: tuple[Manipulation[Hand], ...] = (
    # values
    sql("a value one higher", f"UPDATE cpu SET usage_nice = usage_nice + 1 WHERE {HERE}",
        found=At(VALUE, column="usage_nice")),
    sql("an integer of 2^40 one higher", f"UPDATE disk SET total = total + 1 WHERE {HERE}",
        found=At(VALUE, measurement="disk", column="total")),
    Manipulation("a value one ulp higher", lambda hand: hand.one_ulp("mem", "used_percent"),
                 (At(VALUE, measurement="mem", column="used_percent"),)),
    sql("a written value one higher", f"UPDATE cpu SET usage_user = usage_user + 1 WHERE {WRITTEN}",
        found=At(VALUE, "host_2", WRITTEN_MINUTE, column="usage_user")),
    sql("the newest value one higher", f"UPDATE cpu SET usage_user = usage_user + 1 WHERE {NEWEST}",
        found=At(VALUE, "host_2", NEWEST_MINUTE, column="usage_user")),
    sql("all values of a row negative",
        f"UPDATE cpu SET usage_user = -1, usage_system = -1, usage_idle = -1 WHERE {HERE}", found=At(VALUE)),
    sql("a value of another measurement", f"UPDATE mem SET total = 0 WHERE {HERE}",
        found=At(VALUE, measurement="mem", column="total")),
    # partial points
    sql("a value lost", f"UPDATE cpu SET usage_user = NULL WHERE {HERE}", found=At(PARTIAL, column="usage_user")),
    sql("all values of a row lost but one",
        f"UPDATE cpu SET usage_user = NULL, usage_system = NULL, usage_nice = NULL WHERE {HERE}", found=At(PARTIAL)),
    # times
    sql("a row a microsecond late", f'UPDATE cpu SET "time" = {{0:{3 + US:.12f}}} WHERE {HERE}',
        found=(At(MISSING), At(UNWRITTEN, minute=3 + US))),
    sql("a row an hour early, before the run", f'UPDATE cpu SET "time" = {{0:-57}} WHERE {HERE}',
        found=(At(MISSING), At(UNWRITTEN, minute=-57))),
    sql("a row in the year 2200", f'UPDATE cpu SET "time" = {{0:96777216}} WHERE {HERE}',
        found=(At(MISSING), At(UNWRITTEN, minute=96777216))),
    # tags and series
    *OF_TAGS,
    sql("an own tag changed",
        f"""UPDATE disk SET additional_tags = '{{{{"path": "/x", "fstype": "ext4"}}}}' WHERE {HERE}""",
        found=At(TAGS, measurement="disk", column="path")),
    sql("the own tags lost", f"UPDATE disk SET additional_tags = NULL WHERE {HERE}",
        found=At(TAGS, measurement="disk", column="fstype")),
    sql("a row of no series", f"UPDATE cpu SET tags_id = 77 WHERE {HERE}",
        found=(At(MISSING), At(UNWRITTEN, "(no hostname)"))),
    # tables
    sql("an extra measurement", "CREATE TABLE more AS SELECT * FROM cpu",
        found=At(Flaw.OTHER_TABLE, None, None, "more")),
    sql("a measurement emptied", "DELETE FROM diskio",
        found=tuple(At(MISSING, f"host_{n}", 0, "diskio") for n in range(3))),
    # fields
    sql("a field more", "ALTER TABLE cpu ADD COLUMN more INTEGER", f"UPDATE cpu SET more = 0 WHERE {HERE}",
        found=At(EXTRA)),
    sql("a text more", "ALTER TABLE cpu ADD COLUMN more VARCHAR(9)", f"UPDATE cpu SET more = 'x' WHERE {NEWEST}",
        found=At(EXTRA, "host_2", NEWEST_MINUTE)),
    # deletions
    sql("a row deleted", f"DELETE FROM cpu WHERE {HERE}", found=At(MISSING)),
    sql("the newest row deleted", f"DELETE FROM cpu WHERE {NEWEST}", found=At(MISSING, "host_2", NEWEST_MINUTE)),
    sql("all rows of a host deleted", "DELETE FROM mem WHERE tags_id = 1",
        found=tuple(At(MISSING, minute=n, measurement="mem") for n in range(3))),
    sql("a minute deleted", 'DELETE FROM nginx WHERE "time" = {0:3}',
        found=tuple(At(MISSING, f"host_{n}", 3, "nginx") for n in range(3))),
    # outside the time of the run
    sql("a copy before the run", *copied("{0:-0.5}"), found=At(UNWRITTEN, minute=-0.5)),
    sql("a copy after the run", *copied(f"{{0:{LATE}}}"), found=At(UNWRITTEN, minute=LATE)),
    sql("a partial point after the run", *copied(f"{{0:{LATE}}}", "UPDATE one SET usage_user = NULL"),
        found=At(PARTIAL, minute=LATE)),
    sql("a copy between two rows of the run", *copied("{0:3.5}"), found=At(UNWRITTEN, minute=3.5)),
)  # fmt: skip

DUPLICATES: tuple[Manipulation[Hand], ...] = (
    sql("a row twice", f"INSERT INTO cpu SELECT * FROM cpu WHERE {HERE}", found=At(DUPLICATE)),
    sql("the newest row twice", f"INSERT INTO cpu SELECT * FROM cpu WHERE {NEWEST}",
        found=At(DUPLICATE, "host_2", NEWEST_MINUTE)),
    sql("a row deleted and another one twice", f"DELETE FROM cpu WHERE {HERE}",
        f"INSERT INTO cpu SELECT * FROM cpu WHERE {row(4)}", found=(At(MISSING), At(DUPLICATE, minute=4))),
)  # fmt: skip
"""Manipulations of layouts that keep two rows of a series at the same time."""
