"""Manipulations of documents that MongoDB's layouts have stored, by pymongo alone: values, types, names, places."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import bson
from bson.raw_bson import RawBSONDocument

from tests.check.manipulated.bench import NEWEST_MINUTE, WRITTEN_MINUTE, At, Manipulation, time_ns
from tests.targets.mongodb.bare import at, bare
from tsbench.check.stored_rows import Flaw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tsbench.testing.oracle import Oracle
    from tsbench.testing.stand import Stand

Document: TypeAlias = dict[str, Any]
FIELD = "usage_user"
HOUR = timedelta(hours=1)


@dataclass
class Found:
    """The document with a value, the part of it that has the point's fields, and the value's name there."""

    whole: Document
    point: Document
    name: str
    raw: list[bytes] = field(default_factory=list)
    """What is stored in place of the document; by default the document as it is now."""

    @property
    def tags(self) -> Document:
        """The document's tags."""
        tags: Document = self.whole["tags"]
        return tags

    @property
    def value(self) -> Any:
        """The value."""
        return self.point[self.name]

    def set(self, value: Any) -> None:
        """Change the value, or its type."""
        self.point[self.name] = value

    def twice(self, name: str) -> None:
        """Store a part of the document twice under its name."""
        elements = bson.encode(self.whole)[4:-1] + bson.encode({name: self.whole[name]})[4:-1]
        self.raw = [(len(elements) + 5).to_bytes(4, "little") + elements + b"\0"]

    def order(self, part: Document) -> None:
        """Reverse the order of a part, of the whole document with its _id in front."""
        items = list(part.items())
        first, rest = (items[:1], items[1:]) if part is self.whole else ([], items)
        part.clear()
        part.update([*first, *reversed(rest)])


@dataclass
class Hand:
    """Changes documents of one layout."""

    stand: Stand
    oracle: Oracle

    @property
    def layout(self) -> str:
        """Name of the layout."""
        return self.stand.schema.name

    @contextmanager
    def collection(self, measurement: str) -> Iterator[Any]:
        """Yield the collection of a measurement."""
        with bare(self.stand.url) as database:
            yield database["point_values" if self.layout == "per-value" else measurement]

    def where(self, minute: float, host: str, measurement: str) -> Document:
        """Return the condition for the documents of a point."""
        time = at(time_ns(minute))
        if self.layout == "bucketed":
            return {"_id.hour": time.replace(minute=0, second=0), "_id.key": host}
        return {"time": time, "tags.hostname": host} | (
            {"measurement": measurement} if self.layout == "per-value" else {}
        )

    def edit(
        self,
        change: Callable[[Found], None],
        *,
        minute: float = 3,
        host: str = "host_1",
        measurement: str = "cpu",
        name: str = FIELD,
        keep: bool = False,
    ) -> None:
        """Store a document with a change in place of one, or with `keep` beside it under a new _id."""
        with self.collection(measurement) as collection:
            where = self.where(minute, host, measurement)
            where |= {"field": name} if self.layout == "per-value" else {}
            whole: Document = collection.find_one(where)
            part, key = whole, "value" if self.layout == "per-value" else name
            if self.layout == "bucketed":
                part = whole["points"][self.place(minute)]
            found = Found(whole, part, key)
            old = whole["_id"]
            change(found)
            if keep:
                del whole["_id"]
            else:
                assert collection.delete_one({"_id": old}).deleted_count
            for raw in found.raw or [bson.encode(whole)]:
                collection.insert_one(RawBSONDocument(raw))

    @staticmethod
    def place(minute: float) -> str:
        """Return the name of a point in its hour."""
        return f"{round(minute * 60_000) % 3_600_000:07}"

    def delete(self, *, minute: float = 3, host: str = "host_1", measurement: str = "cpu") -> None:
        """Delete a point."""
        with self.collection(measurement) as collection:
            where = self.where(minute, host, measurement)
            if self.layout == "bucketed":
                done = collection.update_one(where, {"$unset": {f"points.{self.place(minute)}": ""}})
                assert done.modified_count
            else:
                assert collection.delete_many(where).deleted_count

    def copy(self, *, minute: float = 3, host: str = "host_1", to: float, tags: Document, name: str = "") -> None:
        """Store a point once more at another time, with other tags, or in another collection."""
        with self.collection("cpu") as collection, bare(self.stand.url) as database:
            copies = list(collection.find(self.where(minute, host, "cpu")))
            other = collection
            for one in copies:
                time = at(time_ns(to))
                if self.layout == "bucketed":
                    hour = time.replace(minute=0, second=0)
                    point = one["points"][self.place(minute)] | {"time": time}
                    one["_id"] = {"key": tags.get("hostname", host), "hour": hour}
                    one["points"] = {self.place(to): point}
                else:
                    del one["_id"]
                    one["time"] = time
                one["tags"] |= tags
                if name and self.layout == "per-value":
                    one["measurement"] = name
                elif name:
                    other = database[name]
            other.insert_many(copies)


