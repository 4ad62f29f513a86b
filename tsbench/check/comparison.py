"""Comparison of answers with gold answers, after converting both to one canonical form.

The order of rows does not matter; their number and values do. Every number is compared exactly, integers as integers,
but sums and means, whose last digits depend on the order of addition (`Computed`).
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from types import NoneType
from typing import TYPE_CHECKING, Any

from tsbench.model import Kind, Latest, Raw, Stored, Text
from tsbench.units import format_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tsbench.model import Measurement, Query, Rows

Row = tuple[Any, ...]

ROWS = " (row "
"""What precedes the two whole rows in the text of a difference."""
_ROUNDED = range(2, 10)
"""Decimals to which a value may be said to be rounded: with fewer any value may look so."""
ROUNDING = 2.0**-52
"""Bound of a computed value by number of values and largest magnitude m: n * m * ROUNDING for a mean, n times that for
a sum. However n values are added, the error is at most (n - 1) * n * m * 2**-53 (Higham, Accuracy and Stability of
Numerical Algorithms, 4.2); gold and the database may err in opposite directions, and a division rounds once more."""


class Computed(float):
    """A gold value that was computed: an answer may differ from it by `within`."""

    __slots__ = ("within",)
    within: float

    @classmethod
    def of(cls, value: float, within: float) -> Computed:
        """Return a value with its bound."""
        text = cls(value)
        text.within = within
        return text


class OneOf(float):
    """A gold value for which others will do: `values` are all of them, this one included."""

    __slots__ = ("values",)
    values: frozenset[float]

    @classmethod
    def of(cls, values: Iterable[float]) -> OneOf:
        """Return one of the values, with all."""
        known = frozenset(values)
        text = cls(min(known))
        text.values = known
        return text


class Judged(float):
    """A value of an answer in place of gold, which is not known: whether it is right, and what would be, in words."""

    __slots__ = ("is_right", "said")
    is_right: bool
    said: str

    @classmethod
    def of(cls, value: float, *, is_right: bool, said: str) -> Judged:
        """Return a value with its judgement."""
        text = cls(value)
        text.is_right, text.said = is_right, said
        return text

    def __repr__(self) -> str:
        return self.said


_AS_THEY_ARE, _NUMBERS = {float, str, NoneType, Computed}, {float, int, NoneType}
_TIMES_AS_THEY_ARE = {*_AS_THEY_ARE, int}


class NotAnAnswer(TypeError):  # noqa: N818 - names what is wrong with the value
    """A value of a type that no answer can contain."""


@dataclass(frozen=True, slots=True)
class IncompleteRow:
    """A row that lacks some fields, while the others are right: torn, if it is whole when it is read back.

    `given` is the row as it was answered, `sent` the values of its fields as they were written.
    """

    measurement: Measurement
    fields: tuple[str, ...]
    key: str | None
    time_ns: int
    given: Row
    sent: tuple[float | None, ...]

    @property
    def text(self) -> str:
        """One line for people."""
        lacks = [
            name for name, value in zip(self.fields, self.given[-len(self.fields) :], strict=True) if value is None
        ]
        return f"a row without {', '.join(lacks)}: {self.given!r}"


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference between an answer and gold: one line for people, and a few words to count by.

    `also` has the first difference of each other kind in the same answer, `torn` its rows that may be torn.
    """

    text: str
    kind: str = "other value"
    also: tuple[Difference, ...] = ()
    torn: tuple[IncompleteRow, ...] = ()

    @property
    def short(self) -> str:
        """The text without the whole rows."""
        return self.text.partition(ROWS)[0]

    @property
    def torn_rows(self) -> tuple[IncompleteRow, ...]:
        """The rows of the answer that may be torn."""
        return tuple(row for one in (self, *self.also) for row in one.torn)


@dataclass(frozen=True, slots=True)
class ColumnForms:
    """The names of columns that hold times and floats, and the labels of those that hold texts or booleans of a field.

    A whole float may come as the digits of an integer (JSON).
    """

    times: frozenset[str] = frozenset({"time"})
    floats: frozenset[str] = frozenset()
    labels: Mapping[str, tuple[str | bool, ...]] = field(default_factory=dict)


def forms_of(query: Query) -> ColumnForms:
    """Return the forms of an answer's columns."""
    if isinstance(query, Text):
        flags = {name: (False, True) for name, kind in query.answer if kind == "bool"}
        return ColumnForms(query.times, query.floats, flags)
    m = query.measurement
    floats = frozenset(one.name for one in m.fields if one.kind is Kind.FLOAT)
    rows = isinstance(query, Raw | Latest | Stored)  # of which columns are fields
    return ColumnForms(floats=floats, labels=m.labels(query.columns) if rows else {})


