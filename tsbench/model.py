"""The data types that all other modules share: measurements, batches, queries, answers and verdicts.

All of them are plain data. Nothing here opens a connection, knows a database or draws a random number.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from tsbench.text import shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

Aggregate: TypeAlias = str
"""One of `AGGREGATES`, or a percentile, `p1` to `p99`."""
REDUCTIONS = ("max", "min", "mean", "sum", "count")
"""Aggregates that need neither the order of values nor all of them at once: each database has them."""
AGGREGATES = (*REDUCTIONS, "first", "last")
"""Of points that have the field: `first` and `last` are the values of the oldest and of the newest of them."""
PERCENTILE = "p[1-9][0-9]?"
"""Pattern of the names of percentiles."""


class Kind(StrEnum):
    """The type of a field's values."""

    FLOAT = "float"
    INT = "int"
    TEXT = "text"
    BOOL = "bool"


@dataclass(frozen=True, slots=True)
class Field:
    """A field; `unit` is free text for people. Points may lack a `nullable` one: its column has floats, NaN for none.

    Those of integers are whole then, and at most 2^53. A text is one of `texts`: columns have its index there, as they
    have 0 and 1 for the values of a boolean.
    """

    name: str
    kind: Kind = Kind.FLOAT
    unit: str = ""
    nullable: bool = False
    texts: tuple[str, ...] = ()

    @property
    def has_floats(self) -> bool:
        """Whether its columns are of floats; else of int64."""
        return self.kind is Kind.FLOAT or self.nullable

    @property
    def labels(self) -> tuple[str | bool, ...]:
        """What the numbers 0, 1, ... of a column stand for; nothing where they are numbers."""
        return (False, True) if self.kind is Kind.BOOL else self.texts


@dataclass(frozen=True, slots=True)
class Measurement:
    """The tags and fields of one kind of reading.

    `tags` describe the device or host that is measured and are shared by all measurements of a use case; the first of
    them is the key by which queries choose and group. `own_tags` belong to this measurement alone. A series is one
    device's values of one measurement, so the tags of a series never change.
    """

    name: str
    tags: tuple[str, ...]
    fields: tuple[Field, ...]
    own_tags: tuple[str, ...] = ()
    sparse: bool = field(default=False, repr=False)
    """Whether a point may lack any fields but one, so that no field is in all points."""

    @property
    def key(self) -> str | None:
        """Name of the tag that queries choose and group by; None for a single series without tags."""
        return self.tags[0] if self.tags else None

    @property
    def field_names(self) -> tuple[str, ...]:
        """Names of the fields, in order."""
        return tuple(f.name for f in self.fields)

    @property
    def nullable(self) -> bool:
        """Whether a point may lack a field."""
        return any(f.nullable for f in self.fields)

    @property
    def fields_to_count(self) -> tuple[str, ...]:
        """Names of fields of which each point has one: one; two, where it may lack one of all; or all, if sparse."""
        whole = [f.name for f in self.fields if not f.nullable]
        return (whole[0],) if whole else self.field_names if self.sparse else self.field_names[:2]

    def having(self, fields: Iterable[Field]) -> Measurement:
        """Return the measurement with these fields, which is sparse if each may be lacking."""
        some = (*fields,)
        return replace(self, fields=some, sparse=all(one.nullable for one in some))

    def labels(self, names: Iterable[str]) -> dict[str, tuple[str | bool, ...]]:
        """Return the labels of those of the named fields that are texts or booleans."""
        return {f.name: f.labels for f in self.fields if f.labels and f.name in names}


