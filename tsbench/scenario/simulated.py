"""What a user simulates: the tags, fields and measurements of use-case files, as pydantic models."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from tsbench.model import Field as Column
from tsbench.model import Kind
from tsbench.scenario.types import DurationNs, Part
from tsbench.text import suggestion
from tsbench.units import NS_PER_S
from tsbench.workload import expressions
from tsbench.workload.disorder import Disorder
from tsbench.workload.layout import Layout, Tag
from tsbench.workload.processes import Fixed, Fresh, Lazy, Normal, Pareto, Steady, TickCount, Uniform, Walk
from tsbench.workload.random_numbers import by_weight

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tsbench.workload.processes import Draw, Process
    from tsbench.workload.random_numbers import Floats

_NUMBER = re.compile(r"\{(?::0?(\d{0,2})d?)?\}")
"""The place of a number in a pattern, with its width."""
_EXACT = 2.0**53
"""Whole numbers up to this are exact as floats, in which fields are computed."""
_DAY_NS = 86_400 * NS_PER_S
_BELONGS = {
    "weights": ("of",),
    "stays": ("of", "uniform"),
    "changes": ("of", "uniform"),
    "first": ("walk", "counter"),
    "steps": ("walk", "counter"),
    "drift": ("walk",),
    "edge": ("walk",),
}
"""Keys of a field with the processes that have them."""
_PROCESSES = ("walk", "normal", "uniform", "pareto", "counter", "of", "constant", "entropy", "is")
Number = Annotated[float, Field(allow_inf_nan=False)]
Pair = Annotated[tuple[Number, Number], Field(strict=False)]
Label = Annotated[str, Field(min_length=1, max_length=200)]
Texts = Annotated[tuple[str, ...], Field(strict=False, min_length=1, max_length=10_000)]
Some = Annotated[tuple[Number, ...], Field(strict=False, min_length=1, max_length=10_000)]


class TagPart(Part):
    """[tags]: one tag, fixed for a series' life. Exactly one is the key: it has `number` and no `count`."""

    number: str | None = None
    """Pattern with the number of the series (the key), or of one of `count` values: `"p-{:05}"`. Of several places,
    such as `"{:03}-{:03}"`, the last one has the last digits."""
    first: Annotated[int, Field(ge=0, le=10**9)] = 0
    """The lowest number."""
    count: Annotated[int, Field(ge=1, le=10**9)] | None = None
    """How many different values `number` has."""
    of: Texts | dict[str, Texts] | None = None
    """Values to choose from; with `within`, a list for each value of that tag. With `number`, names for the key, which
    the number follows from the second round on: `Rome`, `Oslo`, `Rome-2`."""
    weights: Some | None = None
    """How often each value of `of` is chosen, in proportion. Default: all alike."""
    per: str | None = None
    """An earlier tag whose series with one value share the value of this tag."""
    within: str | None = None
    """An earlier tag on which the values to choose from depend: `of = { Rome = ["r1", "r2"], Oslo = ["o1"] }`."""

    @model_validator(mode="after")
    def _consistent(self) -> TagPart:
        if self.number is None and self.of is None:
            raise ValueError("needs number = 'p-{}' or of = ['a', 'b']")
        if self.number is None and self.first:
            raise ValueError("first: belongs to number; take it out")
        if self.number is not None:
            self._expect_pattern(self.number)
        lists = [*self.of.values()] if isinstance(self.of, dict) else [self.of or ()]
        if self.of is not None and (self.count or any(len({*of}) < len(of) or "" in of for of in lists)):
            raise ValueError("of: needs different texts that are not empty, and no count")
        if isinstance(self.of, dict) != (self.within is not None):
            raise ValueError("within: belongs to lists by the values of that tag, such as of = { Rome = ['r1', 'r2'] }")
        if self.within is not None and self.per is not None:
            raise ValueError("within: needs no per; take one of the two out")
        _expect_weights(self.weights, None if isinstance(self.of, dict) or self.number is not None else self.of)
        return self

    def _expect_pattern(self, number: str) -> None:
        """Verify that a number has a place in the pattern, and that no two numbers make one text."""
        places, plain = _NUMBER.findall(number), _NUMBER.sub("", number)
        if not places or "{" in plain or "}" in plain:
            raise ValueError(f"number: '{number}' needs the place of the number, {{}} or {{:05}}")
        if any(not int(width or 0) for width in places[1:]):
            raise ValueError(f"number: '{number}' needs the number of digits of each place but the first, {{:03}}")
        if self.of is None:
            return
        if isinstance(self.of, dict) or self.per is not None or len(places) > 1 or number[0].isalnum():
            raise ValueError("number: beside names in `of` it is what follows them from the second round on, '-{}'")
        made = tuple(name + number.split("{", maxsplit=1)[0] for name in self.of)
        if taken := next((name for name in self.of if name.startswith(made)), None):
            raise ValueError(f"of: '{taken}' is also what the second round makes; rename it")

    @property
    def values(self) -> tuple[str, ...] | None:
        """All values to choose from; None for a pattern."""
        if self.number is not None:
            return None
        return tuple(dict.fromkeys(chain(*self.of.values()))) if isinstance(self.of, dict) else self.of

    @property
    def is_key(self) -> bool:
        """Whether each series has a value of its own."""
        return self.number is not None and self.count is None

    def tag(self, name: str) -> Tag:
        """Return the tag as a world draws it."""
        if isinstance(self.of, dict):
            return Tag(name, within=self.within or "", choices_by=tuple(self.of.items()))
        if self.number is None:
            return Tag(name, choices=self.of or (), weights=self.weights or (), per=self.per or "")
        if self.of is not None:
            return Tag(name, partial(_name_of, self.of, self.number), self.first, numbered=True)
        widths = tuple(int(width or 0) for width in _NUMBER.findall(self.number))
        text = self.number.format if len(widths) == 1 else partial(_text_of, self.number, widths)
        return Tag(name, text, self.first, self.count or 0, numbered=self.is_key, per=self.per or "")


