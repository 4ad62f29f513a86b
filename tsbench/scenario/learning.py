"""Use cases learned from recordings: tags with their shares, and for each field the process that fits best."""

from __future__ import annotations

import json
import math
import re
import tomllib
import unicodedata
import zlib
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl

from tsbench.scenario.own_queries import NAME, TAKEN
from tsbench.scenario.recorded_files import NULLS, are_mostly_numbers
from tsbench.scenario.recording import SERIES, TIME
from tsbench.scenario.types import FILE
from tsbench.scenario.use_case import UseCaseFile
from tsbench.text import CONTROL
from tsbench.units import LONGEST_NS, NS_PER_S, format_exact_duration
from tsbench.workload.world import World, WorldSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tsbench.scenario.recording import Recording

    Values = NDArray[np.float64]

_SERIES, _POINTS = 60, 3_000
"""Number of series that are looked at, and of points of each."""
_FEW = 12
"""Number of different values up to which a field has a list of them."""
_MOST_TEXTS = 200
"""Number of different texts that a field has at most."""
_LISTED = 30
"""Number of different values up to which a tag has a list of them."""
_DAY_NS = 86_400 * NS_PER_S
_SHARES = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
_Z = np.array([-1.644854, -0.674490, 0.0, 0.674490, 1.644854])
"""Quantiles of the standard normal distribution at these shares."""
_MISSING, _SELDOM = "null", 0.001
"""The key of the share of points that lack a field, and the share up to which it is left out."""
_FAR = 0.15
"""Largest distance of two quantiles, in distances between 5 % and 95 %, at which a distribution still fits."""


@dataclass(frozen=True, slots=True)
class Learned:
    """A use case as TOML, its number of series and interval, and per field what was recorded and what it simulates."""

    text: str
    series: int
    interval_ns: int
    world: str
    """The keys of [world], but for the use case, that make as many points."""
    gaps: tuple[FieldSummary, FieldSummary]
    """The same of the times between two points of a series, in seconds."""
    fields: dict[str, tuple[FieldSummary, FieldSummary]]


@dataclass(frozen=True, slots=True)
class FieldSummary:
    """A field's values in a few numbers.

    `same` is the share of values that equal the one before, `nbytes` what a value takes as text after zlib, series by
    series; `missing` the share of points without one.
    """

    mean: float
    sd: float
    p5: float
    p50: float
    p95: float
    same: float
    nbytes: float
    missing: float

    @classmethod
    def of(cls, series: Sequence[Values]) -> FieldSummary:
        """Return the figures of some series' values, NaN where points lack one."""
        every = np.concatenate([*series]) if series else np.empty(0)
        there = every[~np.isnan(every)]
        if not len(there):
            nothing = float("nan")
            return cls(nothing, nothing, nothing, nothing, nothing, nothing, nothing, 1.0)
        same = np.concatenate([np.diff(one[~np.isnan(one)]) == 0 for one in series])
        text = "\n".join(f"{value:.15g}" for value in there.tolist())
        p5, p50, p95 = np.percentile(there, [5, 50, 95]).tolist()
        nbytes = len(zlib.compress(text.encode())) / len(there)
        missing = 1 - len(there) / len(every)
        return cls(
            float(there.mean()),
            float(there.std()),
            p5,
            p50,
            p95,
            float(same.mean() if len(same) else 0),
            nbytes,
            missing,
        )


