"""Use-case files: the series, measurements, fields and queries that a user describes, as pydantic models."""

from __future__ import annotations

import re
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import ConfigDict, Field, ValidationError, model_validator

from tsbench import plugins
from tsbench.errors import UserMistake
from tsbench.model import Field as Column
from tsbench.model import Kind
from tsbench.scenario import prepared
from tsbench.scenario.file import explain, naming, odd_text, read_document
from tsbench.scenario.own_data import HIDDEN, RecordingPart, TimeColumn, expect_no_hidden
from tsbench.scenario.own_queries import NAME, QueryPart, expect_answerable, expect_names, query_kinds
from tsbench.scenario.types import FILE, DurationNs, Part
from tsbench.units import NS_PER_S, format_time
from tsbench.workload import expressions
from tsbench.workload.layout import Layout, Tag, UseCase
from tsbench.workload.processes import Fixed, Fresh, Lazy, Normal, Pareto, Steady, TickCount, Uniform, Walk
from tsbench.workload.random_numbers import by_weight
from tsbench.workload.use_cases import USE_CASES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tsbench.workload.processes import Draw, Process
    from tsbench.workload.random_numbers import Floats
    from tsbench.workload.recording import Recorded

_PATTERN = re.compile(r"[^{}]*\{(?::0?\d{0,2}d?)?\}[^{}]*")
_EXACT = 2.0**53
"""Whole numbers up to this are exact as floats, in which fields are computed."""
_DAY_NS = 86_400 * NS_PER_S
_PROCESSES = ("walk", "normal", "uniform", "pareto", "counter", "of", "constant", "entropy", "is")
Number = Annotated[float, Field(allow_inf_nan=False)]
Pair = Annotated[tuple[Number, Number], Field(strict=False)]
Label = Annotated[str, Field(min_length=1, max_length=200)]
Some = Annotated[tuple[Number, ...], Field(strict=False, min_length=1, max_length=10_000)]