def _text_of(pattern: str, widths: tuple[int, ...], number: int) -> str:
    """Return a pattern with a number, whose last digits are in the last place."""
    parts: list[int] = []
    for width in widths[:0:-1]:
        number, part = divmod(number, 10**width)
        parts.insert(0, part)
    return pattern.format(number, *parts)


def _name_of(names: tuple[str, ...], pattern: str, number: int) -> str:
    """Return the names in turn, from the second round on with its number."""
    again, which = divmod(number, len(names))
    return names[which] + pattern.format(again + 1) if again else names[which]


def _expect_weights(weights: Sequence[float] | None, values: Sequence[Any] | None) -> None:
    if weights is None:
        return
    if values is None or len(weights) != len(values):
        raise ValueError("weights: needs one number for each value of `of`")
    if min(weights) < 0 or not sum(weights):
        raise ValueError("weights: must not be below 0, nor all 0")


class FieldPart(Part):
    """One field of a measurement: the process that makes its values, and what becomes of them."""

    walk: Annotated[Number, Field(gt=0)] | None = None
    """A random walk: the standard deviation of its step, or the limit of uniform ones."""
    drift: Number | None = None
    """The mean of a walk's steps. Default: 0."""
    steps: Literal["normal", "uniform"] | None = None
    """How the steps are distributed. Those of a walk are normal by default; uniform ones differ from `drift` by up to
    `walk`. Those of a counter are uniform up to twice their mean by default; normal ones have a standard deviation of 1
    and lose their sign."""
    edge: Literal["reflect", "clamp"] = "reflect"
    """What a walk does at `min` and `max`: it bounces off, or stays until a step leads back."""
    normal: Pair | None = None
    """New at each point: [mean, standard deviation]."""
    uniform: Pair | None = None
    """New at each point: [least, most]."""
    pareto: Pair | None = None
    """New at each point, mostly small: [shape, least]."""
    counter: Annotated[Number, Field(gt=0)] | None = None
    """A sum that only rises: the mean of its step."""
    of: Annotated[tuple[Number | bool | Label, ...], Field(strict=False, min_length=1, max_length=10_000)] | None = None
    """Numbers, texts, or true and false, to choose from, new at each point or after `stays`."""
    constant: Number | Pair | None = None
    """The same for a series' life: a number, or one between [least, most] for each series."""
    entropy: Annotated[int, Field(ge=1, le=52)] | None = None
    """New at each point, in [0, 1): this number of random bits, which no compression can save."""
    is_: str | None = Field(default=None, alias="is")
    """An expression over the other fields: + - * / and a few functions. `elapsed` is the time since the first point in
    seconds. Beside a process, the field's own name stands for what that makes."""
    weights: Some | None = None
    """How often each value of `of` is chosen, in proportion."""
    stays: Annotated[DurationNs, Field(gt=0)] | None = None
    """How long a value of `of` or `uniform` stays, in the mean."""
    changes: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Share of the points with a new value of `of` or `uniform`, in place of `stays`; with 0 a series keeps its one."""
    first: Number | Pair | None = None
    """Where a walk or a counter begins, or between which. Default: anywhere between `min` and `max`, else 0."""
    min: Number | None = None
    max: Number | None = None
    daily: Number | None = None
    """Half the difference between day and night, which is added as a sine of 24 hours."""
    decimals: Annotated[int, Field(ge=0, le=15)] | None = None
    """Decimals that values are rounded to. Default: none are cut."""
    truncate: bool = False
    """Whether further decimals are cut off in place of rounding; all of them where `type` is int."""
    type: Literal["float", "int"] = "float"
    unit: str = ""
    null: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Share of the points that lack it, chosen at random; 0 if only a form's `null` takes it. Expressions use the value
    that they would have."""
    hidden: bool = False
    """Whether it serves expressions only, and is not stored."""

    model_config = ConfigDict(populate_by_name=True)

    @model_validator(mode="after")
    def _consistent(self) -> FieldPart:
        given = [name for name in _PROCESSES if getattr(self, "is_" if name == "is" else name) is not None]
        if len(given) > 1 and given[-1] == "is" and self.kind not in {Kind.TEXT, Kind.BOOL}:
            given.pop()
        if len(given) != 1:
            text = f"has {' and '.join(given)}" if given else "has no process"
            raise ValueError(f"{text}; it needs exactly one of {', '.join(_PROCESSES)}")
        if self.min is not None and self.max is not None and self.min >= self.max:
            raise ValueError("min: must be below max")
        for name, needs in _BELONGS.items():
            if getattr(self, name) != type(self).model_fields[name].default and given[0] not in needs:
                raise ValueError(f"{name}: belongs to {' and '.join(needs)}")
        self._expect_together()
        if self.null is not None and self.hidden:
            raise ValueError("null: belongs to fields that are stored; take it out")
        for name, pair in (("uniform", self.uniform), ("constant", self.constant), ("first", self.first)):
            if isinstance(pair, tuple) and pair[0] >= pair[1]:
                raise ValueError(f"{name}: needs [least, most], the first below the second")
        if self.normal is not None and self.normal[1] <= 0:
            raise ValueError("normal: needs [mean, standard deviation], the second above 0")
        if self.pareto is not None and min(self.pareto) <= 0:
            raise ValueError("pareto: needs [shape, least], both above 0")
        _expect_weights(self.weights, self.of)
        self._expect_labels()
        return self

    def _expect_together(self) -> None:
        if self.stays is not None and self.changes is not None:
            raise ValueError("changes: needs no stays; take one of the two out")
        if self.edge == "clamp" and (self.min is None or self.max is None):
            raise ValueError("edge: needs min and max")
        if self.truncate and self.decimals is None and self.type == "float":
            raise ValueError("truncate: needs decimals; say how many stay")

    def _expect_labels(self) -> None:
        """Verify that all values of `of` are of one kind, and that texts and booleans have no keys of numbers."""
        kinds = {type(value) if isinstance(value, bool | str) else float for value in self.of or ()}
        if len(kinds) > 1:
            raise ValueError("of: needs numbers alone, texts alone, or true and false")
        if self.kind not in {Kind.TEXT, Kind.BOOL}:
            return
        if spaced := next(
            (value for value in self.of or () if isinstance(value, str) and value.strip() != value), None
        ):
            raise ValueError(f"of: '{spaced}' begins or ends with a space, which not all databases tell apart")
        if len({*(self.of or ())}) < len(self.of or ()):
            raise ValueError("of: a value stands twice; say with weights how often each is chosen")
        for name in ("daily", "min", "max", "decimals"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name}: belongs to numbers, and this field holds {self.kind.value} values")
        if self.type == "int":
            raise ValueError("type: belongs to numbers; take it out")

    @property
    def kind(self) -> Kind:
        """The type of the values."""
        first = self.of[0] if self.of else None
        if isinstance(first, bool | str):
            return Kind.BOOL if isinstance(first, bool) else Kind.TEXT
        return Kind(self.type)

    def column(self, name: str) -> Column:
        """Return the field as a measurement has it."""
        texts = tuple(map(str, self.of or ())) if self.kind is Kind.TEXT else ()
        return Column(name, self.kind, self.unit, self.null is not None, texts)

    def process(self, names: tuple[str, ...], interval_ns: int) -> Process | None:
        """Return the process of some fields with these parameters; None for an expression."""
        if self.walk is not None:
            return self._walk(names, self.walk)
        if self.counter is not None:
            if self.steps == "normal":
                return Walk(names, Normal(self.counter, 1.0), self._first(), monotone=True)
            return Walk(names, Uniform(0.0, 2 * self.counter), self._first())
        chance = self.changes if self.stays is None else min(1.0, interval_ns / self.stays)
        if chance is not None:
            least, most = self.uniform or (0.0, 1.0)
            return Lazy(names, least, most, chance) if chance else Steady(names, Uniform(least, most))
        if self.constant is not None:
            steady: Draw = Uniform(*self.constant) if isinstance(self.constant, tuple) else Fixed(self.constant)
            return Steady(names, steady)
        draw = self._draw()
        return None if draw is None else Fresh(names, draw)

    def _walk(self, names: tuple[str, ...], size: float) -> Process:
        drift = self.drift or 0.0
        step = Uniform(drift - size, drift + size) if self.steps == "uniform" else Normal(drift, size)
        if self.min is None or self.max is None:
            return Walk(names, step, self._first())
        start = Uniform(self.min, self.max) if self.first is None else self._first()
        return Walk(names, step, start, self.min, self.max, self.edge)

    def _first(self) -> Draw:
        return Uniform(*self.first) if isinstance(self.first, tuple) else Fixed(self.first or 0.0)

    def _draw(self) -> Draw | None:
        if self.normal is not None:
            return Normal(*self.normal)
        if self.uniform is not None:
            return Uniform(*self.uniform)
        if self.pareto is not None:
            return Pareto(*self.pareto)
        return Uniform(0.0, 1.0) if self.of is not None or self.entropy is not None else None

    @property
    def has_process(self) -> bool:
        """Whether it has more than an expression."""
        return any(getattr(self, name) is not None for name in _PROCESSES if name != "is")

    @property
    def is_raw(self) -> bool:
        """Whether its process's values are stored as they are; those of integers, without their decimals."""
        if self.is_ is not None or self.of is not None or self.entropy is not None or self._is_cut():
            return False
        if self.type == "float":
            return self.decimals is None
        given = [self.min, self.max, *_both(self.first), *_both(self.constant), *_both(self.uniform)]
        steps = [self.walk, self.drift, self.counter] if None in {self.min, self.max} else []
        # What an integer cannot hold is cut, also what a billion steps make.
        is_small = _largest(given) <= _EXACT and _largest(steps) < _EXACT / 10**9
        return self.truncate and is_small and self.normal is None and self.pareto is None

    def _is_cut(self) -> bool:
        """Return whether values may lie outside `min` and `max`."""
        if self.daily is not None or self.walk is None or self.min is None or self.max is None:
            return self.daily is not None or self.min is not None or self.max is not None
        with np.errstate(over="ignore"):
            exact = all(float(np.float32(limit)) == limit for limit in (self.min, self.max))
        return self.edge == "reflect" and not (exact and self.max - (self.max - self.min) == self.min)

    def limited(self, values: Floats, day: Floats | None) -> Floats:
        """Return what a process made, or an expression, within the limits; `day` is a sine of 24 hours."""
        if self.of is not None:
            numbers = range(len(self.of)) if self.kind is Kind.TEXT else self.of  # of texts their indexes
            values = np.array(numbers, dtype=np.float64)[by_weight(values, self.weights or (1.0,) * len(self.of))]
        if self.entropy is not None:
            values = np.floor(values * 2.0**self.entropy) / 2.0**self.entropy
        if self.daily is not None and day is not None:
            values = values + self.daily * day
        return np.clip(values, self.min, self.max) if self._is_cut() else values

    def rounded(self, values: Floats) -> Floats:
        """Return values as the field stores them."""
        if self.type == "int":
            whole: Floats = np.trunc(values) if self.truncate else np.rint(values)
            np.minimum(whole, _EXACT, out=whole)
            return np.maximum(whole, -_EXACT, out=whole)
        if self.decimals is None:
            return values
        exact: Floats = values.astype(np.float64)  # some are of single precision, and had other decimals then
        if not self.truncate:
            return np.round(exact, self.decimals, out=exact)
        if self.decimals:
            exact *= 10.0**self.decimals
        np.trunc(exact, out=exact)
        if self.decimals:
            exact /= 10.0**self.decimals
        exact += 0.0  # without a minus before a zero
        return exact

    def with_decimals(self, decimals: int | None) -> FieldPart:
        """Return the field with other decimals to round to, if these are given and it is a float that is stored."""
        if decimals is None or self.kind is not Kind.FLOAT or self.hidden or self.truncate:
            return self
        return self.model_copy(update={"decimals": decimals})


