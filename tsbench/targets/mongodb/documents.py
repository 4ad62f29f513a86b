"""Rows of `model.Stored` from whole documents: the place, the name and the type of everything in them is looked at.

What a document has beside its point, and in which way its own parts are not as they were written, is in the column
`OTHERS`: other names, types, an _id that is not ours, another order, names that come twice. The _id of a point or value
is the server's own number, of which nothing but the type is known.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice, zip_longest
from typing import TYPE_CHECKING, Any

import bson
import numpy as np
from bson.codec_options import CodecOptions, DatetimeConversion

from tsbench.encode.bson_columns import FIELD, MEASUREMENT, NS_PER_MS, POINT, TAGS, TIME, VALUE
from tsbench.encode.bson_hours import HOUR, HOUR_MS, KEY, POINTS
from tsbench.model import ByColumn, Codes, Kind
from tsbench.targets.base import column_of, others_text
from tsbench.targets.mongodb.alike import AlikeDocuments, DocumentForm
from tsbench.targets.mongodb.pipelines import HourPipeline, Pipeline, ValuePipeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tsbench.model import Stored

Record = tuple[Any, ...]
OPTIONS: CodecOptions[dict[str, Any]] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO)
"""Times beyond the year 9999, which Python's datetimes do not have, are numbers of milliseconds."""
_TYPES: Mapping[type, str] = {
    float: "double", int: "int32", bson.Int64: "int64", str: "string", bool: "bool", datetime: "date",
    bson.DatetimeMS: "date", bson.ObjectId: "ObjectId", dict: "document", list: "array", type(None): "null",
    bson.Decimal128: "decimal",
}  # fmt: skip
_FIELD_TYPES = {Kind.FLOAT: "double", Kind.INT: "int64", Kind.TEXT: "string", Kind.BOOL: "bool"}
_MOST_FORMS = 64
"""Forms of documents up to which they are read as columns."""
_TWICE = "names that come twice"


