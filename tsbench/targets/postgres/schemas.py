# ruff: noqa: S608 - names are quoted by sqltext.quoted, values are parameters
"""Schemas of PostgreSQL: layouts, and statements for batches and queries."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

from tsbench.encode import pgcopy, pgparams, sql
from tsbench.model import WriteMode
from tsbench.targets.base import Payload, Statement, Unsupported, encode_slices, expressible
from tsbench.targets.sql import SqlText, fields, names, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from tsbench.model import Batch, Codes, Latest, Measurement, Query

NAMESPACE = "tsbench"
"""The PostgreSQL schema that all tables live in, so that a user's own `cpu` or `tags` is never dropped."""
MAX_PARAMETERS = 65_535  # the protocol counts them in 16 bits


class PostgresText(SqlText):
    """PostgreSQL dialect of the query compiler. `date_bin` needs version 14."""

    def mark(self, number: int) -> str:
        """Return the placeholder for a parameter by its number (`$1`)."""
        return f"${number}"

    def bound(self, time_ns: int) -> datetime:
        """Return the bound as a timestamptz."""
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
        m = query.measurement
        before = f' AND x."time" < {self.arg(self.bound(query.before_ns))}' if query.before_ns is not None else ""
        where = self.chosen(m, query.keys, tag_table="t")
        return (
            f'SELECT m."time", t.{quoted(m.key or "")}, {fields("m", query.fields)}\n'
            'FROM "tags" t CROSS JOIN LATERAL (\n'
            f'  SELECT x."time", {fields("x", query.fields)} FROM {quoted(m.name)} x\n'
            f'  WHERE x."tags_id" = t."id"{before}\n'
            '  ORDER BY x."time" DESC LIMIT 1\n'
            f") m\n{'WHERE ' + where[0] if where else ''}"
        ).rstrip()


@dataclass(frozen=True, slots=True)
class PostgresSchema:
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
    modes: frozenset[WriteMode] = frozenset(WriteMode)

    def create(self, measurements: Sequence[Measurement], tags: Mapping[str, Codes]) -> Sequence[Statement]:
        """Return the statements that create empty tables in place of existing ones."""
        made = [Statement(f"CREATE SCHEMA IF NOT EXISTS {NAMESPACE}", optional=True), *self.drop(measurements)]
        if tags:
            made += _create_tags(tags)
        for m in measurements:
            made += [Statement(text) for text in self.create_table(m)]
        return made

    def create_table(self, m: Measurement) -> list[str]:
        """Return the statements for the table of one measurement and its indexes."""
        columns = ['"time" timestamptz', *(['"tags_id" integer'] if m.tags else [])]
        columns += [f"{quoted(f)} double precision" for f in m.field_names]
        table = quoted(m.name)
        made = [f'CREATE TABLE {table} ({", ".join(columns)}, "additional_tags" jsonb)']
        if m.tags:
            made.append(f'CREATE INDEX ON {table} ("tags_id", "time" DESC)')
        return [*made, f"CREATE INDEX ON {table} {self.time_index}"]

    def drop(self, measurements: Sequence[Measurement]) -> Sequence[Statement]:
        """Return the statements that drop the tables and the tags, where they exist."""
        tables = [*(m.name for m in measurements), "tags"]
        return [Statement(f"DROP TABLE IF EXISTS {quoted(name)}") for name in tables]

    def settle(self, measurements: Sequence[Measurement]) -> Sequence[Statement]:
        """Return the statements for vacuum (visibility map, BRIN summaries), statistics and a checkpoint."""
        tables = [m.name for m in measurements] + ["tags"] * any(m.tags for m in measurements)
        return [*(Statement(f"VACUUM (ANALYZE) {quoted(t)}") for t in tables), Statement("CHECKPOINT", optional=True)]

    def encode(self, batch: Batch, mode: WriteMode) -> Payload:
        """Return one INSERT, one multi-row INSERT (arrays beyond 65,535 parameters), or a binary COPY stream."""
        m = batch.measurement
        if mode is WriteMode.SINGLE and len(batch) != 1:
            raise Unsupported(f"single writes take one point, not {len(batch)}")
        with expressible():
            if mode is WriteMode.BULK:
                data = pgcopy.encode(batch, extra_json=True)
                return Payload(mode, m.name, _copy(m), data, len(batch), len(data))
            if len(_inserted(m)) * len(batch) <= MAX_PARAMETERS:
                values, text = pgparams.flat(pgparams.rows(batch)), _insert(m, len(batch))
            else:
                values, text = pgparams.arrays(batch), _insert_arrays(m)
        return Payload(mode, m.name, text, values, len(batch), pgparams.nbytes(values))

    def encode_each(self, batch: Batch, points: int, mode: WriteMode) -> Iterator[Payload]:
        m = batch.measurement
        with expressible():
            if mode is WriteMode.BULK:
                copy, streams = _copy(m), pgcopy.encode_each(batch, points, extra_json=True)
                return (Payload(mode, m.name, copy, data, count, len(data)) for data, count in streams)
            if len(_inserted(m)) * points > MAX_PARAMETERS:
                return encode_slices(self, batch, points, mode)
            rows = pgparams.rows(batch)
        if points == 1:
            text = _insert(m, 1)
            return (Payload(mode, m.name, text, row, 1, pgparams.nbytes(row)) for row in rows)
        return _inserts(m, rows, points)

    def compile(self, query: Query) -> Statement:
        """Return the query as SQL."""
        return PostgresText().statement(query)


