"""The in-memory database: polars answers every query in process, exactly as `model.py` defines it.

Its answers are the gold answers that databases are compared with. It is also the model of the contract suite, a
database for dry runs, and a way to measure the load generator's own ceiling (a write costs one list append).
"""

from __future__ import annotations

import os
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import polars as pl

from tsbench.errors import Broken, UserMistake
from tsbench.model import (
    Above,
    Batch,
    Bucketed,
    Codes,
    Count,
    Grouped,
    Latest,
    LatestBuckets,
    OpError,
    Outcome,
    Query,
    Raw,
    Rows,
    Window,
    WriteMode,
)
from tsbench.servers.embedded import EmbeddedServer
from tsbench.targets.base import Access, Payload, Statement, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tsbench.model import Aggregate, Measurement
    from tsbench.targets.base import Schema

_MERGE_ABOVE_ROWS = 250_000
_EVER = (-(2**63), 2**63 - 1)


class _Table:
    """The points of one measurement: a part sorted by time, an unsorted tail, and batches not yet converted.

    The tail is merged into the sorted part when it exceeds a quarter of it, so that n points cost O(n log n) in total
    for any sequence of writes and queries.
    """

    def __init__(self, measurement: Measurement, tags: Mapping[str, Codes], *, keeps: bool) -> None:
        self.measurement = measurement
        self.tags = tags
        self._keeps = keeps
        self._sorted = self._tail = self._frame({n: [] for n in measurement.field_names}, [], [])
        self._pending: deque[Batch] = deque()
        self._lock = threading.Lock()

    def add(self, batch: Batch) -> None:
        self._pending.append(batch)  # atomic; a write costs no more than this

    def between(self, start_ns: int, end_ns: int) -> pl.DataFrame:
        """Return the points with start_ns <= time < end_ns; of equal times, later writes come later."""
        with self._lock:
            self._absorb()
            first, last = (self._sorted["time"].search_sorted(t, side="left") for t in (start_ns, end_ns))
            inside = self._tail.filter(pl.col("time").is_between(start_ns, end_ns, closed="left"))
            return self._distinct(pl.concat([self._sorted.slice(first, last - first), inside]))

    def size_bytes(self) -> int:
        with self._lock:
            self._absorb()
            return int(self._sorted.estimated_size() + self._tail.estimated_size())

    def _absorb(self) -> None:
        if self._pending:
            batches = [self._pending.popleft() for _ in range(len(self._pending))]  # others may append meanwhile
            self.tags = batches[-1].tags  # shared tags of the same world, and own tags
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
        columns = [pl.Series(f"f:{n}", fields[n], dtype=types[n]) for n in self.measurement.field_names]
        return pl.DataFrame(
            [pl.Series("time", times, dtype=pl.Int64), pl.Series("series", series, dtype=pl.Int32), *columns]
        )


@dataclass(slots=True)
class Store:
    """Tables of one in-memory database; the sessions of one endpoint share it."""

    tables: dict[str, _Table] = field(default_factory=dict)


_stores: dict[str, Store] = {}


@dataclass(frozen=True, slots=True)
class MemorySchema:
    """Schema that stores all points (`keep`), or one per series and time, the last written (`replace`)."""

    name: str
    keeps_duplicates: bool
    modes: frozenset[WriteMode] = frozenset(WriteMode)

    def create(self, measurements: Sequence[Measurement], tags: Mapping[str, Codes]) -> Sequence[Statement]:
        return [Statement(f"create {m.name}", ("create", m, tags)) for m in measurements]

    def drop(self, measurements: Sequence[Measurement]) -> Sequence[Statement]:
        return [Statement(f"drop {m.name}", ("drop", m, {})) for m in measurements]

    def settle(self, measurements: Sequence[Measurement]) -> Sequence[Statement]:
        """Return the statements that sort all points."""
        return [Statement(f"settle {m.name}", ("settle", m, {})) for m in measurements]

    def encode(self, batch: Batch, mode: WriteMode) -> Payload:
        """Return a payload with the batch itself."""
        if mode is WriteMode.SINGLE and len(batch) != 1:
            raise Unsupported(f"single writes take one point, not {len(batch)}")
        name = batch.measurement.name
        return Payload(mode, name, f"add to {name}", batch, len(batch), len(batch) * 12 + batch.values * 8)

    def encode_singles(self, batch: Batch) -> Iterator[Payload]:
        return (self.encode(batch.rows(i, i + 1), WriteMode.SINGLE) for i in range(len(batch)))

    def compile(self, query: Query) -> Statement:
        """Return a statement with the query itself; its text is for people."""
        return Statement(str(query), (query,))


