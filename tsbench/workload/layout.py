"""The declaration of a use case: tags, measurements, and the processes that generate their fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tsbench.model import Codes, Field, Measurement
from tsbench.workload.random_numbers import by_weight

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tsbench.model import Query, Tagged, Window
    from tsbench.workload.processes import Process
    from tsbench.workload.random_numbers import Bits, Floats
    from tsbench.workload.recording import Recorded

Derive: TypeAlias = "Callable[[Mapping[str, Floats], int], Mapping[str, Floats]]"
"""A function of (hidden quantities by name, interval in ns) that returns fields by name."""


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag whose value is `text(n)`, or `choices[n]` if it has choices.

    n is the number of the series itself (counting from `first`) if `numbered`, else a number drawn uniformly below
    `count`. A tag `within` another one takes its n-th choice from the list in `choices_by` for the other tag's value.
    """

    name: str
    text: Callable[[int], str] = str
    first: int = 0
    count: int = 0
    numbered: bool = False
    choices: tuple[str, ...] = ()
    within: str = ""
    choices_by: tuple[tuple[str, tuple[str, ...]], ...] = ()
    weights: tuple[float, ...] = ()
    """How often each choice is drawn, in proportion; all alike without."""
    per: str = ""
    """The tag whose series with one value share the value of this one."""

    def draw(self, bits: Bits, series: int, others: Mapping[str, Codes]) -> Codes:
        """Return this tag's value for every series; `others` holds the tags that were drawn before."""
        if self.numbered:
            values = tuple(map(self.text, range(self.first, self.first + series)))
            return Codes(np.arange(series, dtype=np.int32), values)
        drawn = bits.uniform(1, series)[0]
        if self.per:
            drawn = drawn[others[self.per].codes % series]
        if self.within:
            outer = others[self.within]
            lists = dict(self.choices_by)
            counts = np.array([len(lists[value]) for value in outer.values])
            starts = np.cumsum(counts) - counts
            chosen = starts[outer.codes] + (drawn * counts[outer.codes]).astype(np.int64)
            values = tuple(choice for value in outer.values for choice in lists[value])
            return Codes(chosen.astype(np.int32), values)
        if self.weights:
            return Codes(by_weight(drawn, self.weights).astype(np.int32), self.choices)
        if self.choices:
            return Codes((drawn * len(self.choices)).astype(np.int32), self.choices)
        numbers, codes = np.unique((drawn * self.count).astype(np.int64), return_inverse=True)
        values = tuple(self.text(self.first + n) for n in numbers.tolist())
        return Codes(codes.astype(np.int32), values)


@dataclass(frozen=True, slots=True)
class Layout:
    """One measurement: its own tags, its fields in order, and the processes that generate their values.

    Without `derive` every field is a quantity of one of the processes, by name. Fields of kind INT are truncated
    toward zero.
    """

    name: str
    fields: tuple[Field, ...]
    processes: tuple[Process, ...]
    tags: tuple[Tag, ...] = ()
    derive: Derive | None = None
    interval_ns: int = 0
    """Time between two points of a series, a multiple of the world's interval; 0: that one."""
    jitter_ns: int = 0
    """How much later than that a point is at most: by a whole number of ms below this, drawn anew for each."""
    sparse: bool = False
    """Whether a point may lack any fields but one."""

    def every(self, interval_ns: int) -> int:
        """Return the number of ticks from one point of a series to the next, in a world of this interval."""
        return max(1, self.interval_ns // interval_ns)


@dataclass(frozen=True, slots=True)
class Pick:
    """The random choices for one query: measurement, fields, window, keys (None: every series), and values of tags."""

    measurement: Measurement
    fields: tuple[str, ...]
    window: Window
    keys: tuple[str, ...] | None
    tagged: tuple[Tagged, ...] = ()


Build: TypeAlias = "Callable[[Pick], Query]"


@dataclass(frozen=True, slots=True)
class QueryKind:
    """A family of queries with the same form and random parameters.

    Parameters
    ----------
    doc
        One sentence for people.
    build
        Function that makes the query from the random choices.
    length_ns
        Length of the window; 0 means one interval of the world.
    share
        Length of the window as a share of the loaded time, in place of `length_ns`.
    keys
        Number of series to choose; 0 means all.
    fields
        Names of the measurement's fields; none means all.
    measurements
        Names of the measurements, of which queries take one in turn; empty means the world's first.
    tagged
        Conditions on tags that all of its queries have.
    draws
        Tags, each with the number of its values that a query chooses: rows of series with one of them.
    zipf
        Whether few series and values are chosen often, the first ones most: the r-th with a probability like 1/r.
    """

    doc: str
    build: Build
    length_ns: int = 0
    share: float = 0.0
    keys: int = 0
    fields: tuple[str, ...] = ()
    measurements: tuple[str, ...] = ()
    tagged: tuple[Tagged, ...] = ()
    draws: tuple[tuple[str, int], ...] = ()
    zipf: bool = False


@dataclass(frozen=True, slots=True)
class Churn:
    """How series end, and others begin in their places: each lives for `lifetime_ns`, `generations` in each place.

    They begin at different times, and after the last one the first comes back.
    """

    lifetime_ns: int
    generations: int


@dataclass(frozen=True, slots=True)
class UseCase:
    """The tags that all measurements share, and the measurements per form.

    `forms` maps `bounded` and its variants to the measurements. A world of a form with `defects` has these shares of
    `disorder.Disorder` unless it is given others.
    """

    name: str
    doc: str
    tags: tuple[Tag, ...]
    forms: Mapping[str, tuple[Layout, ...]]
    defects: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    queries: Mapping[str, QueryKind] = field(default_factory=dict)
    """Its own kinds of query, beside those that any world has."""
    recorded: Recorded | None = None
    """The points, if they are recorded; else they are simulated."""
    churn: Churn | None = None
    """How series end; None if all live as long as the world."""

    def measurement(self, layout: Layout) -> Measurement:
        """Return the measurement that a layout describes."""
        shared = tuple(tag.name for tag in self.tags)
        own = tuple(tag.name for tag in layout.tags)
        return Measurement(layout.name, shared, layout.fields, own, layout.sparse)