class TagPart(Part):
    """[tags]: one tag, fixed for a series' life. Exactly one is the key: it has `number` and no `count`."""

    number: str | None = None
    """Pattern with the number of the series (the key), or of one of `count` values: `"p-{:05}"`."""
    count: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """How many different values `number` has."""
    of: Annotated[tuple[str, ...], Field(strict=False, min_length=1, max_length=10_000)] | None = None
    """Values to choose from."""
    weights: Some | None = None
    """How often each value of `of` is chosen, in proportion. Default: all alike."""
    per: str | None = None
    """An earlier tag whose series with one value share the value of this tag."""

    @model_validator(mode="after")
    def _consistent(self) -> TagPart:
        if (self.number is None) == (self.of is None):
            raise ValueError("needs either number = 'p-{}' or of = ['a', 'b']")
        if self.number is not None and not _PATTERN.fullmatch(self.number):
            raise ValueError(f"number: '{self.number}' needs the place of the number once, {{}} or {{:05}}")
        if self.of is not None and (self.count is not None or len({*self.of}) < len(self.of) or "" in self.of):
            raise ValueError("of: needs different texts that are not empty, and no count")
        _expect_weights(self.weights, self.of)
        return self

    @property
    def is_key(self) -> bool:
        """Whether each series has a value of its own."""
        return self.number is not None and self.count is None

    def tag(self, name: str) -> Tag:
        """Return the tag as a world draws it."""
        if self.of is not None:
            return Tag(name, choices=self.of, weights=self.weights or (), per=self.per or "")
        text = (self.number or "").format
        return Tag(name, text, count=self.count or 0, numbered=self.is_key, per=self.per or "")


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
    """A random walk: the standard deviation of its step. Between `min` and `max` it is reflected."""
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
    """An expression over the other fields: + - * / and a few functions."""
    weights: Some | None = None
    """How often each value of `of` is chosen, in proportion."""
    stays: Annotated[DurationNs, Field(gt=0)] | None = None
    """How long a value of `of` stays, in the mean."""
    first: Number | None = None
    """Where a walk or a counter begins. Default: anywhere between `min` and `max`, else 0."""
    min: Number | None = None
    max: Number | None = None
    daily: Number | None = None
    """Half the difference between day and night, which is added as a sine of 24 hours."""
    decimals: Annotated[int, Field(ge=0, le=15)] | None = None
    """Decimals that values are rounded to. Default: none are cut."""
    type: Literal["float", "int"] = "float"
    unit: str = ""
    null: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of the points that lack it, chosen at random. Expressions use the value that they would have."""
    hidden: bool = False
    """Whether it serves expressions only, and is not stored."""

    model_config = ConfigDict(populate_by_name=True)

    @model_validator(mode="after")
    def _consistent(self) -> FieldPart:
        given = [name for name in _PROCESSES if getattr(self, "is_" if name == "is" else name) is not None]
        if len(given) != 1:
            text = f"has {' and '.join(given)}" if given else "has no process"
            raise ValueError(f"{text}; it needs exactly one of {', '.join(_PROCESSES)}")
        if self.min is not None and self.max is not None and self.min >= self.max:
            raise ValueError("min: must be below max")
        for name, needs in (("weights", "of"), ("stays", "of")):
            if getattr(self, name) is not None and given != [needs]:
                raise ValueError(f"{name}: belongs to {needs}")
        if self.first is not None and given[0] not in {"walk", "counter"}:
            raise ValueError("first: belongs to walk and counter")
        if self.null is not None and (self.type == "int" or self.hidden):
            raise ValueError("null: belongs to floats that are stored; an integer has no form for it")
        for pair in (self.uniform, self.constant):
            if isinstance(pair, tuple) and pair[0] >= pair[1]:
                raise ValueError(f"{given[0]}: needs [least, most], the first below the second")
        if self.normal is not None and self.normal[1] <= 0:
            raise ValueError("normal: needs [mean, standard deviation], the second above 0")
        if self.pareto is not None and min(self.pareto) <= 0:
            raise ValueError("pareto: needs [shape, least], both above 0")
        _expect_weights(self.weights, self.of)
        self._expect_labels()
        return self

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
        for name in ("null", "daily", "min", "max", "decimals"):
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
            return Walk(names, Uniform(0.0, 2 * self.counter), Fixed(self.first or 0.0))
        if self.of is not None and self.stays is not None:
            return Lazy(names, 0.0, 1.0, min(1.0, interval_ns / self.stays))
        if self.constant is not None:
            steady: Draw = Uniform(*self.constant) if isinstance(self.constant, tuple) else Fixed(self.constant)
            return Steady(names, steady)
        draw = self._draw()
        return None if draw is None else Fresh(names, draw)

    def _walk(self, names: tuple[str, ...], sd: float) -> Process:
        if self.min is None or self.max is None:
            return Walk(names, Normal(0.0, sd), Fixed(self.first or 0.0))
        start = Uniform(self.min, self.max) if self.first is None else Fixed(self.first)
        return Walk(names, Normal(0.0, sd), start, self.min, self.max, "reflect")

    def _draw(self) -> Draw | None:
        if self.normal is not None:
            return Normal(*self.normal)
        if self.uniform is not None:
            return Uniform(*self.uniform)
        if self.pareto is not None:
            return Pareto(*self.pareto)
        return Uniform(0.0, 1.0) if self.of is not None or self.entropy is not None else None

    def finished(self, values: Floats, day: Floats | None) -> Floats:
        """Return a process's values, or an expression's, as the field stores them; `day` is a sine of 24 hours."""
        if self.of is not None:
            numbers = range(len(self.of)) if self.kind is Kind.TEXT else self.of  # of texts their indexes
            values = np.array(numbers, dtype=np.float64)[by_weight(values, self.weights or (1.0,) * len(self.of))]
        if self.entropy is not None:
            values = np.floor(values * 2.0**self.entropy) / 2.0**self.entropy
        if self.daily is not None and day is not None:
            values = values + self.daily * day
        if self.min is not None or self.max is not None:
            values = np.clip(values, self.min, self.max)
        if self.type == "int":
            return np.clip(np.rint(values), -_EXACT, _EXACT)
        return values if self.decimals is None else np.round(values, self.decimals)


class MeasurementPart(Part):
    """[[measurement]]: one measurement, of which every series has a point at each tick."""

    name: str
    tags: dict[str, TagPart] = Field(default_factory=dict)
    """Tags of this measurement only."""
    fields: Annotated[dict[str, FieldPart], Field(min_length=1, max_length=1_000)]

    def layout(self, interval_ns: int) -> Layout:
        """Return the measurement as a world simulates it."""
        same: dict[FieldPart, list[str]] = {}
        for name, part in self.fields.items():
            bare = {"decimals": None, "unit": "", "hidden": False, "daily": None, "null": None, "type": "float"}
            same.setdefault(part.model_copy(update=bare), []).append(name)
        made = [part.process(tuple(names), interval_ns) for part, names in same.items()]
        made += [Fresh((_LACKS + name,), Uniform(0.0, 1.0)) for name, part in self.fields.items() if part.null]
        processes = [process for process in made if process is not None]
        if not processes or any(part.daily is not None for part in self.fields.values()):
            processes.append(TickCount((_CLOCK,)))
        columns = tuple(part.column(name) for name, part in self.fields.items() if not part.hidden)
        own = tuple(part.tag(name) for name, part in self.tags.items())
        return Layout(self.name, columns, tuple(processes), own, partial(_derived, self.fields, self._order()))

    def _order(self) -> tuple[tuple[str, expressions.Expression | None], ...]:
        """Return the fields in an order in which each expression comes after those that it uses.

        Raises
        ------
        ValueError
            If an expression is none, or uses itself.
        """
        uses = {}
        for name, part in self.fields.items():
            try:
                known = {other for other, field in self.fields.items() if field.kind is not Kind.TEXT} - {name}
                uses[name] = (None, frozenset()) if part.is_ is None else expressions.parse(part.is_, known)
            except ValueError as error:
                raise ValueError(f"{name}: is: {error}") from None
        order: dict[str, expressions.Expression | None] = {}
        while len(order) < len(uses):
            ready = [name for name, (_, needs) in uses.items() if name not in order and needs <= order.keys()]
            if not ready:
                raise ValueError(f"{next(name for name in uses if name not in order)}: is: it depends on itself")
            order |= {name: uses[name][0] for name in ready}
        return tuple(order.items())


_CLOCK, _LACKS = " clock", " lacks "
"""Names of quantities that are no fields: the ticks, and the numbers by which points lack a field (before its name)."""


def _derived(
    parts: Mapping[str, FieldPart],
    order: Sequence[tuple[str, expressions.Expression | None]],
    quantities: Mapping[str, Floats],
    interval_ns: int,
) -> Mapping[str, Floats]:
    """Return all fields from the processes' quantities."""
    day = np.sin(quantities[_CLOCK] * (2 * np.pi * interval_ns / _DAY_NS)) if _CLOCK in quantities else None
    shape = next(iter(quantities.values())).shape
    fields: dict[str, Floats] = {}
    for name, expression in order:
        with np.errstate(all="ignore"):
            values = quantities[name] if expression is None else expression(fields)
            fields[name] = parts[name].finished(np.broadcast_to(np.nan_to_num(values), shape), day)
    lacking = {name: part.null for name, part in parts.items() if part.null is not None}
    return fields | {
        name: np.where(quantities[_LACKS + name] < share, np.nan, fields[name]) for name, share in lacking.items()
    }


