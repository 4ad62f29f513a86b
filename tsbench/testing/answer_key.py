"""The answer key: every query answered by polars, in process, exactly as `model.py` words it.

It gives the gold answers that databases are compared with, is the model of the contract suite, and stores the points of
the in-memory target.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from tsbench.model import (
    OTHERS,
    Aggregated,
    Batch,
    Codes,
    Count,
    Latest,
    LatestBuckets,
    OpError,
    Outcome,
    Query,
    Raw,
    Rows,
    Stored,
    Text,
    share_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tsbench.model import Aggregate, Measurement

_MERGE_ABOVE_ROWS = 250_000
_EVER = (-(2**63), 2**63 - 1)


@dataclass(slots=True, eq=False)
class AnswerKey:
    """Points by measurement, and the answer to any query over them.

    Raises
    ------
    tsbench.model.OpError
        FAILED `no table` from whatever needs a measurement that is not there.
    """

    keeps_duplicates: bool = True
    """Whether two points of a series at the same time are both kept (else the later one replaces)."""
    tables: dict[str, Table] = field(default_factory=dict)

    def create(self, measurement: Measurement, tags: Mapping[str, Codes]) -> Table:
        """Make the measurement's table, empty, with the shared tags of every series, and return it."""
        table = Table(measurement, tags, keeps=self.keeps_duplicates)
        self.tables[measurement.name] = table
        return table

    def add(self, batch: Batch) -> None:
        """Store a batch, making its table if it does not exist."""
        table = self.tables.get(batch.measurement.name)
        if table is None:
            table = self.create(batch.measurement, batch.tags)
        table.add(batch)

    def answer(self, query: Query) -> Rows:
        """Return the query's answer; keys are text, times are nanoseconds since 1970."""
        table = self.table(query.measurement.name)
        return Rows(query.columns, _Answer(table).frame(query).rows())

    def table(self, name: str) -> Table:
        """Return the table of a measurement."""
        try:
            return self.tables[name]
        except KeyError:
            raise OpError(Outcome.FAILED, "no table", f"there is no measurement '{name}'") from None