@dataclass(frozen=True, slots=True, eq=False)
class Codes:
    """A text column: entry i is `values[codes[i]]`; `codes` is int32, of shape (n,)."""

    codes: NDArray[np.int32]
    values: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: int) -> str:
        return self.values[int(self.codes[index])]

    def tolist(self) -> list[str]:
        """Return all entries as text."""
        values = self.values
        return [values[code] for code in self.codes.tolist()]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Points of one measurement, as columns, in the order in which they are sent.

    A pure function of (world, stream, number). `time_ns` is int64 UTC nanoseconds since 1970 of shape (n,), `series`
    int32 of shape (n,) indexes the world's series (0 .. scale-1), `tags` holds for every tag of the measurement
    (shared and own) one entry per *series of the world*, not per row, and `fields` float64 or int64 of shape (n,) by
    field name; those of texts and booleans are int64 (`Field.labels`), or float64 where points may lack them.
    """

    measurement: Measurement
    stream: int
    number: int
    time_ns: NDArray[np.int64]
    series: NDArray[np.int32]
    tags: Mapping[str, Codes]
    fields: Mapping[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(self.time_ns)

    @property
    def values(self) -> int:
        """Number of field values in the batch: one for each point and field that it does not lack."""
        columns = (self.fields[one.name] for one in self.measurement.fields if one.nullable)
        return len(self) * len(self.fields) - sum(int((one != one).sum()) for one in columns)  # noqa: PLR0124 - NaN

    def rows(self, start: int, stop: int) -> Batch:
        """Return rows start <= i < stop, as views."""
        return self.where(slice(start, stop))

    def where(self, rows: slice | NDArray[np.bool_]) -> Batch:
        """Return the rows that a slice (as views) or a mask of shape (n,) selects."""
        return replace(
            self,
            time_ns=self.time_ns[rows],
            series=self.series[rows],
            fields={name: column[rows] for name, column in self.fields.items()},
        )


# --- queries ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Window:
    """A time range start_ns <= time < end_ns, in UTC nanoseconds since 1970."""

    start_ns: int
    end_ns: int

    def __post_init__(self) -> None:
        if self.end_ns <= self.start_ns:
            raise ValueError(f"an empty window: {self.start_ns} .. {self.end_ns}")

    @property
    def length_ns(self) -> int:
        """Length in nanoseconds."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True)
class _OfFields:
    """A query for fields: its answer has the columns time, key (if `by_key` and the measurement has one), fields."""

    by_key = True
    measurement: Measurement
    fields: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the answer's columns."""
        key = self.measurement.key if self.by_key else None
        return ("time", *(() if key is None else (key,)), *self.fields)


