"""The nouns that every other module speaks in: what is measured, written, asked and answered.

All of them are plain data. Nothing here opens a connection, knows a database or draws a random number.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

Aggregate: TypeAlias = Literal["max", "min", "mean", "sum", "count"]


# --- what is measured -------------------------------------------------------------------------------------------------


class Kind(StrEnum):
    """The type of a field's values."""

    FLOAT = "float"
    INT = "int"


@dataclass(frozen=True, slots=True)
class Field:
    """One measured quantity; `unit` is free text for people."""

    name: str
    kind: Kind = Kind.FLOAT
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one kind of reading consists of.

    `tags` describe the thing that is measured and are shared by all measurements of a use case; the first of them is
    the key by which queries choose and group. `own_tags` belong to this measurement alone. A series is one thing's
    values of one measurement, so both are fixed for a series.
    """

    name: str
    tags: tuple[str, ...]
    fields: tuple[Field, ...]
    own_tags: tuple[str, ...] = ()

    @property
    def key(self) -> str | None:
        """The tag that queries choose and group by; None where there is a single series without tags."""
        return self.tags[0] if self.tags else None

    @property
    def field_names(self) -> tuple[str, ...]:
        """The fields' names, in order."""
        return tuple(f.name for f in self.fields)


@dataclass(frozen=True, slots=True, eq=False)
class Codes:
    """A dictionary-encoded text column: entry i is `values[codes[i]]`; `codes` is int32 of shape (n,)."""

    codes: NDArray[np.int32]
    values: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: int) -> str:
        return self.values[int(self.codes[index])]

    def tolist(self) -> list[str]:
        """Every entry as text."""
        values = self.values
        return [values[code] for code in self.codes.tolist()]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Points of one measurement, as columns, in the order in which they are sent.

    A pure function of (world, stream, number). `time_ns` is int64 UTC nanoseconds since 1970 of shape (n,), `series`
    int32 of shape (n,) indexes the world's series (0 .. scale-1), `tags` holds for every tag of the measurement
    (shared and own) one entry per *series of the world*, not per row, and `fields` float64 or int64 of shape (n,) by
    field name.
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
        """How many field values the points carry."""
        return len(self.time_ns) * len(self.fields)

    def rows(self, start: int, stop: int) -> Batch:
        """Rows start <= i < stop, as views."""
        return self.where(slice(start, stop))

    def where(self, rows: slice | NDArray[np.bool_]) -> Batch:
        """The rows that a slice (as views) or a mask of shape (n,) chooses."""
        return replace(
            self,
            time_ns=self.time_ns[rows],
            series=self.series[rows],
            fields={name: column[rows] for name, column in self.fields.items()},
        )


def merge_batches(batches: Sequence[Batch]) -> Batch:
    """Batches of one measurement and world as one, their rows one batch after the other; its number is the first's."""
    first = batches[0]
    return replace(
        first,
        time_ns=np.concatenate([batch.time_ns for batch in batches]),
        series=np.concatenate([batch.series for batch in batches]),
        fields={name: np.concatenate([b.fields[name] for b in batches]) for name in first.fields},
    )


# --- what is asked ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Window:
    """Points with start_ns <= time < end_ns, in UTC nanoseconds since 1970."""

    start_ns: int
    end_ns: int

    def __post_init__(self) -> None:
        if self.end_ns <= self.start_ns:
            raise ValueError(f"an empty window: {self.start_ns} .. {self.end_ns}")

    @property
    def length_ns(self) -> int:
        """Its length in nanoseconds."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True)
class Raw:
    """The rows themselves: time, key (where there is one), fields. `keys` None means every series."""

    measurement: Measurement
    fields: tuple[str, ...]
    window: Window
    keys: tuple[str, ...] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The answer's columns."""
        return _keyed(self.measurement, self.fields)


@dataclass(frozen=True, slots=True)
class Bucketed:
    """An aggregate of each field per time bucket, over the chosen series together: time, fields.

    Buckets are aligned to the epoch (UTC): a point at t belongs to the bucket that starts at t - t mod bucket_ns. A
    bucket without points has no row.
    """

    measurement: Measurement
    fields: tuple[str, ...]
    aggregate: Aggregate
    bucket_ns: int
    window: Window
    keys: tuple[str, ...] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The answer's columns."""
        return ("time", *self.fields)


