"""Use-case files: the series, measurements, fields and queries that a user describes, as pydantic models."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, ValidationError, model_validator

from tsbench import plugins
from tsbench.errors import UserMistake
from tsbench.scenario import prepared
from tsbench.scenario.file import explain, naming, odd_text, read_document
from tsbench.scenario.own_data import HIDDEN, RecordingPart, TimeColumn, expect_no_hidden
from tsbench.scenario.own_queries import NAME, QueryPart, expect_answerable, expect_names, query_kinds
from tsbench.scenario.simulated import FieldPart, FormPart, FormsPart, MeasurementPart, TagPart, expect_lists
from tsbench.scenario.types import FILE, Part
from tsbench.units import NS_PER_S, format_time
from tsbench.workload.layout import Layout, UseCase
from tsbench.workload.use_cases import FILES, USE_CASES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tsbench.workload.recording import Recorded


class UseCaseFile(Part):
    """A use case as its file describes it."""

    about: str
    """What the data are, in a line."""
    recording: RecordingPart | None = None
    """Files that have the points, in place of `tags` and `measurement`, which simulate them."""
    tags: Annotated[dict[str, TagPart], Field(max_length=100)] = Field(default_factory=dict)
    measurement: Annotated[tuple[MeasurementPart, ...], Field(strict=False, max_length=1_000)] = ()
    form: FormsPart = FormsPart()
    """Variants, which `world.form` chooses."""
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
            if tag.within is not None:
                expect_lists(name, tag, self.tags if tag.within in drawn else {})
            drawn.append(name)
        for m in self.measurement:
            self._expect_measurement(m)
        tags = {keys[0]: None} | {name: tag.values for name, tag in self.tags.items()}
        expect_answerable(self.query, self.layouts(NS_PER_S), tags)
        return self

    def _expect_measurement(self, m: MeasurementPart) -> None:
        place = f"measurement.{m.name}"
        if any(tag.is_key or tag.per is not None or tag.within is not None for tag in m.tags.values()):
            raise ValueError(f"{place}.tags: the key, and tags with per or within, are in [tags]")
        expect_names(place, [*self.tags, *m.tags, *m.fields])
        stored = [part for part in m.fields.values() if not part.hidden]
        if not stored:
            raise ValueError(f"{place}.fields: all are hidden; one has to be stored")
        taken = self.form.peer is not None and self.form.peer.null > 0 and all(part.null is not None for part in stored)
        if sum(not part.null for part in stored) < 1 + taken:  # a form takes one field of a point
            raise ValueError(f"{place}.fields: all have null; one has to be in each point")
        try:
            m.layout(NS_PER_S)
        except ValueError as error:
            raise ValueError(f"{place}.fields.{error}") from None

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
        peer, kinds = self.form.peer, query_kinds(self.query, layouts)
        if peer is None:
            return UseCase(name, self.about, tags, {"bounded": layouts}, queries=kinds)
        forms = {"peer": layouts, "bounded": layouts}
        return UseCase(name, self.about, tags, forms, tuple(peer.model_dump().items()), kinds)


_INNER: dict[str, type[Part]] = {
    "tags": TagPart,
    "measurement": MeasurementPart,
    "fields": FieldPart,
    "form": FormsPart,
    "peer": FormPart,
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
    if path.stem in USE_CASES or FILES.get(path.stem, path) != path:
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


def built_in(name: str) -> UseCaseFile | None:
    """Return what the file of a built-in use case says; None if it has no file, or is unknown."""
    return read_use_case(FILES[name]) if name in FILES else None


def built_in_cases(interval_ns: int = 10 * NS_PER_S) -> dict[str, UseCase]:
    """Return the built-in use cases by name, for worlds with this interval."""
    read = {name: read_use_case(path).case(name, interval_ns) for name, path in FILES.items()}
    return dict(sorted((USE_CASES | read).items()))


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
        return None if name in USE_CASES or name in FILES else plugins.use_case(name)
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
