"""Queries as aggregation pipelines over one document per point; pure: no driver is imported."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from tsbench.encode.bson_columns import NS_PER_MS, TAGS, TIME
from tsbench.encode.sql import EPOCH
from tsbench.model import Above, Bucketed, Count, Grouped, Latest, LatestBuckets, Raw, Stored, Window
from tsbench.targets.base import Statement, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tsbench.model import Aggregate, Measurement, Query

Stage: TypeAlias = "dict[str, Any]"
_DAY_MS = 86_400_000


class Pipeline:
    """The compiler for one document per point, whose fields stand beside its time and a document of its tags."""

    def compile(self, query: Query) -> Statement:
        """Return the query as a pipeline: its text for people, and as parameters the collection and the stages."""
        match query:
            case Raw() | Above():
                stages = [*self.chosen(query), self.projection(query.measurement, query.fields)]
            case Bucketed() | Grouped():
                stages = self._aggregated(query)
            case Latest():
                stages = self._latest(query)
            case LatestBuckets():
                stages = self._latest_buckets(query)
            case Count():
                stages = self.count(query.measurement)
            case Stored():
                stages = self.stored(query)
        return statement(self.collection(query.measurement), stages)

    def collection(self, measurement: Measurement) -> str:
        """Return the name of the collection that has a measurement's points."""
        return measurement.name

    # --- what other layouts replace

    def matched(self, m: Measurement, window: Stage, keys: Sequence[str] | None, more: Stage) -> list[Stage]:
        """Return the stages for the points of a window, of some series, with more conditions on their fields."""
        return [{"$match": {**({TIME: window} if window else {}), **_among(m, keys), **more}}]

    def count(self, measurement: Measurement) -> list[Stage]:
        """Return the stages that count points."""
        del measurement
        return [{"$count": "points"}]

    def stored(self, query: Stored) -> list[Stage]:
        """Return the stages for whole documents; one without a time lies before every other."""
        limit = [] if query.limit is None else [{"$limit": query.limit}]
        return [*_within(TIME, query), *limit]

    def bound(self, time_ns: int) -> Any:
        """Return the bound of a window: the first whole millisecond that is not before it, which keeps it exact."""
        return EPOCH + timedelta(milliseconds=-(-time_ns // NS_PER_MS))

    def bucket(self, bucket_ns: int) -> Any:
        """Return the expression for the start of the bucket that contains a time, aligned to the epoch in UTC."""
        width_ms, rest = divmod(bucket_ns, NS_PER_MS)
        if rest:
            raise Unsupported(f"MongoDB counts milliseconds; it has no bucket of {bucket_ns} ns")
        time = f"${TIME}"
        if _DAY_MS % width_ms == 0:  # $dateTrunc counts from the year 2000, a whole number of days after the epoch
            return {"$dateTrunc": {"date": time, "unit": "millisecond", "binSize": width_ms}}
        return {"$toDate": {"$multiply": [{"$floor": {"$divide": [{"$toLong": time}, width_ms]}}, width_ms]}}

    def value(self, field: str) -> Any:
        """Return the expression for a field's value."""
        return f"${plain(field)}"

    # --- the queries

    def chosen(self, query: Raw | Above | Bucketed | Grouped) -> list[Stage]:
        """Return the stages for the points that a query is about."""
        window: Window = query.window
        within = {"$gte": self.bound(window.start_ns), "$lt": self.bound(window.end_ns)}
        above = {plain(query.field): {"$gt": query.threshold}} if isinstance(query, Above) else {}
        return self.matched(query.measurement, within, query.keys, above)

    def before(self, m: Measurement, before_ns: int | None, keys: Sequence[str] | None) -> list[Stage]:
        """Return the stages for the points before a time."""
        within = {} if before_ns is None else {"$lt": self.bound(before_ns)}
        return self.matched(m, within, keys, {})

    def projection(self, m: Measurement, fields: Iterable[str]) -> Stage:
        """Return the stage that leaves the columns of an answer."""
        key = {} if m.key is None else {plain(m.key): f"${_key_path(m)}"}
        return {"$project": {"_id": 0, TIME: f"${TIME}", **key, **{f: self.value(f) for f in fields}}}

    def _aggregated(self, query: Bucketed | Grouped) -> list[Stage]:
        m = query.measurement
        by: Any = self.bucket(query.bucket_ns)
        names: Stage = {TIME: "$_id"}
        order: Stage = {"_id": 1}
        if isinstance(query, Grouped) and m.key is not None:
            by = {"t": by, "k": f"${_key_path(m)}"}
            names = {TIME: "$_id.t", m.key: "$_id.k"}
            order = {"_id.t": 1, "_id.k": 1}
        return [*self.chosen(query), self._group(by, query.fields, query.aggregate), {"$sort": order},
                _named(names, query.fields)]  # fmt: skip

    def _latest_buckets(self, query: LatestBuckets) -> list[Stage]:
        return [
            *self.before(query.measurement, query.before_ns, None),
            self._group(self.bucket(query.bucket_ns), query.fields, query.aggregate),
            {"$sort": {"_id": -1}},
            {"$limit": query.limit},
            _named({TIME: "$_id"}, query.fields),
        ]

    def _latest(self, query: Latest) -> list[Stage]:
        """Return the stages for the newest point of every series.

        A sort before $first is what MongoDB turns into one look-up per series where an index has that order.
        """
        m = query.measurement
        chosen = self.before(m, query.before_ns, query.keys)
        if m.key is None:
            return [*chosen, {"$sort": {TIME: -1}}, {"$limit": 1}, self.projection(m, query.fields)]
        first = {f"f{i}": {"$first": self.value(field)} for i, field in enumerate(query.fields)}
        group = {"_id": f"${_key_path(m)}", "t": {"$first": f"${TIME}"}, **first}
        order = {"$sort": {_key_path(m): 1, TIME: -1}}
        return [*chosen, order, {"$group": group}, _named({TIME: "$t", m.key: "$_id"}, query.fields)]

    def _group(self, by: Any, fields: Sequence[str], aggregate: Aggregate) -> Stage:
        """Return the stage that aggregates fields; their names are numbers, since a name of a group has no dots."""
        return {"$group": {"_id": by, **{f"f{i}": self._aggregate(aggregate, f) for i, f in enumerate(fields)}}}

    def _aggregate(self, aggregate: Aggregate, field: str) -> Any:
        if aggregate == "count":
            return {"$sum": {"$cond": [{"$gt": [self.value(field), None]}, 1, 0]}}
        return {"$avg" if aggregate == "mean" else f"${aggregate}": self.value(field)}


def statement(collection: str, stages: Sequence[Stage]) -> Statement:
    """Return a pipeline as a statement."""
    text = ",\n  ".join(json.dumps(stage, default=_shown, ensure_ascii=False) for stage in stages)
    return Statement(
        f"db[{json.dumps(collection, ensure_ascii=False)}].aggregate([\n  {text}\n])", (collection, stages)
    )


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


def _among(m: Measurement, keys: Sequence[str] | None) -> Mapping[str, Any]:
    return {} if keys is None or m.key is None else {_key_path(m): {"$in": list(keys)}}


def _key_path(m: Measurement) -> str:
    return f"{TAGS}.{plain(m.key or '')}"


def _named(names: Mapping[str, Any], fields: Sequence[str]) -> Stage:
    """Return the stage that names the columns of a group."""
    return {"$project": {"_id": 0, **names, **{field: f"$f{i}" for i, field in enumerate(fields)}}}


def _within(path: str, query: Stored) -> list[Stage]:
    bounds = {name: bound for name, bound in (("$gte", query.start_ns), ("$lt", query.end_ns)) if bound is not None}
    if not bounds:
        return []
    within = {path: {name: EPOCH + timedelta(milliseconds=-(-bound // NS_PER_MS)) for name, bound in bounds.items()}}
    return [{"$match": within if query.start_ns is not None else {"$or": [within, {path: None}]}}]


def _shown(value: Any) -> Any:
    return {"$date": value.isoformat(timespec="milliseconds")} if isinstance(value, datetime) else str(value)
