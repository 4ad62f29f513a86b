"""The tables of a scenario file, as pydantic models."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from tsbench import units
from tsbench.model import WriteMode
from tsbench.scenario.types import DurationNs, SecondsNs, SizeBytes, TimeNs, Whole
from tsbench.servers import cgroup
from tsbench.units import NS_PER_S
from tsbench.workload.world import Disorder, WorldSpec


def _many(mode: WriteMode) -> WriteMode:
    if mode is WriteMode.SINGLE:
        raise ValueError("must be 'multi' or 'bulk'; single writes are an [[op]]'s")
    return mode


MAX_SCALE = 10_000_000
"""More series than this do not fit into memory, at about 170 bytes each."""


Share = Annotated[float, Field(ge=0, le=0.5)]


class Part(BaseModel):
    """A table of the file: unknown keys are mistakes, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class WorldPart(Part):
    """[world]: which data, from which seed."""

    use_case: str
    scale: Annotated[Whole, Field(ge=1, le=MAX_SCALE)] = 100
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

    def spec(self, resolution_ns: int = 1) -> WorldSpec:
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
            resolution_ns=resolution_ns,
        )


class LoadPart(Part):
    """[load]: what is stored before anything is measured, and how."""

    window: DurationNs = 3_600 * units.NS_PER_S
    batch: Annotated[int, Field(ge=1)] = 10_000
    workers: Annotated[int, Field(ge=1, le=64)] = 2
    mode: Annotated[WriteMode, AfterValidator(_many)] = WriteMode.BULK


class Step(Part):
    """One step of a load shape: so many users for so long, reached gradually if `ramp`."""

    users: Annotated[Whole, Field(ge=1)]
    duration: SecondsNs
    ramp: bool = False


class DrivePart(Part):
    """[drive]: how ops are driven. Rates are ops per second over all processes."""

    loop: Literal["closed", "open"] = "closed"
    users: Annotated[Whole, Field(ge=1)] = 8
    processes: Annotated[int, Field(ge=1, le=256)] = 1
    wait: tuple[DurationNs, DurationNs] = (0, 0)
    rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
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
            raise ValueError("loop = 'open' needs a rate in ops per second; add rate = 100, say")
        if self.loop == "closed" and self.rate is not None:
            raise ValueError("a rate needs loop = 'open'; set that, or take the rate out")
        if self.wait[1] < self.wait[0]:
            raise ValueError("wait must be [shortest, longest]")
        if self.loop == "open" and self.wait != (0, 0):
            raise ValueError("wait belongs to loop = 'closed'; an open loop takes its times from the rate")
        if self.users < self.processes:
            raise ValueError(f"{self.users} users cannot be spread over {self.processes} processes")
        return self


class Op(Part):
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
        if self.mode is WriteMode.SINGLE and self.write != 1:
            raise ValueError(f"mode = 'single' takes one point, not {self.write}; set write = 1, or mode = 'multi'")
        return self

    @property
    def name(self) -> str:
        """What results call it."""
        return self.query if self.query is not None else f"write-{self.write}"

    @property
    def write_mode(self) -> WriteMode:
        """How it writes: as given, else single for one point and multi for more."""
        return self.mode or (WriteMode.SINGLE if self.write == 1 else WriteMode.MULTI)


class CheckPart(Part):
    """[check]: how much of what was answered and stored is compared with gold."""

    answers: Annotated[int, Field(ge=0)] = 200
    sample: Annotated[int, Field(ge=0)] = 2_000
    readback: Annotated[int, Field(ge=0)] = 1_000_000
    failures: Share = 0.0


class TargetPart(Part):
    """[target]: which database, in which layout, started by tsbench or found at `endpoint`."""

    name: str
    schema_: Annotated[str | None, Field(alias="schema")] = None
    endpoint: str | None = None
    cold: bool = False
    settings: dict[str, str] = {}

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


LEAST_BYTES = 4 * 2**20


class ServerPart(BaseModel):
    """[server]: what the server that tsbench starts may use at most."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cpu: Annotated[float, Field(ge=0.01, le=1024, allow_inf_nan=False, strict=True)] | None = None
    memory: Annotated[SizeBytes, Field(ge=LEAST_BYTES)] | None = None

    @property
    def caps(self) -> cgroup.Caps:
        """As `tsbench.servers.cgroup` has them."""
        return cgroup.Caps(self.cpu, self.memory)


_MIN_NS = NS_PER_S // 1_000  # databases count their limits in milliseconds, where 0 means none


_MAX_NS = 7 * 86_400 * NS_PER_S  # and in 31 bits, which is 24 days


_MINUTE_NS = 60 * NS_PER_S


def _limit(value: int) -> int:
    if not _MIN_NS <= value <= _MAX_NS:
        raise ValueError("must be from 1ms to 7d; there is no step without a limit")
    return value


LimitNs = Annotated[DurationNs, AfterValidator(_limit)]


class TimeoutPart(BaseModel):
    """[timeout]: how long each kind of step may take, in nanoseconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    connect: LimitNs = 30 * NS_PER_S
    """Opening one session."""
    create: LimitNs = 10 * _MINUTE_NS
    """Dropping all tables; creating all of them."""
    load: LimitNs = 5 * _MINUTE_NS
    """Storing one batch of the load."""
    settle: LimitNs = 60 * _MINUTE_NS
    """Bringing the data to rest after the load or the run."""
    check: LimitNs = 10 * _MINUTE_NS
    """One query outside the measured load; reading settings or sizes."""


DEFAULTS = TimeoutPart()