@dataclass(frozen=True, slots=True)
class Documents:
    """The reader of one document per point; `is_ordered` means that the server keeps the order of a document's parts.

    Time-series collections put documents together anew, in an order of their own.
    """

    query: Stored
    is_ordered: bool = True

    def rows(self, raw: Iterable[bytes]) -> Sequence[Record]:
        """Return the rows of encoded documents."""
        documents = [*raw]
        alike = self._alike(documents)
        return self._one_by_one(documents) if alike is None else alike

    def _alike(self, documents: Sequence[bytes]) -> ByColumn | None:
        """Return the rows of documents of few forms, in which nothing is odd; else None.

        A document is without a field that its point lacks, so points that lack several have as many forms.
        """
        parts: list[AlikeDocuments] = []
        series: dict[bytes, Record] = {}
        left = documents
        while left:
            form = DocumentForm.of(left[0]) if len(parts) < _MOST_FORMS else None
            if form is None or TIME not in form.values:
                return None
            part = form.read(left)
            new = {own: one for own, one in zip(part.tags, part.documents, strict=True) if own not in series}
            sample, *samples = self._one_by_one([left[0], *new.values()])
            if any(row[-1] is not None for row in (sample, *samples)):
                return None
            series |= dict(zip(new, samples, strict=True))
            parts.append(part)
            left = part.others
        return self._by_column(parts, series) if parts else None

    def _by_column(self, parts: Sequence[AlikeDocuments], series: Mapping[bytes, Record]) -> ByColumn:
        """Return the rows of documents by form; `series` has a row by its tags as bytes."""
        m, count = self.query.measurement, sum(len(part.tags) for part in parts)
        place_of = {own: place for place, own in enumerate(series)}
        codes = np.array([place_of[own] for part in parts for own in part.tags], dtype=np.int32)
        of_series = [*zip(*series.values(), strict=True)][1 : 1 + len(m.tags) + len(m.own_tags)]
        times = [time_ms * NS_PER_MS for part in parts for time_ms in part.values[TIME].tolist()]
        fields: list[Any] = []
        for name in m.field_names:
            columns = [
                column_of(part.values[name]) if name in part.values else [None] * len(part.tags) for part in parts
            ]
            arrays = [one for one in columns if isinstance(one, np.ndarray)]
            if len(arrays) == len(columns):
                fields.append(np.concatenate(arrays))
            else:
                fields.append([*chain.from_iterable(one if isinstance(one, list) else one.tolist() for one in columns)])
        return ByColumn([times, *(Codes(codes, one) for one in of_series), *fields, [None] * count])

    def _one_by_one(self, raw: Iterable[bytes]) -> list[Record]:
        m = self.query.measurement
        names = ("_id", *([TAGS] if m.tags else []), TIME, *m.field_names)
        types = self._types({"_id": "ObjectId", TIME: "date", **({TAGS: "document"} if m.tags else {})})
        records = []
        for document, others in _decoded(raw):
            odd = {**others, **self._odd(document, names, types)}
            records.append(self._row(_time_ns(document.get(TIME)), document, document, odd))
        return records

    def _types(self, more: Mapping[str, str]) -> dict[str, str]:
        return {**more, **{field.name: _FIELD_TYPES[field.kind] for field in self.query.measurement.fields}}

    def _odd(self, document: Mapping[str, Any], names: Sequence[str], types: Mapping[str, str]) -> dict[str, str]:
        """Return the wrong types, further names and another order in a part that should have these names."""
        if tuple(document) == names and [*map(_type, document.values())] == [types[name] for name in names]:
            return {}
        odd = {name: _shown(value) for name, value in document.items() if _type(value) != types.get(name)}
        known = [name for name in document if name in types]
        if self.is_ordered and known != [name for name in names if name in document]:
            odd["order"] = ", ".join(known)
        return odd

    def _row(
        self, time_ns: Any, tagged: Mapping[str, Any], fields: Mapping[str, Any], others: dict[str, str]
    ) -> Record:
        """Return a row: tags from one document, fields from another, and whatever else is in the tags."""
        m = self.query.measurement
        tags = tagged.get(TAGS)
        if not isinstance(tags, dict):
            tags = {}
        elif m.tags or m.own_tags:
            names = (*m.tags, *m.own_tags)
            odd = self._odd(tags, names, dict.fromkeys(names, "string"))
            others |= {f"{TAGS}.{name}": text for name, text in odd.items() if name not in names}
        values = map(_value, (*map(tags.get, (*m.tags, *m.own_tags)), *map(fields.get, m.field_names)))
        return (time_ns, *values, others_text(others) if others else None)