def learn(name: str, of: Recording, *, hashed: bool = False) -> Learned:
    """Return the use case that simulates a recording; `hashed` numbers the values of its tags and texts."""
    series = of.frame[SERIES].unique(maintain_order=True).to_list()
    chosen = [series[i] for i in np.linspace(0, len(series) - 1, min(_SERIES, len(series))).astype(int).tolist()]
    some = of.frame.filter(pl.col(SERIES).is_in(chosen)).group_by(SERIES, maintain_order=True).head(_POINTS)
    parts = some.partition_by(SERIES, maintain_order=True)
    times = [part[TIME].to_numpy() for part in parts]
    gaps = [np.diff(one) for one in times]
    interval_ns, jitter_ns, missing = _rhythm(gaps)
    interval = format_exact_duration(interval_ns)
    world = f'scale = {len(series)}, interval = "{interval}"'
    world += f", missing = {min(0.5, missing):.3g}" if missing > _SELDOM else ""
    names = _Names()
    tags = _tags(of, names, hashed=hashed)
    made: dict[str, dict[str, Any]] = {}
    notes, recorded = [], {}
    for column in of.fields:
        own = names.of(column)
        values = [_numbers(of.frame[column], part[column]) for part in parts]
        if of.frame[column].dtype.is_numeric():
            made[own], note = _process(of.frame[column], values, times, interval_ns)
        else:
            made[own], note = _labels(own, of.frame[column], values, interval_ns, hashed=hashed)
        recorded[own] = _recorded(of.frame[column], values)
        notes += [f"# {own}: {note}"] if note else []
    whole = [own for own, table in made.items() if _MISSING not in table]
    asked = whole or sorted(made, key=lambda own: made[own][_MISSING])
    fields = [line for own, table in made.items() for line in _lines(own, table, names)]
    lines = [
        f"about = {_quoted(f'simulates {_plain(name)}')}",
        "",
        f"# Learned from {len(of.frame):,} rows of {len(series):,} series, each about every {interval}:",
        f"world = {{ {world} }}          # for scenarios that do not say these",
        "",
        "[tags]",
        *tags,
        "",
        "[[measurement]]",
        f'name = "{names.of(name)}"',
        *([f'jitter = "{format_exact_duration(jitter_ns)}"'] if jitter_ns else []),
        "[measurement.fields]",
        *notes,
        *fields,
        *_queries(
            "",
            {own: _is_labelled(made[own]) for own in asked},
            [line.split(" = ")[0] for line in tags],
            len(series),
            interval_ns,
            LONGEST_NS,
            has_newest=bool(whole),
        ),
    ]
    text = "\n".join(lines) + "\n"
    simulated, between = _simulated(text, min(len(series), _SERIES), max(len(part) for part in parts), interval_ns)
    both = FieldSummary.of([one / NS_PER_S for one in gaps]), between
    return Learned(
        text, len(series), interval_ns, world, both, {own: (recorded[own], simulated[own]) for own in recorded}
    )


def _recorded(whole: pl.Series, values: Sequence[Values]) -> FieldSummary:
    """Return the summary of a field; the rarer of many texts, which have no number, are not missing."""
    summary = FieldSummary.of(values)
    if whole.dtype.is_numeric():
        return summary
    return replace(summary, missing=float((whole.cast(pl.String).fill_null("") == "").sum()) / len(whole))


def mapped(path: Path, recordings: Sequence[Recording]) -> str:
    """Return the use case that has a file's rows as they are, by the columns of each measurement's recording."""
    names, several = _Names(), len(recordings) > 1
    keys = {of.key for of in recordings}
    key = names.of(keys.pop() or "series" if len(keys) == 1 else "series")
    columns = [(*of.tags, *(of.keys if several else ())) for of in recordings]
    named = {one: key if one == key else names.of(one) for one in dict.fromkeys(chain.from_iterable(columns))}
    lines, queries = [f"about = {_quoted(path.name)}"], []
    for of, own in zip(recordings, columns, strict=True):
        tags = {key: [*of.keys]} if of.keys else {}
        tags |= {name: [column] for column, name in named.items() if column in own}
        mapping, asked = _mapping(path, of, tags, _Names(tags))
        lines += ["", "[[recording]]" if several else "[recording]", *mapping]
        queries += asked
    return "\n".join([*lines, *queries]) + "\n"


def lacking_rows(of: Recording) -> int:
    """Return the number of rows that have no time, no key or no value."""
    return of.dropped + int(of.frame.select(pl.all_horizontal(pl.col(*of.fields).is_null()).sum()).item())


