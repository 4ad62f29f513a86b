"""Files of queries for any database: a line with the world, then a JSON line per query."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import starmap
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeGuard, get_args

import orjson

from tsbench.model import (
    AGGREGATES,
    PERCENTILE,
    REDUCTIONS,
    Aggregated,
    Comparator,
    Condition,
    Latest,
    LatestBuckets,
    Query,
    Raw,
    Tagged,
    Text,
    Top,
    Window,
    names_of_values,
)
from tsbench.workload import own_text, queries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tsbench.model import Measurement
    from tsbench.workload.world import World

FORMAT = 3
MS = 1_000_000
"""Windows begin at whole milliseconds, which every database stores exactly."""
_NS = 2**63


@dataclass(frozen=True, slots=True)
class Asked:
    """A query of a file, its kind and its number (from 0)."""

    kind: str
    number: int
    query: Query


@dataclass(frozen=True, slots=True)
class AskedText:
    """A query that another program wrote for one database: its label, its number (from 0) and its text."""

    kind: str
    number: int
    text: str


def head_line(world: Mapping[str, Any], window_ns: int) -> bytes:
    """Return the first line of a file: the keys of [world] of a scenario, and the time that is loaded."""
    return orjson.dumps({"tsbench": "queries", "format": FORMAT, "world": {**world}, "window_ns": window_ns}) + b"\n"


def parse_head(line: bytes) -> tuple[dict[str, Any], int]:
    """Return the keys of [world], and the time that is loaded, in ns.

    Raises
    ------
    ValueError
        If it is the first line of something else.
    """
    try:
        head = orjson.loads(line)
    except orjson.JSONDecodeError:
        head = None
    if not isinstance(head, dict) or head.get("tsbench") != "queries" or not isinstance(head.get("world"), dict):
        raise ValueError("this is no file of `tsbench queries`")
    if head.get("format") != FORMAT:
        raise ValueError(f"its format is {head.get('format')!r}, not {FORMAT}; make it with this version")
    window_ns = head.get("window_ns")
    if type(window_ns) is not int or not 0 < window_ns < _NS:
        raise ValueError("its window_ns is no number above 0")
    return head["world"], window_ns


def made(kinds: Sequence[str], count: int, world: World, loaded: Window, seed: int) -> Iterator[bytes]:
    """Return the lines of `count` queries, of the kinds in turn; they are those of a run's of the same numbers."""
    return starmap(line_of, in_turn(kinds, count, world, loaded, seed))


