"""The helper process of bare `locust -f`: it carries out the run's life cycle, and Locust drives the load meanwhile.

In Locust's own process the initial load, the sampling and the checks would hold up its event loop. That loop must be
on time: its lateness is measured, it answers the web UI, and it handles the heartbeats between master and workers. So a
separate process calls `lifecycle.run_job`, as `tsbench run` does; at the step where that starts Locust, the helper
process sends `Ready` and waits until Locust reports that the test has ended.

Both send lines of JSON, through the standard input and output of the helper process:

    Locust   {"spec": ..., "results": ..., "client": pid}             the job
    helper   {"phase": name, "reached": amount, "total": ...}         when a phase of the run begins, and as it goes on
    helper   {"ready": {"endpoint": ..., "directory": ..., "server": pids}}
    Locust   {"ended": reason}, {"interrupted": reason}               the reason is empty if the test's files are whole
    helper   {"done": {"state": ..., "error": ..., ...}}              the last line
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tsbench.collect.processes import Tree
from tsbench.errors import Broken, UserMistake, one_line
from tsbench.results.rundir import RunDir
from tsbench.results.summary import Summary, Validity
from tsbench.run import assessment
from tsbench.run.lifecycle import run_job, salvage
from tsbench.run.trial import Parts, PartsOf, real_parts
from tsbench.scenario.spec import RunSpec
from tsbench.servers.children import Channel, Child, program, standard_pipes
from tsbench.targets.registry import TARGETS

if TYPE_CHECKING:
    from tsbench.measure.live import Now
    from tsbench.scenario.spec import Job
    from tsbench.servers.base import Server
    from tsbench.servers.cgroup import Group

OUTER_LIMIT_S = 7 * 86_400.0
"""How long the helper process may take to answer. Its steps have the limits of [timeout], which are shorter."""
STOP_LIMIT_S = 150.0
"""How long it may take, after an interrupt, to stop its server and to write the summary."""
LOOK_S = 0.2
"""How often it looks whether the server still runs while Locust drives the load."""
REPORT_EVERY_S = 0.25
"""How often it reports how far a phase is."""

Progressed = Callable[[str, float, float | None], None]
"""Receives the name of the current phase, the amount done, and the total if it is known."""


@dataclass(frozen=True, slots=True)
class Ready:
    """All is ready for the load: the server's endpoint and process ids, and the run directory."""

    endpoint: str
    directory: Path
    server: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended (`state` as in status.json), and where its results are."""

    state: str
    error: str
    directory: Path
    summary: Summary
    users_mistake: bool = False


# --- in Locust's process ----------------------------------------------------------------------------------------------


class HelperProcess:
    """A run in a process of its own; `progressed` is called when a phase begins, and while it lasts."""

    def __init__(self, spec: RunSpec, results: Path, progressed: Progressed) -> None:
        self._spec, self._results, self._progressed = spec, results, progressed
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the process has ended
        # Asked by a signal, it stops its server.
        command = program("tsbench.drive.bare.helper")
        self._child = Child(command, death_signal=signal.SIGTERM, talk=True, stderr=self._errors)
        self._channel = Channel(self._child.incoming, self._child.outgoing)
        self._reading = threading.Lock()  # a greenlet may wait for the load while another one ends it
        self._ready: Ready | None = None
        self._ended: Ended | None = None
        self._driving = False
        job = {"spec": spec.model_dump(mode="json", by_alias=True), "results": str(results), "client": os.getpid()}
        self._channel.send(**job)

    def await_ready(self) -> Ready:
        """Wait until the first data is stored and the load may begin.

        Raises
        ------
        UserMistake
            If the server cannot be had.
        Broken
            If the run ended before; its results so far are in its directory.
        """
        ended = self._await("ready", OUTER_LIMIT_S)
        if ended is not None:
            raise UserMistake(ended.error) if ended.users_mistake else Broken(ended.error)
        if self._ready is None:
            raise Broken(f"the helper process was not ready within {OUTER_LIMIT_S:g} s")
        self._driving = True
        return self._ready

    @property
    def server_pids(self) -> tuple[int, ...]:
        """The processes of the server, if it was started here and runs."""
        return self._ready.server if self._ready is not None and self._ended is None else ()

    def conclude(self, failure: str) -> Ended:
        """Let the helper process check, summarise and commit the run; after a `failure` of the test it skips checks."""
        self._driving = False
        self._channel.send(ended=failure)
        return self._end(OUTER_LIMIT_S)

    def stop(self, reason: str, *, interrupted: bool) -> Ended:
        """End the run in any phase: the helper process stops its server and summarises the measurements so far."""
        if self._driving:
            self._driving = False
            self._channel.send(**{"interrupted" if interrupted else "ended": reason})
        else:
            self._child.send_signal(signal.SIGTERM)
        return self._end(STOP_LIMIT_S)

    def _end(self, limit_s: float) -> Ended:
        ended = self._await("done", limit_s)
        if ended is None:  # it does not end by itself
            self._child.kill()
            ended = self._await("done", OUTER_LIMIT_S)
        assert ended is not None  # noqa: S101 - a killed process has ended
        return ended

    def _await(self, wanted: str, limit_s: float) -> Ended | None:
        """Take messages until the wanted one came (None) or the run ended; None also if neither came in time."""
        give_up = time.monotonic() + limit_s
        with self._reading:
            while self._ended is None:
                try:
                    message = self._channel.receive(within_s=max(0.0, give_up - time.monotonic()))
                except EOFError:
                    self._ended = self._abandoned()
                    break
                if message is None:
                    return None
                if "phase" in message:
                    self._progressed(message["phase"], message["reached"], message["total"])
                if ready := message.get("ready"):
                    self._ready = Ready(ready["endpoint"], Path(ready["directory"]), tuple(ready["server"]))
                if done := message.get("done"):
                    self._ended = _ended(self._spec, done)
                    self._collect()
                if wanted in message:
                    break
        return self._ended

    def _abandoned(self) -> Ended:
        """Clean up after a helper process that ended without a last word, and keep what was measured."""
        how, said = self._collect()
        reason = f"the helper process has ended ({how})" + (f": {said}" if said else "")
        run = RunDir(self._results / f"{self._spec.id}.partial")
        if not self._spec.target.endpoint:
            TARGETS[self._spec.target.name].new_server(run / "server", self._spec.target.settings).remove()
        summary = _nothing(self._spec, reason)
        with suppress(Broken, OSError):
            summary = salvage(run, self._spec, reason)
            run.finish("failed", error=reason)
        return Ended("failed", reason, run.path, summary)

    def _collect(self) -> tuple[str, str]:
        """Wait for the process, which has closed its output; return how it ended and what it said last."""
        how = self._child.ended(within_s=STOP_LIMIT_S)
        self._child.close()
        self._errors.seek(0)
        last = self._errors.read().decode(errors="replace").strip().rpartition("\n")[2]
        self._errors.close()
        return how or "it closed its pipe", last


def _ended(spec: RunSpec, ending: dict[str, Any]) -> Ended:
    summary = Summary.model_validate(ending["summary"]) if ending["summary"] else _nothing(spec, ending["error"])
    return Ended(ending["state"], ending["error"], Path(ending["directory"]), summary, ending["users_mistake"])


def _nothing(spec: RunSpec, reason: str) -> Summary:
    return Summary(**assessment.heading(spec, spec.target.schema_ or ""), validity=Validity("inconclusive", reason))


# --- in its own -------------------------------------------------------------------------------------------------------


class LocustOutside:
    """The life cycle's progress and drive if Locust is running already and is not started by the run."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._lock = threading.Lock()  # the workers of the bulk load report from threads of their own
        self._name, self._reached = "start", 0.0
        self._total: float | None = None
        self._reported_s = 0.0
        self._driving = False

    def phase(self, name: str, total: float | None = None) -> None:
        """Report to Locust which phase begins."""
        with self._lock:
            self._name, self._reached, self._total = name, 0.0, total
            self._report()

    def expect(self, total: float) -> None:
        """Report to Locust how long the phase is."""
        with self._lock:
            self._total = total
            self._report()

    def advance(self, amount: float) -> None:
        """Report to Locust how far the phase is, a few times a second."""
        with self._lock:
            self._reached += amount
            # While it drives the load Locust reads nothing, and the pipe would fill up.
            if not self._driving and time.monotonic() - self._reported_s >= REPORT_EVERY_S:
                self._report()

    def show(self, now: Callable[[], Now | None]) -> None:
        """Do nothing: Locust knows these figures."""

    def _report(self) -> None:
        self._reported_s = time.monotonic()
        self._channel.send(phase=self._name, reached=self._reached, total=self._total)

    def drive(
        self,
        server: Server,
        spec: RunSpec,
        run: RunDir,
        endpoint: str,
        *,
        tick: Callable[[float], None],
        alive: Callable[[], bool],
        ending: Callable[[], None],
    ) -> None:
        """Report to Locust that the load may begin, and wait until the test has ended.

        Raises
        ------
        Broken
            If the test's files are not complete.
        KeyboardInterrupt
            If the user ended Locust, or it has ended by itself.
        """
        self._channel.send(ready=asdict(Ready(endpoint, run.path, tuple(server.pids()))) | {"directory": str(run.path)})
        self._driving = True
        try:
            self._await_end(tick)
        finally:
            self._driving = False

    def _await_end(self, tick: Callable[[float], None]) -> None:
        started = time.monotonic()
        while True:
            try:
                message = self._channel.receive(within_s=LOOK_S)
            except EOFError:
                raise KeyboardInterrupt("Locust ended before the test did") from None
            if message is None:
                tick(time.monotonic() - started)
            elif "interrupted" in message:
                raise KeyboardInterrupt(message["interrupted"])
            elif message["ended"]:
                raise Broken(message["ended"])
            else:
                return