def _mapping(path: Path, of: Recording, tags: dict[str, list[str]], names: _Names) -> tuple[list[str], list[str]]:
    """Return the lines of a measurement's mapping, and those of queries about it."""
    frame = of.frame
    series = frame[SERIES].n_unique()
    fields: dict[str, Any] = {names.of(column): column for column in of.fields}
    parts = frame.head(100_000).partition_by(SERIES, maintain_order=True)[:_SERIES]
    lacks = {own: frame[column].null_count() for own, column in fields.items()}
    is_sparse = all(lacks.values())
    asked = sorted(fields, key=lacks.__getitem__) if is_sparse else [own for own in fields if not lacks[own]]
    labelled = {own: not frame[fields[own]].dtype.is_numeric() for own in asked}
    time: Any = {"column": of.time, **of.about_times} if of.about_times else of.time
    mixed = [name for name, dtype in frame.schema.items() if dtype == pl.String and are_mostly_numbers(frame[name])]
    measurement = of.measurement or names.of(path.name.split(".")[0])
    lines = [
        f"file = {_quoted(path.name)}",
        f"measurement = {_quoted(measurement)}",
        *(['duplicates = "merge"'] if of.merged else []),
        *(['incomplete = "skip"'] if lacking_rows(of) else []),
        *([f"null = {_toml([*of.nulls, *filter(None, NULLS)])}"] if of.nulls else []),
        f"time = {_toml(time)}",
        f"tags = {_toml({name: columns[0] if len(columns) == 1 else columns for name, columns in tags.items()})}",
        "[recording.fields]",
        *(
            f"{own} = {_toml({'column': column, 'type': 'text'} if column in mixed else column)}"
            for own, column in fields.items()
        ),
    ]
    interval_ns, _, _ = _rhythm([np.diff(part[TIME].to_numpy()) for part in parts])
    of_name = measurement if of.measurement else ""
    span_ns = cast("int", frame[TIME].max()) - cast("int", frame[TIME].min())
    return lines, _queries(of_name, labelled, [*tags], series, interval_ns, span_ns, has_newest=not is_sparse)


