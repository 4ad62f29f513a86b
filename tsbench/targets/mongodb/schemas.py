"""Layouts of points in MongoDB: what their documents are, and which collections and indexes they have."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tsbench.encode import bson_columns
from tsbench.encode.bson_columns import TAGS, TIME
from tsbench.encode.sql import Inexact
from tsbench.model import WriteMode
from tsbench.targets.base import Operation, Payload, Statement, Unsupported
from tsbench.targets.mongodb.pipelines import Pipeline, plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tsbench.model import Batch, Codes, Measurement, Query
    from tsbench.targets.base import Command

MAX_DOCUMENTS = 100_000
"""Maximum number of documents of one `insert`, by the protocol."""
MAX_BYTES = 47_000_000
"""Maximum size of the documents of one `insert`: a message may have 48,000,000 bytes."""


@dataclass(frozen=True, slots=True)
class CreateCollection(Operation):
    """Create a collection, with what the endpoint says of expiry and of time-series collections."""

    text: str
    name: str
    is_timeseries: bool = False
    has_tags: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """Encoded documents of one `insert`, and how many they are."""

    data: bytes | memoryview
    documents: int


@dataclass(frozen=True, slots=True)
class PointSchema:
    """One document per point: `tags`, `time` and the fields; one collection per measurement.

    With `is_indexed` it has an index on time, and one on the key and time if the measurement has tags; without, only
    the index on _id that every collection has. With `is_timeseries` the server keeps the same documents in buckets of
    its own, by `tags` and time.
    """

    name: str
    is_indexed: bool = False
    is_timeseries: bool = False
    keeps_duplicates: bool = True
    modes: frozenset[WriteMode] = frozenset(WriteMode)

    def create(self, measurements: Sequence[Measurement], tags: Mapping[str, Codes]) -> Sequence[Command]:
        """Return the commands that create empty collections in place of existing ones."""
        del tags  # every document has its own
        made: list[Command] = [*self.drop(measurements)]
        for m in measurements:
            for name in (*m.tags, *m.own_tags, *m.field_names):
                plain(name)
            text = f"create {'time-series ' if self.is_timeseries else ''}collection {m.name}"
            made.append(CreateCollection(text, m.name, self.is_timeseries, bool(m.tags)))
            if self.is_indexed:
                made.append(_index(m))
        return made

    def drop(self, measurements: Sequence[Measurement]) -> Sequence[Command]:
        """Return the commands that drop the collections; no error where they are missing."""
        return [command({"drop": m.name}, optional=True) for m in measurements]

    def settle(self, measurements: Sequence[Measurement]) -> Sequence[Command]:
        """Return the command that writes all data to disk (a checkpoint), where sizes are counted.

        It is optional: not every login may do it, and FerretDB has no such command.
        """
        del measurements
        return [command({"fsync": 1, "$db": "admin"}, optional=True)]

    def encode(self, batch: Batch, mode: WriteMode) -> Payload:
        """Return the documents of an `insert`, the same in all modes: MongoDB has no other path for bulk data."""
        if mode is WriteMode.SINGLE and len(batch) != 1:
            raise Unsupported(f"single writes take one point, not {len(batch)}")
        with _exact():
            documents = bson_columns.points(batch)
        pieces = [Piece(*piece) for piece in documents.pieces(MAX_DOCUMENTS, MAX_BYTES)]
        m = batch.measurement
        return Payload(mode, m.name, _insert(m.name), pieces, len(batch), len(documents.data))

    def encode_singles(self, batch: Batch) -> Iterator[Payload]:
        name, text = batch.measurement.name, _insert(batch.measurement.name)
        with _exact():
            documents = bson_columns.points(batch)
        return (Payload(WriteMode.SINGLE, name, text, [Piece(one, 1)], 1, len(one)) for one in documents)

    def compile(self, query: Query) -> Statement:
        """Return the query as an aggregation pipeline."""
        return Pipeline().compile(query)


def command(document: Mapping[str, Any], *, optional: bool = False) -> Statement:
    """Return a database command as a statement; one for another database names it as `$db`."""
    return Statement(json.dumps(document, ensure_ascii=False), (document,), optional)


def _insert(collection: str) -> str:
    return f"insert {collection}"


def _index(m: Measurement) -> Statement:
    keys = [{TIME: 1}, *([{f"{TAGS}.{plain(m.key)}": 1, TIME: -1}] if m.key else [])]
    indexes = [{"key": key, "name": "_".join(f"{path}_{way}" for path, way in key.items())} for key in keys]
    return command({"createIndexes": m.name, "indexes": indexes})


@contextmanager
def _exact() -> Iterator[None]:
    try:
        yield
    except Inexact as error:
        raise Unsupported(str(error)) from error


PER_POINT = PointSchema("per-point")
PER_POINT_INDEXED = PointSchema("per-point-indexed", is_indexed=True)
TIMESERIES = PointSchema("timeseries", is_timeseries=True)
TIMESERIES_INDEXED = PointSchema("timeseries-indexed", is_indexed=True, is_timeseries=True)
SCHEMAS = (PER_POINT_INDEXED, PER_POINT, TIMESERIES, TIMESERIES_INDEXED)