def _both(numbers: float | tuple[float, float] | None) -> Sequence[float | None]:
    return numbers if isinstance(numbers, tuple) else (numbers,)


def _largest(numbers: Sequence[float | None]) -> float:
    return max((abs(number) for number in numbers if number is not None), default=0.0)


_FINISH = {
    name: FieldPart.model_fields[name].default
    for name in ("decimals", "truncate", "unit", "hidden", "daily", "null", "type", "is_")
}
"""Keys of a field that its process does not depend on, with their defaults."""


_NO_OTHERS: Mapping[str, FieldPart] = MappingProxyType({})


class MeasurementPart(Part):
    """[[measurement]]: one measurement, of which every series has a point at each tick, or as often as it says."""

    name: str
    interval: Annotated[DurationNs, Field(gt=0)] | None = None
    """Time between two points of a series, a multiple of `world.interval`. Default: that one."""
    jitter: Annotated[DurationNs, Field(multiple_of=1_000_000)] = 0
    """How much later than at its tick a point may be, at most the interval; its time is a whole number of ms."""
    tags: dict[str, TagPart] = Field(default_factory=dict)
    """Tags of this measurement only."""
    fields: Annotated[dict[str, FieldPart], Field(min_length=1, max_length=1_000)]

    def layout(
        self, interval_ns: int, decimals: int | None = None, others: Mapping[str, FieldPart] = _NO_OTHERS
    ) -> Layout:
        """Return the measurement as a world simulates it, with `decimals` of floats and `others` in place of fields.

        Raises
        ------
        ValueError
            If an expression is none, or uses itself.
        """
        interval_ns = self.interval or interval_ns
        fields = {name: others.get(name, part).with_decimals(decimals) for name, part in self.fields.items()}
        same: dict[FieldPart, list[str]] = {}
        for name, part in fields.items():
            same.setdefault(part.model_copy(update=_FINISH), []).append(name)
        made = [part.process(tuple(names), interval_ns) for part, names in same.items()]
        made += [Fresh((_LACKS + name,), Uniform(0.0, 1.0)) for name, part in fields.items() if part.null]
        processes = [process for process in made if process is not None]
        order, used = _in_order(fields)
        if not processes or _ELAPSED in used or any(part.daily is not None for part in fields.values()):
            processes.append(TickCount((_CLOCK,)))
        sparse, derive = all(part.null for part in fields.values() if not part.hidden), None
        if any(part.null or not part.is_raw for part in fields.values()):
            derive = _Derivation.of(fields, order, used, sparse=sparse)
        columns = tuple(part.column(name) for name, part in fields.items() if not part.hidden)
        own = tuple(part.tag(name) for name, part in self.tags.items())
        return Layout(self.name, columns, tuple(processes), own, derive, self.interval or 0, self.jitter, sparse)


