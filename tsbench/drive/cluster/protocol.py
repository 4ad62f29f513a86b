"""The messages between a Locust master and its workers: shares, clocks, the start, the end, and files.

`MasterProtocol` is the master's side, `WorkerProtocol` a worker's. Nothing secret is ever in a message, although
they are encrypted (see `encryption`).

A worker sends its secrets only to those endpoints of its master to which the master would send its own.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import gevent
import psutil
from gevent.event import Event
from locust.runners import STATE_MISSING

from tsbench.clock import Ping, epoch_ns, offset_ns
from tsbench.drive import locust_internals
from tsbench.drive.cluster import files
from tsbench.drive.cluster.messages import DRAINED, FILE, GO, PING, PONG, RATE, READY, SHARE, STOP, STOPPED, USER
from tsbench.drive.run_plan import RunTimes
from tsbench.errors import Broken, UserMistake
from tsbench.results.process import Share, Worker
from tsbench.run.time_limits import Limits
from tsbench.scenario.spec import Job, spec_of
from tsbench.scenario.validation import schema_of
from tsbench.servers.children import how_it_ended
from tsbench.targets import registry
from tsbench.targets.session import caused_line
from tsbench.text import printable_line
from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from locust.runners import MasterRunner, WorkerRunner

    from tsbench.drive.run_plan import RunPlan
    from tsbench.drive.settling_watch import SettlingWatch

logger = logging.getLogger("tsbench")

PINGS = 8
PING_TIMEOUT_S = 2.0
READY_TIMEOUT_S = 60.0
"""Time limit for workers to make their first payloads, in seconds: a busy small device needs some."""
WATCH_PERIOD_S = 0.5
SILENCE_S = 10
"""Seconds without a heartbeat after which a worker counts as lost.

