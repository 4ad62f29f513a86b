"""The layout of VictoriaMetrics, and the compiler for its queries.

A field is a metric of its own, `measurement_field`, with the point's tags as labels. What is compiled is a path of the
HTTP interface with its arguments, one a line; the session adds those that name the endpoint's data.

Windows of MetricsQL are (t - step, t], and times are whole milliseconds: the bucket [a, b) is the window that ends 1 ms
before b. A bucket that the query's window cuts is asked for by an expression of its own, with a shorter window.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tsbench.model import REDUCTIONS, Aggregated, Count, Kind, Latest, LatestBuckets, Raw, Stored, Text, Top, share_of
from tsbench.targets.base import NUMBERS, Operation, Statement, Unsupported, expect_all_fields, expect_kinds, text_in
from tsbench.targets.http import LineSchema
from tsbench.workload.own_text import arguments, filled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tsbench.model import Aggregate, Batch, Codes, Measurement, Query, WriteMode
    from tsbench.targets.base import Command, Payload

MS = 1_000_000
FIELD = "tsbench_field"
ROLLUP, TIME_OF_LAST = "rollup", "tlast_over_time"
"""Labels of answers: a metric's name, which operators would drop, and the function of a value; that of a time."""
END_S = 4_102_444_800
"""The year 2100: a moment after all points."""
EVER = "131y"
"""A window that ends then and begins before 1970."""
_NOTHING = 'db="",db!=""'
_MOST_INT = 2**53
_DIGITS = ((1e5, 6), (1e8, 4), (9e9, 0))
"""Decimals that a float below a number may have: with these, experiments found every one unchanged, also in series that
mix them. VictoriaMetrics makes decimal numbers of some 12 digits of floats, the values of a block with one exponent."""


@dataclass(frozen=True, slots=True)
class DeleteSeries(Operation):
    """Delete all series of the endpoint's data."""

    text: str = "delete all series of the endpoint's data"


@dataclass(frozen=True, slots=True)
class Flush(Operation):
    """Make all acknowledged points visible to queries."""

    text: str = "make all acknowledged points visible"


@dataclass(frozen=True, slots=True)
class WaitForMerges(Operation):
    """Write all points in memory to disk, and wait until no merge is at work."""

    text: str = "flush, and wait until no merge is at work"


