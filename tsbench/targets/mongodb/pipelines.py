"""Queries as aggregation pipelines, one compiler for each form of the documents; pure: no driver is imported."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from tsbench.encode.bson_columns import FIELD, MEASUREMENT, NS_PER_MS, POINT, TAGS, TIME, VALUE
from tsbench.encode.bson_hours import HOUR, HOUR_MS, KEY, POINTS
from tsbench.encode.sql import EPOCH
from tsbench.model import Aggregated, Count, Latest, LatestBuckets, Raw, Stored, Text, share_of
from tsbench.targets.base import Statement, Unsupported, text_in
from tsbench.workload.own_text import pipeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tsbench.model import Aggregate, Measurement, Query, Top

PipelineStage: TypeAlias = "dict[str, Any]"
Read: TypeAlias = Raw | Aggregated | Latest | LatestBuckets
_DAY_MS = 86_400_000
VALUES = "point_values"
"""The collection of all measurements' values."""
HOUR_NS = HOUR_MS * NS_PER_MS
HOUR_PATH, KEY_PATH = f"_id.{HOUR}", f"_id.{KEY}"


class Pipeline:
    """The compiler for one document per point, whose fields stand beside its time and a document of its tags."""

    def compile(self, query: Query) -> Statement:
        """Return the query as a pipeline: its text for people, and as parameters the collection and the stages."""
        match query:
            case Raw():
                points = self.points(query, _window(query), {**_where(query), **_not_void(query)})
                first = _first(query.top, TIME)
                stages = [*points, *first, _projection(query.measurement, query.fields)]
            case Aggregated():
                stages = self._aggregated(query)
            case Latest():
                stages = self.latest(query)
            case LatestBuckets():
                stages = self._latest_buckets(query)
            case Text():
                stages = pipeline(text_in(query, "mongodb"), _arguments(query))
            case Count():
                stages = self.count(query.measurement)
            case Stored():
                return statement(self.collection(query.measurement), self.stored(query), query)
        return statement(self.collection(query.measurement), stages)

    # --- what other layouts replace

    def collection(self, measurement: Measurement) -> str:
        """Return the name of the collection that has a measurement's points."""
        return measurement.name

    def points(self, query: Read, window: PipelineStage, more: PipelineStage) -> list[PipelineStage]:
        """Return the stages for a query's points in a window, with more conditions on their fields."""
        return [{"$match": {**({TIME: window} if window else {}), **among(query), **more}}]

    def values(self, query: Read, window: PipelineStage) -> list[PipelineStage]:
        """Return the stages for what a query aggregates in a window."""
        return self.points(query, window, {})

    def value(self, field: str) -> Any:
        """Return the expression for a field's value in what `values` returns."""
        return f"${plain(field)}"

    def latest(self, query: Latest) -> list[PipelineStage]:
        """Return the stages for the newest point of every series.

        A sort before $first is what MongoDB turns into one look-up per series where an index has that order.
        """
        m, key = query.measurement, query.measurement.key
        chosen = self.points(query, _before(query), {})
        if key is None:
            return [*chosen, {"$sort": {TIME: -1}}, {"$limit": 1}, _projection(m, query.fields)]
        first = {f"f{i}": {"$first": f"${plain(field)}"} for i, field in enumerate(query.fields)}
        group = {"_id": f"${key_path(m)}", "t": {"$first": f"${TIME}"}, **first}
        order = {"$sort": {key_path(m): 1, TIME: -1}}
        return [*chosen, order, {"$group": group}, named({TIME: "$t", key: "$_id"}, query.fields)]

    def count(self, measurement: Measurement) -> list[PipelineStage]:
        """Return the stages that count points."""
        return [{"$count": "points"}]

    def stored(self, query: Stored) -> list[PipelineStage]:
        """Return the stages for whole documents; one without a time lies before every other."""
        return [*within(TIME, query), *limited(query)]

    # --- the queries

    def _aggregated(self, query: Aggregated) -> list[PipelineStage]:
        m = query.measurement
        path: PipelineStage = {} if query.bucket_ns is None else {TIME: _bucket(query.bucket_ns)}
        path |= {tag: f"${TAGS}.{plain(tag)}" for tag in query.by}
        if query.by == (m.key,) and m.key is not None:
            path[m.key] = f"${key_path(m)}"
        letters = {name: "t" if name == TIME else "k" if name == m.key else f"g{i}" for i, name in enumerate(path)}
        by: Any = {letters[name]: of for name, of in path.items()}
        names = {name: f"$_id.{letter}" for name, letter in letters.items()}
        order = {f"_id.{letter}": 1 for letter in letters.values()}
        if not query.by:  # as people write it
            by, names, order = path.get(TIME), dict.fromkeys(path, "$_id"), {"_id": 1}
        values = (
            self.points(query, _window(query), _where(query)) if query.where else self.values(query, _window(query))
        )
        group = self._group(by, query, alone=bool(query.where))
        first = _first(query.top, query.top.column if query.top else "")
        columns = named(names, query.value_names)
        for (how, _), name in zip(query.values, query.value_names, strict=True):
            if how in {"first", "last"}:
                columns["$project"][name] += ".v"
        return [*values, group, {"$sort": order}, columns, *first]

    def _latest_buckets(self, query: LatestBuckets) -> list[PipelineStage]:
        return [
            *self.values(query, _before(query)),
            self._group(_bucket(query.bucket_ns), query),
            {"$sort": {"_id": -1}},
            {"$limit": query.limit},
            named({TIME: "$_id"}, query.fields),
        ]

    def _group(self, by: Any, query: Aggregated | LatestBuckets, *, alone: bool = False) -> PipelineStage:
        """Return the stage that aggregates fields, of whole points if they come `alone`.

        Their names are numbers, since a name of a group has no dots.
        """
        value = Pipeline.value if alone else type(self).value
        each = {f"f{i}": _aggregate(how, value(self, field)) for i, (how, field) in enumerate(query.values)}
        return {"$group": {"_id": by, **each}}


