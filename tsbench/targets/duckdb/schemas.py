# ruff: noqa: S608 - names are quoted by sql.quoted, values are parameters
"""The schema of DuckDB: tables without indexes, and statements for batches and queries."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tsbench.encode import pgcopy, sql
from tsbench.model import Kind, WriteMode
from tsbench.targets.base import Payload, Statement, Unsupported, encode_slices, expressible
from tsbench.targets.op_context import undecodable
from tsbench.targets.sql import SqlText, fields, names, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from tsbench.model import Batch, Codes, Latest, Measurement, Query

BATCH = "tsbench_batch"
"""Name by which a bulk write's statement refers to the session's columns."""
MAX_PARAMETERS = 16_384  # of one statement: DuckDB has no limit, but binding them takes 15 us each
_COLUMN_TYPE = {Kind.FLOAT: "DOUBLE", Kind.INT: "BIGINT"}


class _Text(SqlText):
    """DuckDB dialect of the query compiler; times are TIMESTAMP, microseconds in UTC without a zone."""

    def mark(self, number: int) -> str:  # noqa: ARG002 - DuckDB counts them itself
        return "?"

    def bound(self, time_ns: int) -> datetime:
        return sql.ceil_datetime(time_ns).replace(tzinfo=None)

    def bucket(self, column: str, bucket_ns: int) -> str:
        if bucket_ns % 1_000:
            raise Unsupported(f"DuckDB counts microseconds; it has no bucket of {bucket_ns} ns")
        # Without an origin, buckets of days and weeks begin on Monday, 2000-01-03.
        return f"time_bucket(INTERVAL '{bucket_ns // 1_000} microseconds', {column}, TIMESTAMP '1970-01-01')"

    def among(self, column: str, keys: Sequence[str]) -> str:
        return f"{column} IN ({', '.join(self.arg(key) for key in keys)})" if keys else "FALSE"

    def latest(self, query: Latest) -> str:
        # One pass over the columns asked for, without a sort: there is no index to look a series up in.
        m = query.measurement
        where = [f'm."time" < {self.arg(self.bound(query.before_ns))}'] if query.before_ns is not None else []
        where += self.chosen(m, query.keys)
        row = ", ".join(f"{quoted(name)} := m.{quoted(name)}" for name in query.fields)
        return (
            f'SELECT b."time", t.{quoted(m.key or "")}, {fields("b.newest", query.fields)}\n'
            "FROM (\n"
            '  SELECT m."tags_id", max(m."time") AS "time",\n'
            f'    arg_max(struct_pack({row}), m."time") AS newest\n'
            f"  FROM {quoted(m.name)} m\n"
            f"{'  WHERE ' + ' AND '.join(where) + chr(10) if where else ''}"
            "  GROUP BY 1\n"
            ') b JOIN "tags" t ON t."id" = b."tags_id"'
        )


@dataclass(frozen=True, slots=True)
class DuckdbSchema:
    """A schema of DuckDB: tables of measurements and tags without indexes; row groups are skipped by min and max."""

    name: str
    keeps_duplicates: bool = True
    modes: frozenset[WriteMode] = frozenset(WriteMode)

    def create(self, measurements: Sequence[Measurement], tags: Mapping[str, Codes]) -> Sequence[Statement]:
        """Return the statements that create empty tables in place of existing ones."""
        made = list(self.drop(measurements))
        if tags:
            made.append(Statement(f'CREATE TABLE "tags" ("id" INTEGER, {_columns_of(tags, "VARCHAR")})'))
            pieces = sql.chunks(sql.tag_rows(tags), MAX_PARAMETERS)
            made += [
                Statement(f'INSERT INTO "tags" VALUES {_marks(len(piece[0]), len(piece))}', sql.flat(piece))
                for piece in pieces
            ]
        for m in measurements:
            columns = ['"time" TIMESTAMP NOT NULL', *(['"tags_id" INTEGER NOT NULL'] if m.tags else [])]
            columns += [f"{quoted(f.name)} {_COLUMN_TYPE[f.kind]}" for f in m.fields]
            columns += ['"additional_tags" VARCHAR'] if m.own_tags else []
            made.append(Statement(f"CREATE TABLE {quoted(m.name)} ({', '.join(columns)})"))
        return made

    def drop(self, measurements: Sequence[Measurement]) -> Sequence[Statement]:
        """Return the statements that drop the tables and the tags, where they exist."""
        return [Statement(f"DROP TABLE IF EXISTS {quoted(name)}") for name in (*(m.name for m in measurements), "tags")]

    def settle(self, measurements: Sequence[Measurement]) -> Sequence[Statement]:  # noqa: ARG002 - a checkpoint covers all tables
        """Return the statement that writes the log into the file, compressed."""
        return [Statement("CHECKPOINT")]

    def encode(self, batch: Batch, mode: WriteMode) -> Payload:
        """Return one row, statements of many rows for one transaction, or columns that DuckDB reads directly."""
        if mode is WriteMode.SINGLE and len(batch) != 1:
            raise Unsupported(f"single writes take one point, not {len(batch)}")
        m = batch.measurement
        if mode is WriteMode.BULK:
            table = _arrow(batch)
            return Payload(mode, m.name, f"{_insert(m)} SELECT * FROM {BATCH}", table, len(batch), table.nbytes)
        if len(batch):
            return next(self.encode_each(batch, len(batch), mode))
        return Payload(mode, m.name, "", [], 0, 0)

    def encode_each(self, batch: Batch, points: int, mode: WriteMode) -> Iterator[Payload]:
        if mode is WriteMode.BULK:
            return encode_slices(self, batch, points, mode)
        m, writes = batch.measurement, sql.writes(_python(batch), points)
        if points > 1:
            return (_inserts(m, rows, nbytes) for rows, nbytes in writes)
        text = _values(m, 1)
        return (Payload(mode, m.name, text, [Statement(text, rows[0])], 1, nbytes) for rows, nbytes in writes)

    def compile(self, query: Query) -> Statement:
        """Return the query as SQL."""
        return _Text().statement(query)


def _inserts(m: Measurement, rows: Sequence[tuple[Any, ...]], nbytes: int) -> Payload:
    """Return rows as statements of as many parameters as one may have."""
    pieces = [Statement(_values(m, len(piece)), sql.flat(piece)) for piece in sql.chunks(rows, MAX_PARAMETERS)]
    return Payload(WriteMode.MULTI, m.name, pieces[0].text, pieces, len(rows), nbytes)


def _columns_of(tags: Mapping[str, Codes], of_type: str) -> str:
    return ", ".join(f"{quoted(name)} {of_type}" for name in tags)


def _inserted(m: Measurement) -> list[str]:
    return ["time", *(["tags_id"] if m.tags else []), *m.field_names, *(["additional_tags"] if m.own_tags else [])]


def _insert(m: Measurement) -> str:
    return f"INSERT INTO {quoted(m.name)} ({names(_inserted(m))})"


@lru_cache(maxsize=32)  # of one row it takes longer to write than the values, of a thousand as long
def _values(m: Measurement, height: int) -> str:
    return f"{_insert(m)} VALUES {_marks(len(_inserted(m)), height)}"


def _marks(width: int, height: int) -> str:
    return sql.values(width, height, lambda _: "?")


def _times(batch: Batch) -> NDArray[np.datetime64]:
    with expressible():
        return pgcopy.times_us(batch.time_ns).view("datetime64[us]")


def _python(batch: Batch) -> list[Sequence[Any]]:
    times = _times(batch).tolist()  # datetimes without a zone, which is what TIMESTAMP holds
    return sql.columns(batch, times, extra_json=bool(batch.measurement.own_tags))


def _arrow(batch: Batch) -> pa.Table:
    """Return the batch's columns as an Arrow table, in the order of `_insert`; numbers are not copied."""
    import pyarrow as pa  # noqa: PLC0415 - not in the memory of workers that write single points

    m = batch.measurement
    columns = {"time": pa.array(_times(batch))}
    if m.tags:
        columns["tags_id"] = pa.array(batch.series)
    columns |= {f"field {i}": pa.array(batch.fields[name]) for i, name in enumerate(m.field_names)}
    if m.own_tags:
        columns["additional_tags"] = pa.DictionaryArray.from_arrays(pa.array(batch.series), sql.own_tags_json(batch))
    return pa.table(columns)


COLUMNS = DuckdbSchema("columns")


def meaning_of(error: RuntimeError) -> BaseException:
    """Return what a RuntimeError of DuckDB's means: Ctrl-C in a statement, in whose place DuckDB raises one."""
    return KeyboardInterrupt() if str(error) == "Query interrupted" else undecodable("DuckDB", error)
