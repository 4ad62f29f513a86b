"""The query compiler for Flux, and the parser for its answers in annotated CSV.

Queries use a variable `bucket` that the session defines. Flux labels the first bucket of a window with the window's
start if that lies within the bucket, hence `truncateTimeColumn`, which aligns to the epoch as our buckets are.
"""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tsbench.model import OTHERS, Aggregated, Count, Kind, Latest, LatestBuckets, Query, Raw, Stored, Text, share_of
from tsbench.targets.base import others_text, text_in
from tsbench.targets.influxdb.influxql import duration, literal
from tsbench.workload.own_text import arguments, filled

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from tsbench.model import Aggregate, Condition, Measurement, Top

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
            some = " or ".join(f"exists {_column(name)}" for name in query.fields)
            whole = [f"filter(fn: (r) => {some})"] * bool(query.may_be_void and query.where)
            steps = [
                *_rows_where(query),
                *whole,
                _kept(query),
                *(["group()"] if query.top else []),
                *_first(query.top, "_time"),
            ]
        case Aggregated(where=(), bucket_ns=int(bucket_ns), top=None) if len(query.aggregates) == 1:
            (how,) = query.aggregates
            buckets = _buckets(how, bucket_ns, query.by)
            steps = [_span(query), *_points(m, query.fields), *_chosen(query), *buckets, _PIVOT]
        case Aggregated():
            return _parts(query)
        case Latest():
            points = [*_points(m, query.fields), *_chosen(query)]
            steps = [_until(query.before_ns), *points, *_newest(m), _kept(query)]
        case LatestBuckets():
            newest = ["group()", 'sort(columns: ["_time"], desc: true)', f"limit(n: {int(query.limit)})"]
            span = _until(query.before_ns)
            buckets = _buckets(query.aggregate, query.bucket_ns, [])
            steps = [span, *_points(m, query.fields), *buckets, _PIVOT, *newest]
        case Text():
            return filled(text_in(query, "flux"), arguments(query, moment, text_literal))
        case Count():
            span = f"range(start: {_EPOCH}, stop: {_FOREVER})"
            # A point that has several of the fields counts once.
            by_key, total = f"group(columns: {_texts(m.tags[:1])})", ["count()", "group()", "sum()"]
            total.append('rename(columns: {_value: "points"})')
            if m.sparse:  # whose fields are of several types, and times cannot be counted
                place = f"keep(columns: {_texts(['_time', *m.tags[:1]])})"
                one = ['unique(column: "_time")', 'set(key: "points", value: "")', 'count(column: "points")']
                total = [place, by_key, *one, "group()", 'sum(column: "points")']
            elif len(m.fields_to_count) > 1:
                total = [by_key, 'unique(column: "_time")', *total]
            steps = [span, *_points(m, m.fields_to_count), *total]
        case Stored():
            start = _EARLIEST if query.start_ns is None else moment(query.start_ns)
            span = f"range(start: {start}, stop: {_FOREVER if query.end_ns is None else moment(query.end_ns)})"
            few = [] if query.limit is None else ["group()", f"limit(n: {int(query.limit)})"]
            steps = [span, *_points(m, None), f"drop(columns: {_texts(_OF_THE_QUERY)})", _PIVOT, *few]
    return _piped("from(bucket: bucket)", *steps)


def _piped(source: str, *steps: str) -> str:
    return "\n  |> ".join([source, *steps])


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
    return _piped("from(bucket: bucket)", *steps)


def _column(name: str) -> str:
    return f"r[{text_literal(name)}]"


def _texts(of: Sequence[str]) -> str:
    return f"[{', '.join(map(text_literal, of))}]"


def _span(query: Raw | Aggregated) -> str:
    return f"range(start: {moment(query.window.start_ns)}, stop: {moment(query.window.end_ns)})"


def _until(before_ns: int | None) -> str:
    """Return the end of `range`: a time, or nothing, which means now."""
    stop = "" if before_ns is None else f", stop: {moment(before_ns)}"
    return f"range(start: {_EPOCH}{stop})"


def _points(m: Measurement, fields: Sequence[str] | None) -> list[str]:
    """Return the filters for values of some fields, in forms that the storage engine applies itself; None: all."""
    of_fields = [] if fields is None else [_any_of("_field", fields)]
    return [f'filter(fn: (r) => r["_measurement"] == {text_literal(m.name)})', *of_fields]


