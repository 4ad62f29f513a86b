"""A scenario file asks one question: TOML -> Scenario -> expand() -> one RunSpec per cell of its matrix."""

from __future__ import annotations

import difflib
import fnmatch
import itertools
import math
import re
import time
import tomllib
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from tsbench import units
from tsbench.errors import UserMistake
from tsbench.targets.base import WriteMode
from tsbench.workload.world import Disorder, World, WorldSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


def _duration(value: Any) -> Any:
    return units.parse_duration_ns(value) if isinstance(value, str) else value


def _time(value: Any) -> Any:
    return units.parse_time_ns(value, now_ns=time.time_ns()) if isinstance(value, str) else value


def _whole_seconds(value: int) -> int:
    if value % units.NS_PER_S:
        raise ValueError("must be whole seconds, because results are kept per second")
    return value


DurationNs = Annotated[int, BeforeValidator(_duration), Field(ge=0)]
SecondsNs = Annotated[DurationNs, AfterValidator(_whole_seconds)]
TimeNs = Annotated[int, BeforeValidator(_time)]
Share = Annotated[float, Field(ge=0, le=0.5)]


class _Part(BaseModel):
    """A table of the file: unknown keys are mistakes, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class WorldPart(_Part):
    """[world]: which data, from which seed."""

    use_case: str
    scale: Annotated[int, Field(ge=1)] = 100
    interval: Annotated[DurationNs, Field(gt=0)] = 10 * units.NS_PER_S
    start: TimeNs = 1_451_606_400 * units.NS_PER_S  # 2016-01-01, as the peers
    seed: Annotated[int, Field(ge=0)] = 1
    streams: Annotated[int, Field(ge=1)] = 8
    form: Literal["bounded", "peer"] = "bounded"
    decimals: Annotated[int, Field(ge=0, le=15)] | None = None
    late: Share = 0.0
    out_of_order: Share = 0.0
    duplicate: Share = 0.0
    missing: Share = 0.0

    def spec(self) -> WorldSpec:
        """The world's own form of it; never more streams than series."""
        disorder = Disorder(
            late=self.late, out_of_order=self.out_of_order, duplicate=self.duplicate, missing=self.missing
        )
        return WorldSpec(
            use_case=self.use_case,
            scale=self.scale,
            seed=self.seed,
            start_ns=self.start,
            interval_ns=self.interval,
            streams=min(self.streams, self.scale),
            form=self.form,
            decimals=self.decimals,
            disorder=disorder,
        )


class LoadPart(_Part):
    """[load]: what is stored before anything is measured, and how."""

    window: DurationNs = 3_600 * units.NS_PER_S
    batch: Annotated[int, Field(ge=1)] = 10_000
    workers: Annotated[int, Field(ge=1, le=64)] = 2
    mode: WriteMode = WriteMode.BULK


class Step(_Part):
    """One step of a load shape: so many users for so long, reached gradually if `ramp`."""

    users: Annotated[int, Field(ge=1)]
    duration: SecondsNs
    ramp: bool = False


