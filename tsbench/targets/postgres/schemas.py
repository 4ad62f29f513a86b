# ruff: noqa: S608 - names are quoted by sqltext.quoted, values are parameters
"""Schemas of PostgreSQL: layouts, and statements for batches and queries."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from tsbench.encode import pgcopy, pgparams, sql
from tsbench.model import Kind, WriteMode
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


EXTENSIONS = "public"
"""Namespace of TimescaleDB's functions, which the search path lacks; its extension is created in it by default."""
CHUNK_INTERVAL = "tsbench.chunk_interval"
"""Setting of a server, login or session with the time that a chunk of a hypertable holds."""
INTERVAL = f"coalesce(nullif(current_setting('{CHUNK_INTERVAL}', true), ''), '12 hours')::interval"
"""Expression for the time that a chunk holds; without the setting it is 12 hours, as in TSBS."""
_HAS_EXTENSION = (
    "EXISTS (SELECT FROM pg_available_extensions WHERE name = 'timescaledb')",
    "this server has no TimescaleDB, which hypertables need: install its extension, or take the target postgres",
)
_HAS_COMPRESSION = (
    "coalesce(current_setting('timescaledb.license', true), '') = 'timescale'",
    "compression needs the community build of TimescaleDB, and this server has another: take the schema hypertable",
)