def _chosen(query: Raw | Aggregated | Latest) -> list[str]:
    """Return the filters for series by their tags."""
    keys, key = query.keys, query.measurement.key
    of_keys = [] if keys is None or key is None else [_any_of(key, keys)]
    return [*of_keys, *(_any_of(one.tag, one.values) for one in query.tagged)]


def _rows_where(query: Raw | Aggregated) -> list[str]:
    """Return the steps for rows, with their fields as columns, for which a query's conditions hold."""
    fields = tuple(dict.fromkeys((*query.fields, *(one.field for one in query.where))))
    where = [f"filter(fn: (r) => {_condition(one)})" for one in query.where]
    return [_span(query), *_points(query.measurement, fields), *_chosen(query), _PIVOT, *where]


def _parts(query: Aggregated) -> str:
    """Return the text for aggregates of rows: one of Flux's functions takes one column, so each value has its own."""
    if query.where:
        rows = _piped("rows = from(bucket: bucket)", *_rows_where(query))
    else:
        points = [_span(query), *_points(query.measurement, query.fields), *_chosen(query)]
        rows = _piped("rows = from(bucket: bucket)", *points)
    tables = [
        _piped(f"v{i} = rows", *_part(query, how, field, name))
        for i, ((how, field), name) in enumerate(zip(query.values, query.value_names, strict=True))
    ]
    values = ", ".join(f"v{i}" for i in range(len(tables)))
    union = f"union(tables: [{values}])" if len(tables) > 1 else "v0"
    row_key = _row_key(query)
    one_row = [] if row_key else ['set(key: "row", value: "")']
    pivot = f'pivot(rowKey: {_texts(row_key or ["row"])}, columnKey: ["_field"], valueColumn: "_value")'
    first = _first(query.top, query.top.column if query.top else "")
    return "\n".join([rows, *tables, _piped(union, *one_row, "group()", pivot, *first)])


def _first(top: Top | None, column: str) -> list[str]:
    """Return the steps to the first rows of one table in the order of a column, none without `top`."""
    if top is None:
        return []
    order = "false" if top.lowest else "true"
    return [f"sort(columns: {_texts([column])}, desc: {order})", f"limit(n: {top.limit})"]


def _row_key(query: Aggregated) -> list[str]:
    return [*(["_time"] if query.bucket_ns is not None else []), *query.by]


def _kind_of(m: Measurement, how: Aggregate, field: str) -> Kind:
    """Return the type of an aggregate."""
    if how in {"count", "mean"} or share_of(how) is not None:
        return Kind.INT if how == "count" else Kind.FLOAT
    return next(one.kind for one in m.fields if one.name == field)


def _part(query: Aggregated, how: Aggregate, field: str, name: str) -> Iterator[str]:
    """Yield the steps from a query's rows to one of its values, in a column `_value` of any field's type."""
    if query.where:
        yield f"filter(fn: (r) => exists {_column(field)})"
        yield f'duplicate(column: {text_literal(field)}, as: "_value")'
    else:
        yield _any_of("_field", [field])
    if query.bucket_ns is not None:
        yield from _buckets(how, query.bucket_ns, query.by, of_field=False)
    else:
        yield f"group(columns: {_texts(query.by)})"
        yield from _before_aggregate(how)
        yield f"{how}()" if share_of(how) is None else f'quantile(q: {share_of(how)}, method: "exact_mean")'
    yield f"keep(columns: {_texts([*_row_key(query), '_value'])})"
    if len({_kind_of(query.measurement, *value) for value in query.values}) > 1:
        yield "map(fn: (r) => ({r with _value: float(v: r._value)}))"  # tables of two types cannot be joined
    yield f'set(key: "_field", value: {text_literal(name)})'


def _any_of(column: str, values: Sequence[str]) -> str:
    """Return the condition that a tag has one of the values; an empty tag is stored as a missing one."""
    name = _column(column)
    parts = [f"{name} == {text_literal(value)}" if value else f"not exists {name}" for value in values]
    return f"filter(fn: (r) => {' or '.join(parts) or 'false'})"