class DrivePart(_Part):
    """[drive]: how ops are driven. Rates are ops per second over all processes."""

    loop: Literal["closed", "open"] = "closed"
    users: Annotated[int, Field(ge=1)] = 8
    processes: Annotated[int, Field(ge=1, le=256)] = 1
    wait: tuple[DurationNs, DurationNs] = (0, 0)
    rate: Annotated[float, Field(gt=0)] | None = None
    arrivals: Literal["constant", "poisson"] = "constant"
    late_after: DurationNs = 10_000_000
    warmup: SecondsNs = 2 * units.NS_PER_S
    duration: Annotated[SecondsNs, Field(gt=0)] = 10 * units.NS_PER_S
    window: DurationNs | None = None
    stop_timeout: SecondsNs = 30 * units.NS_PER_S
    timeout: DurationNs = 30 * units.NS_PER_S
    steps: tuple[Step, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _one_wait(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("wait"), str):
            return {**data, "wait": [data["wait"], data["wait"]]}
        return data

    @model_validator(mode="after")
    def _consistent(self) -> DrivePart:
        if self.loop == "open" and self.rate is None:
            raise ValueError("loop = 'open' needs a rate (ops per second)")
        if self.loop == "closed" and self.rate is not None:
            raise ValueError("a rate needs loop = 'open'")
        if self.wait[1] < self.wait[0]:
            raise ValueError("wait must be [shortest, longest]")
        if self.loop == "open" and self.wait != (0, 0):
            raise ValueError("wait belongs to loop = 'closed'; an open loop takes its times from the rate")
        if self.users < self.processes:
            raise ValueError(f"{self.users} users cannot be spread over {self.processes} processes")
        return self


class Op(_Part):
    """[[op]]: one kind of op and its weight in the mix. Either `write` (points per request) or `query` (a kind)."""

    write: Annotated[int, Field(ge=1, le=100_000)] | None = None
    mode: WriteMode | None = None
    query: str | None = None
    weight: Annotated[int, Field(ge=1)] = 1

    @model_validator(mode="after")
    def _one_of(self) -> Op:
        if (self.write is None) == (self.query is None):
            raise ValueError("needs either write = POINTS or query = 'KIND'")
        if self.query is not None and self.mode is not None:
            raise ValueError("mode belongs to a write")
        return self

    @property
    def name(self) -> str:
        """What results call it."""
        return self.query if self.query is not None else f"write-{self.write}"

    @property
    def write_mode(self) -> WriteMode:
        """How it writes: as given, else single for one point and multi for more."""
        return self.mode or (WriteMode.SINGLE if self.write == 1 else WriteMode.MULTI)


class CheckPart(_Part):
    """[check]: how much of what was answered and stored is compared with gold."""

    answers: Annotated[int, Field(ge=0)] = 200
    sample: Annotated[int, Field(ge=0)] = 2_000
    readback: Annotated[int, Field(ge=0)] = 1_000_000
    failures: Share = 0.0


class TargetPart(_Part):
    """[target]: which database, in which layout, started by tsbench or found at `endpoint`."""

    name: str
    schema_: Annotated[str | None, Field(alias="schema")] = None
    endpoint: str | None = None
    cold: bool = False
    settings: dict[str, str] = {}

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class RunSpec(_Part):
    """One cell: everything that decides what a run does."""

    id: str
    scenario: str
    question: str = ""
    labels: dict[str, str] = {}
    world: WorldPart
    load: LoadPart = LoadPart()
    drive: DrivePart = DrivePart()
    op: tuple[Op, ...] = ()
    block: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    check: CheckPart = CheckPart()
    target: TargetPart

    @property
    def writes(self) -> tuple[Op, ...]:
        """The ops that write."""
        return tuple(op for op in self.op if op.write is not None)

    @property
    def queries(self) -> tuple[Op, ...]:
        """The ops that ask."""
        return tuple(op for op in self.op if op.query is not None)

    @property
    def block_points(self) -> int:
        """Rows that a stream hands out at a time: a multiple of every write's points, about 500 at least."""
        if self.block is not None:
            return self.block
        sizes = [op.write for op in self.op if op.write is not None]
        return block_points(sizes)

    def world_at(self) -> World:
        """The simulated world it runs in."""
        return World(self.world.spec())


def block_points(sizes: Sequence[int]) -> int:
    """The rows of a block from which writes of these sizes are cut without a remainder.

    Raises
    ------
    ValueError
        If the sizes have no common multiple of at most 1,000,000.
    """
    common = math.lcm(*sizes) if sizes else 1
    if common > 1_000_000:
        raise ValueError(f"writes of {', '.join(map(str, sizes))} points have no common multiple below 1,000,000")
    return common * max(1, math.ceil(512 / common))


class Scenario:
    """A parsed file, before its matrix is expanded."""

    def __init__(self, path: Path, document: dict[str, Any]) -> None:
        self.path = path
        self.name = str(document.get("name", path.stem))
        self._document = document

    @classmethod
    def load(cls, path: Path, *, overrides: Sequence[str] = ()) -> Scenario:
        """Read a file and apply `key=value` overrides (dotted keys, TOML values or bare text).

        Raises
        ------
        UserMistake
            If the file is missing or not TOML, or an override has no `=`.
        """
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            near = difflib.get_close_matches(path.name, [p.name for p in path.parent.glob("*.toml")], 1)
            hint = (
                f"; did you mean {path.parent / near[0]}?" if near else "; `tsbench list scenarios` shows what there is"
            )
            raise UserMistake(f"{path}: no such scenario{hint}") from None
        except OSError as error:
            raise UserMistake(f"{path}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UserMistake(f"{path}: not TOML: {error}") from None
        for override in overrides:
            _override(document, override)
        return cls(path, document)

    def expand(self) -> list[RunSpec]:
        """One RunSpec per cell of the matrix (one in all without a matrix), ids distinct.

        Raises
        ------
        UserMistake
            One line: file, key, what is wrong with it and the cure.
        """
        base = {key: value for key, value in self._document.items() if key not in {"matrix", "name"}}
        matrix = self._document.get("matrix", {})
        if not isinstance(matrix, dict):
            raise UserMistake(f"{self.path}: matrix: must be a table of key = [values]")
        axes = list(_axes(matrix, self.path))
        cells = [self._cell(base, dict(combination)) for combination in itertools.product(*axes)]
        twice = [cell.id for i, cell in enumerate(cells) if cell.id in {c.id for c in cells[:i]}]
        if twice:
            raise UserMistake(f"{self.path}: matrix: two cells are called {twice[0]}; make their values differ")
        return cells

    def _cell(self, base: Mapping[str, Any], chosen: Mapping[str, Any]) -> RunSpec:
        document = _copy(base)
        for key, value in chosen.items():
            _put(document, key, value)
        labels = {key: _label(value) for key, value in chosen.items()}
        target = document.get("target")
        if "schema" not in labels and isinstance(target, dict) and target.get("schema"):
            labels.setdefault("target", f"{target.get('name', '')}-{target['schema']}")
        slug = "-".join(f"{_slug(key, value)}" for key, value in labels.items()) or _slug("target", _label(target))
        if not document.get("op"):
            raise UserMistake(f"{self.path}: op: is missing; add [[op]] tables with write = POINTS or query = 'KIND'")
        try:
            return RunSpec.model_validate({**document, "id": slug, "scenario": self.name, "labels": labels})
        except ValidationError as error:
            raise UserMistake(f"{self.path}: {_explain(error)}") from None
        except ValueError as error:
            raise UserMistake(f"{self.path}: {error}") from None


def select(cells: Sequence[RunSpec], only: Sequence[str]) -> list[RunSpec]:
    """The cells whose id matches one of the patterns (`postgres*`, or a part of the id); all without patterns.

    Raises
    ------
    UserMistake
        If a pattern matches none: the text lists the ids.
    """
    for pattern in only:
        if not any(_matches(cell, pattern) for cell in cells):
            raise UserMistake(f"--only {pattern}: no such cell; there are {', '.join(cell.id for cell in cells)}")
    return [cell for cell in cells if not only or any(_matches(cell, pattern) for pattern in only)]


def _matches(cell: RunSpec, pattern: str) -> bool:
    return pattern in cell.id or fnmatch.fnmatch(cell.id, pattern)


def _axes(matrix: Mapping[str, Any], path: Path, prefix: str = "") -> Iterator[list[tuple[str, Any]]]:
    for key, values in matrix.items():
        name = f"{prefix}{key}"
        if isinstance(values, dict):
            yield from _axes(values, path, f"{name}.")
        elif isinstance(values, list) and values:
            yield [(name, value) for value in values]
        else:
            raise UserMistake(f"{path}: matrix.{name}: must be a list of at least one value")


def _override(document: dict[str, Any], text: str) -> None:
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise UserMistake(f"--set {text}: write --set key=value, for example --set drive.users=20")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value
    _put(document, key.strip(), parsed)


def _put(document: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for parent in parents:
        inner = document.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise UserMistake(f"{key}: {parent} is not a table")
        document = inner
    if isinstance(value, dict) and isinstance(document.get(last), dict):
        value = {**document[last], **value}
    document[last] = value


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(inner) for key, inner in value.items()}
    return [_copy(inner) for inner in value] if isinstance(value, list) else value


def _label(value: Any) -> str:
    if isinstance(value, dict):
        return "-".join(str(value[key]) for key in ("name", "schema") if value.get(key)) or "cell"
    return str(value)


def _slug(key: str, value: str) -> str:
    text = value if key == "target" else f"{key.rsplit('.', 1)[-1]}={value}"
    return re.sub(r"[^A-Za-z0-9_.=]+", "-", text).strip("-.") or "cell"


def _explain(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"] if part != "schema_")
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(first["loc"][-1]), _known_keys(first["loc"][:-1]), 1)
        hint = f"; did you mean '{near[0]}'?" if near else f"; known are {', '.join(_known_keys(first['loc'][:-1]))}"
        return f"{place}: unknown key{hint}"
    if first["type"] == "missing":
        return f"{place}: is missing"
    message = first["msg"].removeprefix("Value error, ")
    given = first.get("input")
    shown = f" (given: {given!r})" if isinstance(given, str | int | float | bool) else ""
    return f"{place}: {message}{shown}" if place else message


def _known_keys(place: Sequence[str | int]) -> list[str]:
    model: type[BaseModel] = RunSpec
    for part in place:
        if isinstance(part, str) and part in model.model_fields:
            model = _PARTS.get(part, model)
    internal = {"id", "scenario", "labels", "block"}
    names = [field.alias or name for name, field in model.model_fields.items() if name not in internal]
    return [*names, "matrix", "name"] if model is RunSpec else names


_PARTS: dict[str, type[BaseModel]] = {
    "world": WorldPart,
    "load": LoadPart,
    "drive": DrivePart,
    "steps": Step,
    "op": Op,
    "check": CheckPart,
    "target": TargetPart,
}