@dataclass(frozen=True, slots=True)
class Grouped:
    """An aggregate of each field per time bucket and series: time, key, fields."""

    measurement: Measurement
    fields: tuple[str, ...]
    aggregate: Aggregate
    bucket_ns: int
    window: Window
    keys: tuple[str, ...] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The answer's columns."""
        return _keyed(self.measurement, self.fields)


@dataclass(frozen=True, slots=True)
class Latest:
    """The newest row of every series: time, key, fields. `before_ns` None means up to now."""

    measurement: Measurement
    fields: tuple[str, ...]
    before_ns: int | None = None
    keys: tuple[str, ...] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The answer's columns."""
        return _keyed(self.measurement, self.fields)


@dataclass(frozen=True, slots=True)
class Above:
    """The rows of the window in which `field` exceeds `threshold`: time, key, fields."""

    measurement: Measurement
    fields: tuple[str, ...]
    field: str
    threshold: float
    window: Window
    keys: tuple[str, ...] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The answer's columns."""
        return _keyed(self.measurement, self.fields)


@dataclass(frozen=True, slots=True)
class LatestBuckets:
    """The newest `limit` buckets before `before_ns` of an aggregate over all series together: time, fields."""

    measurement: Measurement
    fields: tuple[str, ...]
    aggregate: Aggregate
    bucket_ns: int
    before_ns: int
    limit: int

    @property
    def columns(self) -> tuple[str, ...]:
        """The answer's columns."""
        return ("time", *self.fields)


@dataclass(frozen=True, slots=True)
class Count:
    """How many points of a measurement are stored (for the audit): one row, one column `points`."""

    measurement: Measurement

    @property
    def columns(self) -> tuple[str, ...]:
        """The answer's columns."""
        return ("points",)


Query: TypeAlias = Raw | Bucketed | Grouped | Latest | Above | LatestBuckets | Count


def _keyed(measurement: Measurement, fields: Iterable[str]) -> tuple[str, ...]:
    key = () if measurement.key is None else (measurement.key,)
    return ("time", *key, *fields)


# --- what comes back --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """An answer as the driver gave it, one tuple per row under `columns`; `check.comparison` makes it canonical.

    A column called `time` may hold datetimes (aware, or naive in UTC) or integers (nanoseconds since 1970).
    """

    columns: tuple[str, ...]
    records: Sequence[tuple[Any, ...]]

    def __len__(self) -> int:
        return len(self.records)


class Outcome(IntEnum):
    """How an op ended.

    UNKNOWN: no answer came, so it may or may not have taken effect. PARTIAL: the database refused some points of a
    write and not others.
    """

    OK = 0
    FAILED = 1
    UNKNOWN = 2
    PARTIAL = 3


class OpError(Exception):
    """An op that did not succeed; raised by sessions.

    `outcome` is FAILED when the server refused it and UNKNOWN when no answer came; `cause` is a short, stable word to
    count by (`timeout`, `connection`, `refused`, `constraint`, ...); the text is for people.
    """

    def __init__(self, outcome: Outcome, cause: str, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.cause = cause


class PartialWrite(OpError):  # noqa: N818 - names what happened
    """A write of which the database refused some points and not others; raised by `Session.write`.

    `acknowledged` points are stored and `refused` ones are not; nobody knows of the rest, if there is one.
    `refused_rows` are the places of the refused points in the batch, ascending, if the database says which they are;
    then all others are acknowledged.
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
    """The outcome of one check of a run's figures: True, False, or None where it cannot be decided."""

    valid: bool | None
    reason: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def state(self) -> Literal["valid", "invalid", "inconclusive"]:
        """The outcome as a word."""
        return "valid" if self.valid else "inconclusive" if self.valid is None else "invalid"

    def to_json(self) -> dict[str, Any]:
        """Return it as summary.json keeps it."""
        return {"state": self.state, "reason": self.reason, "counts": dict(self.counts)}


def merge_verdicts(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst of several: invalid before inconclusive before valid. Reasons of the others are joined."""
    found = list(verdicts)
    if not found:
        return Verdict(None, "nothing was checked")
    rank = {False: 0, None: 1, True: 2}
    worst = min(found, key=lambda v: rank[v.valid])
    reasons = [v.reason for v in sorted(found, key=lambda v: rank[v.valid]) if v.valid is not True and v.reason]
    return Verdict(worst.valid, "; ".join(dict.fromkeys(reasons)))


class WriteMode(StrEnum):
    """How points travel to the server."""

    SINGLE = "single"  # one point, one request, prepared where the database can
    MULTI = "multi"  # many points in one ordinary write statement
    BULK = "bulk"  # the database's own bulk path