def _first(top: Top | None, column: str) -> list[PipelineStage]:
    """Return the stages for the first documents in the order of a column, none without `top`."""
    return [] if top is None else [{"$sort": {column: 1 if top.lowest else -1}}, {"$limit": top.limit}]


def _aggregate(aggregate: Aggregate, value: Any) -> Any:
    if aggregate == "count":
        return {"$sum": {"$cond": [{"$gt": [value, None]}, 1, 0]}}
    if share_of(aggregate) is not None:
        raise Unsupported("MongoDB's $percentile is approximate")
    if aggregate in {"first", "last"}:  # a document is compared by its parts in order
        timed = {"$cond": [{"$gt": [value, None]}, {"t": f"${TIME}", "v": value}, None]}
        return {"$max" if aggregate == "last" else "$min": timed}
    return {"$avg" if aggregate == "mean" else f"${aggregate}": value}


def statement(collection: str, stages: Sequence[PipelineStage], *stored: Stored) -> Statement:
    """Return a pipeline as a statement, and with a query for whole documents, as which they are read."""
    text = ",\n  ".join(json.dumps(stage, default=_shown, ensure_ascii=False) for stage in stages)
    return Statement(
        f"db[{json.dumps(collection, ensure_ascii=False)}].aggregate([\n  {text}\n])", (collection, stages, *stored)
    )


def _arguments(query: Text) -> dict[str, Any]:
    values = {name: values[0] if len(values) == 1 else list(values) for name, values in query.values}
    return {"start": bound_of(query.window.start_ns), "end": bound_of(query.window.end_ns), **values}


def plain(name: str) -> str:
    """Return a name that can be part of a path.

    Raises
    ------
    Unsupported
        If it cannot.
    """
    if "." in name or name.startswith("$") or name in {"_id", TIME, TAGS}:
        raise Unsupported(f"a field or tag cannot be called '{name}' in MongoDB: the name has a meaning there")
    return name