def _toml(value: Any) -> str:
    """Return a text, boolean, list or table as TOML."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + " }" if value else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return _quoted(value) if isinstance(value, str) else str(value).lower()


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _queries(
    of: str,
    labelled: dict[str, bool],
    tags: Sequence[str],
    series: int,
    interval_ns: int,
    span_ns: int,
    *,
    has_newest: bool,
) -> list[str]:
    """Return the lines of three queries, to begin with: a series' rows, newest rows, and aggregates by time and tag.

    `of` is the measurement that they name, if there may be others; `labelled` has the fields to ask for, and whether
    they are texts or booleans. `has_newest` says that these are in all points, so that newest rows have them. Windows
    are at most a third of `span_ns`, so that what is loaded has room for them.
    """
    names = sorted(labelled, key=lambda name: labelled[name])[:4]  # numbers first
    numbers = [name for name in names if not labelled[name]]
    window_ns = _usual(interval_ns * 120, span_ns // 3)
    window, bucket = map(format_exact_duration, (window_ns, _usual(interval_ns * 12, window_ns // 5)))
    by = tags[1:2] or tags[:1]
    by_tag = {"by": by} if by else {}
    aggregates = [f"{how}({names[0]})" for how in (("mean", "max") if numbers else ("count",))]
    asked: list[tuple[str, dict[str, Any]]] = [
        ("rows-of-one", {"select": names, "window": window, **({"series": 1} if series > 1 else {})}),
        (f"by-{by[0] if by else 'time'}", {"select": aggregates, **by_tag, "bucket": bucket, "window": window}),
    ]
    if has_newest:
        asked.insert(1, ("newest-of-all", {"select": names, "newest": True}))
    elif numbers and tags:  # the newest row of a series may lack them
        last = [f"last({name})" for name in numbers]
        asked.insert(1, ("last-of-each", {"select": last, "by": [tags[0]], "window": window}))
    return [
        line
        for name, table in asked
        for line in (
            "",
            "[[query]]",
            f'name = "{f"{of}-{name}"[:60] if of else name[:60]}"',
            *([f'of = "{of}"'] if of else []),
            *(f"{key} = {_toml(value)}" for key, value in table.items()),
        )
    ]


_ROUND_NS = [NS_PER_S * one for one in (1, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 10_800, 21_600, 43_200, 86_400)]


def _usual(duration_ns: int, most_ns: int) -> int:
    """Return a duration that people use, about as long and at most `most_ns`; longer ones are whole days."""
    if duration_ns > _ROUND_NS[-1] and most_ns >= duration_ns:
        return round(duration_ns / _DAY_NS) * _DAY_NS
    usual = next((one for one in _ROUND_NS if one >= duration_ns), _ROUND_NS[-1])
    return max((one for one in _ROUND_NS if one <= min(usual, most_ns)), default=_ROUND_NS[0])


def _is_labelled(table: dict[str, Any]) -> bool:
    """Return whether a field has texts or booleans."""
    return isinstance(next(iter(table.get("of", ())), None), str | bool)


def _lines(own: str, table: dict[str, Any], names: _Names) -> list[str]:
    """Return the lines of a field, of which some need hidden ones."""
    lines = []
    if "exp of" in table:
        hidden = names.of(f"{own}_log")
        lines.append(f"{hidden} = {_toml({'normal': table.pop('exp of'), 'hidden': True})}")
        table = {"is": f"exp({hidden})", **table}
    elif isinstance(first := table.get("first"), list):
        begin, rise = names.of(f"{own}_first"), names.of(f"{own}_rise")
        lines.append(f"{begin} = {_toml({'constant': first, 'hidden': True})}")
        lines.append(f"{rise} = {_toml({'counter': table.pop('counter'), 'hidden': True})}")
        table = {"is": f"{begin} + {rise}", **{key: value for key, value in table.items() if key != "first"}}
    return [*lines, f"{own} = {_toml(table)}"]


def _simulated(text: str, series: int, ticks: int, interval_ns: int) -> tuple[dict[str, FieldSummary], FieldSummary]:
    """Return what a use case simulates: the values of each field, and the seconds between two points of a series."""
    described = UseCaseFile.model_validate(tomllib.loads(text), context=FILE)
    case = described.case("learned", interval_ns)
    world = World(WorldSpec("learned", series, 1, 0, interval_ns, case=case))
    (batch,) = world.batches(0, points=series * ticks, last_tick=ticks)
    order = np.lexsort((batch.time_ns, batch.series))

    def by_series(column: NDArray[Any]) -> list[Values]:
        return [*np.asarray(column, dtype=np.float64)[order].reshape(series, ticks)]

    between = FieldSummary.of([np.diff(times) / NS_PER_S for times in by_series(batch.time_ns - batch.time_ns[0])])
    return {name: FieldSummary.of(by_series(column)) for name, column in batch.fields.items()}, between


# --- tags -------------------------------------------------------------------------------------------------------------


class _Names:
    """Names that every database has room for, each once."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {*TAKEN, *(name.lower() for name in taken)}

    def of(self, text: str) -> str:
        """Return a name like a text."""
        letters = "".join(one for one in unicodedata.normalize("NFKD", text) if not unicodedata.combining(one))
        plain = re.sub(r"\W+", "_", letters.strip(), flags=re.ASCII).strip("_")[:50] or "x"
        plain = plain if NAME.fullmatch(plain) else f"x_{plain}"
        name, number = plain, 2
        while name.lower() in self._taken:
            name, number = f"{plain}_{number}", number + 1
        self._taken.add(name.lower())
        return name