_CLOCK, _LACKS, _ELAPSED = " clock", " lacks ", "elapsed"
"""Names of quantities that are no fields: the ticks; the numbers by which points lack a field (before its name); the
seconds since the first tick, in expressions."""
_Order: TypeAlias = "tuple[tuple[str, expressions.Expression | None], ...]"
"""Fields with their expressions, each after those that it uses."""


def _in_order(fields: Mapping[str, FieldPart]) -> tuple[_Order, frozenset[str]]:
    """Return the fields in an order in which they can be computed, and the names that expressions use.

    Raises
    ------
    ValueError
        If an expression is none, or uses itself.
    """
    uses: dict[str, tuple[expressions.Expression | None, frozenset[str]]] = {}
    numbers = {_ELAPSED} | {name for name, part in fields.items() if part.kind is not Kind.TEXT}
    for name, part in fields.items():
        if part.is_ is None:
            uses[name] = None, frozenset()
            continue
        own = {name} if part.has_process else set()
        try:
            expression = expressions.Expression(part.is_, numbers - {name} | own)
        except ValueError as error:
            raise ValueError(f"{name}: is: {error}") from None
        uses[name] = expression, expression.uses - own
    order: dict[str, expressions.Expression | None] = {}
    while len(order) < len(uses):
        known = {*order, _ELAPSED} - (uses.keys() - order.keys())
        ready = [name for name, (_, needs) in uses.items() if name not in order and needs <= known]
        if not ready:
            raise ValueError(f"{next(name for name in uses if name not in order)}: is: it depends on itself")
        order |= {name: uses[name][0] for name in ready}
    return tuple(order.items()), frozenset().union(*(needs for _, needs in uses.values()))