def labelled(query: Query, rows: list[Row]) -> list[Row]:
    """Return canonical rows for people, with texts and booleans in place of their numbers."""
    labels = forms_of(query).labels
    if not labels:
        return rows
    of_columns = [labels.get(name, ()) for name in query.columns]
    return [tuple(map(label_of, of_columns, row)) if len(row) == len(of_columns) else row for row in rows]


def label_of(labels: Sequence[str | bool], value: Any) -> Any:
    """Return what a number stands for; a value that is none of these numbers is returned as it is."""
    return labels[int(value)] if isinstance(value, float) and value in range(len(labels)) else value


def canonical(rows: Rows, forms: ColumnForms = ColumnForms(), *, odd_as_text: bool = False) -> list[Row]:
    """Return the rows in canonical form, sorted: times as int ns UTC, text and None unchanged, numbers as float.

    An integer that no float holds (some above 2**53) stays one, except in columns of floats. Where columns have labels,
    these are their numbers. With `odd_as_text` a value of a type that no answer can contain becomes text: stored rows
    may have any.

    Raises
    ------
    NotAnAnswer
        If a value is of a type that no answer can contain, unless `odd_as_text`.
    """
    try:
        return in_order([*zip(*canonical_columns(rows, forms, odd_as_text=odd_as_text), strict=True)])
    except ValueError:  # rows of different lengths, which are a wrong answer
        if odd_as_text:
            raise
        of_times = {i for i, name in enumerate(rows.columns) if name in forms.times}
        return in_order(
            [tuple(canonical_value(v, of_time=i in of_times) for i, v in enumerate(r)) for r in rows.records]
        )


def canonical_columns(rows: Rows, forms: ColumnForms, *, odd_as_text: bool = False) -> list[Sequence[Any]]:
    """Return the columns of rows in canonical form, and none of no rows; otherwise as `canonical`, and unsorted.

    Raises
    ------
    ValueError
        If rows have different lengths.
    """
    made = []
    for name, values in zip(rows.columns, rows.by_column(), strict=False):
        if labels := forms.labels.get(name):
            numbers: dict[Any, float] = {label: float(number) for number, label in enumerate(labels)}
            values = [_number_of(numbers, value) for value in values]  # noqa: PLW2901
        is_time, is_float = name in forms.times, name in forms.floats
        made.append(canonical_column(values, of_time=is_time, of_floats=is_float, odd_as_text=odd_as_text))
    return made


def _number_of(numbers: Mapping[Any, float], label: Any) -> Any:
    """Return the number of a label; any other value as a text, since a number would be taken for that of a label."""
    if label is None or (isinstance(label, str | int | float) and label in numbers):
        return None if label is None else numbers[label]
    return label if isinstance(label, str) else f"{type(label).__name__} {label!r}"


def in_order(rows: list[Row]) -> list[Row]:
    """Return canonical rows sorted."""
    try:
        return sorted(rows)  # forty times as fast as with a key
    except TypeError:  # mixed types: a wrong answer, but it needs an order to find the first difference
        return sorted(rows, key=lambda row: tuple(map(order, row)))


def order(value: Any) -> tuple[int, Any]:
    """Return a key that sorts canonical values of any types: None, then numbers, then text and NaN."""
    if isinstance(value, int | float) and not math.isnan(value):
        return 1, value
    return (0, 0) if value is None else (2, str(value))


def canonical_column(
    column: Sequence[Any], *, of_time: bool, of_floats: bool = False, odd_as_text: bool = False
) -> Sequence[Any]:
    """Return a column of values in canonical form; otherwise as `canonical`."""
    kinds = set(map(type, column))
    if of_time and kinds == {datetime}:
        return _times_ns(column)
    if kinds <= (_TIMES_AS_THEY_ARE if of_time else _AS_THEY_ARE):
        return column  # which nearly all are: a value at a time would take five times as long
    if not of_time and kinds <= _NUMBERS:
        floats = [value if value is None else float(value) for value in column]
        if of_floats or floats == [*column]:  # no float has lost digits
            return floats
    return [canonical_value(value, of_time=of_time, odd_as_text=odd_as_text) for value in column]