def among(query: Read, path: str = "") -> PipelineStage:
    """Return the condition for the series of a query; `path` is where their key is, by default in the tags."""
    if isinstance(query, LatestBuckets):
        return {}
    keys, m = query.keys, query.measurement
    wanted = [] if keys is None or m.key is None else [(path or key_path(m), keys)]
    wanted += [(f"{TAGS}.{plain(one.tag)}", one.values) for one in query.tagged]
    values: dict[str, list[str]] = {}
    for place, of in wanted:
        values[place] = [one for one in values[place] if one in of] if place in values else list(of)
    return {place: {"$in": of} for place, of in values.items()}


def key_path(m: Measurement) -> str:
    """Return the path of a measurement's key; "" if it has none."""
    return "" if m.key is None else f"{TAGS}.{plain(m.key)}"


def named(names: Mapping[str, Any], fields: Sequence[str]) -> PipelineStage:
    """Return the stage that names the columns of a group."""
    return {"$project": {"_id": 0, **names, **{field: f"$f{i}" for i, field in enumerate(fields)}}}


def within(path: str, query: Stored) -> list[PipelineStage]:
    """Return the stage for the times of a query; without a start, also for what has none or no date as one."""
    bounds = {name: bound for name, bound in (("$gte", query.start_ns), ("$lt", query.end_ns)) if bound is not None}
    if not bounds:
        return []
    condition = {path: {name: bound_of(bound) for name, bound in bounds.items()}}
    return [
        {
            "$match": condition
            if query.start_ns is not None
            else {"$or": [condition, {path: {"$not": {"$type": "date"}}}]}
        }
    ]


def limited(query: Stored) -> list[PipelineStage]:
    """Return the stage for the limit of a query, if it has one."""
    return [] if query.limit is None else [{"$limit": query.limit}]