Comparator: TypeAlias = Literal[">", ">=", "<", "<=", "="]
_COMPARE: dict[str, Callable[[Any, float], Any]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "=": operator.eq,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a field of a row, such as `temp > 80`.

    `value` is the number in columns, and `label` the text or boolean that it stands for, if the field is such.
    """

    field: str
    comparison: Comparator
    value: float
    label: str | bool | None = None

    @property
    def operand(self) -> float | str | bool:
        """What a database compares the field with."""
        return self.value if self.label is None else self.label

    def holds(self, values: Any) -> Any:
        """Return whether it holds for a value, or for each one of a column; it never does for one that is missing."""
        return _COMPARE[self.comparison](values, self.value)


def share_of(aggregate: Aggregate) -> float | None:
    """Return the share of values below a percentile (0.95 of p95); None of another aggregate.

    Of n sorted values it is the one at (n - 1) * share, from 0, interpolated between two: SQL's percentile_cont.
    """
    return int(aggregate[1:]) / 100 if aggregate[0] == "p" and aggregate[1:].isdigit() else None


@dataclass(frozen=True, slots=True)
class Tagged:
    """A condition on a row's series: its tag has one of the values, which are texts that are not empty."""

    tag: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Raw(_OfFields):
    """A query for stored rows: time, key (if the measurement has one), fields. `keys` None means every series.

    Only rows for which all conditions of `where` hold are wanted, of series for which those of `tagged` do, and which
    have at least one of the fields. With `top`, whose column is the time, only the first rows in its order are wanted.
    """

    window: Window
    keys: tuple[str, ...] | None = None
    where: tuple[Condition, ...] = ()
    tagged: tuple[Tagged, ...] = ()
    top: Top | None = None

    @property
    def may_be_void(self) -> bool:
        """Whether a point may lack all of the fields; then it is no row of the answer."""
        return all(one.nullable for one in self.measurement.fields if one.name in self.fields)


@dataclass(frozen=True, slots=True)
class Top:
    """The `limit` rows with the highest values of a column, or with the lowest; of equal ones at the limit any."""

    column: str
    limit: int
    lowest: bool = False


@dataclass(frozen=True, slots=True)
class Aggregated:
    """A query for aggregates of rows of a window: time (where it has buckets), the tags of `by`, values.

    `values` are pairs of an aggregate and a field. Buckets are aligned to the epoch (UTC): a point at t belongs to the
    bucket that starts at t - t mod bucket_ns. There is a row for each bucket and group of series with the same tags
    that has points; without buckets the window is one. A field that no point of a group has counts 0, and has no other
    aggregate (a sum of 0 will do). Of several points at the time of the first or last one any value will do. Rows are
    chosen as for `Raw`. With `top` only the first rows by one of the values are wanted.
    """

    measurement: Measurement
    values: tuple[tuple[Aggregate, str], ...]
    window: Window
    bucket_ns: int | None = None
    by: tuple[str, ...] = ()
    keys: tuple[str, ...] | None = None
    where: tuple[Condition, ...] = ()
    tagged: tuple[Tagged, ...] = ()
    top: Top | None = None

    @classmethod
    def of(
        cls,
        measurement: Measurement,
        fields: Sequence[str],
        aggregate: Aggregate,
        bucket_ns: int | None,
        window: Window,
        keys: tuple[str, ...] | None = None,
        by: tuple[str, ...] = (),
    ) -> Aggregated:
        """Return a query for the same aggregate of several fields."""
        return cls(measurement, _each(aggregate, tuple(fields)), window, bucket_ns, by, keys)

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields, each once."""
        return _parts_of(self.values)[0]

    @property
    def aggregates(self) -> frozenset[Aggregate]:
        """The aggregates, each once."""
        return _parts_of(self.values)[1]

    @property
    def value_names(self) -> tuple[str, ...]:
        """Names of the columns of values: of their fields, or `max_temp` where a field has several aggregates."""
        return names_of_values(self.values)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the answer's columns."""
        return (*(("time",) if self.bucket_ns is not None else ()), *self.by, *self.value_names)


# Kept, since queries of one kind have the same: made anew they were a third of the time to make and compile a query.
@lru_cache(maxsize=256)
def _each(aggregate: Aggregate, fields: tuple[str, ...]) -> tuple[tuple[Aggregate, str], ...]:
    return tuple((aggregate, field) for field in fields)


@lru_cache(maxsize=256)
def _parts_of(
    values: tuple[tuple[Aggregate, str], ...],
) -> tuple[tuple[str, ...], frozenset[Aggregate], tuple[str, ...]]:
    """Return the fields of pairs of an aggregate and a field, the aggregates, and the names of their columns."""
    fields = tuple(dict.fromkeys(field for _, field in values))
    names = fields if len(fields) == len(values) else tuple(f"{how}_{field}" for how, field in values)
    return fields, frozenset(how for how, _ in values), names


def names_of_values(values: tuple[tuple[Aggregate, str], ...]) -> tuple[str, ...]:
    """Return the names of the columns that pairs of an aggregate and a field have in an answer."""
    return _parts_of(values)[2]


@dataclass(frozen=True, slots=True)
class Latest(_OfFields):
    """A query for the newest row of every series: time, key, fields. `before_ns` None means up to now."""

    before_ns: int | None = None
    keys: tuple[str, ...] | None = None
    tagged: tuple[Tagged, ...] = ()


@dataclass(frozen=True, slots=True)
class LatestBuckets(_OfFields):
    """A query for the newest `limit` buckets before `before_ns`, aggregated over all series: time, fields."""

    by_key = False
    aggregate: Aggregate
    bucket_ns: int
    before_ns: int
    limit: int

    @property
    def values(self) -> tuple[tuple[Aggregate, str], ...]:
        """Pairs of the aggregate and a field."""
        return tuple((self.aggregate, field) for field in self.fields)

    @property
    def value_names(self) -> tuple[str, ...]:
        """Names of the columns of values."""
        return self.fields


@dataclass(frozen=True, slots=True)
class Text:
    """A query in a user's own words, in one or several databases' languages.

    `answer` has the names and kinds of its columns: time, text, int, float or bool. `texts` has the text by the name of
    its language; the parameters in it are :start and :end of the window, and the names in `values`, each with its
    texts. `gold` is DuckDB's SQL for the right answer, about a table of the measurement with the points of the window;
    "" if there is none, and answers are not compared. `halves` has how the values of some columns follow from those of
    the window's halves: sum, min or max. With `top` the texts return the first rows by a column, and `gold` all.
    """

    measurement: Measurement
    answer: tuple[tuple[str, str], ...]
    texts: tuple[tuple[str, str], ...]
    gold: str
    window: Window
    values: tuple[tuple[str, tuple[str, ...]], ...] = ()
    halves: tuple[tuple[str, str], ...] = ()
    top: Top | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the answer's columns."""
        return tuple(name for name, _ in self.answer)

    @property
    def times(self) -> frozenset[str]:
        """Names of the columns that hold times."""
        return frozenset(name for name, kind in self.answer if kind == "time")

    @property
    def floats(self) -> frozenset[str]:
        """Names of the columns that hold floats."""
        return frozenset(name for name, kind in self.answer if kind == "float")


@dataclass(frozen=True, slots=True)
class Count:
    """A query for the number of stored points of a measurement (for the audit): one row, one column."""

    measurement: Measurement
    columns: ClassVar = ("points",)


OTHERS = "(others)"
"""Column of `Stored` with all other tags and fields that a point has: a JSON object by name, None if it has none."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A query for all that is stored with each point (for the audit): time, tags, own tags, fields, `OTHERS`.

    Points with start_ns <= time < end_ns; None is no bound, and a point without a time lies before every other one. At
    most `limit` rows are returned, whichever they are. A tag or field that a point lacks is None.
    """

    measurement: Measurement
    start_ns: int | None = None
    end_ns: int | None = None
    limit: int | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the answer's columns."""
        m = self.measurement
        return ("time", *m.tags, *m.own_tags, *m.field_names, OTHERS)


Query: TypeAlias = Raw | Aggregated | Latest | LatestBuckets | Text | Count | Stored


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """An answer as the driver returned it, one tuple per row under `columns`, and `notes` on copies that are not alike.

    `check.comparison` converts it to one canonical form. A column called `time` may hold datetimes (aware, or naive in
    UTC) or integers (nanoseconds since 1970). Rows that came as columns are `ByColumn`.
    """

    columns: tuple[str, ...]
    records: Sequence[tuple[Any, ...]]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.records)

    def by_column(self) -> list[Sequence[Any]]:
        """Return the values of each column; no columns of no rows.

        Raises
        ------
        ValueError
            If the rows have different lengths.
        """
        if isinstance(self.records, ByColumn):
            return self.records.lists() if len(self) else []
        return [*zip(*self.records, strict=True)]