Locust's own 3 s are less than a worker on a busy machine needs for its first payloads, or one on a loaded host for a
turn on the processor.
"""


class MasterProtocol:
    """The workers of a run, from their master's side."""

    def __init__(self, runner: MasterRunner, user_started: Callable[[], None]) -> None:
        self._runner = runner
        self.workers: dict[str, Worker] = {}
        """The workers of the run, by Locust's names for them."""
        self.drained = Event()
        self.watch: SettlingWatch | None = None
        """Receives the workers' rates during a warm-up that ends when they have settled."""
        self._drained_workers: set[str] = set()
        self._awaited: set[str] = set()
        self._all_stopped = Event()
        self._pongs: dict[str, tuple[Event, list[int]]] = {}
        self._errors: dict[str, str] = {}
        self._pids: dict[str, int] = {}
        self._watcher: gevent.Greenlet | None = None
        self._refused: dict[str, str] = runner.server.refused  # type: ignore[attr-defined] # of `encryption`
        self._inbox: files.FileInbox | None = None
        listeners: dict[str, Callable[..., None]] = {
            PONG: self._on_pong,
            READY: self._on_ready,
            USER: lambda **_: user_started(),
            RATE: self._on_rate,
            DRAINED: self._on_drained,
            FILE: self._on_file,
            STOPPED: self._on_stopped,
        }
        for message, listener in listeners.items():
            runner.register_message(message, listener)
        locust_internals.allow_silence(SILENCE_S)

    def share_out(self, run: RunPlan) -> None:
        """Send every connected worker its streams and its clock's offset; return when all of them are ready.

        Raises
        ------
        UserMistake
            If no worker is connected, more than the world has streams, or one of them cannot take part.
        Broken
            If a worker is lost or does not get ready in time.
        """
        clients = sorted(client.id for client in [*self._runner.clients.ready, *self._runner.clients.running])
        streams = run.spec.streams
        if not clients:
            raise UserMistake("no worker is connected; start some with --worker, or use --processes")
        if streams < len(clients):
            raise UserMistake(
                f"{len(clients)} workers cannot share {streams} streams of series; use {streams} workers at most, "
                "or raise world.streams and world.scale (--scale): a stream has one series at least"
            )
        self._inbox = files.FileInbox(run.directory)
        self.workers = {}
        self.drained.clear()
        self._drained_workers.clear()
        self._errors.clear()
        self._pids.clear()
        token = files.mark(run.directory)
        for index, client in enumerate(clients):
            share = Share(f"worker-{index}", index, len(clients), streams)
            self.workers[client] = Worker(share, client)
            message = {
                "spec": run.spec.model_dump(mode="json", by_alias=True),
                "endpoint": run.endpoint,
                "directory": str(run.directory),
                "token": token,
                "share": asdict(share),
                "clock_offset_ns": self._offset_of(client),
                "machine": _machine(),
                "pid": os.getpid(),
            }
            self._runner.send_message(SHARE, message, client_id=client)
        self._await_ready()

    def _await_ready(self) -> None:
        """Wait for all workers, also for one whose heartbeat is overdue because it is busy."""
        give_up = time.monotonic() + READY_TIMEOUT_S
        ours = {client: worker.share.name for client, worker in self.workers.items()}
        while True:
            for client, why in self._refused.items():
                if client in ours:
                    raise Broken(f"{ours[client]} ({client}) sent a message that no worker sends ({why})")
            for client, error in self._errors.items():
                if error and client in ours:
                    raise UserMistake(f"{ours[client]} ({client}) cannot take part: {printable_line(error)}")
            waiting = [client for client in ours if client not in self._errors or client not in self.present()]
            if not waiting:
                return
            gone = next((client for client in waiting if client not in self._runner.clients), None)
            if gone is not None:
                raise Broken(f"{ours[gone]} ({gone}) ended before the test began")
            if time.monotonic() > give_up:
                raise Broken(f"{ours[waiting[0]]} ({waiting[0]}) was not ready within {READY_TIMEOUT_S:g} s")
            gevent.sleep(0.05)

    def _on_ready(self, msg: Any, **_: Any) -> None:
        if msg.node_id not in self.workers:
            return
        self._errors[msg.node_id] = msg.data["error"]
        if _machine() == msg.data["machine"] != "":
            self._pids[msg.node_id] = msg.data["pid"]
            self._watcher = self._watcher or gevent.spawn(self._watch_local)

    def _watch_local(self) -> None:
        """Report a worker of this machine as lost as soon as its process has ended, before its silence limit."""
        while True:
            gevent.sleep(WATCH_PERIOD_S)
            for client, pid in self._pids.items():
                if client in self._runner.clients and not _runs(pid):
                    self._note_end(client, pid)
                    locust_internals.count_as_lost(self._runner.clients[client])

    def _note_end(self, client: str, pid: int) -> None:
        """Record how a lost worker ended, which is known for those that Locust forked from this process."""
        code = locust_internals.exit_code_of(pid)
        if code is not None:
            self.workers[client].ended = how_it_ended(code)

    def _offset_of(self, client: str) -> int:
        pings = []
        for _ in range(PINGS):
            answered, values = self._pongs[client] = (Event(), [])
            sent_ns = epoch_ns()
            self._runner.send_message(PING, {}, client_id=client)
            if not answered.wait(timeout=PING_TIMEOUT_S):
                logger.warning("worker %s does not answer; its clock is taken to be right", client)
                break
            pings.append(Ping(sent_ns, values[0], values[1]))
        return offset_ns(pings)

    def _on_pong(self, msg: Any, **_: Any) -> None:
        answered, values = self._pongs.get(msg.node_id, (None, []))
        if answered is not None and not answered.is_set():
            values += [msg.data["time_ns"], epoch_ns()]
            answered.set()

    def go(self, times: RunTimes) -> None:
        """Send the start signal to all workers; after it, another measured window."""
        self._runner.send_message(GO, {"go_ns": times.go_ns, "start_ns": times.start_ns, "end_ns": times.end_ns})

    def _on_rate(self, msg: Any, **_: Any) -> None:
        if self.watch is not None:
            self.watch.add(msg.node_id, msg.data["counts"], msg.data["through_s"])

    def _on_drained(self, msg: Any, **_: Any) -> None:
        self._drained_workers.add(msg.node_id)
        if self.present() <= self._drained_workers:
            self.drained.set()

    def present(self) -> set[str]:
        """Return the ids of the run's workers that are not lost."""
        connected = {client.id for client in self._runner.clients.all if client.state != STATE_MISSING}
        return (connected & self.workers.keys()) - self._refused.keys()

    def stop(self, run: RunPlan) -> None:
        """Let every worker finish, write its files and report its counts, before Locust ends any of them.

        At quit Locust's master sends its workers a message and goes on; reports that come more than 0.5 s later are
        lost.
        """
        self._awaited = self.present()
        if self._awaited:
            self._await_stopped(run)
        for client in self.workers.keys() & self._refused.keys():
            self.workers[client].refused = f"a message that no worker sends: {self._refused[client]}"

    def _await_stopped(self, run: RunPlan) -> None:
        self._all_stopped.clear()
        self._runner.send_message(STOP, {})
        give_up = time.monotonic() + run.spec.drive.stop_timeout / NS_PER_S + 15
        while self._awaited and time.monotonic() < give_up:
            self._all_stopped.wait(timeout=0.5)
            self._awaited &= self.present()
        if self._awaited:
            logger.warning("%d workers did not report their end", len(self._awaited))

    def _on_file(self, msg: Any, **_: Any) -> None:
        worker = self.workers.get(msg.node_id)
        if worker is not None and self._inbox is not None:
            try:
                self._inbox.receive(worker.share.name, msg.data)
            except files.RefusedFile as error:
                logger.error("tsbench: %s", error)  # noqa: TRY400 - one line, no traceback

    def _on_stopped(self, msg: Any, **_: Any) -> None:
        self._awaited.discard(msg.node_id)
        if not self._awaited:
            self._all_stopped.set()


