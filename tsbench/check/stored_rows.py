"""Comparison of stored points, with all their tags and fields, with those that were written; differences are located.

Rows are paired by series and time, not by their place, so that one missing row is one difference.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import repeat
from operator import eq
from typing import TYPE_CHECKING, Any

from tsbench.check.comparison import Row, canonical, equal, label_of, order
from tsbench.model import OTHERS, Rows
from tsbench.units import format_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tsbench.model import Measurement, Stored

EXAMPLES = 3
"""Differences of each kind that are kept; all are counted."""
TAGS = "tags"
"""Name of the table of tags, as the place of a difference."""
SHOWN = 300
"""Characters of a stored or expected text that are kept."""


class Flaw(StrEnum):
    """The kind of a difference between a stored point and the one that was written."""

    WRONG_VALUE = "wrong value"
    MISSING = "missing row"
    UNWRITTEN = "row that nobody wrote"
    OTHER_TAGS = "other tags"
    EXTRA = "extra field or tag"
    PARTIAL = "partial point"
    DUPLICATE = "duplicate"
    OTHER_TABLE = "table of no measurement"


@dataclass(frozen=True, slots=True)
class Located:
    """One difference and its place: measurement, series (the key's value, None without tags) and time.

    `stored` and `expected` have the columns that differ, or all of a row that is there or missing as a whole. `time` is
    ISO 8601 in UTC, or the stored value where that is no time; "" of a table, and of a series in the table of tags.
    """

    kind: Flaw
    measurement: str
    series: str | None
    time: str
    stored: dict[str, Any]
    expected: dict[str, Any]

    @property
    def text(self) -> str:
        """One line for people."""
        series = () if self.series is None else (self.series,)
        place = " ".join((self.measurement, *series, *(("at", self.time) if self.time else ())))
        stored, expected = _shown(self.stored) or "nothing", _shown(self.expected) or "nothing"
        return f"{self.kind}: {place}: stored {stored}, expected {expected}"

    def to_json(self) -> dict[str, Any]:
        """Return the difference in the form of validate.json."""
        return {
            "measurement": self.measurement,
            "series": self.series,
            "time": self.time,
            "stored": _shown(self.stored),
            "expected": _shown(self.expected),
        }


@dataclass(slots=True)
class Differences:
    """The number of differences by kind, and the first few of each."""

    counts: Counter[Flaw] = field(default_factory=Counter)
    first: dict[Flaw, list[Located]] = field(default_factory=dict)
    cut: bool = False
    """Whether an answer ended at its limit, so that the counts are lower bounds."""

    @classmethod
    def of(cls, located: Iterable[Located], *, cut: bool) -> Differences:
        """Return the differences of one answer, which ended at its limit if it is `cut`."""
        here = cls()
        here.add(located)
        here.cut = cut and bool(here.counts)
        return here

    def merge(self, other: Differences) -> None:
        """Add differences that were counted before."""
        self.counts += other.counts
        for kind, examples in other.first.items():
            mine = self.first.setdefault(kind, [])
            mine += examples[: EXAMPLES - len(mine)]
        self.cut |= other.cut

    def add(self, located: Iterable[Located]) -> None:
        """Count each difference by its kind; keep it as an example if it is one of the first EXAMPLES of that kind."""
        for difference in located:
            self.counts[difference.kind] += 1
            examples = self.first.setdefault(difference.kind, [])
            if len(examples) < EXAMPLES:
                examples.append(difference)

    @property
    def text(self) -> str:
        """One line for people with the counts and the first difference; empty if nothing differs."""
        if not self.counts:
            return ""
        more = " or more" if self.cut else ""
        counts = ", ".join(f"{count:,}{more} x {kind}" for kind, count in self.counts.most_common())
        ((most, _),) = self.counts.most_common(1)
        return f"{counts}; first {self.first[most][0].text}"

    def summary(self) -> dict[str, Any]:
        """Return counts and examples by kind in the form of summary.json and validate.json."""
        return {
            str(kind): {"count": count, "at_least": self.cut, "first": [one.to_json() for one in self.first[kind]]}
            for kind, count in self.counts.items()
        }


def compare_canonical(query: Stored, must: list[Row], maybe: list[Row], rows: list[Row]) -> list[Located]:
    """Return all differences between the rows in `rows` and those in `must`, in the order of their times.

    All rows have the query's columns, are in canonical form and sorted. The rows in `maybe` may be
    stored or not, each as often as it occurs there.
    """
    if must == rows:
        return []
    written, stored = Counter(must), Counter(rows)
    more = stored - written - Counter(maybe)
    return _Pairing(query.measurement, query.columns, written).differences(written - stored, more)


def compare_series(rows: Rows, written: Sequence[Sequence[Any]]) -> list[Located]:
    """Return the differences between the rows of a table of tags and what was written, by column.

    The columns of both are those of `rows`: id, key, other tags, `OTHERS`, which is not among those written.
    """
    pairs = zip(rows.by_column(), (*written, repeat(None)), strict=False)
    if len(rows) == len(written[0]) and all(all(map(eq, *pair)) for pair in pairs):
        return []  # mostly; of a million series rows take 300 MB
    columns, expected = rows.columns[1:], {number: (*texts, None) for number, *texts in zip(*written, strict=True)}
    differences, seen = [], set()
    for number, *stored in canonical(rows, odd_as_text=True):
        wanted = expected.get(number)
        if wanted is None or number in seen:
            kind = Flaw.UNWRITTEN if wanted is None else Flaw.DUPLICATE
            differences.append(Located(kind, TAGS, str(stored[0]), "", dict(zip(columns, stored, strict=True)), {}))
            continue
        seen.add(number)
        for kind, part in ((Flaw.OTHER_TAGS, slice(0, -1)), (Flaw.EXTRA, slice(-1, None))):
            both = zip(columns[part], stored[part], wanted[part], strict=True)
            if differing := [(name, one, other) for name, one, other in both if one != other]:
                stored_tags = {name: one for name, one, _ in differing}
                wanted_tags = {name: other for name, _, other in differing}
                differences.append(Located(kind, TAGS, wanted[0], "", stored_tags, wanted_tags))
    for number in expected.keys() - seen:
        row = expected[number]
        differences.append(Located(Flaw.MISSING, TAGS, row[0], "", {}, dict(zip(columns, row, strict=True))))
    return differences


def other_table(name: str) -> Located:
    """Return the difference that a table of no measurement is."""
    return Located(Flaw.OTHER_TABLE, name, None, "", {OTHERS: "a table with the form of tsbench's own"}, {})


@dataclass(frozen=True, slots=True)
class _Pairing:
    """Pairs the rows that are not stored as expected with those that are stored and not expected."""

    measurement: Measurement
    columns: tuple[str, ...]
    written: Counter[Row]

    def differences(self, missing: Counter[Row], more: Counter[Row]) -> list[Located]:
        pairs: dict[tuple[Any, Any], tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
        for place, rows in enumerate((missing, more)):
            for row in rows.elements():
                pairs[row[0], self._series(row)][place].append(row)
        at_place: dict[tuple[Any, Any], list[Row]] = {place: [] for place in pairs}
        for row in self.written:
            if (place_of := (row[0], self._series(row))) in at_place:
                at_place[place_of].append(row)
        located: list[Located] = []
        for key in sorted(pairs, key=lambda key: tuple(map(order, key))):
            located += self._at(*pairs[key], at_place[key])
        return located

    def _at(self, missing: list[Row], more: list[Row], written: list[Row]) -> list[Located]:
        """Return the differences at one time of one series, where `written` rows are expected in all."""
        located = []
        while missing and more:
            best = max(more, key=lambda row: sum(map(equal, row, missing[0])))
            more.remove(best)
            located += self._changed(missing.pop(0), best)
        located += [self._located(Flaw.MISSING, {}, row, row) for row in missing]
        for row in more:
            like = max(written, key=lambda other: sum(map(equal, row, other)), default=None)
            if like is None:
                kind = Flaw.PARTIAL if self._is_partial(row) else Flaw.UNWRITTEN
                located.append(self._located(kind, self._named(row), None, row))
            else:
                located += self._changed(like, row) or [self._located(Flaw.DUPLICATE, self._named(row), None, row)]
        return located

    def _changed(self, expected: Row, stored: Row) -> list[Located]:
        """Return one difference per kind between two rows of one series and time."""
        m = self.measurement
        tags, fields = {*m.tags, *m.own_tags}, {*m.field_names}
        differing: dict[Flaw, list[int]] = defaultdict(list)
        for place, name in enumerate(self.columns):
            if not equal(stored[place], expected[place]):
                kind = Flaw.OTHER_TAGS if name in tags else Flaw.WRONG_VALUE if name in fields else Flaw.EXTRA
                differing[Flaw.PARTIAL if kind is Flaw.WRONG_VALUE and stored[place] is None else kind].append(place)
        return [
            self._located(kind, self._named(stored, places), expected, stored, places)
            for kind, places in differing.items()
        ]

    def _located(
        self,
        kind: Flaw,
        stored: dict[str, Any],
        expected: Row | None,
        at: Row,
        places: Sequence[int] | None = None,
    ) -> Located:
        wanted = {} if expected is None else self._named(expected, places)
        key, series = self.measurement.key, self._series(at)
        series = f"(no {key})" if key is not None and series in {None, ""} else series
        return Located(kind, self.measurement.name, series, _moment(at[0]), stored, wanted)

    def _named(self, row: Row, places: Sequence[int] | None = None) -> dict[str, Any]:
        """Return values of a row by column: those at `places`, else all but time, key and missing values."""
        m = self.measurement
        labels = m.labels(self.columns)
        named = {name: label_of(labels.get(name, ()), value) for name, value in zip(self.columns, row, strict=True)}
        if places is not None:
            return {self.columns[place]: named[self.columns[place]] for place in places}
        in_order = (*m.field_names, OTHERS, *m.tags[1:], *m.own_tags)  # the fields first: the text may be cut
        return {name: named[name] for name in in_order if named[name] is not None}

    def _is_partial(self, row: Row) -> bool:
        fields = {*self.measurement.field_names}
        return any(value is None for name, value in zip(self.columns, row, strict=True) if name in fields)

    def _series(self, row: Row) -> Any:
        return row[1] if self.measurement.key is not None else None


def _moment(time_ns: Any) -> str:
    if isinstance(time_ns, int):
        with suppress(ValueError, OverflowError, OSError):
            return format_time(time_ns)
        return f"{time_ns} ns"
    return "no time" if time_ns is None else repr(time_ns)


def _shown(values: dict[str, Any]) -> str:
    texts = (value if name == OTHERS else f"{name}={value}" for name, value in values.items())
    return ", ".join(map(str, texts))[:SHOWN]
