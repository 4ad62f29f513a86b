"""The query compiler for InfluxQL.

The forms of the queries are TSBS's, corrected: bounds in nanoseconds instead of whole seconds, no rows for empty
buckets, and the newest buckets and rows where TSBS returns the oldest because `DESC` is missing.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from tsbench.model import Aggregated, Count, Kind, Latest, LatestBuckets, Query, Raw, Stored, Text, share_of
from tsbench.targets.base import Unsupported, text_in
from tsbench.workload.own_text import arguments, filled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tsbench.model import Measurement


_NO_NUMBERS = {"string": Kind.TEXT, "boolean": Kind.BOOL}
"""Types of values that are no numbers, each with the kind of the fields that have it."""


def quoted(name: str) -> str:
    """Return a name as a quoted identifier."""
    return '"' + _escaped(name).replace('"', '\\"') + '"'


def text_literal(value: str) -> str:
    """Return a text as a literal."""
    return "'" + _escaped(value).replace("'", "\\'") + "'"


def compile_query(query: Query) -> str:
    """Return the text of the query. The answer has tags of GROUP BY per series, not as columns."""
    m = query.measurement
    where: list[str]
    match query:
        case Raw():
            select, where, rest = _names(query.fields), [*_window(query), *_conditions(query)], _rows(query)
        case Aggregated():
            select, where, rest = _aggregates(query), [*_window(query), *_conditions(query)], _groups(query)
        case Latest():
            select, where = _names(query.fields), _before(query.before_ns)
            rest = [*_by_key(m), "ORDER BY time DESC LIMIT 1"]
        case LatestBuckets():
            select, where = _aggregates(query), _before(query.before_ns)
            rest = [_by_time(query.bucket_ns), f"ORDER BY time DESC LIMIT {int(query.limit)}"]
        case Text():
            return filled(text_in(query, "influxql"), arguments(query, "{}ns".format, text_literal))
        case Count() if len(m.fields_to_count) > 1:
            return _count_of_nullable(m)
        case Count():
            select, where, rest = f"count({quoted(m.fields_to_count[0])}) AS points", [], []
        case Stored():
            select, where, rest = "*", _bounds(query), ["GROUP BY *"]
            if query.limit is not None:
                # With GROUP BY it would be a limit per series. The star leaves out what has another type elsewhere.
                others = [(f.name, name) for f in m.fields for name, kind in _NO_NUMBERS.items() if kind is not f.kind]
                select = ", ".join(["*", *(f"{quoted(field)}::{kind}" for field, kind in others)])
                rest = [f"LIMIT {int(query.limit)}"]
    if isinstance(query, Raw | Aggregated | Latest):
        where += _chosen(query)
    lines = [f"SELECT {select}", f"FROM {quoted(m.name)}"]
    lines += [f"WHERE {' AND '.join(where)}"] if where else []
    return "\n".join([*lines, *rest])


def _rows(query: Raw) -> list[str]:
    """Return the clauses after the conditions of a query for rows."""
    by_key = _by_key(query.measurement)
    if query.top is None:
        return by_key
    if by_key and (query.keys is None or len(query.keys) > 1):
        raise Unsupported("InfluxQL limits the rows of each series, not of several together")
    return [*by_key, f"ORDER BY time {'ASC' if query.top.lowest else 'DESC'} LIMIT {query.top.limit}"]


def _count_of_nullable(m: Measurement) -> str:
    """Return the text that counts points of which each lacks one field at most: those with either of two fields."""
    one, other = (quoted(name) for name in m.fields_to_count)
    source = f"{one} AS one, {other} AS other, {one} + {other} AS both FROM {quoted(m.name)}"
    return "\n".join(["SELECT count(one) + count(other) - count(both) AS points", f"FROM (SELECT {source})"])


def any_point(measurements: Sequence[str]) -> str:
    """Return the text for a point of each measurement that has one."""
    return "\n".join(["SELECT *", f"FROM {_names(measurements)}", "LIMIT 1"])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _names(of: Sequence[str]) -> str:
    return ", ".join(map(quoted, of))


def _by_key(m: Measurement) -> list[str]:
    """Return the clause for the key: GROUP BY sends it once per series; as a column it would be in every row."""
    return [f"GROUP BY {quoted(m.key)}"] if m.key else []


def _aggregates(query: Aggregated | LatestBuckets) -> str:
    if any(share_of(how) is not None for how, _ in query.values):
        raise Unsupported("InfluxQL's percentile is the value of a point (nearest rank), and is not interpolated")
    named = zip(query.values, query.value_names, strict=True)
    return ", ".join(f"{how}({quoted(name)}) AS {quoted(alias)}" for (how, name), alias in named)


def _conditions(query: Raw | Aggregated) -> list[str]:
    return [f"{quoted(one.field)} {one.comparison} {literal(one.operand, text_literal)}" for one in query.where]


def literal(value: float | str | bool, of_text: Callable[[str], str]) -> str:
    """Return a number, boolean or text as a literal; `of_text` returns a text's."""
    if isinstance(value, bool):
        return str(value).lower()
    return of_text(value) if isinstance(value, str) else number(value)


def _groups(query: Aggregated) -> list[str]:
    if query.top is not None:
        raise Unsupported("InfluxQL orders rows by time only")
    if query.bucket_ns is not None:
        return [_by_time(query.bucket_ns, query.by)]
    return [f"GROUP BY {_names(query.by)}"] if query.by else []


def _window(query: Raw | Aggregated) -> list[str]:
    return [f"time >= {query.window.start_ns}ns", f"time < {query.window.end_ns}ns"]


def _bounds(query: Stored) -> list[str]:
    start = [] if query.start_ns is None else [f"time >= {query.start_ns}ns"]
    return [*start, *_before(query.end_ns)]


def _before(time_ns: int | None) -> list[str]:
    return [] if time_ns is None else [f"time < {time_ns}ns"]


def _by_time(bucket_ns: int, by: Sequence[str] = ()) -> str:
    """Return the clause for buckets, aligned to the epoch; `fill(none)` prevents rows for empty ones."""
    return f"GROUP BY {', '.join([f'time({duration(bucket_ns)})', *map(quoted, by)])} fill(none)"


def _chosen(query: Raw | Aggregated | Latest) -> list[str]:
    """Return the conditions on tags; an empty tag is stored as a missing one."""
    keys, key = query.keys, query.measurement.key
    of_keys = [] if keys is None or key is None else [_any_of(key, keys)]
    return [*of_keys, *(_any_of(one.tag, one.values) for one in query.tagged)]


def _any_of(tag: str, values: Sequence[str]) -> str:
    name = quoted(tag)
    if not values:
        return f"{name} = '' AND {name} != ''"
    return f"({' OR '.join(f'{name} = {text_literal(value)}' for value in values)})"


def duration(length_ns: int) -> str:
    """Return a length of time in the largest unit that divides it."""
    for unit, size in (("d", 86_400 * 10**9), ("h", 3_600 * 10**9), ("m", 60 * 10**9), ("s", 10**9), ("ms", 10**6)):
        if length_ns % size == 0:
            return f"{length_ns // size}{unit}"
    return f"{length_ns}ns"


def number(value: float) -> str:
    """Return a number without an exponent, which InfluxQL and Flux lack, and with a fraction, so that it is a float."""
    text = format(Decimal(repr(float(value))), "f")
    return text if "." in text else f"{text}.0"
