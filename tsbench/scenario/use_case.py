"""Use-case files: the series, measurements, fields and queries that a user describes, as pydantic models."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from tsbench import plugins
from tsbench.errors import UserMistake
from tsbench.scenario import prepared
from tsbench.scenario.file import explain, naming, odd_text, read_document
from tsbench.scenario.own_data import (
    HIDDEN,
    RecordingPart,
    TimeColumn,
    expect_alike,
    expect_no_hidden,
    listed_tables,
)
from tsbench.scenario.own_queries import NAME, KnownPart, QueryPart, expect_answerable, expect_names, query_kinds
from tsbench.scenario.simulated import ChurnPart, FieldPart, FormPart, MeasurementPart, TagPart, expect_lists
from tsbench.scenario.types import FILE, Part
from tsbench.text import listed, suggestion
from tsbench.units import NS_PER_S, format_time
from tsbench.workload import queries
from tsbench.workload.layout import Churn, Layout, UseCase
from tsbench.workload.world import BUILT_IN, World, WorldSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tsbench.model import Window
    from tsbench.workload.recording import Recorded


class UseCaseFile(Part):
    """A use case as its file describes it."""

    about: str
    """What the data are, in a line."""
    recording: Annotated[
        tuple[RecordingPart, ...], BeforeValidator(listed_tables), Field(strict=False, max_length=1_000)
    ] = ()
    """Files that have the points, a table for each measurement, in place of `tags` and `measurement`."""
    tags: Annotated[dict[str, TagPart], Field(max_length=100)] = Field(default_factory=dict)
    measurement: Annotated[tuple[MeasurementPart, ...], Field(strict=False, max_length=1_000)] = ()
    form: Annotated[dict[str, FormPart], Field(max_length=20)] = Field(default_factory=dict)
    """Variants, which `world.form` chooses; `bounded`, the default, has nothing of them."""
    world: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """Keys of [world] for scenarios that do not say them: `{ scale = 40, interval = "20s" }`."""
    churn: ChurnPart | None = None
    """How series end and others begin. Default: all live as long as the data."""
    query: Annotated[tuple[QueryPart, ...], Field(strict=False, max_length=1_000)] = ()

    @model_validator(mode="after")
    def _consistent(self) -> UseCaseFile:
        if self.recording:
            self._expect_recorded()
            return self
        if not self.measurement:
            raise ValueError("measurement: is missing; a use case has tags and measurements, or a [recording]")
        keys = [name for name, tag in self.tags.items() if tag.is_key]
        if len(keys) != 1 and self.tags:
            said = f"{' and '.join(keys)} are" if keys else "none is"
            raise ValueError(f"tags: {said} the key; exactly one tag has number = 'p-{{}}' without count")
        expect_names("measurement", [m.name for m in self.measurement])
        drawn: list[str] = []
        for name, tag in self.tags.items():
            if tag.per is not None and tag.per not in drawn:
                raise ValueError(f"tags.{name}.per: '{tag.per}' is no tag above it")
            if tag.within is not None:
                expect_lists(name, tag, self.tags if tag.within in drawn else {})
            drawn.append(name)
        if self.churn is not None and not self.tags:
            raise ValueError("churn: needs [tags] with a key, which names the series")
        expect_names("form", [*self.form])
        if "bounded" in self.form:
            raise ValueError("form.bounded: is the name of the file itself; take another one")
        for m in self.measurement:
            self._expect_measurement(m)
        for name, form in self.form.items():
            self._expect_form(f"form.{name}", form)
        tags = dict.fromkeys(keys) | {name: tag.values for name, tag in self.tags.items()}
        expect_answerable(self.query, self._layouts(NS_PER_S), tags, taken=queries.QUERIES)
        return self

    def _expect_measurement(self, m: MeasurementPart) -> None:
        place = f"measurement.{m.name}"
        if any(tag.is_key or tag.per is not None or tag.within is not None for tag in m.tags.values()):
            raise ValueError(f"{place}.tags: the key, and tags with per or within, are in [tags]")
        if m.tags and not self.tags:
            raise ValueError(f"{place}.tags: needs [tags] with a key")
        expect_names(place, [*self.tags, *m.tags, *m.fields])
        stored = [part for part in m.fields.values() if not part.hidden]
        if not stored:
            raise ValueError(f"{place}.fields: all are hidden; one has to be stored")
        taken = any(form.null for form in self.form.values()) and all(part.null is not None for part in stored)
        if taken and sum(not part.null for part in stored) < 2:  # a form takes one field of a point
            raise ValueError(f"{place}.fields: all have null, and a form takes one more; one has to be in each point")
        try:
            m.layout(NS_PER_S)
        except ValueError as error:
            raise ValueError(f"{place}.fields.{error}") from None

    def _expect_form(self, place: str, form: FormPart) -> None:
        """Verify that a form's fields are those of the measurements, with other values only."""
        known = {m.name: m for m in self.measurement}
        for of, fields in form.fields.items():
            if of not in known:
                raise ValueError(f"{place}.fields: there is no measurement '{of}'; {suggestion(of, known)}")
            for name, part in fields.items():
                if (usual := known[of].fields.get(name)) is None:
                    hint = suggestion(name, known[of].fields)
                    raise ValueError(f"{place}.fields.{of}: '{of}' has no field '{name}'; {hint}")
                if (part.hidden, part.column(name)) != (usual.hidden, usual.column(name)):
                    raise ValueError(f"{place}.fields.{of}.{name}: differs in type, unit, null or hidden; say the same")
            try:
                known[of].layout(NS_PER_S, others=fields)
            except ValueError as error:
                raise ValueError(f"{place}.fields.{of}.{error}") from None

    def _expect_recorded(self) -> None:
        """Verify that nothing else has points, and that the queries fit the recording, if it is prepared."""
        if simulated := next((name for name in ("tags", "measurement", "churn") if getattr(self, name)), None):
            raise ValueError(f"{simulated}: belongs to simulated data; take it out")
        expect_alike(self.recording)
        if self.recording[0].digest:
            tags = {tag.name: tag.choices for tag in prepared.tags_of(self.recording)}
            expect_answerable(self.query, prepared.layouts_of(self.recording), tags, taken=queries.QUERIES)

    def _layouts(
        self, interval_ns: int, decimals: int | None = None, form: FormPart | None = None
    ) -> tuple[Layout, ...]:
        others = form.fields if form else {}
        return tuple(m.layout(interval_ns, decimals, others.get(m.name, {})) for m in self.measurement)

    def case(self, name: str, interval_ns: int, decimals: int | None = None) -> UseCase:
        """Return the use case for worlds with this interval; `decimals` of floats, if given, replace its own."""
        if self.recording:
            layouts, tags = prepared.layouts_of(self.recording), prepared.tags_of(self.recording)
            kinds, points = query_kinds(self.query, layouts), prepared.recorded(self.recording)
            return UseCase(name, self.about, tags, {"bounded": layouts}, queries=kinds, recorded=points)
        ordered = sorted(self.tags.items(), key=lambda item: not item[1].is_key)
        tags = tuple(tag.tag(own) for own, tag in ordered)
        layouts = self._layouts(interval_ns, decimals)
        forms = {"bounded": layouts}
        forms |= {name: self._layouts(interval_ns, decimals, form) for name, form in self.form.items()}
        defects = {name: form.defects for name, form in self.form.items()}
        churn = None if self.churn is None else Churn(self.churn.lifetime, self.churn.generations)
        return UseCase(name, self.about, tags, forms, defects, query_kinds(self.query, layouts), churn=churn)


