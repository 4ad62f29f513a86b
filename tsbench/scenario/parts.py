"""The tables of a scenario file, as pydantic models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    FieldSerializationInfo,
    ValidationError,
    ValidationInfo,
    field_serializer,
    field_validator,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from tsbench import units
from tsbench.measure.settling import LEAST_S
from tsbench.model import WriteMode
from tsbench.scenario.file import explain
from tsbench.scenario.types import STEADY, DurationNs, Mode, Part, SecondsNs, SizeBytes, TimeNs, Waits, WarmupNs
from tsbench.scenario.use_case import UseCaseFile, built_in, built_in_case
from tsbench.servers import cgroup
from tsbench.text import suggestion
from tsbench.units import NS_PER_S
from tsbench.workload.world import BUILT_IN, Disorder, WorldSpec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tsbench.scenario.own_queries import QueryPart
    from tsbench.servers.base import Server
    from tsbench.targets.target import Target
    from tsbench.workload.layout import UseCase


def _many(mode: WriteMode) -> WriteMode:
    if mode is WriteMode.SINGLE:
        raise ValueError("must be 'multi' or 'bulk'; single writes are an [[op]]'s")
    return mode


MAX_SCALE = 10_000_000
"""Maximum number of series: more do not fit into memory, at about 170 bytes each."""
MAX_USERS = 1_000_000
"""Maximum number of users; memory and sockets end long before."""
MAX_RATE = 100_000_000.0
"""Maximum rate of ops per second of all processes; one process reaches a few ten thousand."""
MAX_NODES = 16
"""Maximum number of nodes that tsbench starts on this machine."""
MAX_SEED = 2**63 - 1
"""The largest integer of a TOML file."""


_WARMUP_LIMIT_NS = 600 * NS_PER_S
_LEAST_LIMIT_S = LEAST_S + 10  # the counts of a second arrive a little later


Share = Annotated[float, Field(ge=0, le=0.5)]


class WorldPart(Part):
    """[world]: the simulated data and its seed."""

    use_case: str
    """The simulated world (`tsbench list use-cases`), or the file that describes one, such as `pumps.toml`."""
    described: SkipJsonSchema[UseCaseFile | None] = None
    """What a user's file says."""
    scale: Annotated[int, Field(ge=1, le=MAX_SCALE)] = 100
    """Number of hosts or devices."""
    copies: Annotated[int, Field(ge=1, le=MAX_SCALE)] = 1
    """Number of series in place of each of a recording, which has its own `scale`; their keys end in `~1`, `~2`, ..."""
    interval: Annotated[DurationNs, Field(gt=0)] = 10 * units.NS_PER_S
    """Time between two points of a series."""
    start: TimeNs = 1_451_606_400 * units.NS_PER_S  # 2016-01-01, as the peers
    """Time of the first point: ISO 8601 (UTC without a zone), `now` or `now-6h`."""
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] = 1
    """The same seed makes the same points, queries and arrivals."""
    streams: Annotated[int, Field(ge=1, le=MAX_SCALE)] = 8
    """Shares of the series; one writer owns a share. Never more than `scale`; as many processes as streams at most."""
    form: str = "bounded"
    """A variant of the use case, `[form.NAME]` of its file. With `peer` the values of `devops` are those that TSBS
    simulates, and points of `iot` are late, lost or lack fields; `sensordata` has `uniform` (the same as `bounded`) and
    `pareto`."""
    decimals: Annotated[int, Field(ge=0, le=15)] | None = None
    """Decimals that float fields are rounded to. Default: as the use case says."""
    late: Share = 0.0
    """Share of the points that are sent 1 to 10 intervals late."""
    out_of_order: Share = 0.0
    """Share of the points that change places with the next point of their series."""
    duplicate: Share = 0.0
    """Share of the points that are sent twice."""
    missing: Share = 0.0
    """Share of the points that are never sent."""

    @classmethod
    def of(cls, keys: Mapping[str, Any]) -> Self:
        """Return [world] with these keys; raises ValueError with one line about the first that is wrong."""
        try:
            return cls.model_validate(keys)
        except ValidationError as error:
            raise ValueError(explain(error, cls, {}, within="world")) from None

    @field_validator("form")
    @classmethod
    def _known(cls, form: str, others: ValidationInfo) -> str:
        name = others.data.get("use_case", "")
        file = others.data.get("described") or built_in(name)
        forms = ["bounded", *(file.form if file else ())]
        if file is not None and form not in forms:
            raise ValueError(f"'{name}' has no form '{form}'; {suggestion(form, forms)}")
        return form

    @property
    def is_recorded(self) -> bool:
        """Whether the points are a recording's, which has an end."""
        return self.described is not None and bool(self.described.recording)

    @field_serializer("described")
    def _as_written(self, described: UseCaseFile | None, info: FieldSerializationInfo) -> dict[str, Any] | None:
        """Return what the file says, without what it does not."""
        if described is None:
            return None
        return described.model_dump(mode=info.mode, by_alias=True, exclude_defaults=True)

    @property
    def file(self) -> UseCaseFile | None:
        """What the use case's file says, a user's or a built-in one; None if it has none."""
        return self.described or built_in(self.use_case)

    @property
    def queries(self) -> tuple[QueryPart, ...]:
        """What the use case's file asks."""
        return () if self.file is None else self.file.query

    def spec(self, resolution_ns: int = 1) -> WorldSpec:
        """Return the parameters of the world; never more streams than series."""
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
            case=self._case(),
        )

    def _case(self) -> UseCase | None:
        how = self.use_case, self.interval, self.decimals
        if self.described is not None:
            return self.described.case(*how)
        return built_in_case(*how) if self.use_case in BUILT_IN else None