class Role(Protocol):
    """Callbacks of a worker's coordinator for its master's messages."""

    def begin(self, spec: Job, endpoint: str, directory: Path, share: Share, clock_offset_ns: int) -> None:
        """Prepare a share of a run."""
        ...

    def go(self, times: RunTimes) -> None:
        """Start the clock."""
        ...

    def close_process(self) -> None:
        """Finish the ops in flight and write all files."""
        ...

    def cannot_take_part(self, reason: str) -> None:
        """Log why this worker cannot take the streams that the master assigned."""
        ...

    def abandoned(self, reason: str) -> None:
        """End the process, whose master is gone."""
        ...


class WorkerProtocol:
    """The messages of a run from a worker's side."""

    def __init__(self, runner: WorkerRunner, role: Role) -> None:
        self._runner, self._role = runner, role
        self.has_share = False
        """True if the master has assigned streams for the test that begins next."""
        self.unable = ""
        """Why this worker cannot take the streams that the master assigned; "" if it can."""
        self._has_user = False
        self._sends_from: Path | None = None
        self._master_pid: int | None = None
        """The master's process, while a test is running, if this process can see it."""
        runner.environment.events.test_stopping.add_listener(self._on_test_stopping)
        gevent.spawn(self._watch_master)
        runner.register_message(PING, self._on_ping)
        runner.register_message(SHARE, self._on_share)
        runner.register_message(GO, self._on_go)
        runner.register_message(STOP, self._on_stop, concurrent=True)

    def _watch_master(self) -> None:
        """End this process if its master has ended or does not answer.

        Locust's worker would wait for a minute, and end with exit code 0. The time without an answer is counted in
        periods of this loop, not by a clock: a suspended machine receives no answers either.
        """
        last, silent_s = None, 0.0
        while True:
            gevent.sleep(WATCH_PERIOD_S)
            heard = self._runner.last_heartbeat_timestamp
            silent_s = silent_s + WATCH_PERIOD_S if heard == last and heard is not None else 0.0
            last = heard
            if self._master_pid is not None and not _runs(self._master_pid):
                self._role.abandoned("the master of this worker has ended")
                return
            if silent_s >= SILENCE_S + (self._runner.environment.stop_timeout or 0.0):
                self._role.abandoned(f"the master of this worker has not answered for {silent_s:g} s")
                return

    def _on_test_stopping(self, **_: Any) -> None:
        self._master_pid = None  # which may end now, before this process does

    def _on_ping(self, **_: Any) -> None:
        self._runner.send_message(PONG, {"time_ns": epoch_ns()})

    def _on_share(self, msg: Any, **_: Any) -> None:
        """Prepare for a test before its users are spawned, and report success or the reason for failure."""
        error = ""
        try:
            self._take(msg.data)
        except Exception as why:  # noqa: BLE001 - whatever it is: the master would wait for a minute
            error = caused_line(why)
            self._role.cannot_take_part(error)
        self.has_share, self.unable, self._has_user = not error, error, False
        self._runner.send_message(READY, {"error": error, "machine": _machine(), "pid": os.getpid()})

    def _take(self, given: dict[str, Any]) -> None:
        place, sends = files.place_for(Path(given["directory"]), given["token"])
        self._sends_from = place if sends else None
        self._master_pid = given["pid"] if _machine() == given["machine"] != "" else None
        spec = spec_of(given["spec"])
        target = registry.get(spec.target.name)
        # Its users would only be counted as failed connections: a password or a driver that this machine lacks is said.
        Limits(spec.timeout, given["endpoint"]).connect(target, schema_of(spec, target)).close()
        self._role.begin(spec, given["endpoint"], place, Share(**given["share"]), given["clock_offset_ns"])

    def user_started(self) -> None:
        """Report the first user of a test to the master, once."""
        if not self._has_user:
            self._has_user = True
            self._runner.send_message(USER, {})

    def report_rate(self, counts: list[tuple[int, int]], through_s: int) -> None:
        """Send the master the number of ops that succeeded by second, whole up to the second `through_s`."""
        gevent.spawn(self._runner.send_message, RATE, {"counts": counts, "through_s": through_s})

    def drained(self) -> None:
        """Report to the master that no work remains."""
        gevent.spawn(self._runner.send_message, DRAINED, {})

    def _on_go(self, msg: Any, **_: Any) -> None:
        self._role.go(RunTimes(msg.data["go_ns"], msg.data["start_ns"], msg.data["end_ns"]))

    def _on_stop(self, *_: Any, **__: Any) -> None:  # before 2.47 Locust calls concurrent listeners by position
        self.has_share, self._master_pid = False, None
        self._role.close_process()
        if self._sends_from is not None:
            for piece in files.pieces(self._sends_from):
                self._runner.send_message(FILE, piece)
            shutil.rmtree(self._sends_from, ignore_errors=True)  # on a small device nobody would delete it
            self._sends_from = None
        locust_internals.send_stats(self._runner)
        self._runner.send_message(STOPPED, {})


def _machine() -> str:
    """Return an identifier that is equal for processes which see each other's process ids, and for no others."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    space = Path("/proc/self/ns/pid")
    return f"{boot.read_text('ascii').strip()} {space.stat().st_ino}" if boot.exists() and space.exists() else ""


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