VALUE, PARTIAL, TAGS, EXTRA = Flaw.WRONG_VALUE, Flaw.PARTIAL, Flaw.OTHER_TAGS, Flaw.EXTRA
MISSING, UNWRITTEN, DUPLICATE = Flaw.MISSING, Flaw.UNWRITTEN, Flaw.DUPLICATE
Change: TypeAlias = "Callable[[Found], None]"
ELSEWHERE = tuple(At(kind, minute=None) for kind in (PARTIAL, TAGS, UNWRITTEN))
"""Differences of a point whose values lie apart, or of the other points of an hour, if a part of it changes."""


def edited(title: str, change: Change, *wanted: At, maybe: tuple[At, ...] = (), **where: Any) -> Manipulation[Hand]:
    """Return a manipulation of one document."""
    return Manipulation(title, lambda hand: hand.edit(change, **where), wanted, maybe)


def of(name: str, act: Callable[[Hand], None], *wanted: At) -> Manipulation[Hand]:
    """Return a manipulation."""
    return Manipulation(name, act, wanted)


def move_tag(found: Found) -> None:
    found.point["os"] = found.tags.pop("os")


def move_field(found: Found) -> None:
    found.tags[FIELD] = found.point.pop(found.name)


def rename(found: Found) -> None:
    if found.name == "value":
        found.whole["field"] = "usage_usr"
    else:
        found.point["usage_usr"] = found.point.pop(found.name)


def other_id(found: Found) -> None:
    one = found.whole["_id"]
    found.whole["_id"] = {**one, "more": 1} if isinstance(one, dict) else "an _id"


def lose(found: Found) -> None:
    del found.point[found.name]


def everywhere(kind: Flaw, column: str = "") -> At:
    """Return a difference of host_1, of the point or of its whole hour."""
    return At(kind, minute=None, column=column)


STRUCTURE: tuple[Manipulation[Hand], ...] = (
    # types
    edited("an int64 as a double", lambda f: f.set(float(f.value)), At(EXTRA)),
    edited("an int64 as an int32", lambda f: f.set(int(f.value)), At(EXTRA)),
    edited("an int64 as a decimal", lambda f: f.set(bson.Decimal128(str(f.value))), At(EXTRA)),
    edited("a double as a decimal", lambda f: f.set(bson.Decimal128(repr(f.value))),
           At(EXTRA, measurement="mem"), measurement="mem", name="used_percent",
           maybe=(At(VALUE, measurement="mem"),)),
    edited("an int64 as a string", lambda f: f.set(str(f.value)), At(VALUE), At(EXTRA)),
    edited("an int64 as a bool", lambda f: f.set(bool(f.value)), At(VALUE), At(EXTRA)),
    edited("a value in an array", lambda f: f.set([f.value]), At(VALUE), At(EXTRA)),
    edited("a tag as a number", lambda f: f.tags.update(rack=7), everywhere(TAGS, "rack"), maybe=ELSEWHERE),
    # names and places
    edited("a field under another name", rename, At(PARTIAL, column=FIELD), At(EXTRA)),
    edited("a tag beside the tags", move_tag, everywhere(TAGS, "os"), everywhere(EXTRA), maybe=ELSEWHERE),
    edited("a field among the tags", move_field, everywhere(PARTIAL), everywhere(EXTRA), maybe=ELSEWHERE),
    edited("a name more with a null", lambda f: f.point.update(more=None), At(EXTRA)),
    edited("a name more with an empty text", lambda f: f.point.update(more=""), At(EXTRA)),
    edited("a tag more with an empty text", lambda f: f.tags.update(zone=""), everywhere(EXTRA), maybe=ELSEWHERE),
    edited("a part more in the document", lambda f: f.whole.update(more={"a": 1}), everywhere(EXTRA)),
    # _id, order, duplicates
    edited("another _id", other_id, everywhere(EXTRA)),
    edited("fields in another order", lambda f: f.order(f.point), At(EXTRA)),
    edited("tags in another order", lambda f: f.order(f.tags), everywhere(EXTRA), maybe=ELSEWHERE),
    edited("a name twice", lambda f: f.twice("tags"), everywhere(EXTRA)),
)  # fmt: skip