class LoadPart(Part):
    """[load]: the data that is stored before the measurement, and how."""

    window: DurationNs = 3_600 * units.NS_PER_S
    """Simulated time that is stored before measuring; above 0. Default for a recording: its `share`."""
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of a recording's points that are stored before measuring, in place of `window`; writes continue behind
    them. Default: 0.8 for a scenario with writes, else 1."""
    duration: Annotated[SecondsNs, Field(gt=0)] | None = None
    """Time after which the load ends, at the first tick that it has not begun. Default: when `window` is stored."""
    batch: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Points per request of the load."""
    workers: Annotated[int, Field(ge=1, le=64)] = 2
    """Connections that load at the same time."""
    mode: Annotated[Mode, AfterValidator(_many), Field(json_schema_extra={"enum": ["multi", "bulk"]})] = WriteMode.BULK
    """How the load writes: `bulk` is the fastest way a database has, `multi` many points in one ordinary request."""


class Step(Part):
    """[[drive.steps]]: one step of a load shape, a number of users for a time."""

    users: Annotated[int, Field(ge=1, le=MAX_USERS)]
    """Users at the end of the step."""
    duration: SecondsNs
    """Length of the step."""
    ramp: bool = False
    """Go from the users of the step before to these in a straight line, instead of at once."""


ENDLESS = 365 * 86_400 * units.NS_PER_S
"""The `duration` of a run that lasts until all queries of a file have been asked."""