def _inserts(m: Measurement, rows: Iterator[pgparams.Parameters], points: int) -> Iterator[Payload]:
    """Yield INSERTs of `points` rows each; the last may have fewer."""
    while values := pgparams.flat(islice(rows, points)):
        count = len(values) // len(_inserted(m))
        yield Payload(WriteMode.MULTI, m.name, _insert(m, count), values, count, pgparams.nbytes(values))


def _copy(m: Measurement) -> str:
    columns = ["time", *(["tags_id"] if m.tags else []), *m.field_names, "additional_tags"]
    return f"COPY {quoted(m.name)} ({names(columns)}) FROM STDIN (FORMAT binary)"


def _inserted(m: Measurement) -> dict[str, str]:
    """Return the columns that INSERT names, with their types; the column of own tags stays NULL without such."""
    tags_id = {"tags_id": "int"} if m.tags else {}
    own = {"additional_tags": "jsonb"} if m.own_tags else {}
    return {"time": "timestamptz", **tags_id, **dict.fromkeys(m.field_names, "float8"), **own}


@lru_cache(maxsize=32)  # 5,000 rows have 60,000 placeholders, which take longer to write than the values
def _insert(m: Measurement, rows: int) -> str:
    columns = _inserted(m)
    return f"INSERT INTO {quoted(m.name)} ({names(columns)}) VALUES {sql.values(len(columns), rows, _mark)}"


def _insert_arrays(m: Measurement) -> str:
    columns = _inserted(m)
    arrays = ", ".join(f"{_mark(n)}::{kind}[]" for n, kind in enumerate(columns.values(), start=1))
    return f"INSERT INTO {quoted(m.name)} ({names(columns)}) SELECT * FROM unnest({arrays})"


def _mark(number: int) -> str:
    return f"${number}"


def _create_tags(tags: Mapping[str, Codes]) -> Sequence[Statement]:
    columns = ", ".join(f"{quoted(name)} text" for name in tags)
    lists = [codes.tolist() for codes in tags.values()]
    arrays = ", ".join(["$1::int[]", *(f"{_mark(n)}::text[]" for n in range(2, len(lists) + 2))])
    return [
        Statement(f'CREATE TABLE "tags" ("id" integer PRIMARY KEY, {columns})'),
        Statement(f'INSERT INTO "tags" SELECT * FROM unnest({arrays})', (list(range(len(lists[0]))), *lists)),
        Statement(f'CREATE INDEX ON "tags" ({quoted(next(iter(tags)))})'),
    ]


BTREE = PostgresSchema("btree", '("time" DESC)')
BRIN = PostgresSchema("brin", 'USING brin ("time")')
