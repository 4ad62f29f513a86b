"""Ties Locust's events to a run: who writes which streams, when the clock starts, and what is left at the end.

The same object lives in every Locust process and plays one of three roles. The *leader* (a single process, or the
master) decides and tells; a *worker* is told by message and does its share; a single process is its own worker.
"""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gevent
from gevent.event import Event
from locust.runners import STATE_MISSING, MasterRunner, WorkerRunner

from tsbench.drive.process import Clock, LoadProcess, Share
from tsbench.errors import Broken, UserMistake
from tsbench.rundir import write_json
from tsbench.scenario import RunSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from locust.env import Environment

logger = logging.getLogger("tsbench")

SHARE, GO, DRAINED, STOP, STOPPED = (f"tsbench-{word}" for word in ("share", "go", "drained", "stop", "stopped"))
NS_PER_S = 1_000_000_000
LEAD_NS = 300_000_000
"""From the decision to start until the first op: time for the message to reach every worker."""


class Run:
    """What is to be done, by which server, kept where; `ends` tells whether tsbench or the user stops it."""

    def __init__(self, spec: RunSpec, endpoint: str, directory: Path, *, ends: bool) -> None:
        self.spec, self.endpoint, self.directory, self.ends = spec, endpoint, directory, ends


class Coordinator:
    """One per Locust environment; `Coordinator.of(environment)` finds it."""

    def __init__(self, environment: Environment, plan: Callable[[Environment], Run]) -> None:
        self.environment = environment
        self.process: LoadProcess | None = None
        self.finished: list[Callable[[Run], None]] = []
        self._plan = plan
        self._run: Run | None = None
        self._told: dict[str, Any] | None = None
        self._clock: Clock | None = None
        self._drained_workers = 0
        self._all_drained = Event()
        self._workers = 1
        self._awaited: set[str] = set()
        self._all_stopped = Event()
        events = environment.events
        events.test_start.add_listener(self._on_test_start)
        events.spawning_complete.add_listener(self._on_spawning_complete)
        events.test_stopping.add_listener(self._on_test_stopping)
        events.test_stop.add_listener(self._on_test_stop)
        runner = environment.runner
        if isinstance(runner, WorkerRunner):
            runner.register_message(SHARE, self._on_share)
            runner.register_message(GO, self._on_go)
            runner.register_message(STOP, self._on_stop, concurrent=True)
        if isinstance(runner, MasterRunner):
            runner.register_message(DRAINED, self._on_drained)
            runner.register_message(STOPPED, self._on_stopped)
        _coordinators[id(environment)] = self

    @staticmethod
    def of(environment: Environment) -> Coordinator:
        """The coordinator of an environment."""
        return _coordinators[id(environment)]

    @property
    def _is_worker(self) -> bool:
        return isinstance(self.environment.runner, WorkerRunner)

    @property
    def _is_master(self) -> bool:
        return isinstance(self.environment.runner, MasterRunner)

    # --- start --------------------------------------------------------------------------------------------------------

    def _on_test_start(self, **_: Any) -> None:
        self.process, self._clock, self._drained_workers = None, None, 0
        self._all_drained.clear()
        try:
            if self._is_worker:
                self._begin_told()
                return
            run = self._run = self._plan(self.environment)
            if self._is_master:
                self._share_out(run)
            else:
                streams = tuple(range(run.spec.world.spec().streams))
                self._begin(run, Share("local", 0, 1, streams))
        except (UserMistake, Broken, OSError) as error:  # Locust would log a traceback and go on without us
            self._give_up(str(error))

    def _give_up(self, reason: str) -> None:
        logger.error("tsbench: %s", reason)
        self.environment.process_exit_code = 2
        if self.environment.runner is not None:
            gevent.spawn(self.environment.runner.quit)

    def _share_out(self, run: Run) -> None:
        runner = self.environment.runner
        clients = sorted(client.id for client in [*runner.clients.ready, *runner.clients.running])
        self._workers = len(clients)
        if not clients:
            raise UserMistake("no worker is connected; start some with --worker, or use --processes")
        streams = run.spec.world.spec().streams
        if streams < len(clients):
            raise UserMistake(f"{len(clients)} workers cannot share {streams} streams; raise world.streams")
        for index, client in enumerate(clients):
            share = Share(f"worker-{index}", index, len(clients), tuple(range(index, streams, len(clients))))
            message = {
                "spec": run.spec.model_dump(mode="json", by_alias=True),
                "endpoint": run.endpoint,
                "directory": str(run.directory),
                "share": {"name": share.name, "index": share.index, "of": share.of, "streams": list(share.streams)},
            }
            runner.send_message(SHARE, message, client_id=client)

    def _on_share(self, msg: Any, **_: Any) -> None:
        self._told = msg.data

    def _begin_told(self) -> None:
        told, self._told = self._told, None
        if told is None:
            raise UserMistake("this worker joined after the run had begun, so that no streams are left for it")
        share = told["share"]
        run = Run(RunSpec.model_validate(told["spec"]), told["endpoint"], Path(told["directory"]), ends=False)
        self._begin(run, Share(share["name"], share["index"], share["of"], tuple(share["streams"])))

    def _begin(self, run: Run, share: Share) -> None:
        process = self.process = LoadProcess(run.spec, share, run.endpoint, run.directory)
        process.drained.rawlink(lambda _: self._tell_drained())

    def _on_spawning_complete(self, **_: Any) -> None:
        run = self._run
        if self._is_worker or run is None or self._clock is not None:
            return
        # Whole seconds, because histograms and counters are kept per second of the epoch.
        go_s = -(-(time.time_ns() + LEAD_NS) // NS_PER_S)
        start_s = go_s + run.spec.drive.warmup // NS_PER_S
        end_s = start_s + run.spec.drive.duration // NS_PER_S if run.ends else None
        self._clock = Clock(go_s * NS_PER_S, start_s * NS_PER_S, None if end_s is None else end_s * NS_PER_S)
        if self._is_master:
            clock = {"go_ns": self._clock.go_ns, "start_ns": self._clock.start_ns, "end_ns": self._clock.end_ns}
            self.environment.runner.send_message(GO, clock)
        elif self.process is not None:
            self.process.go(self._clock)
        if run.ends:
            gevent.spawn(self._end_in_time, run)

    def _on_go(self, msg: Any, **_: Any) -> None:
        if self.process is not None:
            self.process.go(Clock(msg.data["go_ns"], msg.data["start_ns"], msg.data["end_ns"]))

    # --- end ----------------------------------------------------------------------------------------------------------

    def _end_in_time(self, run: Run) -> None:
        """Stop after the measured window; an open loop first gets time to work off what is overdue."""
        assert self._clock is not None  # noqa: S101 - set by the caller
        assert self._clock.end_ns is not None  # noqa: S101
        left_s = max(0.0, (self._clock.end_ns - time.time_ns()) / NS_PER_S)
        if run.spec.drive.loop == "open":
            gevent.sleep(left_s)
            self._all_drained.wait(timeout=run.spec.drive.stop_timeout / NS_PER_S)
        else:  # it may also have written all that the scenario's window has
            self._all_drained.wait(timeout=left_s)
        if self.environment.runner is not None:
            self.environment.runner.quit()

    def _tell_drained(self) -> None:
        if self._is_worker:
            gevent.spawn(self.environment.runner.send_message, DRAINED, {})
        else:
            self._all_drained.set()

    def _on_drained(self, **_: Any) -> None:
        self._drained_workers += 1
        if self._drained_workers >= self._workers:
            self._all_drained.set()

    def _on_test_stopping(self, **_: Any) -> None:
        if self._is_master and self._run is not None:
            self._stop_workers(self._run)
        self._close_process()

    def _stop_workers(self, run: Run) -> None:
        """Let every worker finish, write its files and report its counts, before Locust ends any of them.

        At quit Locust's master sends its workers a message and goes on; what they report later than 0.5 s is lost.
        """
        runner = self.environment.runner
        self._awaited = {client.id for client in runner.clients.all if client.state != STATE_MISSING}
        if not self._awaited:
            return
        self._all_stopped.clear()
        runner.send_message(STOP, {})
        self._all_stopped.wait(timeout=run.spec.drive.stop_timeout / NS_PER_S + 5)
        if self._awaited:
            logger.warning("%d workers did not report their end", len(self._awaited))

    def _on_stop(self, **_: Any) -> None:
        self._close_process()
        self.environment.runner._send_stats()  # noqa: SLF001 - or the master's count lacks up to 3 s
        self.environment.runner.send_message(STOPPED, {})

    def _on_stopped(self, msg: Any, **_: Any) -> None:
        self._awaited.discard(msg.node_id)
        if not self._awaited:
            self._all_stopped.set()

    def _close_process(self) -> None:
        if self.process is not None and not self.process.closed:
            self.process.quiesce()
            self.process.close()

    def _on_test_stop(self, **_: Any) -> None:
        self.process = None
        run, self._run = self._run, None
        if run is None or self._clock is None:
            return
        self._write_end(run, self._clock)
        for listener in self.finished:
            listener(run)

    def _write_end(self, run: Run, clock: Clock) -> None:
        """Write what only the leader knows: the window, cut to whole seconds where the run was stopped, and counts."""
        end_ns = min(clock.end_ns or time.time_ns(), time.time_ns()) // NS_PER_S * NS_PER_S
        times = {
            "go_s": clock.go_ns // NS_PER_S,
            "start_s": clock.start_ns // NS_PER_S,
            "end_s": max(end_ns, clock.start_ns + NS_PER_S) // NS_PER_S,
        }
        write_json(run.directory / "process" / "clock.json", times)
        total = self.environment.runner.stats.total
        counts = {
            "requests": total.num_requests,
            "failures": total.num_failures,
            "workers": self._workers,
            "users": self.environment.runner.target_user_count,
        }
        write_json(run.directory / "process" / "locust.json", counts)


_coordinators: dict[int, Coordinator] = {}


def read_spec(directory: Path) -> RunSpec:
    """The spec of a run directory."""
    return RunSpec.model_validate(json.loads((directory / "spec.json").read_text(encoding="utf-8")))
