"""Manipulations of what InfluxDB has stored, as line protocol and deletions.

InfluxDB keeps one point per series and time: a written point replaces fields, and a duplicate cannot exist. The nearest
to it are copies at another time or with other tags. A field cannot be null; a value is lost by storing the point anew.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from tests.check.manipulated.bench import NEWEST_MINUTE, WRITTEN_MINUTE, At, Manipulation, time_ns, truth
from tsbench.check.stored_rows import Flaw

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tsbench.testing.oracle import Oracle
    from tsbench.testing.stand import Stand

Change: TypeAlias = "Mapping[str, Any]"
"""New values by name; None leaves the tag or field out."""
NOTHING: Change = {}


@dataclass
class Hand:
    """Changes stored data by a client that is not tsbench's: `write` sends lines, `delete` takes a range of times."""

    stand: Stand
    oracle: Oracle
    write: Callable[[str], None]
    delete: Callable[[str, str | None, int, int], None]
    """Deletes measurement, host (None: all), from a time, until another one."""

    def truth(self, minute: float, host: str, measurement: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return tags and fields of a point as it was written."""
        return truth(self.oracle, minute, host, measurement)

    def put(
        self,
        *,
        minute: float = 3,
        host: str = "host_1",
        measurement: str = "cpu",
        tags: Change = NOTHING,
        fields: Change = NOTHING,
        only: bool = False,
        time: int | None = None,
    ) -> None:
        """Store a point once more with other tags, fields or time; with `only`, none but the given fields."""
        true_tags, true_fields = self.truth(minute, host, measurement)
        of_tags = {name: value for name, value in {**true_tags, **tags}.items() if value is not None}
        of_fields = fields if only else {**true_fields, **fields}
        texts = [f"{name}={_text(value)}" for name, value in of_fields.items() if value is not None]
        series = ",".join([measurement, *(f"{name}={value}" for name, value in of_tags.items())])
        self.write(f"{series} {','.join(texts)} {time_ns(minute) if time is None else time}")

    def remove(self, *, minute: float = 3, host: str | None = "host_1", measurement: str = "cpu") -> None:
        """Delete a point, or those of all hosts."""
        self.delete(measurement, host, time_ns(minute), time_ns(minute) + 1)

    def replace(self, *, minute: float = 3, host: str = "host_1", measurement: str = "cpu", **change: Any) -> None:
        """Store a point with changes in place of the one that was written."""
        self.remove(minute=minute, host=host, measurement=measurement)
        self.put(minute=minute, host=host, measurement=measurement, **change)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else f"{value}i" if isinstance(value, int) else repr(value)


Act: TypeAlias = "Callable[[Hand], None]"


def of(name: str, act: Act, *at: At) -> Manipulation[Hand]:
    """Return a manipulation."""
    return Manipulation(name, act, at)


def moved(name: str, time: int, new: At) -> Manipulation[Hand]:
    """Return a manipulation that moves a point to another time."""
    return of(name, lambda hand: hand.replace(time=time), At(MISSING), new)


def plus(hand: Hand, more: int, *, minute: float = 3, host: str = "host_1", field: str = "usage_user") -> None:
    """Add to a stored value."""
    _, fields = hand.truth(minute, host, "cpu")
    hand.put(minute=minute, host=host, fields={field: fields[field] + more}, only=True)


def one_ulp(hand: Hand) -> None:
    _, fields = hand.truth(3, "host_1", "mem")
    larger = math.nextafter(fields["used_percent"], math.inf)
    hand.put(measurement="mem", fields={"used_percent": larger}, only=True)


def one_more(hand: Hand) -> None:
    _, fields = hand.truth(3, "host_1", "disk")
    hand.put(measurement="disk", fields={"total": fields["total"] + 1}, only=True)


def extra_measurement(hand: Hand) -> None:
    hand.write(f"more,hostname=host_1 usage_user=1i {time_ns(3)}")


def exchange_fields(hand: Hand) -> None:
    _, fields = hand.truth(3, "host_1", "cpu")
    hand.put(fields={"usage_user": fields["usage_idle"], "usage_idle": fields["usage_user"]})


def exchange_minutes(hand: Hand) -> None:
    both = [hand.truth(minute, "host_1", "cpu")[1] for minute in (3, 4)]
    hand.put(minute=3, fields=both[1])
    hand.put(minute=4, fields=both[0])


def shift_a_day(hand: Hand) -> None:
    for minute in range(10):
        hand.replace(minute=minute, measurement="kernel", time=time_ns(minute + 1440))


def retag_all(hand: Hand, tags: Change) -> None:
    for minute in range(10):
        hand.replace(minute=minute, measurement="mem", tags=tags)


def move_to_another_host(hand: Hand) -> None:
    hand.remove()
    hand.put(host="host_2", fields=hand.truth(3, "host_1", "cpu")[1])


def copy_one_and_remove_another(hand: Hand) -> None:
    hand.remove()
    hand.put(minute=4, time=time_ns(4) + 1)


VALUE, PARTIAL, TAGS, EXTRA = Flaw.WRONG_VALUE, Flaw.PARTIAL, Flaw.OTHER_TAGS, Flaw.EXTRA
MISSING, UNWRITTEN = Flaw.MISSING, Flaw.UNWRITTEN
LATE = 100_000
"""Minutes after the world's start, 69 days: long after the run, and in another shard."""
ALL_TIME = (time_ns(-LATE), time_ns(2 * LATE))
ONE_NS = {sign: f"2016-01-01T00:0{text}Z" for sign, text in ((1, "3:00.000000001"), (-1, "2:59.999999999"))}

MANIPULATIONS: tuple[Manipulation[Hand], ...] = (
    # values
    of("a value one higher", lambda h: plus(h, 1), At(VALUE, column="usage_user")),
    of("a value one lower", lambda h: plus(h, -1, field="usage_nice"), At(VALUE, column="usage_nice")),
    of("an integer of 2^40 one higher", one_more, At(VALUE, measurement="disk", column="total")),
    of("a value one ulp higher", one_ulp, At(VALUE, measurement="mem", column="used_percent")),
    of("a value very large", lambda h: plus(h, 2**60), At(VALUE)),
    of("a negative value", lambda h: plus(h, -1_000), At(VALUE)),
    of("a written value one higher", lambda h: plus(h, 1, minute=WRITTEN_MINUTE, host="host_2"),
       At(VALUE, "host_2", WRITTEN_MINUTE)),
    of("the newest value one higher", lambda h: plus(h, 1, minute=NEWEST_MINUTE, host="host_2"),
       At(VALUE, "host_2", NEWEST_MINUTE)),
    of("two fields exchanged", exchange_fields, At(VALUE, column="usage_idle")),
    of("the values of two minutes exchanged", exchange_minutes, At(VALUE), At(VALUE, minute=4)),
    of("a value of another measurement", lambda h: h.put(measurement="mem", fields={"total": 0}),
       At(VALUE, measurement="mem", column="total")),
    # partial points
    of("a value lost", lambda h: h.replace(fields={"usage_nice": None}), At(PARTIAL, column="usage_nice")),
    of("the first value of a point lost", lambda h: h.replace(fields={"usage_user": None}),
       At(PARTIAL, column="usage_user")),
    of("all values of a point lost but one", lambda h: h.replace(fields={"usage_idle": 1}, only=True),
       At(PARTIAL), At(VALUE, column="usage_idle")),
    of("a value of the newest point lost",
       lambda h: h.replace(minute=NEWEST_MINUTE, host="host_2", fields={"usage_steal": None}),
       At(PARTIAL, "host_2", NEWEST_MINUTE)),
    # times
    moved("a point 1 ns late", time_ns(3) + 1, At(UNWRITTEN, time=ONE_NS[1])),
    moved("a point 1 ns early", time_ns(3) - 1, At(UNWRITTEN, time=ONE_NS[-1])),
    of("a point an interval late", lambda h: h.replace(time=time_ns(4)), At(MISSING), At(VALUE, minute=4)),
    moved("a point an hour early, before the run", time_ns(3 - 60), At(UNWRITTEN, minute=3 - 60)),
    moved("a point in 1970", 0, At(UNWRITTEN, time="1970-01-01T00:00:00Z")),
    moved("a point in 1938", -1_000_000_000 * 10**9, At(UNWRITTEN, time="1938-04-24T22:13:20Z")),
    moved("a point in the year 2200", 7_258_118_400 * 10**9, At(UNWRITTEN, time="2200-01-01T00:00:00Z")),
    of("all points of a host a day late", shift_a_day, At(MISSING, minute=None, measurement="kernel"),
       At(UNWRITTEN, minute=None, measurement="kernel")),
    # tags
    of("another region", lambda h: h.replace(tags={"region": "mars"}), At(TAGS, column="region")),
    of("a tag lost", lambda h: h.replace(tags={"os": None}), At(TAGS, column="os")),
    of("two tags exchanged", lambda h: h.replace(tags={"os": "x64", "arch": "Ubuntu16.04LTS"}),
       At(TAGS, column="arch")),
    of("a tag of a copy changed", lambda h: h.put(tags={"rack": "0"}), At(TAGS, column="rack")),
    of("a tag of all points of a host", lambda h: retag_all(h, {"team": "x"}),
       *(At(TAGS, minute=n, measurement="mem", column="team") for n in range(3))),
    of("an own tag changed", lambda h: h.replace(measurement="disk", tags={"path": "/x"}),
       At(TAGS, measurement="disk", column="path")),
    of("an own tag lost", lambda h: h.replace(measurement="disk", tags={"fstype": None}),
       At(TAGS, measurement="disk", column="fstype")),
    of("a tag more", lambda h: h.replace(tags={"zone": "z"}), At(EXTRA)),
    of("a copy with a tag more", lambda h: h.put(tags={"zone": "z"}), At(EXTRA)),
    # fields
    of("a field more", lambda h: h.put(fields={"more": 0.5}, only=True), At(EXTRA)),
    of("a text more", lambda h: h.put(fields={"note": "x"}, only=True), At(EXTRA)),
    of("a truth value more", lambda h: h.put(minute=NEWEST_MINUTE, host="host_2", fields={"up": False}, only=True),
       At(EXTRA, "host_2", NEWEST_MINUTE)),
    of("a field under another name", lambda h: h.replace(fields={"usage_user": None, "usage_usr": 1}),
       At(PARTIAL, column="usage_user"), At(EXTRA)),
    of("a field named as a tag", lambda h: h.put(fields={"region": 1}, only=True), At(EXTRA)),
    # series
    of("a host renamed", lambda h: h.replace(tags={"hostname": "host_x"}), At(MISSING), At(UNWRITTEN, "host_x")),
    of("a host more", lambda h: h.put(tags={"hostname": "host_9"}), At(UNWRITTEN, "host_9")),
    of("a point of no host", lambda h: h.put(tags={"hostname": None}), At(UNWRITTEN, "(no hostname)")),
    of("a point moved to another host",
       move_to_another_host,
       At(MISSING), At(VALUE, "host_2")),
    of("an extra measurement", extra_measurement, At(Flaw.OTHER_TABLE, None, None, "more")),
    # copies: duplicates cannot exist
    of("a copy 1 ns later", lambda h: h.put(time=time_ns(3) + 1), At(UNWRITTEN, time=ONE_NS[1])),
    of("a point deleted and another one copied", copy_one_and_remove_another,
       At(MISSING), At(UNWRITTEN, time="2016-01-01T00:04:00.000000001Z")),
    # deletions
    of("a point deleted", lambda h: h.remove(), At(MISSING)),
    of("the newest point deleted", lambda h: h.remove(minute=NEWEST_MINUTE, host="host_2"),
       At(MISSING, "host_2", NEWEST_MINUTE)),
    of("all points of a host deleted", lambda h: h.delete("mem", "host_1", *ALL_TIME),
       *(At(MISSING, minute=n, measurement="mem") for n in range(3))),
    of("a minute deleted", lambda h: h.remove(host=None, measurement="nginx"),
       *(At(MISSING, f"host_{n}", 3, "nginx") for n in range(3))),
    of("a measurement emptied", lambda h: h.delete("diskio", None, *ALL_TIME),
       *(At(MISSING, f"host_{n}", 0, "diskio") for n in range(3))),
    # outside the time of the run
    of("a copy before the run", lambda h: h.put(time=time_ns(-0.5)), At(UNWRITTEN, minute=-0.5)),
    of("a copy after the run", lambda h: h.put(time=time_ns(LATE)), At(UNWRITTEN, minute=LATE)),
    of("a partial point before the run", lambda h: h.put(time=time_ns(-LATE), fields={"usage_nice": 5}, only=True),
       At(PARTIAL, minute=-LATE)),
    of("a partial point after the run", lambda h: h.put(time=time_ns(LATE), fields={"usage_nice": 5}, only=True),
       At(PARTIAL, minute=LATE)),
    of("a tag named as a field", lambda h: h.put(tags={"usage_user": "x"}), At(EXTRA)),
    of("a partial point between two of the run",
       lambda h: h.put(time=time_ns(3.5), fields={"usage_nice": 5}, only=True), At(PARTIAL, minute=3.5)),
    of("only a field more before the run", lambda h: h.put(time=time_ns(-LATE), fields={"more": 5}, only=True),
       At(PARTIAL, minute=-LATE, column="(others)")),
    of("a text in place of a number, in another month",
       lambda h: h.put(time=time_ns(LATE), fields={"usage_user": "x"}, only=True), At(PARTIAL, minute=LATE)),
)  # fmt: skip
