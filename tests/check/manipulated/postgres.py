"""Manipulations of what PostgreSQL has stored, as SQL."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg

from tests.check.manipulated.bench import NEWEST_MINUTE, WRITTEN_MINUTE, At, Manipulation, truth
from tsbench.check.stored_rows import Flaw

if TYPE_CHECKING:
    from tsbench.testing.oracle import Oracle
    from tsbench.testing.stand import Stand


@dataclass
class Hand:
    """Changes stored data by psycopg."""

    url: str
    oracle: Oracle

    @classmethod
    def of(cls, stand: Stand, oracle: Oracle) -> Hand:
        """Return a hand for the stand's database."""
        return cls(stand.url, oracle)

    def one_ulp(self) -> None:
        """Store the next larger number in place of a value."""
        _, fields = truth(self.oracle, 3, "host_1", "mem")
        self.run(f"UPDATE mem SET used_percent = {math.nextafter(fields['used_percent'], math.inf)!r} WHERE {HERE}")

    def run(self, *statements: str) -> None:
        """Execute statements; each of them must change something."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                changed = connection.execute(statement.encode()).rowcount
                assert changed != 0, f"nothing changed: {statement}"


def at(minute: float) -> str:
    """Return a time as an SQL literal."""
    return f"(timestamptz '2016-01-01T00:00:00Z' + {minute} * interval '1 minute')"


def row(minute: float = 3, series: int = 1) -> str:
    """Return the condition for one row."""
    return f"time = {at(minute)} AND tags_id = {series}"


def sql(name: str, *statements: str, found: At | tuple[At, ...]) -> Manipulation[Hand]:
    """Return a manipulation by statements."""
    places = found if isinstance(found, tuple) else (found,)
    return Manipulation(name, lambda hand: hand.run(*statements), places)


def moved(name: str, time: str, new: At) -> Manipulation[Hand]:
    """Return a manipulation that moves a row to another time."""
    return sql(name, f"UPDATE cpu SET time = {time} WHERE {row()}", found=(At(Flaw.MISSING), new))


def in_tags(kind: Flaw, host: str = "host_1", column: str = "") -> At:
    """Return a difference in the table of tags."""
    return At(kind, host, None, "tags", column)


VALUE, PARTIAL, TAGS, EXTRA = Flaw.WRONG_VALUE, Flaw.PARTIAL, Flaw.OTHER_TAGS, Flaw.EXTRA
MISSING, UNWRITTEN, DUPLICATE = Flaw.MISSING, Flaw.UNWRITTEN, Flaw.DUPLICATE
HERE = row()
WRITTEN, NEWEST = row(WRITTEN_MINUTE, 2), row(NEWEST_MINUTE, 2)
LATE = 100_000
"""Minutes after the world's start, 69 days: long after the run."""


def copied(time: str, columns: str = "*", more: str = "") -> str:
    """Return the statement that stores a row, or some of its fields, once more at another time."""
    if columns != "*":
        return f"INSERT INTO cpu (time, tags_id{more}) SELECT {time}, tags_id{columns} FROM cpu WHERE {HERE}"
    return (
        f"CREATE TEMP TABLE one AS SELECT * FROM cpu WHERE {HERE}; UPDATE one SET time = {time};"
        " INSERT INTO cpu SELECT * FROM one"
    )