class UseCaseFile(Part):
    """A use case as its file describes it."""

    about: str
    """What the data are, in a line."""
    recording: RecordingPart | None = None
    """Files that have the points, in place of `tags` and `measurement`, which simulate them."""
    tags: Annotated[dict[str, TagPart], Field(max_length=100)] = Field(default_factory=dict)
    measurement: Annotated[tuple[MeasurementPart, ...], Field(strict=False, max_length=1_000)] = ()
    query: Annotated[tuple[QueryPart, ...], Field(strict=False, max_length=1_000)] = ()

    @model_validator(mode="after")
    def _consistent(self) -> UseCaseFile:
        if self.recording is not None:
            self._expect_recorded(self.recording)
            return self
        for name in ("tags", "measurement"):
            if not getattr(self, name):
                raise ValueError(f"{name}: is missing; a use case has tags and measurements, or a [recording]")
        keys = [name for name, tag in self.tags.items() if tag.is_key]
        if len(keys) != 1:
            said = f"{' and '.join(keys)} are" if keys else "none is"
            raise ValueError(f"tags: {said} the key; exactly one tag has number = 'p-{{}}' without count")
        expect_names("measurement", [m.name for m in self.measurement])
        drawn: list[str] = []
        for name, tag in self.tags.items():
            if tag.per is not None and tag.per not in drawn:
                raise ValueError(f"tags.{name}.per: '{tag.per}' is no tag above it")
            drawn.append(name)
        for m in self.measurement:
            place = f"measurement.{m.name}"
            if any(tag.is_key or tag.per is not None for tag in m.tags.values()):
                raise ValueError(f"{place}.tags: the key, and tags with per, are in [tags]")
            expect_names(place, [*self.tags, *m.tags, *m.fields])
            stored = [part for part in m.fields.values() if not part.hidden]
            if not stored:
                raise ValueError(f"{place}.fields: all are hidden; one has to be stored")
            if all(part.null is not None for part in stored):
                raise ValueError(f"{place}.fields: all have null; one has to be in each point")
            try:
                m.layout(NS_PER_S)
            except ValueError as error:
                raise ValueError(f"{place}.fields.{error}") from None
        tags = {keys[0]: None} | {name: tag.of for name, tag in self.tags.items()}
        expect_answerable(self.query, self.layouts(NS_PER_S), tags)
        return self

    def _expect_recorded(self, recording: RecordingPart) -> None:
        """Verify that nothing else has points, and that the queries fit the recording, if it is prepared."""
        if self.tags or self.measurement:
            raise ValueError(f"{'tags' if self.tags else 'measurement'}: belongs to simulated data; take it out")
        if recording.digest:
            tags = {tag.name: tag.choices for tag in prepared.tags_of(recording)}
            expect_answerable(self.query, prepared.layouts_of(recording), tags)

    def layouts(self, interval_ns: int) -> tuple[Layout, ...]:
        """Return the measurements as a world simulates them."""
        return tuple(m.layout(interval_ns) for m in self.measurement)

    def case(self, name: str, interval_ns: int) -> UseCase:
        """Return the use case for worlds with this interval."""
        if self.recording is not None:
            layouts, tags = prepared.layouts_of(self.recording), prepared.tags_of(self.recording)
            kinds, points = query_kinds(self.query, layouts), prepared.recorded(self.recording)
            return UseCase(name, self.about, tags, {"bounded": layouts}, queries=kinds, recorded=points)
        ordered = sorted(self.tags.items(), key=lambda item: not item[1].is_key)
        tags = tuple(tag.tag(own) for own, tag in ordered)
        layouts = self.layouts(interval_ns)
        return UseCase(name, self.about, tags, {"bounded": layouts}, queries=query_kinds(self.query, layouts))