class DrivePart(Part):
    """[drive]: how the load processes run ops. Rates are ops per second over all processes."""

    loop: Literal["closed", "open"] = "closed"
    """`closed`: a user waits for the answer, then for `wait`. `open`: ops are due on a schedule at `rate`."""
    users: Annotated[int, Field(ge=1, le=MAX_USERS)] = 8
    """Users, each with one session; in an open loop the sessions that serve the schedule."""
    processes: Annotated[int, Field(ge=1, le=256)] = 1
    """Load processes; at most one per stream."""
    wait: Waits = (0, 0)
    """Think time between two ops of a user in a closed loop: one duration, or [shortest, longest]."""
    rate: Annotated[float, Field(gt=0, le=MAX_RATE, allow_inf_nan=False)] | None = None
    """Ops per second of all processes together; an open loop needs it, a closed one refuses it."""
    arrivals: Literal["constant", "poisson", "recorded"] = "constant"
    """Schedule of an open loop: evenly spaced, with random gaps (exponential), or in the rhythm of a recording, whose
    points set the rate."""
    speed: Annotated[float, Field(gt=0, le=1_000_000)] | None = None
    """How many times as fast as it was recorded, with `arrivals = "recorded"`. Default: 1."""
    late_after: DurationNs = 10_000_000
    """An op of an open loop that starts later than this after it was due counts as late."""
    warmup: WarmupNs = 2 * units.NS_PER_S
    """Time at the beginning that is not measured; none with `target.cold`. `steady`: until the rate has settled, for a
    closed loop without steps."""
    warmup_limit: SecondsNs | None = None
    """The longest warm-up with `warmup = "steady"`; a rate that has not settled then is measured all the same, and the
    run says so. Default: 10 minutes."""
    duration: Annotated[SecondsNs, Field(gt=0)] = 10 * units.NS_PER_S
    """Length of the measured window; above 0."""
    window: DurationNs | None = None
    """Simulated time after the load's that writes may cover; users stop when all is written. Default: no end."""
    stop_timeout: SecondsNs = 30 * units.NS_PER_S
    """How long ops that are on their way at the end may still take."""
    timeout: DurationNs = 30 * units.NS_PER_S
    """Time limit of one op; an op that takes longer has failed or ended unknown."""
    steps: Annotated[tuple[Step, ...], Field(strict=False)] = ()
    """Load shape: numbers of users over time, instead of `users` from the start."""

    @property
    def time(self) -> Literal["response", "service"]:
        """Kind of time that counts: `response` (from when the op was due) in an open loop, else `service`."""
        return "response" if self.loop == "open" else "service"

    @model_validator(mode="before")
    @classmethod
    def _one_wait(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("wait"), str):
            return {**data, "wait": [data["wait"], data["wait"]]}
        return data

    @model_validator(mode="after")
    def _consistent(self) -> DrivePart:
        if self.loop == "closed" and self.arrivals == "recorded":
            raise ValueError("arrivals = 'recorded' needs loop = 'open'; set that, or take arrivals out")
        if self.speed is not None and self.arrivals != "recorded":
            raise ValueError("speed belongs to arrivals = 'recorded'; set that, or take speed out")
        if self.loop == "open" and self.rate is None and self.arrivals != "recorded":
            raise ValueError("loop = 'open' needs a rate in ops per second; add rate = 100, for example")
        if self.loop == "closed" and self.rate is not None:
            raise ValueError("a rate needs loop = 'open'; set that, or take the rate out")
        if self.wait[1] < self.wait[0]:
            raise ValueError("wait must be [shortest, longest]")
        if self.loop == "open" and self.wait != (0, 0):
            raise ValueError("wait belongs to loop = 'closed'; an open loop takes its times from the rate")
        self._expect_settling()
        if self.users < self.processes:
            raise ValueError(f"{self.users} users cannot be spread over {self.processes} processes")
        return self

    def _expect_settling(self) -> None:
        """Refuse warmup = 'steady' in an open loop, with steps or with too short a limit, and a limit without it."""
        if self.warmup != STEADY:
            if self.warmup_limit is not None:
                raise ValueError("warmup_limit belongs to warmup = 'steady'; set that, or take the limit out")
            return
        if self.loop == "open":
            raise ValueError(
                "warmup = 'steady' needs loop = 'closed', since an open loop sets the rate; give a duration"
            )
        if self.steps:
            raise ValueError("warmup = 'steady' needs a constant number of users; take steps out, or give a duration")
        if self.longest_warmup < _LEAST_LIMIT_S * NS_PER_S:
            raise ValueError(f"warmup_limit must be at least {_LEAST_LIMIT_S}s: a shorter warm-up cannot be judged")

    @property
    def measured_ns(self) -> int:
        """Length of the measured window: that of all steps, or `duration` without steps."""
        return sum(step.duration for step in self.steps) or self.duration

    @property
    def finds_steady_state(self) -> bool:
        """True if the warm-up ends when the rate has settled."""
        return self.warmup == STEADY

    @property
    def longest_warmup(self) -> int:
        """Duration of the warm-up in ns; its limit if it ends when the rate has settled."""
        if isinstance(self.warmup, int):
            return self.warmup
        return _WARMUP_LIMIT_NS if self.warmup_limit is None else self.warmup_limit


class Op(Part):
    """[[op]]: one kind of op and its weight in the mix. Either `write` (points per request) or `query` (a kind)."""

    write: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Points per request. An op has either `write` or `query`."""
    mode: Mode | None = None
    """How it writes. Default: `single` for one point, else `multi`."""
    query: str | None = None
    """Kind of query (`tsbench list queries`)."""
    weight: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """How often this op is drawn, relative to the other ops."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["write"]}, {"required": ["query"]}]})

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
        """Name of the op in results."""
        return self.query if self.query is not None else f"write-{self.write}"

    @property
    def write_mode(self) -> WriteMode:
        """Mode of the op's writes: as configured, else single for one point and multi for more."""
        return self.mode or WriteMode.usual(self.write or 1)


