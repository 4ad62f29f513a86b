# ruff: noqa: S608 - names are quoted by sql.quoted, values are parameters
"""The schema of DuckDB: tables without indexes, and statements for batches and queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tsbench.encode import pgcopy, sql
from tsbench.encode.parquet import arrow_values
from tsbench.model import WriteMode
from tsbench.targets.base import Payload, Statement, Unsupported, expressible
from tsbench.targets.sql import ColumnTypes, SqlSchema, SqlText, column_names, fields, insert, names, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from tsbench.model import Batch, Codes, Latest, Measurement, Query

BATCH = "tsbench_batch"
"""Name by which a bulk write's statement refers to the session's columns."""


class _Text(SqlText):
    """DuckDB dialect of the query compiler; times are TIMESTAMP, microseconds in UTC without a zone."""

    languages = ("duckdb", "sql")

    def bound(self, time_ns: int) -> datetime:
        return sql.ceil_datetime(time_ns).replace(tzinfo=None)

    def bucket(self, column: str, bucket_ns: int) -> str:
        if bucket_ns % 1_000:
            raise Unsupported(f"DuckDB counts microseconds; it has no bucket of {bucket_ns} ns")
        # Without an origin, buckets of days and weeks begin on Monday, 2000-01-03.
        return f"time_bucket(INTERVAL '{bucket_ns // 1_000} microseconds', {column}, TIMESTAMP '1970-01-01')"

    def number_of(self, column: str, bucket_ns: int) -> str:
        return f"epoch_us({column}) // {bucket_ns // 1_000}"

    def percentile(self, share: float, column: str) -> str:
        return f"quantile_cont({column}, {share})"

    def end(self, column: str, *, newest: bool) -> str:
        return f'{"arg_max" if newest else "arg_min"}({column}, m."time")'  # of rows that have one

    def latest(self, query: Latest) -> str:
        # One pass over the columns asked for, without a sort: there is no index to look a series up in.
        m = query.measurement
        where = self.before(query) + self.chosen(query)
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
class DuckdbSchema(SqlSchema):
    """A schema of DuckDB: tables of measurements and tags without indexes; row groups are skipped by min and max."""

    name: str
    keeps_duplicates: bool = True
    types: ClassVar = ColumnTypes(
        "TIMESTAMP NOT NULL", "INTEGER NOT NULL", "DOUBLE", "BIGINT", "VARCHAR", "INTEGER", "VARCHAR"
    )
    max_parameters: ClassVar = 16_384  # DuckDB has no limit, but binding them takes 15 us each

    def create_table(self, m: Measurement) -> list[str]:
        return [f"CREATE TABLE {quoted(m.name)} ({self.columns(m)})"]

    def insert_tags(self, rows: Sequence[tuple[Any, ...]], tags: Mapping[str, Codes]) -> Iterator[Statement]:
        for columns in sql.columns_of(rows):  # of parameters by themselves a million rows take minutes
            yield Statement(f'INSERT INTO "tags" SELECT {", ".join(["unnest(?)"] * len(columns))}', columns)

    def settle(self, measurements: Sequence[Measurement]) -> Sequence[Statement]:
        """Return the statement that writes the log into the file, compressed."""
        return [Statement("CHECKPOINT")]

    def encode_each(self, batch: Batch, points: int, mode: WriteMode) -> Iterator[Payload]:
        """Return one row, statements of many rows for one transaction, or columns that DuckDB reads directly."""
        m = batch.measurement
        if mode is WriteMode.BULK:
            slices = (batch.rows(start, start + points) for start in range(0, len(batch), points))
            return (_columns(one) for one in slices)
        writes = sql.writes(_python(batch), points)
        if points > 1:
            return (self.inserts(m, rows, nbytes) for rows, nbytes in writes)
        text = insert(m, 1)
        return (Payload(mode, m.name, text, [Statement(text, rows[0])], 1, nbytes) for rows, nbytes in writes)

    def compile(self, query: Query) -> Statement:
        return _Text().statement(query)


def _columns(batch: Batch) -> Payload:
    m, table = batch.measurement, _arrow(batch)
    text = f"INSERT INTO {quoted(m.name)} ({names(column_names(m))}) SELECT * FROM {BATCH}"
    return Payload(WriteMode.BULK, m.name, text, table, len(batch), table.nbytes)


def _times(batch: Batch) -> NDArray[np.datetime64]:
    with expressible():
        return pgcopy.times_us(batch.time_ns).view("datetime64[us]")


def _python(batch: Batch) -> list[Sequence[Any]]:
    times = _times(batch).tolist()  # datetimes without a zone, which is what TIMESTAMP holds
    return sql.columns(batch, times, extra_json=bool(batch.measurement.own_tags))


def _arrow(batch: Batch) -> pa.Table:
    """Return the batch's columns as an Arrow table, in the order of `column_names`; numbers are not copied."""
    import pyarrow as pa  # noqa: PLC0415 - not in the memory of workers that write single points

    m = batch.measurement
    columns = {"time": pa.array(_times(batch))}
    if m.tags:
        columns["tags_id"] = pa.array(batch.series)
    for i, field in enumerate(m.fields):
        columns[f"field {i}"] = arrow_values(pa, field, batch.fields[field.name])
    if m.own_tags:
        columns["additional_tags"] = pa.DictionaryArray.from_arrays(pa.array(batch.series), sql.own_tags_json(batch))
    return pa.table(columns)


COLUMNS = DuckdbSchema("columns")