class ByColumn(Sequence[tuple[Any, ...]]):
    """The rows of columns of the same length: lists, arrays of int64 or of float64 without NaN, or `Codes`."""

    def __init__(self, columns: list[Any]) -> None:
        self.columns = columns

    def lists(self) -> list[Sequence[Any]]:
        """Return the columns with Python's own values."""
        return [column.tolist() if hasattr(column, "tolist") else column for column in self.columns]

    def __len__(self) -> int:
        return len(self.columns[0]) if self.columns else 0

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return zip(*self.lists(), strict=True)

    def __getitem__(self, place: Any) -> Any:
        return [*self][place]


class Outcome(IntEnum):
    """The outcome of an op.

    UNKNOWN: no answer came, so nobody knows. PARTIAL: the database refused some points of a write and not others.
    """

    OK = 0
    FAILED = 1
    UNKNOWN = 2
    PARTIAL = 3


class OpError(Exception):
    """Raised by sessions for an op that did not succeed.

    `outcome` is FAILED if the server refused the op and UNKNOWN if no answer came; `cause` is a short, stable word to
    count by (`timeout`, `connection`, `refused`, `constraint`, ...); the text is for people.
    """

    def __init__(self, outcome: Outcome, cause: str, message: str) -> None:
        super().__init__(shortened(" ".join(message.split()), 1_000))  # a server's text may have any length and lines
        self.outcome = outcome
        self.cause = cause


class PartialWrite(OpError):  # noqa: N818 - names what happened
    """A write of which the database refused some points and not others; raised by `Session.write`.

    `acknowledged` and `refused` count points; the outcome of any others is unknown. `refused_rows` are the places of
    the refused points in the batch, ascending, if the database names them; then all others are acknowledged.
    """

    def __init__(
        self,
        message: str,
        *,
        acknowledged: int,
        refused: int,
        refused_rows: tuple[int, ...] = (),
        cause: str = "partial write",
    ) -> None:
        super().__init__(Outcome.PARTIAL, cause, message)
        self.acknowledged = acknowledged
        self.refused = refused
        self.refused_rows = refused_rows


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one check of a run's figures: True, False, or None if it cannot be decided."""

    valid: bool | None
    reason: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def state(self) -> Literal["valid", "invalid", "inconclusive"]:
        """The outcome as a word."""
        return "valid" if self.valid else "inconclusive" if self.valid is None else "invalid"

    def to_json(self) -> dict[str, Any]:
        """Return the verdict in the form that summary.json stores."""
        return {"state": self.state, "reason": self.reason, "counts": dict(self.counts)}


def merge_verdicts(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst of several verdicts (invalid, inconclusive, valid) with all their reasons."""
    each = list(verdicts)
    if not each:
        return Verdict(None, "nothing was checked")
    rank = {False: 0, None: 1, True: 2}
    worst = min(each, key=lambda v: rank[v.valid])
    reasons = [v.reason for v in sorted(each, key=lambda v: rank[v.valid]) if v.valid is not True and v.reason]
    return Verdict(worst.valid, "; ".join(dict.fromkeys(reasons)))


class WriteMode(StrEnum):
    """The request by which points are sent to the server."""

    SINGLE = "single"  # one point, one request, prepared where the database can
    MULTI = "multi"  # many points in one ordinary write statement
    BULK = "bulk"  # the database's own bulk path

    @classmethod
    def usual(cls, points: int) -> WriteMode:
        """Return the mode of a write of `points` points if none is configured."""
        return cls.SINGLE if points == 1 else cls.MULTI