@dataclass(frozen=True, slots=True)
class FieldsSchema(LineSchema):
    """A metric for each field. Two points of a series at one time are both kept, each field for itself."""

    name: str
    keeps_duplicates = True
    kinds = NUMBERS
    nulls = NUMBERS
    counts_sparse = False  # the samples of several metrics are not points
    takes_lines = False  # it takes what is none, and numbers that it changes

    def create(self, measurements: Sequence[Measurement], tags: Mapping[str, Codes]) -> Sequence[Command]:
        """Return the operation that deletes all series; points make new ones."""
        for one in measurements:
            for other in measurements:
                if other.name.startswith(f"{one.name}_"):
                    raise Unsupported(f"metrics of {one.name} and {other.name} have the same names")
        return self.drop(measurements)

    def drop(self, measurements: Sequence[Measurement]) -> Sequence[Command]:
        return [DeleteSeries()]

    def extend(self, measurements: Sequence[Measurement], tags: Mapping[str, Codes], first: int) -> Sequence[Command]:
        return ()

    def settle(self, measurements: Sequence[Measurement]) -> Sequence[Command]:
        return [WaitForMerges()]

    def encode_each(self, batch: Batch, points: int, mode: WriteMode) -> Iterator[Payload]:
        """Return the batch as lines; refuse what would be stored as something else."""
        m = batch.measurement
        if len(m.fields_to_count) > 1 and not m.sparse:  # which a run refuses, and a file's points are not counted then
            expect_all_fields(batch)
        expect_kinds(batch, self.kinds)
        for name in (m.name, *m.tags, *m.own_tags, *m.field_names):
            if '"' in name:  # up to the next one it takes commas, spaces and line breaks for text, and answers 204
                raise Unsupported(f"VictoriaMetrics does not read a quotation mark in a name: {name!r}")
        if np.any(batch.time_ns % MS):
            raise Unsupported("VictoriaMetrics cannot express times between milliseconds")
        for field in m.fields:
            _check(field.name, batch.fields[field.name], is_int=field.kind is Kind.INT)
        return LineSchema.encode_each(self, batch, points, mode)

    def compile(self, query: Query) -> Statement:
        """Return the request, with the form of its answer as parameters (see `session`)."""
        m, key = query.measurement, query.measurement.key or ""
        match query:
            case Raw(where=(_, *_)) | Aggregated(where=(_, *_)):
                raise Unsupported(
                    "MetricsQL has no rows: the samples of one metric cannot be chosen by another's values"
                )
            case Aggregated(top=Top()):
                raise Unsupported("MetricsQL's topk is of one metric, whose rows would lack the other values")
            case Raw(top=Top()):
                raise Unsupported("an export of VictoriaMetrics has no order")
            case Raw():
                start, end = _ms(query.window.start_ns), _ms(query.window.end_ns)
                return _export(_selector(query), start, end, "rows", m.name, key)
            case Stored():
                limit = () if query.limit is None else (query.limit,)
                bounds = [None if t is None else _ms(t) for t in (query.start_ns, query.end_ns)]
                return _export(
                    f'{{__name__=~"{_pattern(m.name)}_.*"}}', *bounds, "stored", m.name, (*m.tags, *m.own_tags), *limit
                )
            case Aggregated() | LatestBuckets() | Text():
                return _COMPILE[type(query)](query)
            case Latest():
                at_s = str(END_S) if query.before_ns is None else _seconds(_ms(query.before_ns) - 1)
                if ROLLUP in (*m.tags, *m.own_tags):
                    raise Unsupported(f"MetricsQL overwrites a tag called '{ROLLUP}'; rename it")
                # In one pass: a union reads twice, and had values from before a flush with times from after it.
                rows = f"{_selector(query)}[{EVER}]"
                both = f'aggr_over_time(("last_over_time","{TIME_OF_LAST}"), {rows}) keep_metric_names'
                return _statement("/api/v1/query", {"query": both, "time": at_s}, "latest", m.name, key)
            case Count():
                if len(m.fields_to_count) > 1:
                    raise Unsupported(f"points of {m.name} are counted by a field that each has, and they have none")
                metric = _literal(f"{m.name}_{m.fields_to_count[0]}")
                count = f"sum(count_over_time({{__name__={metric}}}[{EVER}]))"
                return _statement("/api/v1/query", {"query": count, "time": str(END_S)}, "count", m.name)


FIELDS = FieldsSchema("fields")


def export_of_counted(statement: Statement) -> Statement:
    """Return the request for all points that the statement of a `Count` counts."""
    match = re.search(rf"\((\{{.*\}})\[{EVER}\]", statement.text)
    assert match is not None  # noqa: S101 - as `compile` makes it
    return _export(match[1], None, None, *statement.params)


def _check(name: str, column: NDArray[np.generic], *, is_int: bool) -> None:
    """Raise `Unsupported` for a number that would come back as another one."""
    if is_int:
        wrong = (column > _MOST_INT) | (column < -_MOST_INT)  # type: ignore[operator]
    else:
        floats = column.astype(np.float64, copy=False)
        size, wrong = np.abs(floats), np.ones(len(floats), dtype=np.bool_)
        for below, decimals in _DIGITS:
            wrong &= ~((size < below) & (np.round(floats, decimals) == floats))
            if not wrong.any():
                return
        wrong &= np.isfinite(floats)  # which the encoder refuses
    if wrong.any():
        value = column[wrong][0]
        cure = "" if is_int else "; give the data fewer digits, by world.decimals = 4 or by decimals = 4 of the field"
        raise Unsupported(f"VictoriaMetrics cannot express {value} exactly (field {name}){cure}")


# --- MetricsQL --------------------------------------------------------------------------------------------------------