MANIPULATIONS: tuple[Manipulation[Hand], ...] = (
    # values
    sql("a value one higher", f"UPDATE cpu SET usage_nice = usage_nice + 1 WHERE {HERE}",
        found=At(VALUE, column="usage_nice")),
    sql("an integer of 2^40 one higher", f"UPDATE disk SET total = total + 1 WHERE {HERE}",
        found=At(VALUE, measurement="disk", column="total")),
    Manipulation("a value one ulp higher", Hand.one_ulp, (At(VALUE, measurement="mem", column="used_percent"),)),
    sql("a value a billionth higher", f"UPDATE mem SET used_percent = used_percent * 1.000000001 WHERE {HERE}",
        found=At(VALUE, measurement="mem", column="used_percent")),
    sql("a written value one higher", f"UPDATE cpu SET usage_user = usage_user + 1 WHERE {WRITTEN}",
        found=At(VALUE, "host_2", WRITTEN_MINUTE, column="usage_user")),
    sql("the newest value one higher", f"UPDATE cpu SET usage_user = usage_user + 1 WHERE {NEWEST}",
        found=At(VALUE, "host_2", NEWEST_MINUTE, column="usage_user")),
    sql("a value that is no number", f"UPDATE mem SET used_percent = 'NaN' WHERE {HERE}",
        found=At(VALUE, measurement="mem")),
    sql("an infinite value", f"UPDATE mem SET used_percent = '-Infinity' WHERE {HERE}",
        found=At(VALUE, measurement="mem")),
    sql("two fields exchanged", f"UPDATE cpu SET usage_user = usage_idle, usage_idle = usage_user WHERE {HERE}",
        found=At(VALUE, column="usage_idle")),
    sql("all values of a row negative",
        f"UPDATE cpu SET usage_user = -1, usage_system = -1, usage_idle = -1 WHERE {HERE}", found=At(VALUE)),
    sql("a value of another measurement", "UPDATE mem SET total = 0 WHERE " + HERE,
        found=At(VALUE, measurement="mem", column="total")),
    sql("the rows of two minutes exchanged",
        f"UPDATE cpu SET time = {at(3.5)} WHERE {HERE}", f"UPDATE cpu SET time = {at(3)} WHERE {row(4)}",
        f"UPDATE cpu SET time = {at(4)} WHERE {row(3.5)}", found=(At(VALUE), At(VALUE, minute=4))),
    # partial points
    sql("a value lost", f"UPDATE cpu SET usage_user = NULL WHERE {HERE}", found=At(PARTIAL, column="usage_user")),
    sql("all values of a row lost but one",
        f"UPDATE cpu SET usage_user = NULL, usage_system = NULL, usage_nice = NULL WHERE {HERE}", found=At(PARTIAL)),
    sql("a field of all rows lost", "ALTER TABLE redis DROP COLUMN evicted_keys",
        found=tuple(At(PARTIAL, f"host_{n}", None, "redis", "evicted_keys") for n in range(3))),
    # times
    moved("a row a microsecond late", "time + interval '1 microsecond'", At(UNWRITTEN, minute=3 + 1e-6 / 60)),
    moved("a row a microsecond early", "time - interval '1 microsecond'", At(UNWRITTEN, minute=3 - 1e-6 / 60)),
    sql("a row an interval late", f"UPDATE cpu SET time = {at(4)} WHERE {HERE}",
        found=(At(MISSING), At(VALUE, minute=4))),
    moved("a row an hour early, before the run", "time - interval '1 hour'", At(UNWRITTEN, minute=3 - 60)),
    moved("a row in 1970", "timestamptz 'epoch'", At(UNWRITTEN, time="1970-01-01T00:00:00Z")),
    moved("a row in the year 2200", "'2200-01-01T00:00:00Z'", At(UNWRITTEN, time="2200-01-01T00:00:00Z")),
    moved("a row before Christ", "'0044-03-15 BC'", At(UNWRITTEN, minute=None)),
    moved("a row without a time", "NULL", At(UNWRITTEN, time="no time")),
    moved("a row at an infinite time", "'infinity'", At(UNWRITTEN, minute=None)),
    sql("all rows of a host a day late", "UPDATE kernel SET time = time + interval '1 day' WHERE tags_id = 1",
        found=(At(MISSING, minute=None, measurement="kernel"), At(UNWRITTEN, minute=None, measurement="kernel"))),
    # tags
    sql("another region", "UPDATE tags SET region = 'mars' WHERE id = 1",
        found=(in_tags(TAGS, column="region"), *(At(TAGS, minute=n, column="region") for n in range(2)))),
    sql("a tag lost", "UPDATE tags SET os = NULL WHERE id = 1",
        found=(in_tags(TAGS, column="os"), *(At(TAGS, minute=n, column="os") for n in range(2)))),
    sql("two tags exchanged", "UPDATE tags SET os = arch, arch = os WHERE id = 1",
        found=(in_tags(TAGS, column="arch"), *(At(TAGS, minute=n, column="arch") for n in range(2)))),
    sql("an own tag changed",
        f"""UPDATE disk SET additional_tags = '{{"path": "/x", "fstype": "ext4"}}' WHERE {HERE}""",
        found=At(TAGS, measurement="disk", column="path")),
    sql("the own tags lost", f"UPDATE disk SET additional_tags = NULL WHERE {HERE}",
        found=At(TAGS, measurement="disk", column="fstype")),
    sql("an own tag more", f"""UPDATE cpu SET additional_tags = '{{"zone": "z"}}' WHERE {HERE}""", found=At(EXTRA)),
    sql("a tag more", "ALTER TABLE tags ADD COLUMN zone text", "UPDATE tags SET zone = 'z' WHERE id = 1",
        found=(in_tags(EXTRA), *(At(EXTRA, minute=n) for n in range(2)))),
    # fields
    sql("a field more", "ALTER TABLE cpu ADD COLUMN more int", f"UPDATE cpu SET more = 0 WHERE {HERE}",
        found=At(EXTRA)),
    sql("a text more", "ALTER TABLE cpu ADD COLUMN more text", f"UPDATE cpu SET more = 'x' WHERE {NEWEST}",
        found=At(EXTRA, "host_2", NEWEST_MINUTE)),
    sql("a field renamed", "ALTER TABLE net RENAME COLUMN bytes_sent TO sent",
        found=(*(At(PARTIAL, f"host_{n}", None, "net", "bytes_sent") for n in range(3)),
               *(At(EXTRA, f"host_{n}", None, "net") for n in range(3)))),
    # series
    sql("a host renamed", "UPDATE tags SET hostname = 'host_x' WHERE id = 1",
        found=(At(MISSING, minute=None), At(UNWRITTEN, "host_x", None), in_tags(TAGS, column="hostname"))),
    sql("a host without tags", "DELETE FROM tags WHERE id = 1",
        found=(in_tags(MISSING), At(MISSING, minute=None), At(UNWRITTEN, "(no hostname)", None))),
    sql("a row of no host", f"UPDATE cpu SET tags_id = NULL WHERE {HERE}",
        found=(At(MISSING), At(UNWRITTEN, "(no hostname)"))),
    sql("a row moved to another host", f"UPDATE cpu SET tags_id = 2 WHERE {HERE}",
        found=(At(MISSING), At(VALUE, "host_2"))),
    sql("a host more", "INSERT INTO tags (id, hostname) VALUES (9, 'host_9')",
        f"INSERT INTO cpu (time, tags_id, usage_user) SELECT time, 9, usage_user FROM cpu WHERE {HERE}",
        found=(At(PARTIAL, "host_9"), in_tags(UNWRITTEN, "host_9"))),
    sql("a series without points",
        "CREATE TEMP TABLE one AS SELECT * FROM tags WHERE id = 1; UPDATE one SET id = 9, hostname = 'host_9';"
        " INSERT INTO tags SELECT * FROM one", found=in_tags(UNWRITTEN, "host_9")),
    sql("a tag of a series whose points are gone",
        *(f"DELETE FROM {name} WHERE tags_id = 1" for name in (
            "cpu", "diskio", "disk", "kernel", "mem", "net", "nginx", "postgresl", "redis")),
        "UPDATE tags SET region = 'mars' WHERE id = 1",
        found=(*(At(MISSING, minute=n) for n in range(3)), in_tags(TAGS, column="region"))),
    sql("an extra measurement", "CREATE TABLE more (LIKE cpu)", found=At(Flaw.OTHER_TABLE, None, None, "more")),
    # duplicates
    sql("a row twice", f"INSERT INTO cpu SELECT * FROM cpu WHERE {HERE}", found=At(DUPLICATE)),
    sql("the newest row twice", f"INSERT INTO cpu SELECT * FROM cpu WHERE {NEWEST}",
        found=At(DUPLICATE, "host_2", NEWEST_MINUTE)),
    sql("a row deleted and another one twice", f"DELETE FROM cpu WHERE {HERE}",
        f"INSERT INTO cpu SELECT * FROM cpu WHERE {row(4)}", found=(At(MISSING), At(DUPLICATE, minute=4))),
    # deletions
    sql("a row deleted", f"DELETE FROM cpu WHERE {HERE}", found=At(MISSING)),
    sql("the newest row deleted", f"DELETE FROM cpu WHERE {NEWEST}", found=At(MISSING, "host_2", NEWEST_MINUTE)),
    sql("all rows of a host deleted", "DELETE FROM mem WHERE tags_id = 1",
        found=tuple(At(MISSING, minute=n, measurement="mem") for n in range(3))),
    sql("a minute deleted", f"DELETE FROM nginx WHERE time = {at(3)}",
        found=tuple(At(MISSING, f"host_{n}", 3, "nginx") for n in range(3))),
    sql("a measurement emptied", "TRUNCATE diskio",
        found=tuple(At(MISSING, f"host_{n}", 0, "diskio") for n in range(3))),
    # outside the time of the run
    sql("a copy before the run", copied(at(-0.5)), found=At(UNWRITTEN, minute=-0.5)),
    sql("a copy after the run", copied(at(LATE)), found=At(UNWRITTEN, minute=LATE)),
    sql("a partial point before the run", copied(at(-LATE), ", 5", ", usage_nice"), found=At(PARTIAL, minute=-LATE)),
    sql("a partial point after the run", copied(at(LATE), ", 5", ", usage_user"), found=At(PARTIAL, minute=LATE)),
    sql("a partial point between two of the run", copied(at(3.5), ", 5", ", usage_user"),
        found=At(PARTIAL, minute=3.5)),
    sql("a field more before the run", "ALTER TABLE cpu ADD COLUMN more int", copied(at(-LATE), ", 5", ", more"),
        found=At(PARTIAL, minute=-LATE, column="(others)")),
)  # fmt: skip