class CheckPart(Part):
    """[check]: how many answers and stored rows are compared with gold."""

    answers: Annotated[int, Field(ge=0, le=1_000_000)] = 200
    """Queries that are asked after the run, when nothing is being written, and compared with gold answers."""
    sample: Annotated[int, Field(ge=0, le=1_000_000)] = 2_000
    """Maximum number of answers of each kind that are compared afterwards; a hash chooses them from the whole load."""
    readback: Annotated[int, Field(ge=0, le=1_000_000_000)] = 1_000_000
    """Maximum number of stored rows that are read back and compared, in windows spread over all rows."""
    failures: Share = 0.0
    """Share of the ops that may fail before the built-in gate on failed ops fails."""
    torn: Literal["report", "fail"] = "report"
    """Whether rows that are read while only some of their fields are written (torn reads) fail a gate."""
    evidence: Literal["gold", "agreed", "halves", "repeats"] | None = None
    """The least that must speak for the answers to each query, else the exit code is 1. Default: nothing need."""


class TargetPart(Part):
    """[target]: the database and its layout, started by tsbench or running at `endpoint`."""

    name: str
    """The database (`tsbench list targets`)."""
    schema_: Annotated[str | None, Field(alias="schema")] = None
    """The layout of the data in it. Default: the target's first."""
    endpoint: str | None = None
    """URL of a server that runs already, without a password. Default: tsbench starts one."""
    cold: bool = False
    """Restart the server after the load, with its files out of the page cache, and measure without a warm-up.

    The first op of each kind is reported by itself. Only where tsbench starts the server."""
    settings: dict[str, str] = Field(default_factory=dict)
    """Settings of the server that tsbench starts, as the page of the database says; values are text."""

    model_config = ConfigDict(populate_by_name=True)


LEAST_BYTES = 4 * 2**20


class ServerPart(Part):
    """[server]: the nodes of the server that tsbench starts, and limits on the CPU and memory of all of them together.

    Limits last up to the end of the measured window.
    """

    nodes: Annotated[int, Field(ge=1, le=MAX_NODES)] = 1
    """Number of servers that share the data, of a database of which tsbench can start several."""
    replicas: Annotated[int, Field(ge=1, le=MAX_NODES)] = 1
    """Number of nodes that store each point; the database's page says how many of them before it is acknowledged."""
    cpu: Annotated[float, Field(ge=0.01, le=1024, allow_inf_nan=False)] | None = None
    """Cores that the server may use, by a control group."""
    memory: Annotated[SizeBytes, Field(ge=LEAST_BYTES)] | None = None
    """Memory that the server may use with its page cache, by a control group; at least 4MiB."""

    @model_validator(mode="after")
    def _enough_nodes(self) -> ServerPart:
        if self.replicas > self.nodes:
            raise ValueError(f"{self.replicas} replicas need as many nodes, not {self.nodes}; set nodes")
        return self

    def new(
        self, target: Target, directory: Path, settings: Mapping[str, str], group: cgroup.Group | None = None
    ) -> Server:
        """Return the server of a run; see `Target.new_server`."""
        return target.new_server(directory, settings, group, nodes=self.nodes, replicas=self.replicas)

    @property
    def caps(self) -> cgroup.Caps:
        """Limits as `tsbench.servers.cgroup` has them."""
        return cgroup.Caps(self.cpu, self.memory)


_MIN_NS = NS_PER_S // 1_000  # databases have limits in milliseconds, where 0 means no limit
_MAX_NS = 7 * 86_400 * NS_PER_S  # and store them in 31 bits, which is 24 days
_MINUTE_NS = 60 * NS_PER_S


def _limit(value: int) -> int:
    if not _MIN_NS <= value <= _MAX_NS:
        raise ValueError("must be from 1ms to 7d; every step has a limit")
    return value


LimitNs = Annotated[DurationNs, AfterValidator(_limit)]


class TimeoutPart(Part):
    """[timeout]: time limits of each kind of step, from 1ms to 7d.

    Values are in nanoseconds.
    """

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