def _literal(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _pattern(text: str) -> str:
    """Return a text as part of a regular expression within a literal."""
    return _literal(re.escape(text))[1:-1]


def _label(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else _literal(name)


def _any_of(texts: Sequence[str]) -> str:
    """Return the condition that a label has one of these texts."""
    return f"={_literal(texts[0])}" if len(texts) == 1 else f'=~"{"|".join(map(_pattern, texts))}"'


def _selector(query: Raw | Aggregated | Latest | LatestBuckets, fields: Sequence[str] = ()) -> str:
    """Return the selector of a query's metrics, or of those of some fields.

    An empty tag is stored as a missing one, and both match "" here.
    """
    m = query.measurement
    conditions = [f"__name__{_any_of([f'{m.name}_{name}' for name in fields or query.fields])}"]
    if not isinstance(query, LatestBuckets):
        if query.keys is not None and m.key is not None:
            conditions.append(f"{_label(m.key)}{_any_of(query.keys)}" if query.keys else _NOTHING)
        conditions += [f"{_label(one.tag)}{_any_of(one.values)}" for one in query.tagged]
    return f"{{{','.join(conditions)}}}"


def _ms(time_ns: int) -> int:
    """Return the first ms at or after a time."""
    return -(-time_ns // MS)


def _seconds(ms: int) -> str:
    sign, ms = "-" * (ms < 0), abs(ms)
    return f"{sign}{ms // 1_000}.{ms % 1_000:03}"


def _statement(path: str, arguments: Mapping[str, str], *form: object) -> Statement:
    return Statement("\n".join([path, *(f"{name}={value}" for name, value in arguments.items())]), form)


def _export(selector: str, start: int | None, end: int | None, /, *form: object) -> Statement:
    """Return the request for all points of some series with start <= time < end, in ms."""
    if start is not None and end is not None and end <= max(start, 0):
        selector = selector[:-1] + f",{_NOTHING}}}"
    start = max(0, start or 0)
    times = {"start": _seconds(start), "end": str(END_S) if end is None else _seconds(max(start, end - 1))}
    if end is not None and end <= start:
        selector = selector if _NOTHING in selector else selector[:-1] + f",{_NOTHING}}}"
    return _statement("/api/v1/export", {"match[]": selector, **times}, *form)


def _aggregate(of: Aggregate, series: str, by: str) -> str:
    """Return the aggregate of a window over all series of each group, the metric's name as a label."""

    def rolled(outer: str, inner: str) -> str:
        group = f"{outer}({inner}_over_time({series}) keep_metric_names) by (__name__{by})"
        return f'label_move({group}, "__name__", "{FIELD}")'

    match of:
        case "max" | "min" | "sum":
            return rolled(of, of)
        case "count":
            return rolled("sum", "count")
        case "mean":
            return f"{rolled('sum', 'sum')} / {rolled('sum', 'count')}"
    if (share := share_of(of)) is not None:
        series, of = f"{share}, {series}", "quantile"
    return rolled("max", of)  # of the one series of a group


def _aggregates(query: Aggregated | LatestBuckets, window: str) -> str:
    """Return all aggregates of a query's metrics in a window, such as "[60000ms]", under the names of its columns."""
    m, by = query.measurement, "".join(f",{_label(tag)}" for tag in getattr(query, "by", ()))
    if {how for how, _ in query.values} - {*REDUCTIONS} and m.key is not None and m.key not in getattr(query, "by", ()):
        raise Unsupported("MetricsQL has first, last and percentiles of the samples of one series, not of several")
    fields: dict[Aggregate, list[str]] = {}
    for how, field in query.values:
        fields.setdefault(how, []).append(field)
    parts = []
    for how, of in fields.items():
        part = _aggregate(how, f"{_selector(query, of)}{window}", by)
        if query.value_names != query.fields:
            name = _literal(f"{m.name}_{how}_$1")
            part = f'label_replace({part}, "{FIELD}", {name}, "{FIELD}", "{_pattern(m.name)}_(.*)")'
        parts.append(part)
    return parts[0] if len(parts) == 1 else f"union({', '.join(parts)})"


def _own(query: Text) -> Statement:
    """Return the request for a text at the last moment of its window: an answer of labels and one value."""
    numbers = [name for name, kind in query.answer if kind in {"int", "float"}]
    if query.times or len(numbers) != 1:
        raise Unsupported("a text in MetricsQL is asked at the end of its window, and returns labels and one number")
    if many := [name for name, values in query.values if len(values) > 1]:
        raise Unsupported(f"MetricsQL has no list of texts; draw one value of '{many[0]}'")
    window = query.window
    start, end = _ms(window.start_ns), _ms(window.end_ns)
    values = arguments(query, lambda time_ns: _seconds(_ms(time_ns)), _literal)
    text = filled(text_in(query, "metricsql"), {**values, "window": lambda: f"{end - start}ms"})
    form = "labels", query.measurement.name, numbers[0]
    return _statement("/api/v1/query", {"query": " ".join(text.split("\n")), "time": _seconds(end - 1)}, *form)


def _groups(query: Aggregated) -> Statement:
    """Return the request for aggregates by time, or of the whole window."""
    start, end = _ms(query.window.start_ns), _ms(query.window.end_ns)
    if query.bucket_ns is not None:
        return _buckets(query, query.bucket_ns, start, end)
    whole = _aggregates(query, f"[{end - start}ms]") if start < end else f"{{{_NOTHING}}}"
    form = "buckets", query.measurement.name, query.by, end - start, _counts(query)
    return _statement("/api/v1/query", {"query": whole, "time": _seconds(end - 1)}, *form)


def _buckets(query: Aggregated | LatestBuckets, bucket_ns: int, start: int, end: int, *form: object) -> Statement:
    """Return the request for the buckets of a window, in ms; `form` is the answer's form if it has another one."""
    if bucket_ns % MS:
        raise Unsupported("MetricsQL has no steps between milliseconds")
    size, is_empty = bucket_ns // MS, False
    first, last = start // size, max(start // size, (end - 1) // size)
    cut: dict[int, str] = {}
    for bucket in (first, last):
        due = (bucket + 1) * size
        begin, until = max(start, bucket * size), min(end, due)
        if until <= begin:
            is_empty = True
        elif until - begin < size:
            late = f" offset {due - until}ms" if until < due else ""
            cut[bucket] = _aggregates(query, f"[{until - begin}ms]{late}")
    parts = [f"(({cut[bucket]}) if (time() == {_seconds((bucket + 1) * size - 1)}))" for bucket in cut]
    if last - first + 1 > len(cut):
        whole = f"{{{_NOTHING}}}" if is_empty else _aggregates(query, f"[{size}ms]")
        others = " and ".join(f"time() != {_seconds((bucket + 1) * size - 1)}" for bucket in cut)
        parts.append(f"(({whole}) if ({others}))" if others else whole)
    times = {"start": _seconds((first + 1) * size - 1), "end": _seconds((last + 1) * size - 1), "step": f"{size}ms"}
    form = form or ("buckets", query.measurement.name, getattr(query, "by", ()), size, _counts(query))
    return _statement("/api/v1/query_range", {"query": " or ".join(parts), **times}, *form)


def _counts(query: Aggregated | LatestBuckets) -> tuple[str, ...]:
    """Return the columns with numbers of values, which are 0 where a metric has no sample."""
    return tuple(name for (how, _), name in zip(query.values, query.value_names, strict=True) if how == "count")


def _newest_buckets(query: LatestBuckets) -> Statement:
    """Return the request for the newest buckets; its form has what the session needs to ask on where some are empty."""
    size, end = query.bucket_ns // MS or 1, _ms(query.before_ns)
    start = max(0, ((end - 1) // size - query.limit + 1) * size)
    whole = _aggregates(query, f"[{size}ms]")
    newest = f"max(tlast_over_time({_selector(query)}[{EVER}]))"
    form = ("newest", query.measurement.name, query.limit, size, start, whole, newest)
    return _buckets(query, query.bucket_ns, start, end, *form)


_COMPILE: dict[type, Callable[[Any], Statement]] = {
    Aggregated: _groups,
    LatestBuckets: _newest_buckets,
    Text: _own,
}
