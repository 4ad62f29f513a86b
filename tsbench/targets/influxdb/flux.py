"""The query compiler for Flux, and the parser for its answers in annotated CSV.

Queries use a variable `bucket` that the session defines. Flux labels the first bucket of a window with the window's
start if that lies within the bucket, hence `truncateTimeColumn`, which aligns to the epoch as our buckets are.
"""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tsbench.model import OTHERS, Analysis, Bucketed, Count, Grouped, Latest, LatestBuckets, Query, Raw, Stored
from tsbench.targets.base import Unsupported, others_text
from tsbench.targets.influxdb.influxql import duration, number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tsbench.model import Condition, Measurement

_Table: TypeAlias = "dict[str, tuple[str, tuple[Any, ...]]]"
"""Type and values of a table's columns by name."""
_FOREVER = "2262-04-11T00:00:00Z"
_EPOCH = "1970-01-01T00:00:00Z"
_EARLIEST = "1677-09-21T00:12:43.145224194Z"
_OF_THE_QUERY = ("_start", "_stop", "_measurement")
_TAG = "tag "
"""Prefix of the names of tags after `with_tags_renamed`."""
_OF_THE_ANSWER = frozenset({"", "result", "table", "_time", *_OF_THE_QUERY})
"""Columns of an answer that are neither tags nor fields."""