def _tags(of: Recording, names: _Names, *, hashed: bool) -> list[str]:
    one = of.frame.unique(SERIES, keep="first", maintain_order=True)
    key = names.of(of.key or "series")
    lines = [f"{key} = {_toml({'number': _pattern(one[SERIES].to_list(), key, hashed=hashed)})}"]
    known: dict[str, str] = {}
    for column in sorted(of.tags, key=lambda name: -one[name].n_unique()):
        values = one[column].cast(pl.String).fill_null("none")
        counts = values.value_counts(sort=True)
        texts, shares = [str(text) or "none" for text in counts[column].to_list()], counts["count"].to_list()
        name = names.of(column)
        outer = next((other for other in known if _determines(one, other, column)), None)
        if len(texts) <= _LISTED:
            table: dict[str, Any] = {
                "of": [f"{name}-{i}" for i in range(len(texts))] if hashed else [*map(_plain, texts)]
            }
            table |= {"weights": shares} if len({*shares}) > 1 else {}
        else:
            table = {"number": _pattern(texts, name, hashed=hashed), "count": len(texts)}
        lines.append(f"{name} = {_toml(table | ({'per': known[outer]} if outer else {}))}")
        known[column] = name
    return lines


def _determines(one: pl.DataFrame, outer: str, inner: str) -> bool:
    """Return whether series with one value of a tag have one of another tag, which has fewer values."""
    values = one[outer].n_unique()
    return (
        one[inner].n_unique() < values < len(one) and one.select(pl.struct([outer, inner]).n_unique()).item() == values
    )


def _pattern(texts: Sequence[str], name: str, *, hashed: bool) -> str:
    """Return a pattern for numbered texts like these."""
    matches = [re.fullmatch(r"([^\d{}]*)(\d+)([^\d{}]*)", text) for text in texts]
    if hashed or not all(matches):
        return f"{name}-{{}}"
    parts = {(m[1], m[3]) for m in matches if m}
    widths = {len(m[2]) for m in matches if m}
    if len(parts) > 1:
        return f"{name}-{{}}"
    before, after = parts.pop()
    return f"{_plain(before)}{{{f':0{widths.pop()}' if len(widths) == 1 else ''}}}{_plain(after)}"


# --- fields -----------------------------------------------------------------------------------------------------------


