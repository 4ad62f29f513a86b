"""The layouts of QuestDB, and its dialect of SQL.

A measurement is a table `tsbench_NAME`, since QuestDB has no namespaces: a user's own `cpu` is never dropped. Each row
has its tags, as symbols, and its time in microseconds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tsbench.encode import sql
from tsbench.model import Kind
from tsbench.targets.base import Operation, Statement, Unsupported
from tsbench.targets.http import LineSchema
from tsbench.targets.sql import RefusedNames, SqlText, expect_names, fields, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from tsbench.model import Aggregated, Batch, Codes, Latest, Measurement, Query, WriteMode
    from tsbench.targets.base import Command, Payload

PREFIX = "tsbench_"
"""What the names of all our tables begin with."""
_IN_NO_TABLE = re.compile(r"""[\x01-\x0f"%'()*+,/:?\\~\x7f\ufeff]|\.\.|[ .]\Z""")
_REFUSED = RefusedNames("QuestDB", _IN_NO_TABLE, re.compile(rf"""[-.]|{_IN_NO_TABLE.pattern}"""))
"""Signs that QuestDB 9 refuses in names, tried one by one."""
_TYPES = {Kind.FLOAT: "DOUBLE", Kind.INT: "LONG", Kind.TEXT: "VARCHAR", Kind.BOOL: "BOOLEAN"}
_NO_INT = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class ApplyWal(Operation):
    """Wait until all acknowledged points are in their tables, where queries see them."""

    text: str = "wait until the write-ahead logs are applied"


class QuestText(SqlText):
    """QuestDB's dialect: buckets by SAMPLE BY, newest rows by LATEST ON."""

    languages = ("questdb",)

    tag_table = "m"

    def mark(self, number: int) -> str:
        return f"${number}"

    def bound(self, time_ns: int) -> datetime:
        return sql.ceil_datetime(time_ns).replace(tzinfo=None)

    def bucket(self, column: str, bucket_ns: int) -> str:
        return column

    def number_of(self, column: str, bucket_ns: int) -> str:
        return f"CAST({column} AS LONG) / {bucket_ns // 1_000}"

    def by_bucket(self, bucket_ns: int) -> str:
        """Return the clause for buckets; aligned to the calendar, all of them begin at multiples from the epoch on."""
        if bucket_ns % 1_000:
            raise Unsupported(f"QuestDB counts microseconds; it has no bucket of {bucket_ns} ns")
        size = f"{bucket_ns // 1_000}U" if bucket_ns % 1_000_000_000 else f"{bucket_ns // 1_000_000_000}s"
        return f"SAMPLE BY {size} ALIGN TO CALENDAR"

    def percentile(self, share: float, column: str) -> str:
        raise Unsupported("QuestDB's percentiles are approximate (HdrHistogram)")

    def end(self, column: str, *, newest: bool) -> str:
        return f"{'last' if newest else 'first'}_not_null({column})"  # rows are in the order of their times

    def among(self, column: str, keys: Sequence[str]) -> str:
        """Return the condition; an empty list needs another one than FALSE, which SAMPLE BY does not take."""
        return super().among(column, keys) if keys else f"{column} IN ('') AND {column} NOT IN ('')"

    def aggregate(self, function: str, column: str, kind: Kind) -> str:
        """Return the aggregate; a boolean is never missing, and QuestDB does not count one."""
        return "count()" if kind is Kind.BOOL else super().aggregate(function, column, kind)

    def grouping(self, query: Aggregated) -> list[str]:
        """Return SAMPLE BY for buckets; the tags beside it group the rows, too."""
        return super().grouping(query) if query.bucket_ns is None else [self.by_bucket(query.bucket_ns)]

    def latest(self, query: Latest) -> str:
        m, key = query.measurement, quoted(query.measurement.key or "")
        where = self.before(query) + self.chosen(query)
        return (
            f'SELECT m."time", m.{key}, {fields("m", query.fields)}\n'
            f"FROM {quoted(m.name)} m\n"
            f"{'WHERE ' + ' AND '.join(where) + chr(10) if where else ''}"
            f'LATEST ON "time" PARTITION BY {key}'
        )


