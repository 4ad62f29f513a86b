"""A run in progress: what its steps share, what they have found so far, and the parts that tests replace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from tsbench.collect.recording import COUNTERS_TIMEOUT_S, collectors_for
from tsbench.errors import Broken, ServerDied, Unreachable, advise
from tsbench.model import OpError, Verdict
from tsbench.run import assessment, cleanup, environment, locust_process, server_limits
from tsbench.run.assessment import Findings
from tsbench.run.bulk_load import Loaded
from tsbench.run.server_limits import GroupCounters
from tsbench.run.time_limits import Limits
from tsbench.scenario.spec import FileSpec, RunSpec
from tsbench.scenario.validation import schema_of
from tsbench.servers.base import ExternalServer, death
from tsbench.targets import registry
from tsbench.targets.session import caused_line
from tsbench.targets.target import Access

if TYPE_CHECKING:
    from tsbench.collect.counters import Source
    from tsbench.collect.processes import Tree
    from tsbench.collect.sampler import Collector
    from tsbench.results.figures import ColdStart, Load
    from tsbench.results.rundir import RunDir
    from tsbench.results.summary import Summary
    from tsbench.run.phases import Phases
    from tsbench.run.standing import Standing
    from tsbench.run.time_limits import LimitedSession
    from tsbench.scenario.spec import Job
    from tsbench.servers.base import Server
    from tsbench.servers.cgroup import Group
    from tsbench.targets.base import Schema
    from tsbench.targets.target import Target

Drive = Callable[..., None]
"""Drives the load: `drive(spec, run, endpoint, tick=, alive=, ending=)` returns when it has ended, its files whole."""
DYING_S = 3.0
"""Seconds after an error in which the server may still die of the same cause."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a run that tests replace by others."""

    target: Target
    schema: Schema
    server: Server
    collectors: Sequence[Collector]
    drive: Drive = locust_process.drive
    group: Group | None = None
    """The control group of a server with caps."""


PartsOf = Callable[["Job", "RunDir", "Group | None"], Parts]
"""Returns the parts of a run; a server that tsbench starts belongs to the control group, if any."""


def real_parts(
    spec: Job, run: RunDir, group: Group | None, *, client: Tree | None = None, standing: Standing | None = None
) -> Parts:
    """Return the target's own parts: a server that tsbench starts below the run directory, or the one at the endpoint.

    A server that outlives the run stands already, or is started beside the run directory. One with caps starts in the
    control `group`. `client` are the load processes, by default Locust's among the children of this process.
    """
    target = registry.get(spec.target.name)
    server: Server
    if standing is not None and standing.server is not None:
        server = standing.server
    elif spec.target.endpoint:
        server = ExternalServer(spec.target.endpoint)
    else:
        directory = run / "server" if standing is None else standing.directory(run)
        server = spec.server.new(target, directory, spec.target.settings, group)
    schema = schema_of(spec, target)

    def sources() -> list[Source]:
        of_group = [GroupCounters(group)] if group is not None else []
        return [*server_counters(target, server.endpoint, schema), *of_group]

    nodes = {name: one.pids for name, one in server.parts().items()}
    return Parts(target, schema, server, collectors_for(run, server.pids, sources, client, nodes), group=group)


def server_counters(target: Target, endpoint: str, schema: Schema) -> list[Source]:
    """Open a session for the server's counters; empty if the target has none or admits one process only."""
    if not target.has_counters or target.access is not Access.ANY_PROCESS:
        return []
    return [cast("Source", target.connect(endpoint, schema, timeout_s=COUNTERS_TIMEOUT_S))]


@dataclass(slots=True)
class Trial:
    """A run in progress, which its steps (`run.steps`) share and leave their results in."""

    spec: Job
    """As it was asked, then with what a step settles: the window that was loaded, the tables that a file has."""
    run: RunDir
    parts: Parts
    progress: Phases
    standing: Standing
    total: Loaded = field(default_factory=Loaded)
    """What the bulk load has stored so far."""
    load: Load | None = None
    stored: int | None = None
    """Number of points after the bulk load; None if it is not known, or has changed since."""
    cold: ColdStart | None = None
    observed: Findings = field(default_factory=Findings)
    _session: LimitedSession | None = None

    @property
    def of_world(self) -> RunSpec:
        """The specification of a run about a world; raises TypeError if it is about a file."""
        if not isinstance(self.spec, RunSpec):
            raise TypeError(f"{self.spec.id} is about no world")
        return self.spec

    @property
    def limits(self) -> Limits:
        """The time limits of the steps, on the server's endpoint."""
        return Limits(self.spec.timeout, self.parts.server.endpoint)

    @property
    def session(self) -> LimitedSession:
        """The session of the steps before the load is driven, which `connect` has opened."""
        if self._session is None:
            raise ValueError("not connected")
        return self._session

    def connect(self) -> None:
        """Open the session, and write the manifest."""
        new = cleanup.is_new(self.spec, self.parts.target)
        self._session = self.limits.connect(self.parts.target, self.parts.schema)
        environment.write_manifest(self.run, self.spec, self.parts.target, self.parts.server, self._session, new=new)

    def disconnect(self) -> None:
        """Close the session, if it is open: the measured load has the server to itself."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def write_spec(self, spec: RunSpec | FileSpec) -> None:
        """Replace the specification, also in the run's directory, for whoever cleans up."""
        self.spec = spec
        self.run.write_json("spec.json", spec.model_dump(mode="json", by_alias=True))

    def death(self, *, within_s: float = 0.0) -> str:
        """Return why the server cannot answer any more, or why its answers do not count; "" if all is well."""
        server, group = self.parts.server, self.parts.group
        died = death(server, within_s=within_s)
        return server_limits.killed(group) or advise(died, server.settings().get("data_directory", ""))

    @contextmanager
    def naming_death(self) -> Iterator[None]:
        """Raise `ServerDied` in place of an error that followed from the server's death."""
        try:
            yield
        except (Broken, OpError, Unreachable) as error:
            if died := self.death(within_s=DYING_S):
                raise ServerDied(died, caused_line(error)) from error
            raise

    def conclude(self) -> Summary:
        """Write the summary of the steps' findings; their data stays for the next run if it is as it should be."""
        checks, drives = "check" in self.spec.steps, "drive" in self.spec.steps
        heading: dict[str, Any] = environment.heading(self.run, self.spec, self.parts.target, self.parts.schema)
        heading |= {} if drives else dict.fromkeys(("loop", "users", "processes"))
        heading |= {"load": self.load, "caps": server_limits.figures(self.parts.group), "cold": self.cold}
        if self.load is not None and checks:
            heading |= self.standing.found(self.run, self.load)
        counted = Verdict(True, "", {"acknowledged": self.total.points})
        observed = self.observed if drives else self.observed + Findings(checks={"writes": counted})
        summary = assessment.conclude(self.run, self.spec, heading, observed, self.progress)
        if self.load is not None and self.spec.pace.is_whole:
            stored = self.stored if summary.writes is None else summary.writes.stored
            needs = ("writes", "answers") if checks else ("writes",)
            self.standing.end(self.run, self.load, summary, stored=stored, needs=needs)
        return summary