def text_literal(value: str) -> str:
    """Return a text as a literal; `${` would begin an expression."""
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"), ("${", "\\${")):
        value = value.replace(plain, escaped)
    return f'"{value}"'


def compile_query(query: Query) -> str:
    """Return the text of the query."""
    m = query.measurement
    match query:
        case Raw():
            fields = tuple(dict.fromkeys((*query.fields, *(one.field for one in query.where))))
            where = [f"filter(fn: (r) => {_condition(one)})" for one in query.where]
            steps = [_span(query), *_points(m, fields, query.keys), _PIVOT, *where, _kept(query)]
        case Bucketed():
            steps = [_span(query), *_points(m, query.fields, query.keys), *_buckets(query, []), _PIVOT]
        case Grouped():
            by = [m.key] if m.key else []
            steps = [_span(query), *_points(m, query.fields, query.keys), *_buckets(query, by), _PIVOT]
        case Latest():
            steps = [_until(query.before_ns), *_points(m, query.fields, query.keys), *_newest(m), _PIVOT, _kept(query)]
        case LatestBuckets():
            newest = ["group()", 'sort(columns: ["_time"], desc: true)', f"limit(n: {int(query.limit)})"]
            span = _until(query.before_ns)
            steps = [span, *_points(m, query.fields, None), *_buckets(query, []), _PIVOT, *newest]
        case Analysis():
            raise Unsupported("it is not written in Flux")
        case Count():
            # A point has all fields of its measurement, so any of them counts the points.
            span = f"range(start: {_EPOCH}, stop: {_FOREVER})"
            total = ["count()", "group()", "sum()", 'rename(columns: {_value: "points"})']
            # A point that may lack a field has one of the first two.
            either = [f"group(columns: {_texts(m.tags[:1])})", 'unique(column: "_time")'] * m.nullable
            steps = [span, *_points(m, m.field_names[: 1 + m.nullable], None), *either, *total]
        case Stored():
            start = _EARLIEST if query.start_ns is None else moment(query.start_ns)
            span = f"range(start: {start}, stop: {_FOREVER if query.end_ns is None else moment(query.end_ns)})"
            few = [] if query.limit is None else ["group()", f"limit(n: {int(query.limit)})"]
            steps = [span, *_points(m, None, None), f"drop(columns: {_texts(_OF_THE_QUERY)})", _PIVOT, *few]
    return "\n  |> ".join(["from(bucket: bucket)", *steps])


_RENAME_TAGS = f'rename(fn: (column) => if column =~ /^_/ then column else "{_TAG}" + column)'
_PIVOT = 'pivot(rowKey: ["_time"], columnKey: ["_field"], valueColumn: "_value")'


def with_tags_renamed(stored: str) -> str:
    """Return the text of a `Stored` for data in which a field has the name of a tag, which pivot refuses.

    Renaming takes half as long again (3,000 series: 15.7 s instead of 9.5 s), so it is done only where it must be.
    """
    return stored.replace(_PIVOT, f"{_RENAME_TAGS}\n  |> {_PIVOT}")


def other_measurements(measurements: Sequence[Measurement]) -> str:
    """Return the text for the names of all measurements but these that have points, as a column `_value`."""
    known = " and ".join(f'r["_measurement"] != {text_literal(m.name)}' for m in measurements)
    steps = [f"range(start: {_EARLIEST}, stop: {_FOREVER})", f"filter(fn: (r) => {known or 'true'})", "limit(n: 1)"]
    steps += ['keep(columns: ["_measurement"])', "group()", 'distinct(column: "_measurement")']
    return "\n  |> ".join(["from(bucket: bucket)", *steps])


def _column(name: str) -> str:
    return f"r[{text_literal(name)}]"


def _texts(of: Sequence[str]) -> str:
    return f"[{', '.join(map(text_literal, of))}]"


def _span(query: Raw | Bucketed | Grouped) -> str:
    return f"range(start: {moment(query.window.start_ns)}, stop: {moment(query.window.end_ns)})"


def _until(before_ns: int | None) -> str:
    """Return the end of `range`: a time, or nothing, which means now."""
    stop = "" if before_ns is None else f", stop: {moment(before_ns)}"
    return f"range(start: {_EPOCH}{stop})"


def _points(m: Measurement, fields: Sequence[str] | None, keys: Sequence[str] | None) -> list[str]:
    """Return the filters for the points of a query, in forms that the storage engine applies itself; None: all."""
    filters = [f'filter(fn: (r) => r["_measurement"] == {text_literal(m.name)})']
    if fields is not None:
        filters.append(_any_of("_field", fields))
    return filters if keys is None or m.key is None else [*filters, _any_of(m.key, keys)]


def _any_of(column: str, values: Sequence[str]) -> str:
    """Return the condition that a tag has one of the values; an empty tag is stored as a missing one."""
    name = _column(column)
    parts = [f"{name} == {text_literal(value)}" if value else f"not exists {name}" for value in values]
    return f"filter(fn: (r) => {' or '.join(parts) or 'false'})"


def _buckets(query: Bucketed | Grouped | LatestBuckets, by: Sequence[str]) -> list[str]:
    every = duration(query.bucket_ns)
    return [
        f"group(columns: {_texts(['_field', *by])})",
        f'aggregateWindow(every: {every}, fn: {query.aggregate}, createEmpty: false, timeSrc: "_start")',
        f"truncateTimeColumn(unit: {every})",
    ]


def _newest(m: Measurement) -> list[str]:
    """Return the steps for the newest row of each key, from the newest of each series by the storage engine."""
    by = f"group(columns: {_texts(['_field', *([m.key] if m.key else [])])})"
    return ["last()", by, 'sort(columns: ["_time"])', "last()"]


def _condition(condition: Condition) -> str:
    comparison = "==" if condition.comparison == "=" else condition.comparison
    return f"{_column(condition.field)} {comparison} {number(condition.value)}"


def _kept(query: Raw | Latest) -> str:
    key = query.measurement.key
    return f"keep(columns: {_texts(['_time', *([key] if key else []), *query.fields])})"


def moment(time_ns: int) -> str:
    """Return a time as a literal, to the nanosecond."""
    seconds, rest = divmod(time_ns, 10**9)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{rest:09d}Z" if rest else f"{text}Z"


# --- answers ----------------------------------------------------------------------------------------------------------


class Failed(Exception):  # noqa: N818 - the state of the query
    """Raised for an answer with an error in its table, which may follow a status of success."""


def records(text: str, columns: tuple[str, ...], of_tags: tuple[str, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the rows of an annotated CSV answer (with `datatype`) under the requested columns.

    For `Stored`, `of_tags` are the names of the measurement's tags.

    Raises
    ------
    Failed
        If the answer has an error.
    ValueError
        If the text is no annotated CSV.
    """
    wanted = ["_time" if name == "time" else name for name in columns]
    records: list[tuple[Any, ...]] = []
    for types, names, rows in _tables(text):
        if "error" in names and "reference" in names:
            raise Failed(rows[0][names.index("error")] if rows else "an error without a text")
        values: _Table = dict(zip(names, zip(types, zip(*rows, strict=True), strict=True), strict=True))
        if OTHERS in columns:
            records += _stored(values, columns, of_tags)
            continue
        missing = ("string", ("",) * len(rows))  # a tag that no series of this table has
        records += zip(*(_typed(*values.get(name, missing)) for name in wanted), strict=True)
    return records


def _stored(table: _Table, columns: tuple[str, ...], of_tags: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    """Return the rows of a table of the answer to `Stored`; a value of a type that we do not store remains a text."""
    tags = {name.removeprefix(_TAG): name for name in table if name.startswith(_TAG)}
    fields = [name for name in table if name not in _OF_THE_ANSWER and name not in tags.values()]
    wanted = [
        tags[name] if name in of_tags and name in tags else "_time" if name == "time" else name for name in columns[:-1]
    ]
    others = [name for name in (*tags.values(), *fields) if name not in wanted]

    def column(name: str) -> Sequence[Any]:
        kind, values = table.get(name, ("", (None,) * len(table["_time"][1])))
        return _typed(kind, values) if kind in _NUMBERS or name == "_time" else values

    names = [name.removeprefix(_TAG) for name in others]
    texts = [others_text(dict(zip(names, row, strict=True))) for row in zip(*map(column, others), strict=True)]
    return zip(*map(column, wanted), texts or (None,) * len(table["_time"][1]), strict=True)


def _tables(text: str) -> Iterator[tuple[list[str], list[str], list[list[str]]]]:
    """Yield types, names and rows of each table; tables begin with their types, and end with an empty line."""
    types: list[str] = []
    names: list[str] = []
    rows: list[list[str]] = []
    for row in csv.reader(text.splitlines()):
        if row and row[0] == "#datatype":
            types, names = row, []
        elif row and not types:
            if row != ["error", "reference"]:  # which may come without annotations
                raise ValueError(f"a table without types: {','.join(row)[:80]}")
            types, names = ["string", "string"], row
        elif row and not names:
            names = row
        elif row:
            rows.append(row)
        elif names:
            if rows:
                yield types, names, rows
            types, names, rows = [], [], []
    if rows:
        yield types, names, rows


_NUMBERS: Mapping[str, Callable[[str], float]] = {"double": float, "long": int, "unsignedLong": int}


def _typed(kind: str, values: tuple[Any, ...]) -> Sequence[Any]:
    if kind == "string":
        return values
    if kind.startswith("dateTime"):
        stamps = np.array([value.removesuffix("Z") for value in values], dtype="datetime64[ns]")
        times: list[int] = stamps.astype(np.int64).tolist()
        return times
    of = _NUMBERS.get(kind)
    if of is None:
        raise ValueError(f"a column of type '{kind}'")
    return [of(value) if value else None for value in values]