def _rhythm(of_series: Sequence[NDArray[np.int64]]) -> tuple[int, int, float]:
    """Return the time between two points of a series and by how much each may be late, in ns, and the share that lacks.

    Where points come regularly that is the median of all gaps, and their spread is that of two uniform delays. Else it
    is the mean, pauses left out, and points come anywhere in it.
    """
    gaps = np.concatenate([*of_series])
    gaps = gaps[gaps > 0]
    if not len(gaps):
        return NS_PER_S, 0, 0.0
    low, middle, high = np.percentile(gaps, [25, 50, 75])
    jitter = math.sqrt(6) * (high - low) / (_Z[3] - _Z[1])
    if is_random := jitter > middle:
        middle = gaps[gaps < 20 * middle].mean()
    interval_ns = max(1, int(middle))
    for unit in (60 * NS_PER_S, NS_PER_S, NS_PER_S // 1_000):  # clocks jitter
        if middle >= 5 * unit and abs(middle / unit - round(middle / unit)) < 0.01 * middle / unit:
            interval_ns = round(middle / unit) * unit
            break
    jitter_ns = interval_ns if is_random else min(interval_ns, int(jitter))
    missing = 1 - interval_ns / float(np.mean([one.mean() for one in of_series if len(one)]))
    return interval_ns, jitter_ns // 1_000_000 * 1_000_000, missing


def _numbers(whole: pl.Series, column: pl.Series) -> Values:
    """Return a column as numbers, NaN where a row has no value; texts and booleans as their places in `_texts_of`."""
    if not column.dtype.is_numeric():
        texts = _texts_of(whole)
        column = column.cast(pl.String).replace_strict(texts, range(len(texts)), default=None, return_dtype=pl.Float64)
    return column.cast(pl.Float64).to_numpy().astype(np.float64)


def _texts_of(whole: pl.Series) -> list[str]:
    """Return the different texts of a column, sorted; of very many the most frequent ones."""
    counts = whole.cast(pl.String).drop_nulls().alias("text").value_counts(sort=True)
    return sorted(counts.filter(pl.col("text") != "")["text"].head(_MOST_TEXTS).to_list())


def _labels(
    own: str, whole: pl.Series, series: Sequence[Values], interval_ns: int, *, hashed: bool
) -> tuple[dict[str, Any], str]:
    """Return the keys of a field of texts or booleans, and a note; `hashed` numbers the texts."""
    texts = _texts_of(whole)
    every = np.concatenate([one[~np.isnan(one)] for one in series])
    if not texts or not len(every):
        return {"constant": 0}, "has no values"
    table = _choice(*np.unique(every, return_counts=True), [one[~np.isnan(one)] for one in series], interval_ns)
    missing = whole.null_count() / len(whole)
    table |= {_MISSING: _number(min(0.99, missing))} if missing > _SELDOM else {}
    notes = []
    if (more := whole.cast(pl.String).n_unique() - len(texts) - bool(whole.null_count())) > 0:
        notes.append(f"{more:,} rarer texts are left out")
    if whole.dtype == pl.Boolean:
        table["of"] = [texts[int(place)] == "true" for place in table["of"]]
    else:
        known = [
            f"{own}-{int(i)}" if hashed else _plain(texts[int(i)])[:200].strip() or f"{own}-{int(i)}"
            for i in table["of"]
        ]
        table["of"] = [text if known.index(text) == i else f"{text[:190]}-{i}" for i, text in enumerate(known)]
    return table, "; ".join(notes)


def _choice(values: Values, counts: NDArray[np.int64], series: Sequence[Values], interval_ns: int) -> dict[str, Any]:
    """Return the keys of a field with these values, each so often, of which some stay for a while."""
    table: dict[str, Any] = {"of": [*map(_number, values)], "weights": counts.tolist()}
    steps = np.concatenate([np.diff(one) for one in series])
    shares = counts / counts.sum()
    runs = (1 - float(shares @ shares)) / max(1e-9, float((steps != 0).mean()) if len(steps) else 1.0)
    return table | ({"stays": _rounded(runs * interval_ns)} if runs > 2 else {})


def _process(
    whole: pl.Series, series: Sequence[Values], times: Sequence[NDArray[np.int64]], interval_ns: int
) -> tuple[dict[str, Any], str]:
    """Return the keys of a field, and a note for whoever reads the file."""
    there = [one[~np.isnan(one)] for one in series]
    every = np.concatenate(there)
    missing = 1 - len(every) / max(1, sum(map(len, series)))
    if not len(every):
        return {"constant": 0}, "has no values"
    is_int = bool(np.all(every == np.rint(every))) and (whole.dtype.is_integer() or np.abs(every).max() < 2**53)
    table = _shape(every, there, [t[~np.isnan(one)] for t, one in zip(times, series, strict=True)], interval_ns)
    lacks = {_MISSING: _number(min(0.99, missing))} if missing > _SELDOM else {}
    if is_int:
        table["type"] = "int"
    elif (decimals := _decimals(every)) is not None:
        table["decimals"] = decimals
    return table | lacks, ""


def _shape(
    every: Values, series: Sequence[Values], times: Sequence[NDArray[np.int64]], interval_ns: int
) -> dict[str, Any]:
    steps = np.concatenate([np.diff(one) for one in series]) if len(every) > len(series) else np.zeros(1)
    values, counts = np.unique(every, return_counts=True)
    if all(len(one) == 0 or (one == one[0]).all() for one in series):
        return (
            {"constant": _number(values[0])}
            if len(values) == 1
            else {"constant": [_number(values[0]), _number(values[-1])]}
        )
    if len(values) > _FEW and (steps >= 0).mean() > 0.999 and (steps > 0).mean() > 0.2:
        firsts = [float(one[0]) for one in series if len(one)]
        wide = max(firsts) - min(firsts) > max(float(one[-1] - one[0]) for one in series if len(one))
        first = [_number(min(firsts)), _number(max(firsts))] if wide else _number(np.median(firsts))
        return {"counter": _number(steps.mean()), "first": first}
    if len(values) <= _FEW:
        return _choice(values, counts, series, interval_ns)
    low, high = (_number(value) for value in np.percentile(every, [0.1, 99.9]))
    sd = float(every.std()) or 1.0
    if float(steps.std()) < 0.45 * sd:  # noise has 1.41
        return _walk(every, [float(one[0]) for one in series if len(one)], float(steps.std()) or sd)
    daily, rest = _daily(every, series, times)
    table = _noise(rest)
    return table | ({"daily": daily, "min": low, "max": high} if daily else {})


def _walk(every: Values, firsts: Sequence[float], step: float) -> dict[str, Any]:
    """Return a random walk whose values, which are anywhere between its limits in the end, deviate as much."""
    mean, deviation = float(every.mean()), 3**0.5 * (float(every.std()) or 1.0)
    low = max(float(every.min()), mean - deviation)
    high = min(float(every.max()), mean + deviation)
    table = {"walk": _number(step), "min": _number(low), "max": _number(high if high > low else low + 1)}
    alike = float(np.std(firsts)) < 0.2 * deviation
    return table | ({"first": _number(min(high, max(low, float(np.median(firsts)))))} if alike else {})


def _noise(every: Values) -> dict[str, Any]:
    """Return the distribution whose quantiles are nearest to those of values that are drawn anew at each point."""
    mean, sd, least, most = float(every.mean()), float(every.std()) or 1.0, float(every.min()), float(every.max())
    limits = {"min": _number(least), "max": _number(most)}
    candidates: list[tuple[Values, dict[str, Any]]] = [
        (mean + sd * _Z, {"normal": [_number(mean), _number(sd)], **limits}),
        (least + (most - least) * _SHARES, {"uniform": [_number(least), _number(most)]}),
    ]
    if least > 0:
        logs = np.log(every)
        shape = 1 / max(1e-3, float((logs - logs.min()).mean()))
        pareto = {"pareto": [_number(shape), _number(least)], "max": _number(most)}
        candidates.append((least * (1 - _SHARES) ** (-1 / shape), pareto))
        of_logs = [_number(logs.mean()), _number(float(logs.std()) or 1e-6)]
        candidates.append((np.exp(of_logs[0] + of_logs[1] * _Z), {"exp of": of_logs, **limits}))
    wanted = np.quantile(every, _SHARES)
    span = float(wanted[-1] - wanted[0]) or 1.0
    far = [float(np.abs(one - wanted).max()) / span for one, _ in candidates]
    far[3:] = [1.5 * one + 0.03 for one in far[3:]]  # of two fields, so that it has to fit much better
    if min(far) < _FAR:
        return candidates[far.index(min(far))][1]
    return {"of": [*map(_number, np.unique(np.quantile(every, np.linspace(0.0025, 0.9975, 200))))]}


def _daily(every: Values, series: Sequence[Values], times: Sequence[NDArray[np.int64]]) -> tuple[float, Values]:
    """Return half the difference between day and night, 0 if days have no curve, and the values without it."""
    at = np.concatenate([*times])
    if not len(at) or at.max() - at.min() < _DAY_NS:
        return 0.0, every
    phase = 2 * np.pi * (at % _DAY_NS) / _DAY_NS
    waves = np.stack([np.ones(len(at)), np.sin(phase), np.cos(phase)], axis=1)
    fitted, *_ = np.linalg.lstsq(waves, every, rcond=None)
    wave = waves[:, 1:] @ fitted[1:]
    if wave.var() < 0.3 * every.var():
        return 0.0, every
    return float(_number(np.hypot(*fitted[1:]))), every - wave


def _decimals(every: Values) -> int | None:
    return next((n for n in range(7) if np.allclose(np.round(every, n), every, rtol=1e-12, atol=1e-9)), None)


# --- TOML -------------------------------------------------------------------------------------------------------------


def _number(value: float) -> float:
    """Return a number with six digits that count, as an integer if it is one."""
    short = float(f"{float(value):.6g}")
    return int(short) if short == int(short) and abs(short) < 2**53 else short


def _rounded(length_ns: float) -> str:
    """Return a length of time with two digits that count."""
    digits = 10 ** max(0, len(str(int(length_ns))) - 2)
    return format_exact_duration(max(1, round(length_ns / digits)) * digits)


def _plain(text: str) -> str:
    """Return a text without characters that no use case may have."""
    return CONTROL.sub("_", text)