class Table:
    """The points of one measurement: a part sorted by time, a tail in the order of arrival, and batches not yet framed.

    The tail is merged into the sorted part when it outgrows a quarter of it, so that n points cost O(n log n) in all
    however writes and queries alternate.
    """

    def __init__(self, measurement: Measurement, tags: Mapping[str, Codes], *, keeps: bool) -> None:
        self.measurement = measurement
        self.tags = tags
        self._keeps = keeps
        self._sorted = self._tail = self._frame({n: [] for n in measurement.field_names}, [], [])
        self._pending: deque[Batch] = deque()
        self._lock = threading.Lock()

    def add(self, batch: Batch) -> None:
        """Take in a batch; it is put in order when the table is next read."""
        self._pending.append(batch)  # atomic, and all that a write costs

    def between(self, start_ns: int, end_ns: int) -> pl.DataFrame:
        """Return the points with start_ns <= time < end_ns; what was written later comes later among equal times."""
        with self._lock:
            self._absorb()
            first, last = (self._sorted["time"].search_sorted(t, side="left") for t in (start_ns, end_ns))
            inside = self._tail.filter(pl.col("time").is_between(start_ns, end_ns, closed="left"))
            return self._distinct(pl.concat([self._sorted.slice(first, last - first), inside]))

    def size_bytes(self) -> int:
        """Return the bytes of the columns in memory."""
        with self._lock:
            self._absorb()
            return int(self._sorted.estimated_size() + self._tail.estimated_size())

    def _absorb(self) -> None:
        if self._pending:
            batches = [self._pending.popleft() for _ in range(len(self._pending))]  # others may append meanwhile
            self.tags = batches[-1].tags  # the same world's, and its own tags too
            framed = [self._frame(b.fields, b.time_ns, b.series) for b in batches]
            self._tail = pl.concat([self._tail, *framed], rechunk=True)
        if len(self._tail) > max(_MERGE_ABOVE_ROWS, len(self._sorted) // 4):
            merged = pl.concat([self._sorted, self._tail]).sort("time", maintain_order=True)
            self._sorted, self._tail = self._distinct(merged), self._tail.clear()

    def _distinct(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame if self._keeps else frame.unique(["series", "time"], keep="last", maintain_order=True)

    def _frame(self, fields: Mapping[str, Any], times: Any, series: Any) -> pl.DataFrame:
        types = {f.name: pl.Float64 if f.kind == "float" else pl.Int64 for f in self.measurement.fields}
        # Fields are prefixed: a field may be called `time` or `series` without harm.
        columns = [
            pl.Series(f"f:{n}", fields[n], dtype=types[n], nan_to_null=True) for n in self.measurement.field_names
        ]
        return pl.DataFrame(
            [pl.Series("time", times, dtype=pl.Int64), pl.Series("series", series, dtype=pl.Int32), *columns]
        )


@dataclass(frozen=True, slots=True)
class _Answer:
    """One query over one table."""

    table: Table

    def frame(self, query: Query) -> pl.DataFrame:
        match query:
            case Raw():
                found = self._keyed(self._inside(query))
                if query.top is not None:
                    found = found.sort("time", descending=not query.top.lowest).head(query.top.limit)
            case Aggregated():
                return self._aggregated(query)
            case Latest():
                before_ns = _EVER[1] if query.before_ns is None else query.before_ns
                inside = self._chosen(self.table.between(_EVER[0], before_ns), query)
                newest = inside.sort("time", maintain_order=True).group_by("series").last()
                found = self._keyed(newest)
            case LatestBuckets():
                inside = self.table.between(_EVER[0], query.before_ns)
                found = _bucketed(inside, query.bucket_ns).group_by("time").agg(*_values(query))
                found = found.sort("time", descending=True).head(query.limit)
            case Text():
                raise TypeError("this answer key knows no queries in a database's own language")
            case Count():
                return pl.DataFrame({"points": [len(self.table.between(*_EVER))]})
            case Stored():
                return self._stored(query)
        key = ["key"] if query.measurement.key in query.columns and "key" in found.columns else []
        return found.select("time", *key, *(f"f:{name}" for name in query.fields))

    def _stored(self, query: Stored) -> pl.DataFrame:
        bounds = (
            given if given is not None else ever
            for given, ever in zip((query.start_ns, query.end_ns), _EVER, strict=True)
        )
        points, m = self.table.between(*bounds), self.table.measurement
        points = points if query.limit is None else points.head(query.limit)
        tags = [
            pl.Series(f"t:{tag}", self._texts(tag), dtype=pl.String).gather(points["series"])
            for tag in (*m.tags, *m.own_tags)
            if len(points)
        ]
        fields = (f"f:{name}" for name in m.field_names)
        return (
            pl.DataFrame([points["time"], *tags])
            .hstack(points.select(*fields))
            .with_columns(pl.lit(None).alias(OTHERS))
        )

    def _texts(self, tag: str) -> list[str | None]:
        """Return a tag of every series; None where a series lacks it, which the key never is."""
        texts = self.table.tags[tag].tolist()
        return [*texts] if tag == self.table.measurement.key else [text or None for text in texts]

    def _aggregated(self, query: Aggregated) -> pl.DataFrame:
        frame, by = self._inside(query).sort("time", maintain_order=True), [f"t:{tag}" for tag in query.by]
        for name, tag in zip(by, query.by, strict=True):
            texts = pl.Series(name, self.table.tags[tag].tolist(), dtype=pl.String)
            frame = frame.with_columns(texts.gather(frame["series"]))
        if query.bucket_ns is not None:
            frame, by = _bucketed(frame, query.bucket_ns), ["time", *by]
        if not by:  # one group, if it has rows
            frame, by = frame.with_columns(pl.lit(0).alias("one")), ["one"]
        groups = frame.group_by(by).agg(*_values(query)).sort(by)
        if query.top is not None:
            groups = groups.sort(f"f:{query.top.column}", descending=not query.top.lowest).head(query.top.limit)
        return groups.drop("one") if by == ["one"] else groups

    def _inside(self, query: Raw | Aggregated) -> pl.DataFrame:
        """Return the rows of a query's window and series for which its conditions hold."""
        inside = self._chosen(self.table.between(query.window.start_ns, query.window.end_ns), query)
        for one in query.where:
            inside = inside.filter(one.holds(pl.col(f"f:{one.field}")))
        return inside

    def _chosen(self, frame: pl.DataFrame, query: Raw | Aggregated | Latest) -> pl.DataFrame:
        key, wanted = self.table.measurement.key, {one.tag: {*one.values} for one in query.tagged}
        if query.keys is not None and key is not None:
            wanted[key] = {*query.keys} & wanted.get(key, {*query.keys})
        for tag, values in wanted.items():
            of_series = self.table.tags[tag].tolist()
            series = [i for i, value in enumerate(of_series) if value in values]
            frame = frame.filter(pl.col("series").is_in(pl.Series(series, dtype=pl.Int32).implode()))
        return frame

    def _keyed(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the frame with the text of each row's key in a column `key`, if the measurement has one."""
        key = self.table.measurement.key
        if key is None:
            return frame
        texts = pl.Series("key", self.table.tags[key].tolist(), dtype=pl.String)
        return frame.with_columns(texts.gather(frame["series"]))


def _bucketed(frame: pl.DataFrame, bucket_ns: int) -> pl.DataFrame:
    return frame.with_columns((pl.col("time") // bucket_ns) * bucket_ns)  # floors, also before 1970


def _values(query: Aggregated | LatestBuckets) -> list[pl.Expr]:
    named = zip(query.values, query.value_names, strict=True)
    return [_value(how, f"f:{field}").alias(f"f:{name}") for (how, field), name in named]


def _value(how: Aggregate, column: str) -> pl.Expr:
    values = pl.col(column).drop_nulls()
    if (share := share_of(how)) is not None:
        return values.quantile(share, "linear")
    of: pl.Expr = getattr(values, how)()
    return of
