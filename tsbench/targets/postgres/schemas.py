# ruff: noqa: S608 - names are quoted by sqltext.quoted, values are parameters
"""Schemas of PostgreSQL: layouts, and statements for batches and queries."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, ClassVar

from tsbench.encode import pgcopy, pgparams, sql
from tsbench.model import WriteMode
from tsbench.targets.base import Payload, Statement, Unsupported, expressible
from tsbench.targets.sql import (
    OWN_TAGS,
    ColumnTypes,
    SqlSchema,
    SqlText,
    column_names,
    fields,
    insert,
    key_of,
    names,
    quoted,
    tables_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from tsbench.model import Batch, Codes, Latest, Measurement, Query
    from tsbench.targets.base import Command

NAMESPACE = "tsbench"
"""The PostgreSQL schema that all tables live in, so that a user's own `cpu` or `tags` is never dropped."""


class PostgresText(SqlText):
    """PostgreSQL dialect of the query compiler. `date_bin` needs version 14."""

    def mark(self, number: int) -> str:
        return _mark(number)

    def bound(self, time_ns: int) -> datetime:
        return sql.ceil_datetime(time_ns)

    def bucket(self, column: str, bucket_ns: int) -> str:
        """Return the start of a time's bucket, aligned to the epoch in UTC, whatever the session's zone."""
        seconds, rest = divmod(bucket_ns, 1_000_000_000)
        if rest % 1_000:
            raise Unsupported(f"PostgreSQL counts microseconds; it has no bucket of {bucket_ns} ns")
        width = f"{seconds}.{rest // 1_000:06d}".rstrip("0").rstrip(".")
        return f"date_bin('{width} s', {column}, timestamptz 'epoch')"

    def among(self, column: str, keys: Sequence[str]) -> str:
        """Return the condition with one array parameter, so that one prepared statement serves any number of keys."""
        return f"{column} = ANY({self.arg(list(keys))}::text[])"

    def latest(self, query: Latest) -> str:
        """Return a query with one index look-up per tag row, as TSBS's lastpoint."""
        newest, where = self.look_up(query, f'x."time", {fields("x", query.fields)}')
        return (
            f'SELECT m."time", t.{quoted(query.measurement.key or "")}, {fields("m", query.fields)}\n'
            f'FROM "tags" t CROSS JOIN LATERAL (\n{newest}\n) m\n{where}'
        ).rstrip()