_INNER: dict[str, type[Part]] = {
    "tags": TagPart,
    "measurement": MeasurementPart,
    "fields": FieldPart,
    "form": FormPart,
    "churn": ChurnPart,
    "query": QueryPart,
    "known": KnownPart,
    "recording": RecordingPart,
    "time": TimeColumn,
}


def _with_base(document: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return a file's tables with those of its `base`, another use case, of which it may choose `measurements`."""
    base, chosen = (document.pop(key, None) for key in ("base", "measurements"))
    if base is None:
        if chosen is not None:
            raise UserMistake("measurements: belongs to base, of which it chooses some; take it out")
        return document
    if not isinstance(base, str):
        raise UserMistake("base: needs a built-in use case (`tsbench list use-cases`) or a file beside this one")
    source = BUILT_IN.get(base, path.parent / base)
    _, above = read_document(source, "use case")
    if "base" in above or "recording" in above or "recording" in document:
        raise UserMistake(f"base: '{base}' and this one need to simulate, and '{base}' to have no base itself")
    if base not in BUILT_IN:
        read_use_case(source)  # which is refused here if it is wrong
    known = [m["name"] for m in above["measurement"]]
    if chosen is None:
        return {**above, **document}
    if not isinstance(chosen, list) or not chosen or (odd := [name for name in chosen if name not in known]):
        hint = suggestion(str(odd[0]), known) if isinstance(chosen, list) and chosen else f"there are {listed(known)}"
        raise UserMistake(f"measurements: needs names of measurements of '{base}'; {hint}")
    asked = [one for one in above.get("query", ()) if {*_names_of(one.get("of", known[0]))} <= {*chosen}]
    measurements = [m for m in above["measurement"] if m["name"] in chosen]
    forms = {
        name: {**form, "fields": {of: fields for of, fields in form.get("fields", {}).items() if of in chosen}}
        for name, form in above.get("form", {}).items()
    }
    return {**above, "measurement": measurements, "query": asked, "form": forms, **document}


def _names_of(names: str | list[str]) -> list[str]:
    return [names] if isinstance(names, str) else names


@lru_cache(maxsize=16)
def _read(path: Path, _changed: tuple[int, int]) -> UseCaseFile:
    _, document = read_document(path, "use case")
    if odd := odd_text(document):
        raise UserMistake(f"{path}: {odd}")
    with naming(f"{path}: "):
        document = _with_base(document, path)
        expect_no_hidden(document)
    try:
        return UseCaseFile.model_validate(document, context=FILE)
    except ValidationError as error:
        said = explain(error, UseCaseFile, _INNER, hidden=HIDDEN)
        if isinstance(document.get("recording"), dict):  # not a list, as it is read
            said = said.replace("recording.0", "recording", 1)
        raise UserMistake(f"{path}: {said}") from None


def read_use_case(path: Path) -> UseCaseFile:
    """Read a use-case file.

    Raises
    ------
    UserMistake
        One line with the file, the key, the mistake and the cure.
    """
    if BUILT_IN.get(path.stem, path) != path:
        raise UserMistake(f"{path}: '{path.stem}' is a built-in use case; rename the file")
    if not NAME.fullmatch(path.stem.replace("-", "_")):
        raise UserMistake(f"{path}: its name names the data; take letters, digits and hyphens, such as pumps.toml")
    try:
        status = path.stat()
    except OSError:
        return _read(path, (0, 0))  # which says what is wrong
    case = _read(path, (status.st_mtime_ns, status.st_size))
    if not case.recording:
        return case
    with naming(f"{path}: "):
        recording = prepared.prepared(case.recording, path.parent)
        try:
            return UseCaseFile.model_validate(dict(case) | {"recording": recording})
        except ValidationError as error:
            raise UserMistake(explain(error, UseCaseFile, _INNER, hidden=HIDDEN)) from None


def built_in(name: str) -> UseCaseFile | None:
    """Return what the file of a built-in use case says; None for any other name."""
    return read_use_case(BUILT_IN[name]) if name in BUILT_IN else None


@lru_cache(maxsize=64)
def built_in_case(name: str, interval_ns: int, decimals: int | None = None) -> UseCase:
    """Return a built-in use case for worlds with this interval; `decimals` as for `UseCaseFile.case`."""
    return read_use_case(BUILT_IN[name]).case(name, interval_ns, decimals)


def expect_fit(kind: str, world: World, loaded: Window) -> None:
    """Verify that a kind of query fits a world, as `workload.queries.fit` does.

    Raises
    ------
    tsbench.workload.queries.Misfit
        If it does not; with the use cases that have such a kind, if others do.
    """
    if kind not in queries.kinds_of(world):
        homes = " or ".join(name for name, case in built_in_cases().items() if kind in case.queries)
        if homes:
            raise queries.Misfit(f"query '{kind}' is for the use case {homes}, not for {world.spec.use_case}")
    queries.fit(kind, world, loaded)


def built_in_spec(
    use_case: str,
    scale: int,
    seed: int,
    start_ns: int,
    interval_ns: int,
    streams: int = 1,
    form: str = "bounded",
    **more: Any,
) -> WorldSpec:
    """Return the parameters of a world of a built-in use case."""
    case = built_in_case(use_case, interval_ns, more.get("decimals")) if use_case in BUILT_IN else None
    return WorldSpec(use_case, scale, seed, start_ns, interval_ns, streams, form, **{"case": case, **more})


def built_in_cases(interval_ns: int = 10 * NS_PER_S) -> dict[str, UseCase]:
    """Return the built-in use cases by name, for worlds with this interval."""
    return {name: built_in_case(name, interval_ns) for name in BUILT_IN}


def resolved(world: Any, place: Path) -> Any:
    """Return a [world] table whose use case is a file (below `place`, or from here) with what the file describes.

    A single series needs no scale.
    """
    name = world.get("use_case") if isinstance(world, dict) else None
    if not isinstance(name, str) or "described" in world:
        return world
    path = _path_of(name, place)
    described = built_in(name) if path is None else read_use_case(path)
    if described is None:
        return world
    world = {**described.world, **world}
    given: dict[str, Any] = {}
    if world.get("copies", 1) != 1 and not described.recording:
        raise UserMistake("world.copies: belongs to recorded data; these are simulated, so give world.scale")
    if described.recording:
        given = _recorded_keys(world, prepared.recorded(described.recording))
    elif not described.tags:
        given = {"scale": world.get("scale", 1)}
    own = {} if path is None else {"use_case": path.stem, "described": described}
    return {**world, **own, **given}


def is_recorded(use_case: str, place: Path) -> bool:
    """Return whether a use case, by its name or its file below `place`, has recorded points."""
    path = _path_of(use_case, place)
    return path is not None and bool(read_use_case(path).recording)


def recording_of(use_case: str) -> Recorded | None:
    """Return the recording of a use case, by its name or file; None if its points are simulated."""
    if (path := _path_of(use_case, Path())) is None:
        return None
    recording = read_use_case(path).recording
    return prepared.recorded(recording) if recording else None


def _path_of(name: str, place: Path) -> Path | None:
    """Return the path of a use case's file: below `place`, or else from here; that of an installed package's.

    None for what is built in, or unknown.
    """
    if not name.endswith(".toml"):
        return None if name in BUILT_IN else plugins.use_case(name)
    path = place / name
    return path if path.exists() or not Path(name).exists() else Path(name)


_SIMULATED = ("interval", "form", "late", "out_of_order", "duplicate", "missing")
"""Keys of [world] that simulate."""


def _recorded_keys(world: Mapping[str, Any], recorded: Recorded) -> dict[str, Any]:
    """Return the keys of [world] that a recording says itself."""
    copies = world.get("copies", 1)
    series = recorded.series * (copies if isinstance(copies, int) else 1)
    if (scale := world.get("scale", series)) != series:
        cure = "take it out, or say copies = 10 for ten times as many"
        raise UserMistake(f"world.scale: the recording has {recorded.series:,} series, not {scale}; {cure}")
    if series > recorded.series and not recorded.tags:
        raise UserMistake("world.copies: a recording without tags is a single series; give it [recording] tags")
    if unfit := next((key for key in _SIMULATED if key in world), None):
        raise UserMistake(f"world.{unfit}: belongs to simulated data, and these are recorded; take it out")
    start = {} if "start" in world else {"start": format_time(recorded.start_ns)}
    return {"scale": series, "interval": f"{recorded.interval_ns}ns", **start}
