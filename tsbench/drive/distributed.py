"""The messages between a Locust master and its workers: shares, clocks, the start, the end, and files.

`Team` is the master's side, `Member` a worker's. Nothing secret is ever in a message: they are signed (see `signing`),
not encrypted. A worker sends its secrets to an endpoint that its master names only where the master would send its own.
"""

from __future__ import annotations

import logging
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import gevent
from gevent.event import Event
from locust.runners import STATE_MISSING

from tsbench.drive import exchange
from tsbench.drive.process import Clock, Share
from tsbench.drive.timebase import Ping, offset_ns
from tsbench.errors import UserMistake
from tsbench.scenario import RunSpec
from tsbench.targets import credentials
from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from locust.runners import MasterRunner, WorkerRunner

    from tsbench.drive.coordinator import Run

logger = logging.getLogger("tsbench")

PING, PONG, SHARE, GO, DRAINED, STOP, FILE, STOPPED = (
    f"tsbench-{word}" for word in ("ping", "pong", "share", "go", "drained", "stop", "file", "stopped")
)
PINGS = 8
PING_TIMEOUT_S = 2.0


class Team:
    """The workers of a run, as their master knows them."""

    def __init__(self, runner: MasterRunner) -> None:
        self._runner = runner
        self.shares: list[dict[str, Any]] = []
        self.drained = Event()
        self._drained_members: set[str] = set()
        self._awaited: set[str] = set()
        self._all_stopped = Event()
        self._pongs: dict[str, tuple[Event, list[int]]] = {}
        self._run: Run | None = None
        self._inbox: exchange.Inbox | None = None
        for message, listener in ((PONG, self._on_pong), (DRAINED, self._on_drained), (FILE, self._on_file)):
            runner.register_message(message, listener)
        runner.register_message(STOPPED, self._on_stopped)

    def share_out(self, run: Run) -> None:
        """Tell every connected worker which streams are its own, and by how much its clock differs.

        Raises
        ------
        UserMistake
            If there are no workers, or more than streams.
        """
        clients = sorted(client.id for client in [*self._runner.clients.ready, *self._runner.clients.running])
        streams = run.spec.world.spec().streams
        if not clients:
            raise UserMistake("no worker is connected; start some with --worker, or use --processes")
        if streams < len(clients):
            raise UserMistake(f"{len(clients)} workers cannot share {streams} streams; raise world.streams")
        self._run, self._inbox = run, exchange.Inbox(run.directory)
        self.shares = []
        self.drained.clear()
        self._drained_members.clear()
        token = exchange.mark(run.directory)
        for index, client in enumerate(clients):
            share = {
                "name": f"worker-{index}",
                "index": index,
                "of": len(clients),
                "streams": list(range(index, streams, len(clients))),
                "client": client,
                "clock_offset_ns": self._offset_of(client),
            }
            self.shares.append(share)
            message = {
                "spec": run.spec.model_dump(mode="json", by_alias=True),
                "endpoint": run.endpoint,
                "entitled": credentials.is_entitled(run.endpoint),
                "directory": str(run.directory),
                "token": token,
                "share": share,
            }
            self._runner.send_message(SHARE, message, client_id=client)

    def _offset_of(self, client: str) -> int:
        pings = []
        for _ in range(PINGS):
            answered, values = self._pongs[client] = (Event(), [])
            sent_ns = time.time_ns()
            self._runner.send_message(PING, {}, client_id=client)
            if not answered.wait(timeout=PING_TIMEOUT_S):
                logger.warning("worker %s does not answer; its clock is taken to be right", client)
                break
            pings.append(Ping(sent_ns, values[0], values[1]))
        return offset_ns(pings)

    def _on_pong(self, msg: Any, **_: Any) -> None:
        answered, values = self._pongs[msg.node_id]
        values += [msg.data["time_ns"], time.time_ns()]
        answered.set()

    def go(self, clock: Clock) -> None:
        """Start the clock everywhere."""
        self._runner.send_message(GO, {"go_ns": clock.go_ns, "start_ns": clock.start_ns, "end_ns": clock.end_ns})

    def _on_drained(self, msg: Any, **_: Any) -> None:
        self._drained_members.add(msg.node_id)
        if self._present() <= self._drained_members:
            self.drained.set()

    def _present(self) -> set[str]:
        ours = {share["client"] for share in self.shares}
        return {client.id for client in self._runner.clients.all if client.state != STATE_MISSING} & ours

    def stop(self, run: Run) -> None:
        """Let every worker finish, write its files and report its counts, before Locust ends any of them.

        At quit Locust's master sends its workers a message and goes on; what they report later than 0.5 s is lost.
        """
        self._awaited = self._present()
        if not self._awaited:
            return
        self._all_stopped.clear()
        self._runner.send_message(STOP, {})
        give_up = time.monotonic() + run.spec.drive.stop_timeout / NS_PER_S + 15
        while self._awaited and time.monotonic() < give_up:
            self._all_stopped.wait(timeout=0.5)
            self._awaited &= self._present()
        if self._awaited:
            logger.warning("%d workers did not report their end", len(self._awaited))

    def _on_file(self, msg: Any, **_: Any) -> None:
        name = next((share["name"] for share in self.shares if share["client"] == msg.node_id), None)
        if name is not None and self._inbox is not None:
            try:
                self._inbox.receive(name, msg.data)
            except exchange.Refused as error:
                logger.error("tsbench: %s", error)  # noqa: TRY400 - one line, no traceback

    def _on_stopped(self, msg: Any, **_: Any) -> None:
        self._awaited.discard(msg.node_id)
        if not self._awaited:
            self._all_stopped.set()