@dataclass(frozen=True, slots=True)
class _Derivation:
    """Computes a measurement's fields from its processes' quantities.

    In their `order` are those that are not quantities themselves; those `lacking` are not in each point. A point that
    would lack all fields has the `last` one, None if some field is in each point.
    """

    order: tuple[tuple[str, FieldPart, expressions.Expression | None], ...]
    lacking: Mapping[str, float]
    last: str | None
    has_elapsed: bool
    is_daily: bool

    @classmethod
    def of(cls, fields: Mapping[str, FieldPart], order: _Order, used: frozenset[str], *, sparse: bool) -> _Derivation:
        """Return that of some fields, of which expressions use some; none is in each point if they are `sparse`."""
        lacking = {name: part.null for name, part in fields.items() if part.null}
        return cls(
            tuple(
                (name, fields[name], expression)
                for name, expression in order
                if not fields[name].is_raw or (fields[name].type == "int" and (name in used or fields[name].null))
            ),
            lacking,
            min(lacking, key=lacking.__getitem__) if sparse else None,
            _ELAPSED in used,
            any(part.daily is not None for part in fields.values()),
        )

    def __call__(self, quantities: Mapping[str, Floats], interval_ns: int) -> Mapping[str, Floats]:
        fields = dict(quantities)
        day = np.sin(quantities[_CLOCK] * (2 * np.pi * interval_ns / _DAY_NS)) if self.is_daily else None
        if self.has_elapsed:
            fields.setdefault(_ELAPSED, quantities[_CLOCK] * (interval_ns / NS_PER_S))
        shape = next(iter(quantities.values())).shape
        for name, part, expression in self.order:
            has_process = name in quantities
            if has_process:
                fields[name] = part.limited(fields[name], day)
            if expression is not None:
                computed = _finite(expression, fields, shape)
                fields[name] = computed if has_process else part.limited(computed, day)
            fields[name] = part.rounded(fields[name])
        lacks = {name: quantities[_LACKS + name] < share for name, share in self.lacking.items()}
        if self.last is not None:
            lacks[self.last] &= ~np.logical_and.reduce([*lacks.values()])
        for name, some in lacks.items():
            fields[name] = np.where(some, np.nan, fields[name])
        return fields