def _buckets(how: Aggregate, bucket_ns: int, by: Sequence[str], *, of_field: bool = True) -> list[str]:
    every, function = duration(bucket_ns), how
    if (share := share_of(how)) is not None:
        of = f'quantile(q: {share}, column: column, method: "exact_mean")'
        function = f"(column, tables=<-) => tables |> {of}"
    return [
        f"group(columns: {_texts([*(['_field'] if of_field else []), *by])})",
        *_before_aggregate(how),
        f'aggregateWindow(every: {every}, fn: {function}, createEmpty: false, timeSrc: "_start")',
        f"truncateTimeColumn(unit: {every})",
    ]


def _before_aggregate(how: Aggregate) -> list[str]:
    """Return the steps that an aggregate needs first: a group's rows are in no order, and quantile takes floats."""
    if how in {"first", "last"}:
        return ['sort(columns: ["_time"])']
    return [] if share_of(how) is None else ["toFloat()"]


def _newest(m: Measurement) -> list[str]:
    """Return the steps for the newest row of each key, from the newest of each series by the storage engine.

    Where points lack fields, the newest values of two fields may be of two points: rows are made first, which is slow.
    """
    key = [m.key] if m.key else []
    if m.nullable:
        return [_PIVOT, f"group(columns: {_texts(key)})", 'sort(columns: ["_time"], desc: true)', "limit(n: 1)"]
    return ["last()", f"group(columns: {_texts(['_field', *key])})", 'sort(columns: ["_time"])', "last()", _PIVOT]


def _condition(condition: Condition) -> str:
    comparison = "==" if condition.comparison == "=" else condition.comparison
    return f"{_column(condition.field)} {comparison} {literal(condition.operand, text_literal)}"


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


def records(
    text: str, columns: tuple[str, ...], of_tags: tuple[str, ...] = (), lacking: Collection[str] = ()
) -> list[tuple[Any, ...]]:
    """Return the rows of an annotated CSV answer (with `datatype`) under the requested columns.

    `of_tags` are the names of the measurement's tags, if fields can be missing as well as tags; `lacking` those of
    texts, of which none is empty: one that a row lacks stands there as an empty one.

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
            records += _stored(values, columns, of_tags, lacking)
            continue
        nothing = {True: ("string", ("",) * len(rows)), False: ("double", ("",) * len(rows))}
        columns_of = ((name, values.get(name, nothing[not of_tags or name in of_tags])) for name in wanted)
        records += zip(*(_without(name in lacking, _typed(*column)) for name, column in columns_of), strict=True)
    return records


def _without(lacks: bool, values: Sequence[Any]) -> Sequence[Any]:
    """Return texts with None in place of empty ones, if rows may lack them."""
    return [value or None for value in values] if lacks else values


def _stored(
    table: _Table, columns: tuple[str, ...], of_tags: tuple[str, ...], lacking: Collection[str]
) -> Iterator[tuple[Any, ...]]:
    """Return the rows of a table of the answer to `Stored`; a value of a type that we do not store remains a text."""
    tags = {name.removeprefix(_TAG): name for name in table if name.startswith(_TAG)}
    fields = [name for name in table if name not in _OF_THE_ANSWER and name not in tags.values()]
    wanted = [
        tags[name] if name in of_tags and name in tags else "_time" if name == "time" else name for name in columns[:-1]
    ]
    others = [name for name in (*tags.values(), *fields) if name not in wanted]

    def column(name: str) -> Sequence[Any]:
        kind, values = table.get(name, ("", (None,) * len(table["_time"][1])))
        return _typed(kind, values) if kind in _VALUES or name == "_time" else _without(name in lacking, values)

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


_VALUES: Mapping[str, Callable[[str], float]] = {
    "double": float, "long": int, "unsignedLong": int, "boolean": "true".__eq__
}  # fmt: skip


def _typed(kind: str, values: tuple[Any, ...]) -> Sequence[Any]:
    if kind == "string":
        return values
    if kind.startswith("dateTime"):
        stamps = np.array([value.removesuffix("Z") for value in values], dtype="datetime64[ns]")
        times: list[int] = stamps.astype(np.int64).tolist()
        return times
    of = _VALUES.get(kind)
    if of is None:
        raise ValueError(f"a column of type '{kind}'")
    return [of(value) if value else None for value in values]