def in_turn(kinds: Sequence[str], count: int, world: World, loaded: Window, seed: int) -> Iterator[tuple[str, Query]]:
    """Yield `count` queries, each with its kind, as `made`."""
    for number in range(count):
        kind = kinds[number % len(kinds)]
        yield kind, queries.make(kind, world, loaded, seed, number // len(kinds))


def is_kept(query: object) -> TypeGuard[Query]:
    """Return whether files have such queries; others are those of the checks."""
    return isinstance(query, _KINDS)


def line_of(kind: str, query: Query) -> bytes:
    """Return the line of a query."""
    name = type(query).__name__
    values = zip(_NAMES[name], _values_of(name)(query), strict=True)
    return orjson.dumps({"type": kind, "query": name, **dict(starmap(_plain, values))}) + b"\n"


def line_of_text(asked: AskedText) -> bytes:
    """Return the line of a text of another program, which only `read_line` reads."""
    return orjson.dumps({"label": asked.kind, "text": asked.text}) + b"\n"


def read_line(line: bytes, number: int, parser: Parser) -> Asked | AskedText:
    """Return the query of a line that `line_of` or `line_of_text` made; raises ValueError for others."""
    if line.startswith(b'{"label":'):
        content = orjson.loads(line)
        return AskedText(content["label"], number, content["text"])
    return parser.parse(line, number)


def _plain(name: str, value: Any) -> tuple[str, Any]:
    if name == "measurement":
        return name, value.name
    if name == "where":
        return name, [{key: part for key, part in asdict(one).items() if part is not None} for one in value]
    return name, [value.start_ns, value.end_ns] if name == "window" else value


class Parser:
    """Turns lines into queries about a world's measurements."""

    def __init__(self, measurements: Sequence[Measurement]) -> None:
        self._measurements = {m.name: m for m in measurements}
        self._fields: dict[tuple[Any, ...], tuple[str, ...]] = {}

    def parse(self, line: bytes, number: int) -> Asked:
        """Return the query of a line.

        Raises
        ------
        ValueError
            If the line is none; the text says why.
        """
        content = orjson.loads(line)
        try:
            kind, name, of = content.pop("type"), content.pop("query"), self._measurements[content["measurement"]]
            content["measurement"] = of
            make, needed = _MAKERS[name]
            if content.keys() != needed or type(kind) is not str:
                raise ValueError(f"it needs {', '.join(sorted(needed))}")
            if name == Aggregated.__name__:
                content |= _groups_of(of, content)
            elif name == Text.__name__:
                content |= _own_text_of(of, content)
            else:
                listed = tuple(content["fields"])
                fields = self._fields.get((of.name, listed))
                content["fields"] = self._known_fields(of, listed) if fields is None else fields
            if name == Raw.__name__ and content["top"] is not None:
                content["top"] = _top_of(["time"], **content["top"])
            if "window" in content:
                start_ns, end_ns = content["window"]
                _expect_whole(start_ns, end_ns)
                content["window"] = Window(start_ns, end_ns)
            if (keys := content.get("keys")) is not None:
                content["keys"] = tuple(keys)
                if not all(type(key) is str for key in keys):
                    raise ValueError("keys are no texts")
            if "where" in content:
                content["where"] = tuple(_condition_of(of, **condition) for condition in content["where"])
            if "tagged" in content:
                content["tagged"] = tuple(_tagged_of(of, **one) for one in content["tagged"])
            for rest in content.keys() - _CHECKED:
                _CHECKS[rest](content[rest])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it is no query of this world ({error})") from None
        return Asked(kind, number, make(**content))

    def _known_fields(self, of: Measurement, names: tuple[Any, ...]) -> tuple[str, ...]:
        unknown = [name for name in names if name not in of.field_names]
        if unknown or not names:
            raise ValueError(f"{of.name} has no field {unknown[0]!r}" if unknown else "it has no fields")
        return self._fields.setdefault((of.name, names), names)


def _groups_of(of: Measurement, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the aggregates and the tags of a query that has such."""
    values, by = tuple(map(tuple, content["values"])), tuple(content["by"])
    if not values:
        raise ValueError("it has no values")
    for how, name in values:
        _expect_aggregate(how)
        if name not in of.field_names:
            raise ValueError(f"{of.name} has no field {name!r}")
    for tag in by:
        _expect_tag(of, tag)
    if content["bucket_ns"] is not None:
        _expect_above_zero(content["bucket_ns"])
    if (top := content["top"]) is not None:
        if not by or content["bucket_ns"] is not None:
            raise ValueError("top is of rows by tags alone")
        named = zip(names_of_values(values), values, strict=True)
        top = _top_of([name for name, (how, _) in named if how in REDUCTIONS], **top)
    return {"values": values, "by": by, "top": top}


def _own_text_of(of: Measurement, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a query in a user's own words says, whose texts only read."""
    answer, texts = (tuple(map(tuple, content[key])) for key in ("answer", "texts"))
    values = tuple((one.tag, one.values) for one in (_tagged_of(of, *pair) for pair in content["values"]))
    if not answer or any(type(name) is not str or kind not in own_text.KINDS for name, kind in answer):
        raise ValueError("answer has names and kinds")
    known = ["start", "end", *(tag for tag, _ in values)]
    for language, text in (*texts, *([("gold", content["gold"])] if content["gold"] else [])):
        own_text.expect_read(language, text, known)
    halves = tuple(map(tuple, content.get("halves", ())))
    if any(how not in {"sum", "min", "max"} or name not in dict(answer) for name, how in halves):
        raise ValueError("halves has columns of the answer, each with sum, min or max")
    top = None if content["top"] is None else _top_of([*dict(answer)], **content["top"])
    return {"answer": answer, "texts": texts, "values": values, "halves": halves, "top": top}


def _tagged_of(of: Measurement, tag: Any, values: Any) -> Tagged:
    _expect_tag(of, tag)
    if not values or not all(type(value) is str and value for value in values):
        raise ValueError("values of tags are texts")
    return Tagged(tag, tuple(values))


def _top_of(columns: Sequence[str], column: Any, limit: Any, lowest: Any) -> Top:
    """Return what says which rows are first, in the order of one of the columns."""
    _expect_above_zero(limit)
    if type(lowest) is not bool:
        raise ValueError("top has a column, a limit, and whether the lowest are wanted")
    if column not in columns:
        raise ValueError(f"there is no column {column!r} by which rows can be in order")
    return Top(column, limit, lowest)


def _condition_of(of: Measurement, field: Any, comparison: Any, value: Any, label: Any = None) -> Condition:
    if field not in of.field_names or comparison not in get_args(Comparator) or type(value) not in {int, float}:
        raise ValueError("where has conditions of a field, a comparison and a number")
    labels = of.labels([field]).get(field)
    wanted = labels[int(value)] if labels and value in range(len(labels)) else None
    if label != wanted or (labels and wanted is None):
        raise ValueError(f"{field} has no value {label!r} of the number {value!r}")
    return Condition(field, comparison, value, label)


def _expect_tag(of: Measurement, tag: Any) -> None:
    if tag not in of.tags:
        raise ValueError(f"{of.name} has no tag {tag!r}")


def _expect_whole(*numbers: Any) -> None:
    if not all(type(number) is int and -_NS < number < _NS for number in numbers):
        raise ValueError("a time or duration is no whole number of ns")


def _expect_above_zero(number: Any) -> None:
    _expect_whole(number)
    if number <= 0:
        raise ValueError("bucket_ns and limit are above 0")


def _expect_aggregate(name: Any) -> None:
    if name not in AGGREGATES and re.fullmatch(PERCENTILE, name) is None:
        raise ValueError(f"there is no aggregate {name!r}")


_CHECKED = {
    *("measurement", "fields", "values", "by", "window", "keys", "where", "tagged", "top"),
    *("answer", "texts", "gold", "halves"),
}
_CHECKS: dict[str, Callable[[Any], None]] = {
    "aggregate": _expect_aggregate,
    "bucket_ns": lambda value: None if value is None else _expect_above_zero(value),
    "limit": _expect_above_zero,
    "before_ns": lambda value: None if value is None else _expect_whole(value),
}
_KINDS: tuple[type[Any], ...] = (Raw, Aggregated, Latest, LatestBuckets, Text)
_NAMES: dict[str, tuple[str, ...]] = {one.__name__: tuple(one.__dataclass_fields__) for one in _KINDS}
_MAKERS = {one.__name__: (one, frozenset(_NAMES[one.__name__])) for one in _KINDS}


@lru_cache
def _values_of(name: str) -> Callable[[Any], tuple[Any, ...]]:
    return attrgetter(*_NAMES[name])