def carry_out(job: dict[str, Any], channel: Channel, parts_of: PartsOf | None = None) -> None:
    """Execute the run of a job, and report to Locust how it ended; tests pass their own `parts_of`."""
    spec, results = RunSpec.model_validate(job["spec"]), Path(job["results"])
    client = Tree(lambda: [job["client"]], without=lambda: [os.getpid()])
    of_target: PartsOf = parts_of or partial(real_parts, client=client)
    outside = LocustOutside(channel)

    def driven_outside(spec: Job, run: RunDir, group: Group | None) -> Parts:
        parts = of_target(spec, run, group)
        return replace(parts, drive=partial(outside.drive, parts.server))

    done: dict[str, Any] = {"state": "failed", "error": "", "summary": None, "users_mistake": False}
    run = RunDir(results / f"{spec.id}.partial")
    try:
        summary = run_job(spec, results, outside, driven_outside)
        run = RunDir(results / spec.id) if (results / spec.id).exists() else run
        status = run.status()
        done |= {"state": status.state, "error": status.error, "summary": summary.to_json()}
    except KeyboardInterrupt:
        summary_json = Summary.read(run).to_json() if run.has("summary.json") else None
        done |= {"state": "interrupted", "error": run.status().error, "summary": summary_json}
    except (UserMistake, Broken, OSError) as error:
        done |= {"error": one_line(error), "users_mistake": isinstance(error, UserMistake)}
    channel.send(done={**done, "directory": str(run.path)})


def _interrupt(number: int, _frame: object) -> NoReturn:
    """Interrupt the run as Ctrl-C does, once: what follows has a time limit on Locust's side."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> None:
    """Execute the run that the first line of the standard input describes."""
    signal.signal(signal.SIGTERM, _interrupt)
    channel = Channel(*standard_pipes())
    with suppress(EOFError, KeyboardInterrupt):  # Locust ended before the run began
        job = channel.receive(within_s=OUTER_LIMIT_S)
        if job is not None:
            carry_out(job, channel)