class MemorySession:
    """A session on a store. It can be used alone: `add` batches, `answer` queries."""

    def __init__(self, schema: Schema | None = None, store: Store | None = None) -> None:
        self._schema = schema or KEEP
        self._store = store or Store()

    def add(self, batch: Batch) -> None:
        """Store a batch, creating its table if it is missing."""
        table = self._store.tables.get(batch.measurement.name)
        if table is None:
            table = self._make(batch.measurement, batch.tags)
        table.add(batch)

    def answer(self, query: Query) -> Rows:
        """Return the query's answer; keys are text, times are nanoseconds since 1970."""
        table = self._table(query.measurement.name)
        frame = _Answer(table).frame(query)
        return Rows(query.columns, frame.rows())

    def run(self, statements: Sequence[Statement], *, timeout_s: float | None = None) -> None:
        """Execute statements, which create, remove or sort tables."""
        del timeout_s  # no statement waits
        for statement in statements:
            match statement.params:
                case ("create", measurement, tags):
                    self._make(measurement, tags)
                case ("drop", measurement, _):
                    self._store.tables.pop(measurement.name, None)
                case ("settle", measurement, _):
                    self._table(measurement.name).size_bytes()
                case _:
                    raise OpError(Outcome.FAILED, "statement", f"memory does not understand '{statement.text}'")

    def write(self, payload: Payload) -> int:
        """Store the payload's batch and return its number of points."""
        self._table(payload.measurement).add(payload.data)
        return payload.points

    def query(self, statement: Statement, columns: tuple[str, ...]) -> Rows:
        """Return the answer to the statement's query."""
        if len(statement.params) != 1 or not isinstance(statement.params[0], Query):
            raise OpError(Outcome.FAILED, "statement", f"memory does not understand '{statement.text}'")
        return Rows(columns, self.answer(statement.params[0]).records)

    def facts(self) -> Mapping[str, str]:
        """Return the version of polars."""
        return {"version": f"polars {pl.__version__}"}

    def sizes(self, measurements: Sequence[Measurement]) -> Mapping[str, int]:
        """Return the bytes of the columns in memory."""
        return {"table": sum(self._table(m.name).size_bytes() for m in measurements)}

    def close(self) -> None:
        """Do nothing: the store remains for the other sessions of its endpoint."""

    def _make(self, measurement: Measurement, tags: Mapping[str, Codes]) -> _Table:
        table = _Table(measurement, tags, keeps=self._schema.keeps_duplicates)
        self._store.tables[measurement.name] = table
        return table

    def _table(self, name: str) -> _Table:
        try:
            return self._store.tables[name]
        except KeyError:
            raise OpError(Outcome.FAILED, "no table", f"memory holds no measurement '{name}'") from None


@dataclass(frozen=True, slots=True)
class MemoryTarget:
    """The target of the in-memory database; the sessions of one process share `memory://NAME`."""

    name: str
    schemas: Mapping[str, MemorySchema]
    durable: bool = False
    resolution_ns: int = 1
    cooperative: bool = True
    access: Access = Access.OPENER
    embedded: bool = True
    has_counters: bool = False
    startable: bool = True

    def connect(
        self, endpoint: str, schema: Schema, *, timeout_s: float = 30.0, connect_timeout_s: float | None = None
    ) -> MemorySession:
        """Open a session on the store of that name, which is created if missing; never times out."""
        del timeout_s, connect_timeout_s
        if urlsplit(endpoint).scheme != "memory":
            raise UserMistake(f"'{endpoint}' is not an in-memory endpoint; write memory://NAME")
        return MemorySession(schema, _stores.setdefault(endpoint, Store()))