class Role(Protocol):
    """What a worker's coordinator does when its master speaks."""

    def begin(self, run: Run, share: Share, clock_offset_ns: int) -> None:
        """Take a share of a run."""
        ...

    def go(self, clock: Clock) -> None:
        """Start."""
        ...

    def close_process(self) -> None:
        """Finish, and write all files."""
        ...


class Member:
    """A worker, as it sees its master."""

    def __init__(self, runner: WorkerRunner, role: Role) -> None:
        self._runner, self._role = runner, role
        self._told: dict[str, Any] | None = None
        self._sends_from: Path | None = None
        runner.register_message(PING, self._on_ping)
        runner.register_message(SHARE, self._on_share)
        runner.register_message(GO, self._on_go)
        runner.register_message(STOP, self._on_stop, concurrent=True)

    def _on_ping(self, **_: Any) -> None:
        self._runner.send_message(PONG, {"time_ns": time.time_ns()})

    def _on_share(self, msg: Any, **_: Any) -> None:
        self._told = msg.data

    def begin(self, run_of: type[Run]) -> None:
        """Do what was told before the test started.

        Raises
        ------
        UserMistake
            If nothing was: the worker came too late.
        """
        told, self._told = self._told, None
        if told is None:
            raise UserMistake("this worker joined after the run had begun, so that no streams are left for it")
        if told["entitled"]:
            credentials.entitle(told["endpoint"])
        place, sends = exchange.place_for(Path(told["directory"]), told["token"])
        self._sends_from = place if sends else None
        share = told["share"]
        run = run_of(RunSpec.model_validate(told["spec"]), told["endpoint"], place, ends=False)
        own = Share(share["name"], share["index"], share["of"], tuple(share["streams"]))
        self._role.begin(run, own, share["clock_offset_ns"])

    def drained(self) -> None:
        """Tell the master that nothing is left to do."""
        gevent.spawn(self._runner.send_message, DRAINED, {})

    def _on_go(self, msg: Any, **_: Any) -> None:
        self._role.go(Clock(msg.data["go_ns"], msg.data["start_ns"], msg.data["end_ns"]))

    def _on_stop(self, **_: Any) -> None:
        self._role.close_process()
        if self._sends_from is not None:
            for piece in exchange.pieces(self._sends_from):
                self._runner.send_message(FILE, piece)
            shutil.rmtree(self._sends_from, ignore_errors=True)  # on a small device nobody would clear it away
            self._sends_from = None
        self._runner._send_stats()  # noqa: SLF001 - or the master's count lacks up to 3 s
        self._runner.send_message(STOPPED, {})