MANIPULATIONS: tuple[Manipulation[Hand], ...] = (
    *STRUCTURE,
    # values
    edited("a value one higher", lambda f: f.set(bson.Int64(f.value + 1)), At(VALUE, column=FIELD)),
    edited("an integer of 2^40 one higher", lambda f: f.set(bson.Int64(f.value + 1)),
           At(VALUE, measurement="disk", column="total"), measurement="disk", name="total"),
    edited("a value one ulp higher", lambda f: f.set(math.nextafter(f.value, math.inf)),
           At(VALUE, measurement="mem", column="used_percent"), measurement="mem", name="used_percent"),
    edited("a written value one higher", lambda f: f.set(bson.Int64(f.value + 1)),
           At(VALUE, "host_2", WRITTEN_MINUTE), minute=WRITTEN_MINUTE, host="host_2"),
    edited("the newest value one higher", lambda f: f.set(bson.Int64(f.value + 1)),
           At(VALUE, "host_2", NEWEST_MINUTE), minute=NEWEST_MINUTE, host="host_2"),
    edited("a value lost", lose, At(PARTIAL, column=FIELD), maybe=(At(EXTRA),)),
    edited("another region", lambda f: f.tags.update(region="mars"), everywhere(TAGS, "region"), maybe=ELSEWHERE),
    edited("a tag lost", lambda f: f.tags.pop("os") and None, everywhere(TAGS, "os"), maybe=ELSEWHERE),
    # series, collections, points
    of("a host more", lambda h: h.copy(to=3, tags={"hostname": "host_9"}), At(UNWRITTEN, "host_9")),
    of("an extra measurement", lambda h: h.copy(to=3, tags={}, name="more"), At(Flaw.OTHER_TABLE, None, None, "more")),
    of("a point deleted", lambda h: h.delete(), At(MISSING)),
    of("the newest point deleted", lambda h: h.delete(minute=NEWEST_MINUTE, host="host_2"),
       At(MISSING, "host_2", NEWEST_MINUTE)),
    of("a copy before the run", lambda h: h.copy(to=-0.5, tags={}), At(UNWRITTEN, minute=-0.5)),
    of("a copy long after the run", lambda h: h.copy(to=100_000, tags={}), At(UNWRITTEN, minute=100_000)),
)  # fmt: skip

OF_DOCUMENTS: tuple[Manipulation[Hand], ...] = (
    edited("a time as a number", lambda f: f.whole.update(time=3), maybe=ELSEWHERE, *(  # noqa: B026
        everywhere(UNWRITTEN), At(MISSING))),
    edited("a document twice", lambda f: None, At(DUPLICATE), keep=True),
)  # fmt: skip
"""Manipulations of one document per point."""
OF_VALUES: tuple[Manipulation[Hand], ...] = (
    edited("a value of another point", lambda f: f.whole.update(point=bson.Int64(1)), At(PARTIAL)),
    edited("a value twice", lambda f: None, At(PARTIAL), keep=True),
    edited("a value of no field", lambda f: f.whole.pop("field") and None, At(PARTIAL), At(EXTRA)),
)  # fmt: skip
"""Manipulations of one document per value."""
OF_HOURS: tuple[Manipulation[Hand], ...] = (
    edited("a point in another place", lambda f: f.whole["points"].update(
        {"0180001": f.whole["points"].pop("0180000")}), At(MISSING), At(UNWRITTEN, time="2016-01-01T00:03:00.001Z"),
        maybe=(At(EXTRA, time="2016-01-01T00:03:00.001Z"),)),
    edited("another time in a point", lambda f: f.point.update(time=at(time_ns(4))), At(EXTRA)),
    edited("a key that is not the host's", lambda f: f.whole.update(_id={**f.whole["_id"], "key": "host_x"}),
           everywhere(EXTRA)),
    edited("a name that is no place", lambda f: f.whole["points"].update(more=3), everywhere(PARTIAL),
           maybe=(everywhere(EXTRA),)),
)  # fmt: skip
"""Manipulations of one document per series and hour."""
BY_LAYOUT = {
    "per-point": (*MANIPULATIONS, *OF_DOCUMENTS),
    "per-point-indexed": (*MANIPULATIONS, *OF_DOCUMENTS),
    "per-value": (*MANIPULATIONS, *OF_VALUES),
    "bucketed": (*MANIPULATIONS, *OF_HOURS),
}