def bound_of(time_ns: int) -> datetime:
    """Return the bound of a window: the first whole millisecond that is not before it, which keeps it exact."""
    return EPOCH + timedelta(milliseconds=-(-time_ns // NS_PER_MS))


_COMPARISONS = {">": "$gt", ">=": "$gte", "<": "$lt", "<=": "$lte", "=": "$eq"}


def _where(query: Raw | Aggregated) -> PipelineStage:
    """Return the conditions on fields; several on one field stand together, but not two of the same comparison."""
    conditions: dict[str, dict[str, float | str | bool]] = {}
    more: list[PipelineStage] = []
    for one in query.where:
        field, comparison = plain(one.field), _COMPARISONS[one.comparison]
        if comparison in conditions.setdefault(field, {}):
            more.append({field: {comparison: one.operand}})
        else:
            conditions[field][comparison] = one.operand
    return {**conditions, **({"$and": more} if more else {})}


def _not_void(query: Raw) -> PipelineStage:
    """Return the condition that a point has one of the fields that are asked for."""
    return {"$or": [{plain(field): {"$exists": True}} for field in query.fields]} if query.may_be_void else {}


def _window(query: Raw | Aggregated) -> PipelineStage:
    return {"$gte": bound_of(query.window.start_ns), "$lt": bound_of(query.window.end_ns)}


def _before(query: Latest | LatestBuckets) -> PipelineStage:
    return {} if query.before_ns is None else {"$lt": bound_of(query.before_ns)}


def _projection(m: Measurement, fields: Iterable[str]) -> PipelineStage:
    """Return the stage that leaves the columns of an answer."""
    key = {} if m.key is None else {plain(m.key): f"${key_path(m)}"}
    return {"$project": {"_id": 0, TIME: f"${TIME}", **key, **{f: f"${plain(f)}" for f in fields}}}


def _bucket(bucket_ns: int) -> Any:
    """Return the expression for the start of the bucket that contains a time, aligned to the epoch in UTC."""
    width_ms, rest = divmod(bucket_ns, NS_PER_MS)
    if rest:
        raise Unsupported(f"MongoDB counts milliseconds; it has no bucket of {bucket_ns} ns")
    time = f"${TIME}"
    if _DAY_MS % width_ms == 0:  # $dateTrunc counts from the year 2000, a whole number of days after the epoch
        return {"$dateTrunc": {"date": time, "unit": "millisecond", "binSize": width_ms}}
    return {"$toDate": {"$multiply": [{"$floor": {"$divide": [{"$toLong": time}, width_ms]}}, width_ms]}}


def _shown(value: Any) -> Any:
    return {"$date": value.isoformat(timespec="milliseconds")} if isinstance(value, datetime) else str(value)


# --- documents that are not points ------------------------------------------------------------------------------------


class ValuePipeline(Pipeline):
    """The compiler for one document per value; points are put together again only where an answer has rows."""

    def collection(self, measurement: Measurement) -> str:
        return VALUES

    def values(self, query: Read, window: PipelineStage) -> list[PipelineStage]:
        return [_of(query, window, query.fields)]

    def value(self, field: str) -> Any:
        return {"$cond": [{"$eq": [f"${FIELD}", plain(field)]}, f"${VALUE}", None]}

    def points(self, query: Read, window: PipelineStage, more: PipelineStage) -> list[PipelineStage]:
        m = query.measurement
        where = [one.field for one in query.where] if isinstance(query, Raw | Aggregated) else []
        fields = dict.fromkeys([*query.fields, *where])
        by = {TIME: f"${TIME}", **({} if m.key is None else {KEY: f"${key_path(m)}"})}
        tags: PipelineStage = {} if m.key is None else {TAGS: {plain(m.key): f"$_id.{KEY}"}}
        if isinstance(query, Aggregated) and query.by not in {(), (m.key,)}:
            by, tags = by | {TAGS: f"${TAGS}"}, {TAGS: f"$_id.{TAGS}"}
        rows = {TIME: f"$_id.{TIME}", **tags, **_row_values(list(fields))}
        return [_of(query, window, list(fields)), *_rows(by, list(fields)), {"$project": {"_id": 0, **rows}},
                *([{"$match": more}] if more else [])]  # fmt: skip

    def latest(self, query: Latest) -> list[PipelineStage]:
        """Return the stages for the newest value of every series and field, which are those of one point.

        Of two points at the same time, their numbers decide for all fields alike.
        """
        m = query.measurement
        window = {} if query.before_ns is None else {"$lt": bound_of(query.before_ns)}
        key = f"${key_path(m)}" if m.key else None
        order = {**({key_path(m): 1} if m.key else {}), TIME: -1, POINT: 1}
        newest = {"t": {"$first": f"${TIME}"}, "v": {"$first": f"${VALUE}"}}
        values = {
            f"f{i}": {"$max": {"$cond": [{"$eq": ["$_id.f", plain(field)]}, "$v", None]}}
            for i, field in enumerate(query.fields)
        }
        return [
            _of(query, window, query.fields),
            {"$sort": order},
            {"$group": {"_id": {"k": key, "f": f"${FIELD}"}, **newest}},
            {"$group": {"_id": "$_id.k", "t": {"$max": "$t"}, **values}},
            named({TIME: "$t", **({m.key: "$_id"} if m.key else {})}, query.fields),
        ]

    def count(self, measurement: Measurement) -> list[PipelineStage]:
        """Return the stages that count points: as many as the rarest field has values."""
        each = {
            f"f{i}": {"$sum": {"$cond": [{"$eq": [f"${FIELD}", name]}, 1, 0]}}
            for i, name in enumerate(measurement.field_names)
        }
        rarest = {"$min": [f"${name}" for name in each]}
        return [
            {"$match": {MEASUREMENT: measurement.name}},
            {"$group": {"_id": None, **each}},
            {"$project": {"_id": 0, "points": rarest}},
        ]

    def stored(self, query: Stored) -> list[PipelineStage]:
        of_points = None if query.limit is None else replace(query, limit=query.limit * len(query.measurement.fields))
        return [{"$match": {MEASUREMENT: query.measurement.name}}, *within(TIME, query), *limited(of_points or query)]


def _of(query: Read, window: PipelineStage, fields: Sequence[str]) -> PipelineStage:
    """Return the stage for the values of some fields."""
    times = {TIME: window} if window else {}
    return {
        "$match": {MEASUREMENT: query.measurement.name, **times, **among(query), FIELD: {"$in": [*map(plain, fields)]}}
    }


def _rows(by: PipelineStage, fields: Sequence[str]) -> list[PipelineStage]:
    """Return the stages that put values together: one document with an array `rows` per point.

    Points of a series at the same time differ in their numbers; those of the same number have the same values.
    """
    arrays = [
        {
            "$map": {
                "input": {"$filter": {"input": "$values", "as": "one", "cond": {"$eq": ["$$one.f", plain(field)]}}},
                "as": "one",
                "in": "$$one.v",
            }
        }
        for field in fields
    ]
    return [
        {"$group": {"_id": {**by, POINT: f"${POINT}"}, "values": {"$push": {"f": f"${FIELD}", "v": f"${VALUE}"}}}},
        {"$project": {"rows": {"$zip": {"inputs": arrays, "useLongestLength": True}}}},
        {"$unwind": {"path": "$rows", "preserveNullAndEmptyArrays": True}},
    ]


def _row_values(fields: Sequence[str]) -> PipelineStage:
    return {field: {"$arrayElemAt": ["$rows", i]} for i, field in enumerate(fields)}


class HourPipeline(Pipeline):
    """The compiler for one document per series and hour, whose points are named by their ms of the hour."""

    def points(self, query: Read, window: PipelineStage, more: PipelineStage) -> list[PipelineStage]:
        hours = {**window}
        if "$gte" in window:
            hours["$gte"] = window["$gte"].replace(minute=0, second=0, microsecond=0)
        chosen = {**({HOUR_PATH: hours} if hours else {}), **among(query, KEY_PATH)}
        wanted = {**({TIME: window} if window else {}), **more}
        # Before a moment the newest point may be in an earlier hour: the newest one can have later points only.
        newest = _newest(query.measurement) if isinstance(query, Latest) and not window else []
        return [{"$match": chosen}, *newest, *_UNWOUND, *([{"$match": wanted}] if wanted else [])]

    def count(self, measurement: Measurement) -> list[PipelineStage]:
        return [
            {"$project": {"n": {"$size": {"$objectToArray": f"${POINTS}"}}}},
            {"$group": {"_id": None, "points": {"$sum": "$n"}}},
        ]

    def stored(self, query: Stored) -> list[PipelineStage]:
        """Return the stages for the whole hours that have points in a query's time; its limit is the reader's."""
        first = None if query.start_ns is None else query.start_ns // HOUR_NS * HOUR_NS
        return within(HOUR_PATH, replace(query, start_ns=first))


def _newest(m: Measurement) -> list[PipelineStage]:
    """Return the stages that leave the newest hour of every series: one look-up each where MongoDB has an index for it.

    With all hours the newest rows of 32 series with 33 hours took FerretDB 0.11 to 0.28 s instead of 0.01 s.
    """
    if m.key is None:
        return [{"$sort": {HOUR_PATH: -1}}, {"$limit": 1}]
    first = {name: {"$first": f"${name}"} for name in (TAGS, POINTS)}
    return [{"$sort": {KEY_PATH: 1, HOUR_PATH: -1}}, {"$group": {"_id": f"${KEY_PATH}", **first}}]


_UNWOUND: list[PipelineStage] = [
    {"$project": {TAGS: 1, POINTS: {"$objectToArray": f"${POINTS}"}}},
    {"$unwind": f"${POINTS}"},
    {"$replaceRoot": {"newRoot": {"$mergeObjects": [{TAGS: f"${TAGS}"}, f"${POINTS}.v"]}}},
]
"""The stages that make one document per point of hourly ones."""