@dataclass(frozen=True, slots=True)
class _Answer:
    """Computation of one query over one table."""

    table: _Table

    def frame(self, query: Query) -> pl.DataFrame:
        match query:
            case Raw():
                found = self._keyed(self._inside(query.window, query.keys))
            case Above():
                inside = self._inside(query.window, query.keys)
                found = self._keyed(inside.filter(pl.col(f"f:{query.field}") > query.threshold))
            case Bucketed():
                inside = self._inside(query.window, query.keys)
                found = _aggregate(inside, query.fields, query.aggregate, query.bucket_ns, [])
            case Grouped():
                inside = self._inside(query.window, query.keys)
                by_series = _aggregate(inside, query.fields, query.aggregate, query.bucket_ns, ["series"])
                found = self._keyed(by_series)
            case Latest():
                before_ns = _EVER[1] if query.before_ns is None else query.before_ns
                inside = self._chosen(self.table.between(_EVER[0], before_ns), query.keys)
                newest = inside.sort("time", maintain_order=True).group_by("series").last()
                found = self._keyed(newest)
            case LatestBuckets():
                inside = self.table.between(_EVER[0], query.before_ns)
                buckets = _aggregate(inside, query.fields, query.aggregate, query.bucket_ns, [])
                found = buckets.sort("time", descending=True).head(query.limit)
            case Count():
                return pl.DataFrame({"points": [len(self.table.between(*_EVER))]})
        key = ["key"] if query.measurement.key in query.columns and "key" in found.columns else []
        return found.select("time", *key, *(f"f:{name}" for name in query.fields))

    def _inside(self, window: Window, keys: Sequence[str] | None) -> pl.DataFrame:
        return self._chosen(self.table.between(window.start_ns, window.end_ns), keys)

    def _chosen(self, frame: pl.DataFrame, keys: Sequence[str] | None) -> pl.DataFrame:
        measurement = self.table.measurement
        if keys is None or measurement.key is None:
            return frame
        wanted = set(keys)
        of_series = self.table.tags[measurement.key].tolist()
        series = [i for i, key in enumerate(of_series) if key in wanted]
        return frame.filter(pl.col("series").is_in(pl.Series(series, dtype=pl.Int32).implode()))

    def _keyed(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the frame with the text of each row's key in a column `key`, if the measurement has one."""
        key = self.table.measurement.key
        if key is None:
            return frame
        texts = pl.Series("key", self.table.tags[key].tolist(), dtype=pl.String)
        return frame.with_columns(texts.gather(frame["series"]))


def _aggregate(
    frame: pl.DataFrame, fields: Sequence[str], aggregate: Aggregate, bucket_ns: int, by: list[str]
) -> pl.DataFrame:
    values = [getattr(pl.col(f"f:{name}"), aggregate)() for name in fields]
    bucketed = frame.with_columns((pl.col("time") // bucket_ns) * bucket_ns)  # floors, also before 1970
    return bucketed.group_by(["time", *by]).agg(values).sort(["time", *by])


KEEP = MemorySchema("keep", keeps_duplicates=True)
REPLACE = MemorySchema("replace", keeps_duplicates=False)
TARGET = MemoryTarget("memory", {s.name: s for s in (KEEP, REPLACE)})


class MemoryServer(EmbeddedServer):
    """The in-memory database in place of a server. Its name is the directory's, so that runs do not share data."""

    @property
    def endpoint(self) -> str:
        """URL of the store."""
        return f"memory://{quote(os.fsencode(self._directory))}"

    def cold(self) -> None:
        """Raise an error: memory cannot be made cold.

        Raises
        ------
        tsbench.errors.Broken
            Always.
        """
        raise Broken("the in-memory database cannot be made cold: it has no files")

    def alive(self) -> bool:
        """Return True: the database lives as long as this process."""
        return True

    def size(self) -> int:
        """Return 0: the database has no files."""
        return 0