def canonical_value(value: Any, *, of_time: bool, odd_as_text: bool = False) -> Any:
    """Return one value in canonical form; otherwise as `canonical`."""
    try:
        return _time_ns(value) if of_time else _plain(value)
    except NotAnAnswer:
        if not odd_as_text:
            raise
        return f"{type(value).__name__} {value!r}"


def compare(expected: Rows, actual: Rows, forms: ColumnForms = ColumnForms()) -> Difference | None:
    """Return the first difference between a gold answer and a database's; None if they agree."""
    if tuple(expected.columns) != tuple(actual.columns):
        text = f"columns {', '.join(actual.columns)} instead of {', '.join(expected.columns)}"
        return Difference(text, "other columns")
    return compare_rows(canonical(expected, forms), canonical(actual, forms), expected.columns)


def compare_answers(query: Query, expected: list[Row], actual: list[Row]) -> Difference | None:
    """Return the first difference between two canonical answers to a query; None if they agree."""
    return compare_rows(labelled(query, expected), labelled(query, actual), query.columns)


def compare_rows(expected: list[Row], actual: list[Row], columns: tuple[str, ...]) -> Difference | None:
    """Return the first difference between two canonical lists of rows; None if they agree."""
    for index, (want, got) in enumerate(zip(expected, actual, strict=False)):
        for column, one, other in zip(columns, want, got, strict=False):
            if not equal(one, other):
                place = f"row {index + 1} of {len(expected)}, {column}"
                shown, wanted = (_shown_row(columns, row) for row in (got, want))
                values = f"{_shown(column, other)} instead of {_shown(column, one)}{_rounded(other, one)}"
                return Difference(f"{place}: {values}{ROWS}{shown}, expected {wanted})")
        if len(want) != len(got):
            return Difference(f"row {index + 1} has {len(got)} columns instead of {len(want)}", "other columns")
    if len(expected) != len(actual):
        extra = actual[len(expected)] if len(actual) > len(expected) else expected[len(actual)]
        word = "unexpected" if len(actual) > len(expected) else "missing"
        text = f"{len(actual)} rows instead of {len(expected)}; first {word}: {_shown_row(columns, extra)}"
        return Difference(text, f"{word} row")
    return None


def _shown_row(columns: Sequence[str], row: Row) -> str:
    """Return a canonical row for people, with its times as ISO 8601."""
    return f"({', '.join(map(_shown, (*columns, *[''] * len(row)), row))})"


def _shown(column: str, value: Any) -> str:
    if column == "time" and type(value) is int:
        with suppress(ValueError, OverflowError, OSError):  # a number that is none of a year up to 9999
            return format_time(value)
    return repr(value)


def _rounded(given: Any, expected: Any) -> str:
    """Return to how many decimals a wrong number looks rounded, as that of a decimal type; "" if it does not."""
    decimals = len(repr(given).partition(".")[2])
    if not (isinstance(given, float) and isinstance(expected, float)) or decimals not in _ROUNDED:
        return ""
    return f", rounded to {decimals} decimals" if abs(given - expected) <= 0.5 * 10.0**-decimals else ""


def equal(one: Any, other: Any) -> bool:
    """Return True if two canonical values are the same, the second within the bound of the first; NaN equals NaN."""
    if isinstance(one, Computed) and type(other) in {float, int}:
        return bool(one == other or abs(one - other) <= one.within)
    if isinstance(one, OneOf):
        return other in one.values
    if isinstance(one, Judged):
        return one.is_right and one == other
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return type(one) is type(other) and bool(one == other)


def _times_ns(moments: Sequence[datetime]) -> list[int]:
    """Return a column of times in ns, of which few are different: each is that of many series."""
    known = {moment: _time_ns(moment) for moment in {*moments}}
    return [known[moment] for moment in moments]


def _time_ns(value: Any) -> Any:
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        delta = moment - _EPOCH
        return ((delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds) * 1_000
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return _time_ns(value.item()) if hasattr(value, "item") else _plain(value)


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is int or (isinstance(value, float | int | Decimal) and kind is not bool):
        return canonical_number(value)
    if hasattr(value, "item"):  # numpy scalars
        return _plain(value.item())
    if isinstance(value, str):
        return str(value)
    raise NotAnAnswer(f"an answer holds a {type(value).__name__}: {value!r}")


def canonical_number(value: float | Decimal) -> float:
    """Return a number as a float, or as the integer that no float holds."""
    number = float(value)
    return number if number == value or value % 1 else int(value)  # a fraction of a decimal number is rounded


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