def _finite(expression: expressions.Expression, fields: Mapping[str, Floats], shape: tuple[int, ...]) -> Floats:
    with np.errstate(all="ignore"):
        values = np.array(expression(fields))  # a copy: it may be a field by itself
        if not np.isfinite(values.sum()):  # which nearly never is
            values = np.nan_to_num(values)
    return values if values.shape == shape else np.broadcast_to(values, shape)


Share = Annotated[float, Field(ge=0, le=1)]


class FormPart(Part):
    """[form.NAME]: what differs in worlds with `form = "NAME"`: fields, and defects of the points."""

    fields: dict[str, dict[str, FieldPart]] = Field(default_factory=dict)
    """Fields of measurements that have another process: `[form.peer.fields.nginx]` with `active = { ... }`."""

    late: Share = 0.0
    """Share of the points that are sent 1 to 10 intervals late."""
    out_of_order: Share = 0.0
    """Share of the points that change places with the next point of their series."""
    duplicate: Share = 0.0
    """Share of the points that are sent twice."""
    missing: Share = 0.0
    """Share of the points that are never sent."""
    lost: Share = 0.0
    """Share of the points that are never sent, in runs: those of ten neighbouring series at once."""
    held: Share = 0.0
    """Share of the points that are sent late, in such runs."""
    null: Share = 0.0
    """Share of the points that lack one of the fields with `null`."""
    null_tags: Share = 0.0
    """Share of the series that lack a tag, never the key."""

    @model_validator(mode="after")
    def _consistent(self) -> FormPart:
        Disorder(**self.defects)  # which refuses shares that do not fit together
        return self

    @property
    def defects(self) -> dict[str, Any]:
        """The shares of points with defects."""
        return self.model_dump(exclude={"fields"})


class ChurnPart(Part):
    """[churn]: series end, and others begin in their places; at any time `world.scale` of them live."""

    lifetime: Annotated[DurationNs, Field(gt=0)]
    """How long a series lives."""
    generations: Annotated[int, Field(ge=2, le=100_000)]
    """How many series have each place, one after the other, before the first one comes back."""


def expect_lists(name: str, tag: TagPart, above: Mapping[str, TagPart]) -> None:
    """Verify that a tag has a list for each value of the tag within which it is, one of those `above`."""
    if tag.within is None or tag.within not in above:
        raise ValueError(f"tags.{name}.within: '{tag.within}' is no tag above it")
    outer, lists = above[tag.within].values, tag.of if isinstance(tag.of, dict) else {}
    if outer is None:
        raise ValueError(f"tags.{name}.within: '{tag.within}' has no list of values")
    if lacking := next((value for value in outer if value not in lists), None):
        raise ValueError(f"tags.{name}.of: has no list for '{lacking}' of '{tag.within}'")
    if unknown := next((value for value in lists if value not in outer), None):
        raise ValueError(f"tags.{name}.of: '{tag.within}' is never '{unknown}'; {suggestion(unknown, outer)}")