@dataclass(frozen=True, slots=True)
class ValueDocuments(Documents):
    """The reader of one document per value; a point's are those of the same time, tags and number."""

    def rows(self, raw: Iterable[bytes]) -> list[Record]:
        m = self.query.measurement
        kinds = self._types({})
        types = {"_id": "ObjectId", TAGS: "document", MEASUREMENT: "string", TIME: "date", POINT: "int64"}
        types |= {FIELD: "string"}
        if not m.tags:
            del types[TAGS]
        names = ("_id", *([TAGS] if m.tags else []), MEASUREMENT, TIME, POINT, FIELD, VALUE)
        points: dict[Any, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
        tagged: dict[Any, tuple[dict[str, Any], dict[str, str]]] = {}
        for document, others in _decoded(raw):
            field: Any = document.get(FIELD)
            value, is_known = document.get(VALUE), type(field) is str and field in kinds
            odd = {**others, **self._odd(document, names, {**types, VALUE: kinds[field] if is_known else ""})}
            place = _time_ns(document.get(TIME)), repr(document.get(TAGS)), repr(document.get(POINT))
            if is_known:
                points[place][field].append(value)
                odd = {f"{field}: {name}": text for name, text in odd.items()}
            else:
                odd = {**odd, VALUE: f"{_shown(value)} of {_shown(field)}"}
            tagged.setdefault(place, (document, {}))[1].update(odd)
        records = []
        for place, (document, others) in tagged.items():
            fields = points[place]
            of_rows = zip_longest(*(fields[name] for name in m.field_names)) if fields else [()]
            for number, values in enumerate(of_rows):
                named = dict(zip(m.field_names, values, strict=False))
                records.append(self._row(place[0], document, named, {} if number else others))
        return records


@dataclass(frozen=True, slots=True)
class HourDocuments(Documents):
    """The reader of one document per series and hour; a point's time is that of its place."""

    def rows(self, raw: Iterable[bytes]) -> list[Record]:
        records = (row for document, others in _decoded(raw) for row in self._hour(document, others))
        return list(islice(records, self.query.limit))

    def _hour(self, document: dict[str, Any], others: dict[str, str]) -> Iterator[Record]:
        m, one = self.query.measurement, document.get("_id")
        own: dict[str, Any] = one if isinstance(one, dict) else {}
        names = (*([KEY] if m.tags else []), HOUR)
        tops = {"_id", POINTS, *([TAGS] if m.tags else [])}  # in an order that is the server's
        others |= {name: _shown(value) for name, value in document.items() if name not in tops}
        odd = self._odd(own, names, {KEY: "string", HOUR: "date"} if m.tags else {HOUR: "date"})
        others |= {f"_id.{name}": text for name, text in odd.items()}
        tags = document.get(TAGS)
        if m.key is not None and isinstance(tags, dict) and own.get(KEY) != tags.get(m.key):
            others[f"_id.{KEY}"] = _shown(own.get(KEY))
        hour_ns, points = _time_ns(own.get(HOUR)), document.get(POINTS)
        if not isinstance(points, dict) or not points:
            others[POINTS] = _shown(points)
            if self._has(hour_ns):
                yield self._row(hour_ns, document, {}, others)
            return
        for number, (name, point) in enumerate(points.items()):
            time_ns = _place_ns(hour_ns, name)
            if self._has(time_ns):
                yield self._point(time_ns, name, point, document, others if not number else {})

    def _point(
        self, time_ns: int | None, name: str, point: Any, document: Mapping[str, Any], others: dict[str, str]
    ) -> Record:
        of: dict[str, Any] = point if isinstance(point, dict) else {}
        others |= self._odd(of, (TIME, *self.query.measurement.field_names), self._types({TIME: "date"}))
        if not isinstance(point, dict):
            others[f"{POINTS}.{name}"] = _shown(point)
        elif time_ns is None or _time_ns(of.get(TIME)) != time_ns:
            others[TIME] = f"{_shown(of.get(TIME))} at {POINTS}.{name}"
        return self._row(time_ns, document, of, others)

    def _has(self, time_ns: int | None) -> bool:
        """Return True if the query asks for points of a time."""
        start_ns, end_ns = self.query.start_ns, self.query.end_ns
        if time_ns is None:
            return start_ns is None
        return (start_ns is None or start_ns <= time_ns) and (end_ns is None or time_ns < end_ns)


def is_like_ours(document: Mapping[str, Any]) -> bool:
    """Return True if a document may be one of a layout's: with a date as its time, or as its hour."""
    one = document.get("_id")
    return _time_ns(document.get(TIME)) is not None or (isinstance(one, dict) and _time_ns(one.get(HOUR)) is not None)


def _decoded(raw: Iterable[bytes]) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """Yield each document, and that names come twice in it, which a dictionary cannot say."""
    for one in raw:
        document = bson.decode(one, OPTIONS)
        yield document, {_TWICE: f"{len(one)} bytes"} if len(bson.encode(document)) != len(one) else {}


def _place_ns(hour_ns: int | None, name: str) -> int | None:
    """Return the time of a point's place: that of the hour if the name is none, None if the hour has none."""
    if hour_ns is None or not (name.isascii() and name.isdigit() and len(name) == len(str(HOUR_MS))):
        return hour_ns
    return hour_ns + int(name) * NS_PER_MS


def _time_ns(value: Any) -> int | None:
    """Return a date in ns; None for anything else."""
    if isinstance(value, datetime):
        value = bson.DatetimeMS(value)
    return int(value) * NS_PER_MS if isinstance(value, bson.DatetimeMS) else None


def _type(value: Any) -> str:
    return _TYPES.get(type(value), type(value).__name__)


def _value(value: Any) -> Any:
    """Return a value as it is compared: a decimal as the number that it is."""
    return value.to_decimal() if isinstance(value, bson.Decimal128) else value


def _shown(value: Any) -> str:
    return f"{_type(value)} {value}"


READERS: Mapping[type[Pipeline], type[Documents]] = {
    Pipeline: Documents, ValuePipeline: ValueDocuments, HourPipeline: HourDocuments
}  # fmt: skip