class PostgresText(SqlText):
    """PostgreSQL dialect of the query compiler. `date_bin` needs version 14."""

    languages = ("postgres", "sql")
    integer_as_float = "{}::float8"  # the average of a bigint is a numeric

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

    def number_of(self, column: str, bucket_ns: int) -> str:
        return f"floor(extract(epoch FROM {column}) * 1000000 / {bucket_ns // 1_000})::bigint"

    def percentile(self, share: float, column: str) -> str:
        return f"percentile_cont({share}) WITHIN GROUP (ORDER BY {column})"

    def end(self, column: str, *, newest: bool) -> str:
        order = f'm."time"{" DESC" * newest}'
        return f"(array_agg({column} ORDER BY {order}) FILTER (WHERE {column} IS NOT NULL))[1]"

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

    `btree` has TSBS's indexes on (tags_id, time) and time, but ascending ones: points come in the order of time, and
    pages of an index that grows at its end are left full, those of a descending one half empty. `brin` replaces the
    second by a BRIN index on time, a few kilobytes if points arrive in the order of time; the first remains if the
    measurement has tags, since without it every query for a host would read all hosts. A measurement without tags then
    has BRIN alone, as in the published comparison (study D). BRIN knows only the block ranges that VACUUM summarised:
    `settle` does that, and rows written afterwards are read completely until autovacuum runs.
    """

    name: str
    time_index: str
    order: str = ""
    """Order of the time in the index that begins with the series: "" (ascending) or " DESC"."""
    keeps_duplicates: bool = True
    dialect: ClassVar[type[PostgresText]] = PostgresText
    types: ClassVar = ColumnTypes(
        "timestamptz", "integer", "double precision", "bigint", "jsonb", "integer PRIMARY KEY", "text"
    )
    folds_case: ClassVar = False
    longest_name: ClassVar = 63
    max_parameters: ClassVar = 65_535  # the protocol counts them in 16 bits

    def create(self, measurements: Sequence[Measurement], tags: Mapping[str, Codes]) -> Sequence[Command]:
        namespace = Statement(f"CREATE SCHEMA IF NOT EXISTS {NAMESPACE}", optional=True)
        return [namespace, *SqlSchema.create(self, measurements, tags)]

    def create_table(self, m: Measurement) -> list[str]:
        table = quoted(m.name)
        made = [f"CREATE TABLE {table} ({self.columns(m, own_tags=True)})"]
        if m.tags:
            made.append(f'CREATE INDEX ON {table} ("tags_id", "time"{self.order})')
        return [*made, f"CREATE INDEX ON {table} {self.time_index}"]

    def create_tags(self, tags: Mapping[str, Codes]) -> Iterator[Statement]:
        yield from SqlSchema.create_tags(self, tags)
        yield Statement(f'CREATE INDEX ON "tags" ({key_of(tags)})')

    def insert_tags(self, rows: Sequence[tuple[Any, ...]], tags: Mapping[str, Codes]) -> Iterator[Statement]:
        types = ["int", *("text" for _ in tags)]
        arrays = ", ".join(f"{_mark(n)}::{kind}[]" for n, kind in enumerate(types, 1))
        for columns in sql.columns_of(rows):
            yield Statement(f'INSERT INTO "tags" SELECT * FROM unnest({arrays})', columns)

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
        return self.dialect().statement(query)


_2000_NS = 946_857_600 * 1_000_000_000
"""Monday, 2000-01-03, in UTC: TimescaleDB counts its buckets from then."""


class TimescaleText(PostgresText):
    """Dialect with `time_bucket`, which may be faster on a hypertable, where its buckets are those of the epoch."""

    def bucket(self, column: str, bucket_ns: int) -> str:
        text = PostgresText.bucket(self, column, bucket_ns)
        if _2000_NS % bucket_ns:
            return text
        return text.replace("date_bin", f"{EXTENSIONS}.time_bucket").replace(", timestamptz 'epoch')", ")")

    def end(self, column: str, *, newest: bool) -> str:
        function = "last" if newest else "first"
        return f'{EXTENSIONS}.{function}({column}, m."time") FILTER (WHERE {column} IS NOT NULL)'


@dataclass(frozen=True, slots=True)
class HypertableSchema(PostgresSchema):
    """TSBS's tables for TimescaleDB: hypertables with chunks of `tsbench.chunk_interval`, and its indexes.

    They are descending, as those that TimescaleDB makes by itself.

    With `is_compressed`, settling compresses all chunks, by series and in the order of time: later writes to them are
    compressed when it settles again. Only the community build of TimescaleDB can do that.
    """

    time_index: str = '("time" DESC)'
    order: str = " DESC"
    is_compressed: bool = False
    dialect: ClassVar[type[PostgresText]] = TimescaleText

    def create(self, measurements: Sequence[Measurement], tags: Mapping[str, Codes]) -> Sequence[Command]:
        namespace, *tables = PostgresSchema.create(self, measurements, tags)
        extension = Statement(f"CREATE EXTENSION IF NOT EXISTS timescaledb SCHEMA {EXTENSIONS}")
        checks = [Statement(_requirement(*one)) for one in (_HAS_EXTENSION, _HAS_COMPRESSION)[: 1 + self.is_compressed]]
        return [namespace, checks[0], extension, *checks[1:], *tables]

    def create_table(self, m: Measurement) -> list[str]:
        table, *indexes = PostgresSchema.create_table(self, m)
        name = _literal(quoted(m.name))
        hypertable = (
            f"SELECT {EXTENSIONS}.create_hypertable({name},\n"
            f"  {EXTENSIONS}.by_range('time', {INTERVAL}), create_default_indexes => false)"
        )
        made = [table, hypertable, *indexes]
        if self.is_compressed:
            by = ", timescaledb.compress_segmentby = 'tags_id'" if m.tags else ""
            order = "timescaledb.compress_orderby = '\"time\" DESC'"
            made.append(f"ALTER TABLE {quoted(m.name)} SET (timescaledb.compress{by}, {order})")
        return made

    def settle(self, measurements: Sequence[Measurement]) -> Sequence[Statement]:
        """Return the statements that compress all chunks, if any are to be, and those of `PostgresSchema`."""
        compress = [
            Statement(
                f"SELECT {EXTENSIONS}.compress_chunk(c, if_not_compressed => true)\n"
                f"FROM {EXTENSIONS}.show_chunks({_literal(quoted(m.name))}) c"
            )
            for m in measurements
        ]
        return [*compress * self.is_compressed, *PostgresSchema.settle(self, measurements)]


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _requirement(condition: str, reason: str) -> str:
    """Return the statement that fails with a reason unless a condition holds."""
    return f"DO $$ BEGIN IF NOT ({condition}) THEN\n  RAISE EXCEPTION '{reason}';\nEND IF; END $$"


def _inserts(m: Measurement, rows: Iterator[pgparams.Parameters], points: int) -> Iterator[Payload]:
    """Yield INSERTs of `points` rows each; the last may have fewer."""
    width = len(column_names(m))
    while values := sql.flat(islice(rows, points)):
        count = len(values) // width
        text = insert(m, count, mark=_mark)
        yield Payload(WriteMode.MULTI, m.name, text, values, count, pgparams.nbytes(values))


_ARRAYS = {Kind.FLOAT: "float8", Kind.INT: "int8", Kind.TEXT: "text", Kind.BOOL: "bool"}


def _array_insert(batch: Batch) -> Payload:
    """Return all rows as one INSERT with an array per column."""
    m = batch.measurement
    types = {"time": "timestamptz", "tags_id": "int", OWN_TAGS: "jsonb"}
    types |= {field.name: _ARRAYS[field.kind] for field in m.fields}
    kinds = (types[name] for name in column_names(m))
    arrays = ", ".join(f"{_mark(n)}::{kind}[]" for n, kind in enumerate(kinds, start=1))
    text = f"INSERT INTO {quoted(m.name)} ({names(column_names(m))}) SELECT * FROM unnest({arrays})"
    values = pgparams.arrays(batch)
    return Payload(WriteMode.MULTI, m.name, text, values, len(batch), pgparams.nbytes(values))


def _copy(m: Measurement) -> str:
    return f"COPY {quoted(m.name)} ({names(column_names(m, own_tags=True))}) FROM STDIN (FORMAT binary)"


def _mark(number: int) -> str:
    return f"${number}"


TIME_BUCKET = f"{NAMESPACE}.time_bucket(interval, timestamptz)"
FUNCTIONS = (
    Statement(
        f"CREATE OR REPLACE FUNCTION {TIME_BUCKET} RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE\n"
        "AS 'SELECT date_bin($1, $2, timestamptz ''2000-01-03 00:00:00+00'')'"
    ),
)
"""What TSBS's queries call: TimescaleDB's buckets, which are counted from a Monday."""
BTREE = PostgresSchema("btree", '("time")')
BRIN = PostgresSchema("brin", 'USING brin ("time")')
HYPERTABLE = HypertableSchema("hypertable")
COMPRESSED = HypertableSchema("hypertable-compressed", is_compressed=True)