_INNER: dict[str, type[Part]] = {
    "tags": TagPart,
    "measurement": MeasurementPart,
    "fields": FieldPart,
    "query": QueryPart,
    "recording": RecordingPart,
    "time": TimeColumn,
}


@lru_cache(maxsize=16)
def _read(path: Path, _changed: tuple[int, int]) -> UseCaseFile:
    _, document = read_document(path, "use case")
    if odd := odd_text(document):
        raise UserMistake(f"{path}: {odd}")
    with naming(f"{path}: "):
        expect_no_hidden(document)
    try:
        return UseCaseFile.model_validate(document, context=FILE)
    except ValidationError as error:
        raise UserMistake(f"{path}: {explain(error, UseCaseFile, _INNER, hidden=HIDDEN)}") from None


def read_use_case(path: Path) -> UseCaseFile:
    """Read a use-case file.

    Raises
    ------
    UserMistake
        One line with the file, the key, the mistake and the cure.
    """
    if path.stem in USE_CASES:
        raise UserMistake(f"{path}: '{path.stem}' is a built-in use case; rename the file")
    if not NAME.fullmatch(path.stem.replace("-", "_")):
        raise UserMistake(f"{path}: its name names the data; take letters, digits and hyphens, such as pumps.toml")
    try:
        status = path.stat()
    except OSError:
        return _read(path, (0, 0))  # which says what is wrong
    case = _read(path, (status.st_mtime_ns, status.st_size))
    if case.recording is None:
        return case
    with naming(f"{path}: "):
        recording = prepared.prepared(case.recording, path.parent)
        try:
            return UseCaseFile.model_validate(dict(case) | {"recording": recording})
        except ValidationError as error:
            raise UserMistake(explain(error, UseCaseFile, _INNER, hidden=HIDDEN)) from None


def resolved(world: Any, place: Path) -> Any:
    """Return a [world] table whose use case is a file (below `place`, or from here) with what the file describes."""
    name = world.get("use_case") if isinstance(world, dict) else None
    if not isinstance(name, str) or "described" in world or (path := _path_of(name, place)) is None:
        return world
    described = read_use_case(path)
    given = {} if described.recording is None else _recorded_keys(world, prepared.recorded(described.recording))
    return {**world, "use_case": path.stem, "described": described, **given}


def is_recorded(use_case: str, place: Path) -> bool:
    """Return whether a use case, by its name or its file below `place`, has recorded points."""
    path = _path_of(use_case, place)
    return path is not None and read_use_case(path).recording is not None


def recording_of(use_case: str) -> Recorded | None:
    """Return the recording of a use case, by its name or file; None if its points are simulated."""
    if (path := _path_of(use_case, Path())) is None:
        return None
    recording = read_use_case(path).recording
    return None if recording is None else prepared.recorded(recording)


def _path_of(name: str, place: Path) -> Path | None:
    """Return the path of a use case's file: below `place`, or else from here; that of an installed package's.

    None for what is built in, or unknown.
    """
    if not name.endswith(".toml"):
        return None if name in USE_CASES else plugins.use_case(name)
    path = place / name
    return path if path.exists() or not Path(name).exists() else Path(name)


_SIMULATED = ("interval", "form", "late", "out_of_order", "duplicate", "missing")
"""Keys of [world] that simulate."""


def _recorded_keys(world: Mapping[str, Any], recorded: Recorded) -> dict[str, Any]:
    """Return the keys of [world] that a recording says itself."""
    if (scale := world.get("scale", recorded.series)) != recorded.series:
        raise UserMistake(f"world.scale: the recording has {recorded.series:,} series, not {scale}; take it out")
    if unfit := next((key for key in _SIMULATED if key in world), None):
        raise UserMistake(f"world.{unfit}: belongs to simulated data, and these are recorded; take it out")
    start = {} if "start" in world else {"start": format_time(recorded.start_ns)}
    return {"scale": recorded.series, "interval": f"{recorded.interval_ns}ns", **start}