@dataclass(frozen=True, slots=True)
class PostgresSchema(SqlSchema):
    """TSBS's tables for plain PostgreSQL: `tags`, and one wide table per measurement without a key.

    `btree` has TSBS's indexes, (tags_id, time DESC) and (time DESC). `brin` replaces the second by a BRIN index on
    time, a few kilobytes if points arrive in the order of time; the first remains if the measurement has tags, since
    without it every query for a host would read all hosts. A measurement without tags then has BRIN alone, as in the
    published comparison (study D). BRIN knows only the block ranges that VACUUM summarised: `settle` does that, and
    rows written afterwards are read completely until autovacuum runs.
    """

    name: str
    time_index: str
    keeps_duplicates: bool = True
    types: ClassVar = ColumnTypes(
        "timestamptz", "integer", "double precision", "double precision", "jsonb", "integer PRIMARY KEY", "text"
    )
    max_parameters: ClassVar = 65_535  # the protocol counts them in 16 bits

    def create(self, measurements: Sequence[Measurement], tags: Mapping[str, Codes]) -> Sequence[Command]:
        namespace = Statement(f"CREATE SCHEMA IF NOT EXISTS {NAMESPACE}", optional=True)
        return [namespace, *SqlSchema.create(self, measurements, tags)]

    def create_table(self, m: Measurement) -> list[str]:
        """Return the statements for the table of one measurement and its indexes."""
        table = quoted(m.name)
        made = [f"CREATE TABLE {table} ({self.columns(m, own_tags=True)})"]
        if m.tags:
            made.append(f'CREATE INDEX ON {table} ("tags_id", "time" DESC)')
        return [*made, f"CREATE INDEX ON {table} {self.time_index}"]

    def create_tags(self, tags: Mapping[str, Codes]) -> Iterator[Statement]:
        lists = [codes.tolist() for codes in tags.values()]
        arrays = ", ".join(["$1::int[]", *(f"{_mark(n)}::text[]" for n in range(2, len(lists) + 2))])
        yield self.tag_table(tags)
        yield Statement(f'INSERT INTO "tags" SELECT * FROM unnest({arrays})', (list(range(len(lists[0]))), *lists))
        yield Statement(f'CREATE INDEX ON "tags" ({key_of(tags)})')

    def settle(self, measurements: Sequence[Measurement]) -> Sequence[Statement]:
        """Return the statements for vacuum (visibility map, BRIN summaries), statistics and a checkpoint."""
        vacuum = [Statement(f"VACUUM (ANALYZE) {quoted(name)}") for name in tables_of(measurements)]
        return [*vacuum, Statement("CHECKPOINT", optional=True)]

    def encode(self, batch: Batch, mode: WriteMode) -> Payload:
        if mode is not WriteMode.BULK:
            return SqlSchema.encode(self, batch, mode)
        with expressible():  # without the copy that cutting a batch takes
            data = pgcopy.encode(batch, extra_json=True)
        return Payload(mode, batch.measurement.name, _copy(batch.measurement), data, len(batch), len(data))

    def encode_each(self, batch: Batch, points: int, mode: WriteMode) -> Iterator[Payload]:
        """Return single or multi-row INSERTs (arrays beyond 65,535 parameters), or binary COPY streams."""
        m = batch.measurement
        with expressible():
            if mode is WriteMode.BULK:
                copy, streams = _copy(m), pgcopy.encode_each(batch, points, extra_json=True)
                return (Payload(mode, m.name, copy, data, count, len(data)) for data, count in streams)
            if len(column_names(m)) * points > self.max_parameters:
                if len(batch) > points:
                    starts = range(0, len(batch), points)
                    return (self.encode(batch.rows(start, start + points), mode) for start in starts)
                return iter([_array_insert(batch)])
            rows = pgparams.rows(batch)
        if points == 1:
            text = insert(m, 1, mark=_mark)
            return (Payload(mode, m.name, text, row, 1, pgparams.nbytes(row)) for row in rows)
        return _inserts(m, rows, points)

    def compile(self, query: Query) -> Statement:
        """Return the query as SQL."""
        return PostgresText().statement(query)


def _inserts(m: Measurement, rows: Iterator[pgparams.Parameters], points: int) -> Iterator[Payload]:
    """Yield INSERTs of `points` rows each; the last may have fewer."""
    width = len(column_names(m))
    while values := pgparams.flat(islice(rows, points)):
        count = len(values) // width
        text = insert(m, count, mark=_mark)
        yield Payload(WriteMode.MULTI, m.name, text, values, count, pgparams.nbytes(values))


def _array_insert(batch: Batch) -> Payload:
    """Return all rows as one INSERT with an array per column."""
    m = batch.measurement
    types = {"time": "timestamptz", "tags_id": "int", OWN_TAGS: "jsonb"}
    kinds = (types.get(name, "float8") for name in column_names(m))
    arrays = ", ".join(f"{_mark(n)}::{kind}[]" for n, kind in enumerate(kinds, start=1))
    text = f"INSERT INTO {quoted(m.name)} ({names(column_names(m))}) SELECT * FROM unnest({arrays})"
    values = pgparams.arrays(batch)
    return Payload(WriteMode.MULTI, m.name, text, values, len(batch), pgparams.nbytes(values))


def _copy(m: Measurement) -> str:
    return f"COPY {quoted(m.name)} ({names(column_names(m, own_tags=True))}) FROM STDIN (FORMAT binary)"


def _mark(number: int) -> str:
    return f"${number}"


BTREE = PostgresSchema("btree", '("time" DESC)')
BRIN = PostgresSchema("brin", 'USING brin ("time")')
