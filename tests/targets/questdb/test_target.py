from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import psycopg
import pytest

from tsbench.errors import UserMistake
from tsbench.model import Aggregated, Field, Measurement, OpError, Outcome, Raw, Window, WriteMode
from tsbench.targets.base import Payload, Unsupported
from tsbench.targets.questdb import TARGET
from tsbench.targets.questdb.schemas import DEDUP, ApplyWal
from tsbench.testing import data
from tsbench.testing.contract import TargetContract
from tsbench.testing.data import CPU, LAG, START_NS, S

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tsbench.model import Batch
    from tsbench.targets.base import Schema, Session
    from tsbench.targets.questdb.server import QuestServer
    from tsbench.testing.contract_base import Alteration, Point

_BEHIND = "SELECT count(*) FROM wal_tables() WHERE sequencerTxn > writerTxn AND NOT suspended"


def ask(url: str, *texts: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The columns and rows of the last of some statements, by a client that is not ours; each sees what was before."""
    (port,) = parse_qs(urlsplit(url).query)["pg"]
    place = f"host=127.0.0.1 port={port} user=admin password=quest dbname=qdb"
    names: list[str] = []
    rows: list[tuple[Any, ...]] = []
    with psycopg.connect(place, autocommit=True) as connection:
        for text in ("SELECT 1", *texts):  # what others wrote before is waited for, too
            found = connection.execute(text.encode())
            names = [column.name for column in found.description or ()]
            rows = found.fetchall() if names else []
            deadline = time.monotonic() + 20
            while connection.execute(_BEHIND).fetchall() != [(0,)]:
                assert time.monotonic() < deadline, text
                time.sleep(0.005)
    return names, rows


def drop_all(url: str) -> None:
    for (table,) in ask(url, "SELECT table_name FROM tables() WHERE table_name ~ '^(tsbench_|cpu)'")[1]:
        ask(url, f'DROP TABLE "{table}"')


def deleting(table: str, where: str) -> list[str]:
    """The statements that make a table anew without some rows: QuestDB deletes them only so."""
    others = f"SELECT * FROM {table} WHERE NOT ({where})"
    return [
        f"CREATE TABLE tsbench_copy AS ({others}) TIMESTAMP(time) PARTITION BY DAY WAL",
        f"DROP TABLE {table}",
        f"RENAME TABLE tsbench_copy TO {table}",
    ]


def changes(alteration: Alteration) -> list[str]:
    """The statements that make an alteration."""
    table, moment = f"tsbench_{alteration.measurement}", f"'{np.datetime64(alteration.time_ns, 'ns')}Z'"
    key, host = next(iter(alteration.tags.items()))
    *_, last = alteration.tags
    where = f"\"time\" = {moment} AND {key} = '{host}'"
    columns = ", ".join(("time", *alteration.tags, alteration.field))
    values = ", ".join((moment, *(f"'{text}'" for text in alteration.tags.values()), str(alteration.value)))
    return {
        "delete": deleting(table, where),
        "duplicate": [f"INSERT INTO {table} SELECT * FROM {table} WHERE {where}"],
        "change": [f"UPDATE {table} SET {alteration.field} = {alteration.value} WHERE {where}"],
        "tag": [f"UPDATE {table} SET {last} = 'elsewhere' WHERE {key} = '{host}'"],
        "more": [f"ALTER TABLE {table} ADD COLUMN more INT", f"UPDATE {table} SET more = 1 WHERE {where}"],
        "part": [f"INSERT INTO {table} ({columns}) VALUES ({values})"],
    }[alteration.action]  # fmt: skip


@pytest.mark.questdb
class TestQuestDB(TargetContract):
    name = "questdb"
    unsupported = dict.fromkeys(("wide", "dedup"), ("percentiles", "percentiles of series"))
    wrong_endpoints = ("nonsense", "http://127.0.0.1:1/x", "http://127.0.0.1:9000/?pg=0", "postgresql://h/qdb")

    @pytest.fixture
    def url(self, questdb_server: QuestServer) -> Iterator[str]:
        drop_all(questdb_server.endpoint)
        yield questdb_server.endpoint
        drop_all(questdb_server.endpoint)

    @staticmethod
    def write(session: Session, schema: Schema, batches: list[Batch], mode: WriteMode | None = None) -> int:
        """Write, and wait until queries see it: that is not declared of an acknowledged write."""
        acknowledged = TargetContract.write(session, schema, batches, mode)
        session.run([ApplyWal()])
        return acknowledged

    @staticmethod
    def stored(url: str, measurement: Measurement) -> Sequence[Point]:
        names, rows = ask(url, "SELECT 1", f"SELECT * FROM tsbench_{measurement.name}")
        found = []
        for row in (dict(zip(names, row, strict=True)) for row in rows):
            moment = row["time"].replace(tzinfo=UTC)
            time_ns = (int(moment.timestamp()) * 1_000_000 + moment.microsecond) * 1_000
            own = {tag: row[tag] for tag in measurement.own_tags} or None
            series = int(row["host"].removeprefix("host_")) if measurement.tags else None
            found.append((time_ns, series, *(row[name] for name in measurement.field_names), own))
        return found

    @staticmethod
    def alter(url: str, alteration: Alteration) -> None:
        ask(url, *changes(alteration))

    # --- what is otherwise here

    def test_a_missing_table_is_a_failure_and_the_session_goes_on(self, session: Session, schema: Schema) -> None:
        """A write makes the table that it lacks; reading one fails."""
        missing = Measurement("missing", CPU.tags, CPU.fields)
        with pytest.raises(OpError) as caught:
            self.count(session, schema, missing)
        assert (caught.value.outcome, caught.value.cause) == (Outcome.FAILED, "no table")
        session.write(schema.encode(data.batch(missing, data.shared_tags(), time_ns=[START_NS]), WriteMode.MULTI))
        assert self.count(session, schema, missing) == 1

    def test_names_and_tags_are_not_read_as_part_of_a_statement(self, target: Any, url: str, schema: Schema) -> None:
        odd = Measurement("se`lect {x}", ("ho st", "the {key}"), (Field("or|der by"), Field("time zone $1")))
        names = [name for name in data.ODD if name and "\\" not in name]
        shared = {"ho st": data.codes(names), "the {key}": data.codes(["x"] * len(names))}
        session = target.connect(url, schema)
        session.run(schema.create([odd], shared))
        batch = replace(
            data.batch(odd, data.shared_tags(), time_ns=[START_NS + i * S for i in range(len(names))]),
            series=np.arange(len(names), dtype=np.int32), tags=shared,
        )  # fmt: skip
        self.write(session, schema, [batch])
        window, key = Window(START_NS, START_NS + 100 * S), self.key(schema, [batch])
        for keys in (None, *((value,) for value in names), tuple(names)):
            self.agrees(session, schema, Raw(odd, odd.field_names, window, keys), key)
            self.agrees(session, schema, Aggregated.of(odd, odd.field_names, "mean", 30 * S, window, keys), key)
        session.run(schema.drop([odd]))
        session.close()

    def test_a_name_that_questdb_does_not_take_is_refused_in_one_line(self, schema: Schema) -> None:
        for m in (Measurement("m", ("ho'st",), CPU.fields), Measurement("a/b", (), CPU.fields)):
            with pytest.raises(UserMistake, match=r"of QuestDB is called .*; rename the "):
                schema.create([m], {})

    def test_what_would_be_stored_as_something_else_is_refused(self, schema: Schema) -> None:
        with pytest.raises(Unsupported, match="times between microseconds"):
            schema.encode(data.batch(CPU, data.shared_tags(), time_ns=[START_NS + 1]), WriteMode.MULTI)
        batch = data.batch(LAG, {}, time_ns=[START_NS])
        least = {**batch.fields, "kb": np.array([-(2**63)])}
        with pytest.raises(Unsupported, match=r"-9223372036854775808 as no value \(field kb\)"):
            schema.encode(replace(batch, fields=least), WriteMode.MULTI)
        with pytest.raises(Unsupported, match="drops the backslash of the tag's text"):
            schema.create([CPU], {"host": data.codes(["a", "b\\c"])})
        with pytest.raises(Unsupported, match="empty text as none, and the tag host distinguishes"):
            schema.create([CPU], {"host": data.codes(["a", ""])})

    def test_a_write_that_is_refused_for_a_line_has_stored_none(
        self, session: Session, url: str, schema: Schema
    ) -> None:
        good = [
            b"tsbench_cpu,host=host_1,region=r1 busy=%d,load=1,count=1i %d" % (i, START_NS + i * S) for i in range(9)
        ]
        for bad, says in ((b'tsbench_cpu,host=a busy="x" 1', "cast error"), (b"tsbench_cpu,host=a b'y=1 1", "column")):
            for place in (0, 4, 9):
                lines = b"\n".join([*good[:place], bad, *good[place:], b""])
                with pytest.raises(OpError, match=f"error in line {place + 1}: .*{says}") as caught:
                    session.write(Payload(WriteMode.MULTI, "cpu", "", lines, 10, len(lines)))
                assert (caught.value.outcome, caught.value.cause) == (Outcome.FAILED, "data")
                assert self.count(session, schema, CPU) == 0

    def test_a_suspended_table_is_an_error_with_its_name(self, session: Session, url: str, schema: Schema) -> None:
        ask(url, "ALTER TABLE tsbench_cpu SUSPEND WAL WITH 'DISK FULL', 'it is full'")
        session.write(schema.encode(data.batch(CPU, data.shared_tags(), time_ns=[START_NS]), WriteMode.SINGLE))
        with pytest.raises(OpError, match="tsbench_cpu is suspended with 1 commits not applied") as caught:
            self.count(session, schema, CPU)
        assert (caught.value.outcome, caught.value.cause) == (Outcome.FAILED, "suspended")

    def test_our_tables_are_listed_and_those_of_no_measurement_and_others_stay(
        self, session: Session, url: str, schema: Schema
    ) -> None:
        ask(url, "CREATE TABLE tsbench_more (x INT)", "CREATE TABLE cpu (x INT)")
        assert session.inventory([CPU, LAG], series=True).tables == ("tsbench_disk", "tsbench_more", "tsbench_wide")
        cpu, lag = session.objects([CPU, LAG])
        assert [cpu.name, lag.name] == ["table tsbench_cpu", "table tsbench_lag"]
        session.run(cpu.remove)
        assert [one.name for one in session.objects([CPU, LAG])] == ["table tsbench_lag"]
        assert ask(url, "SELECT count() FROM cpu")[1] == [(0,)]


@pytest.mark.parametrize(
    ("endpoint", "why"),
    [
        ("http://h:9000/other", "QuestDB has one database"),
        ("http://h:x/", "not an endpoint of QuestDB"),
        ("http://h/?pg=x", "pg=x: write the port"),
        ("http://h/?colour=red", "the option 'colour' does not exist; there are pg"),
    ],
)
def test_a_wrong_endpoint_is_answered_with_what_is_right(endpoint: str, why: str) -> None:
    with pytest.raises(UserMistake, match=why):
        TARGET.connect(endpoint, DEDUP)


@pytest.mark.parametrize(
    ("name", "fields", "why"),
    [
        ("m", ("v", "V"), "the column 'V' twice"),
        ("m", ("time",), "the column 'time' twice"),
        ("m", ("host",), "the column 'host' twice"),
        ("m", ("v" * 130,), "has 130 bytes, more than the 119 of a column's name here"),
        ("m" * 130, ("v",), "of a table's name here; rename the measurement"),
    ],
)
def test_a_table_that_cannot_be_made_is_refused_before_a_statement_is_sent(
    name: str, fields: tuple[str, ...], why: str
) -> None:
    with pytest.raises(UserMistake, match=why):
        DEDUP.create([Measurement(name, ("host",), tuple(map(Field, fields)))], data.shared_tags())
