"""Reading and changing what MongoDB's layouts store, by pymongo alone."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pymongo
from bson import Int64

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pymongo.database import Database

    from tsbench.model import Measurement
    from tsbench.testing.contract_base import Alteration, Point

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Document = dict[str, Any]


@contextmanager
def bare(url: str) -> Iterator[Database[Document]]:
    """The database of an endpoint."""
    with pymongo.MongoClient[Document](url, tz_aware=True) as client:
        yield client.get_default_database()


def at(time_ns: int) -> datetime:
    """The time as BSON has it."""
    return EPOCH + timedelta(milliseconds=time_ns // 1_000_000)


def layout(database: Database[Document], measurement: str) -> str:
    """Which kind of documents there are."""
    if "point_values" in database.list_collection_names():
        return "per-value"
    indexed = [key for index in database[measurement].list_indexes() for key in index["key"]]
    return "bucketed" if "_id.hour" in indexed else "per-point"


def stored(url: str, measurement: Measurement) -> Sequence[Point]:
    """Every stored point of whatever layout."""
    with bare(url) as database:
        match layout(database, measurement.name):
            case "per-value":
                values = database["point_values"].find({"measurement": measurement.name})
                documents = _joined(values, measurement)
            case "bucketed":
                documents = [
                    {"tags": one.get("tags"), **point}
                    for one in database[measurement.name].find()
                    for point in one["points"].values()
                ]
            case _:
                documents = list(database[measurement.name].find())
    return [
        (
            round((one["time"] - EPOCH) / timedelta(milliseconds=1)) * 1_000_000,
            int(one["tags"]["host"].removeprefix("host_")) if measurement.tags else None,
            *(float(one[name]) for name in measurement.field_names),
            {tag: one["tags"][tag] for tag in measurement.own_tags} or None,
        )
        for one in documents
    ]


def _joined(values: Any, measurement: Measurement) -> list[Document]:
    """Points of all of whose fields there is a value."""
    open_points: dict[Any, list[Document]] = {}
    for value in values:
        same = open_points.setdefault((value["time"], str(value.get("tags")), value["point"]), [])
        point = next((one for one in same if value["field"] not in one), None)
        if point is None:
            point = {"time": value["time"], "tags": value.get("tags")}
            same.append(point)
        point[value["field"]] = value["value"]
    points = [point for same in open_points.values() for point in same]
    return [point for point in points if {*measurement.field_names} <= point.keys()]


def alter(url: str, alteration: Alteration) -> None:
    """Do that to one stored point."""
    with bare(url) as database:
        change = {"per-value": _alter_values, "bucketed": _alter_hours, "per-point": _alter_point}
        change[layout(database, alteration.measurement)](database, alteration)


def _alter_point(database: Database[Document], alteration: Alteration) -> None:
    key, *_ = alteration.tags
    *_, last_tag = alteration.tags
    where = {"time": at(alteration.time_ns), f"tags.{key}": alteration.tags[key]}
    points = database[alteration.measurement]
    match alteration.action:
        case "delete":
            points.delete_many(where)
        case "duplicate":
            points.insert_one({**points.find_one(where, {"_id": 0})})  # type: ignore[dict-item]
        case "change":
            points.update_one(where, {"$set": {alteration.field: Int64(alteration.value)}})
        case "tag":
            points.update_one(where, {"$set": {f"tags.{last_tag}": "elsewhere"}})
        case "more":
            points.update_one(where, {"$set": {"more": 1}})
        case "part":
            point = {"time": at(alteration.time_ns), "tags": dict(alteration.tags)}
            points.insert_one({**point, alteration.field: Int64(alteration.value)})


def _alter_values(database: Database[Document], alteration: Alteration) -> None:
    key, *_ = alteration.tags
    *_, last_tag = alteration.tags
    where = {"measurement": alteration.measurement, "time": at(alteration.time_ns), f"tags.{key}": alteration.tags[key]}
    values = database["point_values"]
    one = {**(values.find_one(where, {"_id": 0}) or {**where, "tags": dict(alteration.tags), "point": 1})}
    new = {name: one[name] for name in ("measurement", "time", "tags", "point")}
    match alteration.action:
        case "delete":
            values.delete_many(where)
        case "duplicate":
            values.insert_many([{**one} for one in values.find(where, {"_id": 0})])
        case "change":
            values.update_one({**where, "field": alteration.field}, {"$set": {"value": Int64(alteration.value)}})
        case "tag":
            values.update_many(where, {"$set": {f"tags.{last_tag}": "elsewhere"}})
        case "more":
            values.insert_one({**new, "field": "more", "value": 1})
        case "part":
            values.insert_one({**new, "field": alteration.field, "value": Int64(alteration.value)})


def _alter_hours(database: Database[Document], alteration: Alteration) -> None:
    key, *_ = alteration.tags
    *_, last_tag = alteration.tags
    time = at(alteration.time_ns)
    hour = time.replace(minute=0, second=0, microsecond=0)
    where = {"_id": {"key": alteration.tags[key], "hour": hour}}
    name = f"points.{(time - hour) // timedelta(milliseconds=1):07}"
    change: Mapping[str, Any]
    match alteration.action:
        case "delete":
            change = {"$unset": {name: ""}}
        case "change":
            change = {"$set": {f"{name}.{alteration.field}": Int64(alteration.value)}}
        case "tag":
            change = {"$set": {f"tags.{last_tag}": "elsewhere"}}
        case "more":
            change = {"$set": {f"{name}.more": 1}}
        case "part":
            point = {"time": time, alteration.field: Int64(alteration.value)}
            change = {"$set": {name: point, "tags": dict(alteration.tags)}}
        case "duplicate":
            raise AssertionError("a later point replaces an earlier one")
    done = database[alteration.measurement].update_one(where, change, upsert=alteration.action == "part")
    assert done.matched_count or done.upserted_id
