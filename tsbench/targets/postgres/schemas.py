# ruff: noqa: S608 - names are quoted by sqltext.quoted, values are parameters
"""PostgreSQL through psycopg 3, which yields to gevent when Locust is imported before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tsbench.encode import pgcopy, sql
from tsbench.model import WriteMode
from tsbench.targets.base import Payload, Statement, Unsupported
from tsbench.targets.sql import SqlText, fields, names, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from tsbench.model import Batch, Codes, Latest, Measurement, Query

NAMESPACE = "tsbench"
"""The PostgreSQL schema that all tables live in, so that a user's own `cpu` or `tags` is never dropped."""
MAX_PARAMETERS = 65_535  # the protocol counts them in 16 bits


class PostgresText(SqlText):
    """PostgreSQL's words. `date_bin` needs version 14."""

    def mark(self, number: int) -> str:
        """`$1`."""
        return f"${number}"

    def bound(self, time_ns: int) -> datetime:
        """A timestamptz."""
        return sql.ceil_datetime(time_ns)

    def bucket(self, column: str, bucket_ns: int) -> str:
        """Aligned to the epoch, in UTC whatever the session's zone."""
        seconds, rest = divmod(bucket_ns, 1_000_000_000)
        if rest % 1_000:
            raise Unsupported(f"PostgreSQL counts microseconds; it has no bucket of {bucket_ns} ns")
        width = f"{seconds}.{rest // 1_000:06d}".rstrip("0").rstrip(".")
        return f"date_bin('{width} s', {column}, timestamptz 'epoch')"

    def among(self, column: str, keys: Sequence[str]) -> str:
        """One array parameter, so that the text, and with it the prepared statement, is the same for any keys."""
        return f"{column} = ANY({self.arg(list(keys))}::text[])"

    def latest(self, query: Latest) -> str:
        """One index look-up per tag row, as TSBS's lastpoint does it."""
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
    """Tables as TSBS lays them out for plain PostgreSQL: `tags`, and one wide table per measurement without a key.

    `btree` has its indexes, (tags_id, time DESC) and (time DESC). `brin` replaces the second by a BRIN index on time,
    a few kilobytes where points arrive in the order of time; the first stays where there are tags, since without it
    every query for a host would read all hosts. For a measurement without tags that leaves BRIN alone, as in the
    published comparison (study D). BRIN knows only the block ranges that VACUUM summarised: `settle` does it, and
    what is written afterwards is read whole until autovacuum comes by.
    """

    name: str
    time_index: str
    keeps_duplicates: bool = True
    modes: frozenset[WriteMode] = frozenset(WriteMode)

    def create(self, measurements: Sequence[Measurement], tags: Mapping[str, Codes]) -> Sequence[Statement]:
        """Empty tables, whatever was there before."""
        made = [Statement(f"CREATE SCHEMA IF NOT EXISTS {NAMESPACE}", optional=True), *self.drop(measurements)]
        if tags:
            made += _create_tags(tags)
        for m in measurements:
            made += [Statement(text) for text in self.create_table(m)]
        return made

    def create_table(self, m: Measurement) -> list[str]:
        """The table of one measurement and its indexes."""
        columns = ['"time" timestamptz', *(['"tags_id" integer'] if m.tags else [])]
        columns += [f"{quoted(f)} double precision" for f in m.field_names]
        table = quoted(m.name)
        made = [f'CREATE TABLE {table} ({", ".join(columns)}, "additional_tags" jsonb)']
        if m.tags:
            made.append(f'CREATE INDEX ON {table} ("tags_id", "time" DESC)')
        return [*made, f"CREATE INDEX ON {table} {self.time_index}"]

    def drop(self, measurements: Sequence[Measurement]) -> Sequence[Statement]:
        """The tables and the tags, where they exist."""
        tables = [*(m.name for m in measurements), "tags"]
        return [Statement(f"DROP TABLE IF EXISTS {quoted(name)}") for name in tables]

    def settle(self, measurements: Sequence[Measurement]) -> Sequence[Statement]:
        """Vacuum (visibility map, BRIN summaries), statistics, and all of it on disk."""
        tables = [m.name for m in measurements] + ["tags"] * any(m.tags for m in measurements)
        return [*(Statement(f"VACUUM (ANALYZE) {quoted(t)}") for t in tables), Statement("CHECKPOINT", optional=True)]

    def encode(self, batch: Batch, mode: WriteMode) -> Payload:
        """One INSERT, one multi-row INSERT (from arrays beyond 65,535 parameters), or a binary COPY stream."""
        m = batch.measurement
        if mode is WriteMode.BULK:
            data = _exact(batch)
            return Payload(mode, m.name, f"COPY {_into(m)} FROM STDIN (FORMAT binary)", data, len(batch), len(data))
        if mode is WriteMode.SINGLE and len(batch) != 1:
            raise Unsupported(f"single writes take one point, not {len(batch)}")
        columns = _columns(batch)
        width, nbytes = len(columns), sql.width_bytes(columns)
        if width * len(batch) <= MAX_PARAMETERS:
            text = f"INSERT INTO {_into(m)} VALUES {sql.values(width, len(batch), _mark)}"
            return Payload(mode, m.name, text, sql.flat(sql.rows(columns)), len(batch), nbytes)
        arrays = ", ".join(f"{_mark(n)}::{kind}[]" for n, kind in enumerate(_types(m), start=1))
        text = f"INSERT INTO {_into(m)} SELECT * FROM unnest({arrays})"
        return Payload(mode, m.name, text, tuple(columns), len(batch), nbytes)

    def encode_singles(self, batch: Batch) -> Iterator[Payload]:
        """One payload per point."""
        columns, m = _columns(batch), batch.measurement
        text = f"INSERT INTO {_into(m)} VALUES {sql.values(len(columns), 1, _mark)}"
        each = sql.width_bytes(columns) // max(1, len(batch))
        return (Payload(WriteMode.SINGLE, m.name, text, row, 1, each) for row in sql.rows(columns))

    def compile(self, query: Query) -> Statement:
        """The query as SQL."""
        return PostgresText().statement(query)


def _columns(batch: Batch) -> list[Sequence[Any]]:
    try:
        return sql.columns(batch, sql.datetimes(pgcopy.times_us(batch.time_ns)), extra_json=True)
    except sql.Inexact as error:
        raise Unsupported(str(error)) from error


def _exact(batch: Batch) -> bytearray:
    try:
        return pgcopy.encode(batch, extra_json=True)
    except sql.Inexact as error:
        raise Unsupported(str(error)) from error


def _into(m: Measurement) -> str:
    columns = ["time", *(["tags_id"] if m.tags else []), *m.field_names, "additional_tags"]
    return f"{quoted(m.name)} ({names(columns)})"


def _types(m: Measurement) -> list[str]:
    return ["timestamptz", *(["int"] if m.tags else []), *(["float8"] * len(m.fields)), "jsonb"]


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
