"""Layouts of points in MongoDB: what their documents are, and which collections and indexes they have."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from tsbench.encode import bson_columns, bson_hours
from tsbench.encode.bson_columns import MEASUREMENT, TIME
from tsbench.errors import UserMistake
from tsbench.targets.base import (
    NUMBERS,
    Operation,
    Payload,
    Schema,
    Statement,
    Unsupported,
    expect_all_fields,
    expect_kinds,
    expressible,
)
from tsbench.targets.mongodb.commands import MAX_BYTES, MAX_DOCUMENTS, CommandPiece
from tsbench.targets.mongodb.pipelines import (
    HOUR_PATH,
    KEY_PATH,
    HourPipeline,
    Pipeline,
    ValuePipeline,
    key_path,
    plain,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tsbench.encode.text_columns import Assembled
    from tsbench.model import Batch, Codes, Measurement, Query, WriteMode
    from tsbench.targets.base import Command


@dataclass(frozen=True, slots=True)
class CreateCollection(Operation):
    """Create a collection with its indexes, and with what the endpoint says of expiry and of time-series collections.

    A document expires by the date at `time_path`, and `margin_s` seconds later than a point would.
    """

    text: str
    name: str
    is_timeseries: bool = False
    has_tags: bool = False
    indexes: tuple[Mapping[str, Any], ...] = ()
    time_path: str = TIME
    margin_s: int = 0

    def indexes_expiring_after(self, seconds: int) -> Sequence[Mapping[str, Any]]:
        """Return the indexes, that of the time with an expiry; the server takes no second one of the same key."""
        key = {self.time_path: 1}
        by_time = {"key": key, "name": f"{self.time_path}_1", "expireAfterSeconds": seconds + self.margin_s}
        return [*(index for index in self.indexes if index["key"] != key), by_time]


@dataclass(frozen=True, slots=True)
class DocumentSchema(Schema):
    """One document per point: `tags`, `time` and the fields; one collection per measurement.

    With `is_indexed` it has an index on time, and one on the key and time if the measurement has tags; without, only
    the index on _id that every collection has. With `is_timeseries` the server keeps the same documents in buckets of
    its own, by `tags` and time.
    """

    name: str
    is_indexed: bool = False
    is_timeseries: bool = False
    keeps_duplicates: bool = True
    verb: ClassVar[str] = "insert"
    pipeline: ClassVar[Pipeline] = Pipeline()

    def collections(self, measurements: Sequence[Measurement]) -> Mapping[str, Measurement]:
        """Return the names of the collections that have these measurements, each with one that it has."""
        # The first measurement with tags, so that a collection of several has the index on their key.
        ordered = sorted(measurements, key=lambda m: m.key is not None)
        named = {self.pipeline.collection(m): m for m in ordered}
        return {name: named[name] for name in dict.fromkeys(map(self.pipeline.collection, measurements))}

    def create(self, measurements: Sequence[Measurement], tags: Mapping[str, Codes]) -> Sequence[Command]:
        for m in measurements:
            if "$" in m.name:
                raise UserMistake(f"a collection cannot be called '{m.name}', with a $; rename the measurement")
            for name in (*m.tags, *m.own_tags, *m.field_names):
                try:
                    plain(name)
                except Unsupported as why:
                    raise UserMistake(f"{why}; rename it") from None
        made = [self._collection(name, m) for name, m in self.collections(measurements).items()]
        return [*self.drop(measurements), *made]

    def extend(self, measurements: Sequence[Measurement], tags: Mapping[str, Codes], first: int) -> Sequence[Command]:
        return self.create(measurements, tags)

    def _collection(self, name: str, m: Measurement) -> CreateCollection:
        return CreateCollection(self._described(name, m), name, self.is_timeseries, bool(m.tags), self._named(m))

    def _described(self, name: str, m: Measurement) -> str:
        indexes = self._named(m)
        text = f"create {'time-series ' if self.is_timeseries else ''}collection {name}"
        return f"{text} with indexes {json.dumps(indexes)}" if indexes else text

    def _named(self, m: Measurement) -> tuple[Mapping[str, Any], ...]:
        return tuple(
            {"key": key, "name": "_".join(f"{path}_{way}" for path, way in key.items())} for key in self._indexes(m)
        )

    def _indexes(self, m: Measurement) -> Sequence[Mapping[str, int]]:
        if not self.is_indexed:
            return ()
        return [{TIME: 1}, *([{key_path(m): 1, TIME: -1}] if m.key else [])]

    def drop(self, measurements: Sequence[Measurement]) -> Sequence[Command]:
        return [command({"drop": name}, optional=True) for name in self.collections(measurements)]

    def settle(self, measurements: Sequence[Measurement]) -> Sequence[Command]:
        """Return the command that writes all data to disk (a checkpoint), where sizes are counted.

        It is optional: not every login may do it, and FerretDB has no such command.
        """
        return [command({"fsync": 1, "$db": "admin"}, optional=True)]

    def encode_each(self, batch: Batch, points: int, mode: WriteMode) -> Iterator[Payload]:
        """Return the documents of writes, the same in all modes: MongoDB has no other path for bulk data."""
        if not self.nulls:
            expect_all_fields(batch)
        expect_kinds(batch, self.kinds)
        text = self._text(batch)
        with expressible():
            writes = self._writes(batch, points)
        return (_payload(mode, batch, text, pieces) for pieces in writes)

    def _text(self, batch: Batch) -> str:
        return f"{self.verb} {self.pipeline.collection(batch.measurement)}"

    def _pieces(self, batch: Batch) -> Iterator[CommandPiece]:
        """Yield the commands of a batch that is one write."""
        return _pieces(self._documents(batch), self._documents_each(batch))

    def _writes(self, batch: Batch, points: int) -> Iterator[Sequence[CommandPiece]]:
        """Yield the commands of writes of `points` points each."""
        documents, each = self._documents(batch), self._documents_each(batch)
        if points == 1:
            return ([CommandPiece(one, each, 1, 0, each)] for one in documents)
        return ([*_pieces(groups, each)] for groups in documents.cut(points))

    def _documents(self, batch: Batch) -> Assembled:
        """Return the documents of every point as a row."""
        return bson_columns.points(batch)

    def _documents_each(self, batch: Batch) -> int:
        """Return the number of documents of a point."""
        return 1

    def compile(self, query: Query) -> Statement:
        return self.pipeline.compile(query)


class ValueSchema(DocumentSchema):
    """One document per value: `measurement`, `tags`, `time`, `field` and `value`; one collection for all.

    A point is acknowledged if all of its values are. The indexes begin with the measurement.
    """

    kinds, nulls = NUMBERS, frozenset()
    pipeline: ClassVar[Pipeline] = ValuePipeline()

    def extend(self, measurements: Sequence[Measurement], tags: Mapping[str, Codes], first: int) -> Sequence[Command]:
        """Return no command: all measurements share one collection."""
        return ()

    def _indexes(self, m: Measurement) -> Sequence[Mapping[str, int]]:
        return [{MEASUREMENT: 1, TIME: 1}, *([{MEASUREMENT: 1, key_path(m): 1, TIME: -1}] if m.key else [])]

    def _documents(self, batch: Batch) -> Assembled:
        return bson_columns.values(batch)

    def _documents_each(self, batch: Batch) -> int:
        return len(batch.fields)


class HourSchema(DocumentSchema):
    """One document per series and hour: `tags`, and `points` by their ms of the hour; one collection per measurement.

    A write updates the documents of its hours and makes those that are missing, so that a point replaces an earlier
    one of the same time.
    """

    kinds, nulls = NUMBERS, frozenset()
    verb: ClassVar[str] = "update"
    pipeline: ClassVar[Pipeline] = HourPipeline()

    def _collection(self, name: str, m: Measurement) -> CreateCollection:
        # The last point of an hour is up to an hour younger than the document's date.
        return replace(super()._collection(name, m), time_path=HOUR_PATH, margin_s=3_600)

    def _indexes(self, m: Measurement) -> Sequence[Mapping[str, int]]:
        return [{HOUR_PATH: 1}, *([{KEY_PATH: 1, HOUR_PATH: -1}] if m.key else [])]

    def _pieces(self, batch: Batch) -> Iterator[CommandPiece]:
        pieces, first = bson_hours.hours(batch), 0
        for piece in pieces.documents.cut_by_size(MAX_DOCUMENTS, MAX_BYTES):
            data, updates = piece.data, len(piece)
            bounds = pieces.bounds[first : first + updates + 1]
            rows = pieces.rows[bounds[0] : bounds[-1]]
            if len(batch) == 1:
                yield CommandPiece(data, 1, 1)
            else:
                yield CommandPiece(data, updates, len(rows), rows=rows.tolist(), bounds=(bounds - bounds[0]).tolist())
            first += updates

    def _writes(self, batch: Batch, points: int) -> Iterator[Sequence[CommandPiece]]:
        if points == 1:
            updates = bson_hours.hours(batch, apart=True)
            return ([CommandPiece(one, 1, 1)] for one in updates.documents)
        # Which points share a document depends on where a write ends.
        return ([*self._pieces(batch.rows(i, i + points))] for i in range(0, len(batch), points))


def _pieces(documents: Assembled, each: int) -> Iterator[CommandPiece]:
    """Yield the commands of points that have `each` documents."""
    first = 0
    for piece in documents.cut_by_size(MAX_DOCUMENTS // each, MAX_BYTES):
        yield CommandPiece(piece.data, len(piece) * each, len(piece), first, each)
        first += len(piece)


def _payload(mode: WriteMode, batch: Batch, text: str, pieces: Sequence[CommandPiece]) -> Payload:
    points, size = sum(piece.points for piece in pieces), sum(len(piece.data) for piece in pieces)
    return Payload(mode, batch.measurement.name, text, pieces, points, size)


def command(document: Mapping[str, Any], *, optional: bool = False) -> Statement:
    """Return a database command as a statement; one for another database names it as `$db`."""
    return Statement(json.dumps(document, ensure_ascii=False), (document,), optional)


PER_POINT = DocumentSchema("per-point")
PER_POINT_INDEXED = DocumentSchema("per-point-indexed", is_indexed=True)
PER_VALUE = ValueSchema("per-value", is_indexed=True)
BUCKETED = HourSchema("bucketed", is_indexed=True, keeps_duplicates=False)
TIMESERIES = DocumentSchema("timeseries", is_timeseries=True)
TIMESERIES_INDEXED = DocumentSchema("timeseries-indexed", is_indexed=True, is_timeseries=True)
SCHEMAS = (PER_POINT_INDEXED, PER_POINT, PER_VALUE, BUCKETED, TIMESERIES, TIMESERIES_INDEXED)
