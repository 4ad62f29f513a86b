"""The layout of chDB: MergeTree tables in the order of series and time, and statements for batches and queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tsbench.encode import sql
from tsbench.model import Kind, WriteMode
from tsbench.targets.base import Payload, Statement
from tsbench.targets.sql import OWN_TAGS, ColumnTypes, SqlSchema, SqlText, column_names, expect_names, names, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tsbench.model import Batch, Codes, Latest, Measurement, Query


class _Moment(int):
    """A time in nanoseconds since 1970, as a parameter."""


_TYPES = {bool: "Bool", int: "Int64", float: "Float64", str: "String"}


class _Text(SqlText):
    """chDB's dialect of the query compiler; parameters have names and types, times are DateTime64(9)."""

    languages = ("chdb", "clickhouse", "sql")

    def arg(self, value: Any) -> str:
        self.params.append(value)
        name = f"p{len(self.params)}"
        if isinstance(value, _Moment):
            return f"fromUnixTimestamp64Nano({{{name}:Int64}}, 'UTC')"
        return f"{{{name}:{_TYPES[type(value)]}}}"

    def bound(self, time_ns: int) -> _Moment:
        return _Moment(time_ns)

    def bucket(self, column: str, bucket_ns: int) -> str:
        number = f"intDiv(toUnixTimestamp64Nano({column}), {bucket_ns})"
        return f"fromUnixTimestamp64Nano({number} * {bucket_ns}, 'UTC')"

    def number_of(self, column: str, bucket_ns: int) -> str:
        return f"intDiv(toUnixTimestamp64Nano({column}), {bucket_ns})"

    def percentile(self, share: float, column: str) -> str:
        return f"quantileExactInclusive({share})({column})"

    def end(self, column: str, *, newest: bool) -> str:
        return f'{"argMax" if newest else "argMin"}({column}, m."time")'  # of rows that have one

    def latest(self, query: Latest) -> str:
        # argMax alone would skip rows whose value is NULL; a tuple never is.
        m = query.measurement
        where = self.before(query) + self.chosen(query)
        row = ", ".join(f"m.{quoted(name)}" for name in query.fields)
        values = ", ".join(f"b.newest.{i} AS {quoted(name)}" for i, name in enumerate(query.fields, 1))
        return (
            f'SELECT b.last AS "time", t.{quoted(m.key or "")}, {values}\n'
            "FROM (\n"
            f'  SELECT m."tags_id", max(m."time") AS last, argMax(tuple({row}), m."time") AS newest\n'
            f"  FROM {quoted(m.name)} m\n"
            f"{'  WHERE ' + ' AND '.join(where) + chr(10) if where else ''}"
            '  GROUP BY m."tags_id"\n'
            ') b JOIN "tags" t ON t."id" = b."tags_id"'
        )


@dataclass(frozen=True, slots=True)
class ChdbSchema(SqlSchema):
    """A layout of chDB: a MergeTree table per measurement, sorted by series and time, and one of the tags."""

    name: str
    keeps_duplicates: bool = True
    types: ClassVar = ColumnTypes(
        "DateTime64(9, 'UTC')", "Int32", "Float64", "Int64", "Nullable(String)", "Int32", "Nullable(String)", "Bool"
    )
    folds_case: ClassVar = False
    max_parameters: ClassVar = 100_000  # of a statement whose values are literals: about a megabyte

    def columns(self, m: Measurement, *, own_tags: bool | None = None) -> str:
        """Return the columns with their types; only a field that points may lack is nullable."""
        of = column_names(m, own_tags=own_tags)
        expect_names(m.name, ["tags", *of] if m.name == "tags" else of, folds_case=self.folds_case)
        kinds = {Kind.FLOAT: "Float64", Kind.INT: "Int64", Kind.TEXT: "LowCardinality(String)", Kind.BOOL: "Bool"}
        types = {"time": self.types.time, "tags_id": self.types.tags_id, OWN_TAGS: self.types.own_tags}
        for field in m.fields:
            types[field.name] = f"Nullable({kinds[field.kind]})" if field.nullable else kinds[field.kind]
        return ", ".join(f"{quoted(name)} {types[name]}" for name in of)

    def create_table(self, m: Measurement) -> list[str]:
        order = '("tags_id", "time")' if m.tags else '"time"'
        made = f"CREATE TABLE {quoted(m.name)} ({self.columns(m)}) ENGINE = MergeTree ORDER BY {order}"
        return [f"{made}\nSETTINGS fsync_after_insert = 1, fsync_part_directory = 1"]

    def tag_table(self, tags: Mapping[str, Codes], more: str = "") -> Statement:
        text = SqlSchema.tag_table(self, tags, more).text
        return Statement(f'{text} ENGINE = MergeTree ORDER BY "id"')

    def insert_tags(self, rows: Sequence[tuple[Any, ...]], tags: Mapping[str, Codes]) -> Iterator[Statement]:
        for piece in sql.chunks(rows, self.max_parameters):
            yield Statement(f'INSERT INTO "tags" VALUES {_values(piece)}')

    def settle(self, measurements: Sequence[Measurement]) -> Sequence[Statement]:
        """Return statements that merge each table's parts into one."""
        return [Statement(f"OPTIMIZE TABLE {quoted(m.name)} FINAL") for m in measurements]

    def encode_each(self, batch: Batch, points: int, mode: WriteMode) -> Iterator[Payload]:
        """Return rows as literals of one INSERT, or columns that chDB reads from memory (`Python`)."""
        m = batch.measurement
        insert = f"INSERT INTO {quoted(m.name)} ({names(column_names(m))})"
        if mode is WriteMode.BULK:
            slices = (batch.rows(start, start + points) for start in range(0, len(batch), points))
            return (_columns(one, insert) for one in slices)
        moments = np.datetime_as_string(batch.time_ns.astype("datetime64[ns]"), unit="ns").tolist()
        times = [moment.replace("T", " ") for moment in moments]
        writes = sql.writes(sql.columns(batch, times, extra_json=bool(m.own_tags)), points)
        texts = (_values(rows) for rows, _ in writes)
        sizes = (min(points, len(batch) - start) for start in range(0, len(batch), points))
        return (
            Payload(mode, m.name, f"{insert} VALUES", text, size, len(text))
            for text, size in zip(texts, sizes, strict=True)
        )

    def compile(self, query: Query) -> Statement:
        return _Text().statement(query)


def _values(rows: Sequence[tuple[Any, ...]]) -> str:
    return ", ".join(f"({', '.join(map(_literal, row))})" for row in rows)


def _literal(value: Any) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    return "NULL" if value is None else repr(value)


def _columns(batch: Batch, insert: str) -> Payload:
    """Return the batch's columns as an Arrow table, in the order of `column_names`."""
    import pyarrow as pa  # noqa: PLC0415 - not in the memory of workers that write single points

    m = batch.measurement
    columns = {"c0": pa.array(batch.time_ns.astype("datetime64[ns]"))}
    if m.tags:
        columns["c1"] = pa.array(batch.series)
    for field in m.fields:
        values = batch.fields[field.name]
        made = pa.array(values, from_pandas=field.nullable)  # from pandas: NaN is NULL
        if field.labels:
            made = pa.array(field.labels).take(pa.array(values))
        columns[f"c{len(columns)}"] = made
    if m.own_tags:
        columns[f"c{len(columns)}"] = pa.array(sql.own_tags_json(batch)).take(pa.array(batch.series))
    table = pa.table(columns)
    return Payload(WriteMode.BULK, m.name, f"{insert} SELECT * FROM Python(batch)", table, len(batch), table.nbytes)


MERGETREE = ChdbSchema("mergetree")