@dataclass(frozen=True, slots=True)
class QuestSchema(LineSchema):
    """A table per measurement with a partition per day, and a write-ahead log.

    With `keeps_duplicates` false a later point of a series replaces one at the same time.
    """

    name: str
    keeps_duplicates: bool = True
    nulls = frozenset(Kind) - {Kind.BOOL}  # a boolean that is lacking is false
    takes_lines = False  # their tables would have names without our prefix
    prefix: ClassVar[str] = PREFIX

    def create(self, measurements: Sequence[Measurement], tags: Mapping[str, Codes]) -> Sequence[Command]:
        if tags and "" in next(iter(tags.values())).values:
            raise Unsupported(
                f"QuestDB stores an empty text as none, and the tag {next(iter(tags))} distinguishes series"
            )
        for codes in tags.values():
            _check(codes)
        return [*self.drop(measurements), *map(self._table, measurements)]

    def _table(self, m: Measurement) -> Statement:
        tags = [*m.tags, *m.own_tags]
        expect_names(
            m.name, ["time", *tags, *m.field_names], folds_case=True, longest=127 - len(PREFIX), refused=_REFUSED
        )
        columns = ['"time" TIMESTAMP', *(f"{quoted(tag)} SYMBOL" for tag in tags)]
        columns += [f"{quoted(field.name)} {_TYPES[field.kind]}" for field in m.fields]
        keys = f" DEDUP UPSERT KEYS({', '.join(map(quoted, ['time', *tags]))})" * (not self.keeps_duplicates)
        table = f"CREATE TABLE {quoted(PREFIX + m.name)} ({', '.join(columns)})"
        return Statement(f'{table} TIMESTAMP("time") PARTITION BY DAY WAL{keys}')

    def drop(self, measurements: Sequence[Measurement]) -> Sequence[Command]:
        return [Statement(f"DROP TABLE IF EXISTS {quoted(PREFIX + m.name)}") for m in measurements]

    def extend(self, measurements: Sequence[Measurement], tags: Mapping[str, Codes], first: int) -> Sequence[Command]:
        return self.create(measurements, {})

    def settle(self, measurements: Sequence[Measurement]) -> Sequence[Command]:
        """Wait until the write-ahead logs are applied; QuestDB has nothing else to do after a load."""
        return [ApplyWal()]

    def encode_each(self, batch: Batch, points: int, mode: WriteMode) -> Iterator[Payload]:
        """Return the batch as lines; refuse what would be stored as something else."""
        for codes in batch.tags.values():
            _check(codes)
        if np.any(batch.time_ns % 1_000):
            raise Unsupported("QuestDB cannot express times between microseconds")
        for field in batch.measurement.fields:
            if field.kind is Kind.INT and np.any(batch.fields[field.name] == _NO_INT):
                raise Unsupported(f"QuestDB stores {_NO_INT} as no value (field {field.name})")
            if odd := next((text for text in field.texts if "\\" in text), None):
                raise Unsupported(f"QuestDB drops the backslash of the text {odd!r} (field {field.name})")
        return LineSchema.encode_each(self, batch, points, mode)

    def compile(self, query: Query) -> Statement:
        return QuestText().statement(replace(query, measurement=self.prefixed(query.measurement)))


@lru_cache(maxsize=64)  # by identity: a world's tags are checked once
def _check(codes: Codes) -> None:
    """Raise `Unsupported` for a text that would be stored as another."""
    if odd := next((text for text in codes.values if "\\" in text), None):
        raise Unsupported(f"QuestDB drops the backslash of the tag's text {odd!r}")


WIDE = QuestSchema("wide")
DEDUP = QuestSchema("dedup", keeps_duplicates=False)
