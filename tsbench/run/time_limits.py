"""Time limits of a run's steps, from the scenario's [timeout]: no step waits for ever for a stopped server or a lock.

Ops of the measured load have a limit of their own, `drive.timeout`.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from tsbench.errors import Unreachable, typed_line
from tsbench.model import OpError, Outcome
from tsbench.targets.base import Session
from tsbench.targets.session import MEANT, timed
from tsbench.units import NS_PER_S, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tsbench.model import Batch, Measurement, Rows
    from tsbench.scenario.parts import TimeoutPart
    from tsbench.targets.base import Command, Inventory, Payload, Plan, Schema, ServerObject, Statement
    from tsbench.targets.target import Target
    from tsbench.workload.world import World

Key = Literal["connect", "create", "load", "settle", "check"]


@dataclass(frozen=True, slots=True)
class Limits:
    """The time limits of one run, and its server's endpoint."""

    timeout: TimeoutPart
    endpoint: str

    @property
    def server(self) -> str:
        """Endpoint without its options, for messages."""
        return self.endpoint.partition("?")[0]

    def seconds(self, key: Key) -> float:
        """Return the limit `timeout.<key>` in seconds."""
        limit_ns: int = getattr(self.timeout, key)
        return limit_ns / NS_PER_S

    @contextmanager
    def step(self, key: Key, doing: str) -> Iterator[float]:
        """Yield the limit of a step in seconds; a time-out or a lock names the step, its limit, the server and the key.

        Raises
        ------
        tsbench.model.OpError
            As the step raises; the text of a `timeout`, and of a `busy` that outlasted the limit, is extended.
        """
        limit_s, started = self.seconds(key), time.monotonic()
        try:
            yield limit_s
        except MEANT as error:
            if not isinstance(error, OpError):
                raise
            took_s = time.monotonic() - started
            outlasted = error.cause == "busy" and took_s >= 0.9 * limit_s  # another connection's lock
            if error.cause != "timeout" and not outlasted:
                raise
            if took_s < 0.9 * limit_s:
                why = f"{doing}: {self.server} gave up after {took_s:.1f} s, a time limit of its own"
                cure = "see what holds the server up, or raise its limit"
            else:
                why = f"{doing} took longer than {format_duration(limit_s * NS_PER_S)} on {self.server}"
                cure = f"see what holds the server up, or {_more(key, limit_s)}"
            raise OpError(error.outcome, error.cause, f"{why} ({error}); {cure}") from error
        except Exception as error:
            raise OpError(Outcome.UNKNOWN, type(error).__name__, f"{doing}: {typed_line(error)}") from error

    def settle(self, session: Session, schema: Schema, measurements: Sequence[Measurement]) -> None:
        """Settle the data.

        Raises
        ------
        tsbench.model.OpError
            As `Session.run`.
        """
        with self.step("settle", "settling (flush, compact, analyse)") as timeout_s:
            session.run(schema.settle(measurements), timeout_s=timeout_s)

    def connect(self, target: Target, schema: Schema, key: Key = "check") -> LimitedSession:
        """Open a session whose ops have the limit `timeout.<key>`.

        Raises
        ------
        tsbench.errors.UserMistake
            As `Target.connect`; after a time-out, the text names the key of the limit.
        """
        limit_s = self.seconds("connect")
        started = time.monotonic()
        try:
            session = target.connect(self.endpoint, schema, timeout_s=self.seconds(key), connect_timeout_s=limit_s)
        except Unreachable as error:
            if time.monotonic() - started < limit_s:
                raise
            raise Unreachable(f"{error} (waited {limit_s:g} s; {_more('connect', limit_s)})") from error
        except MEANT:
            raise
        except Exception as error:
            text = "what answers there cannot be understood"
            raise Unreachable(f"cannot connect to {self.server}: {text} ({typed_line(error)})") from error
        return LimitedSession(session, self, key)


@dataclass(frozen=True, slots=True)
class LimitedSession(Session):
    """A session whose time-outs name the step, the server and the scenario's key for the limit."""

    session: Session
    limits: Limits
    key: Key

    def run(self, commands: Sequence[Command], *, timeout_s: float | None = None) -> None:
        """Execute commands in order, each committed; an error names its command."""
        for command, left_s in timed(commands, self.limits.seconds(self.key) if timeout_s is None else timeout_s):
            try:
                self.session.run([command], timeout_s=left_s)
            except OpError as error:
                said = str(error) if error.cause == "unsupported" else f"{error}: {_brief(command)}"
                raise OpError(error.outcome, error.cause, said) from error
            except MEANT:
                raise
            except Exception as error:
                text = f"{typed_line(error)}: {_brief(command)}"
                raise OpError(Outcome.UNKNOWN, type(error).__name__, text) from error

    def write(self, payload: Payload) -> int:
        with self.limits.step(self.key, f"storing {payload.points:,} points of {payload.measurement}"):
            return self.session.write(payload)

    def query(self, statement: Statement, columns: tuple[str, ...]) -> Rows:
        with self.limits.step(self.key, f"the query {_brief(statement)}"):
            return self.session.query(statement, columns)

    def facts(self) -> Mapping[str, str]:
        with self.limits.step(self.key, "reading the server's settings"):
            return self.session.facts()

    def sizes(self, measurements: Sequence[Measurement]) -> Mapping[str, int]:
        with self.limits.step(self.key, "reading the sizes of the tables"):
            return self.session.sizes(measurements)

    def explain(self, statement: Statement) -> Plan | None:
        with self.limits.step(self.key, f"the plan of {_brief(statement)}"):
            return self.session.explain(statement)

    def deliver(self, timeout_s: float) -> None:
        with self.limits.step(self.key, "delivering what was acknowledged"):
            self.session.deliver(timeout_s)

    def objects(self, measurements: Sequence[Measurement]) -> Sequence[ServerObject]:
        with self.limits.step(self.key, "listing what exists on the server"):
            return self.session.objects(measurements)

    def inventory(self, measurements: Sequence[Measurement], *, series: bool) -> Inventory:
        with self.limits.step(self.key, "listing what else is stored"):
            return self.session.inventory(measurements, series=series)

    def close(self) -> None:
        self.session.close()


def _more(key: Key, limit_s: float) -> str:
    return f"allow more with --set timeout.{key}={2 * limit_s:g}s"


def _brief(statement: Command) -> str:
    """Return a statement on one line, shortened in its list of columns and at its end, so that it names the table."""
    text = " ".join(statement.text.split())
    columns, source, rest = text.partition(" FROM ")
    if source and len(columns) > 60:
        text = f"{columns[:57]}...{source}{rest}"
    return text if len(text) <= 160 else f"{text[:157]}..."


class Deadline:
    """Ends several iterators of batches at one tick: the first that none of them has begun when the time is over.

    `end_ns` is its time; None as long as there is time. All measurements of a batch's ticks have to follow each other.
    """

    def __init__(self, world: World, duration_s: float) -> None:
        self.end_ns: int | None = None
        self._step_ns, self._duration_s = world.spec.interval_ns, duration_s
        self._over_s, self._begun_ns, self._lock = float("inf"), 0, threading.Lock()

    def until(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Yield batches, which are in the order of time, up to the end."""
        for batch in batches:
            with self._lock:
                now_s = time.monotonic()
                self._over_s = min(self._over_s, now_s + self._duration_s)
                if self.end_ns is None and now_s >= self._over_s:
                    self.end_ns = self._begun_ns + self._step_ns
                elif self.end_ns is None:
                    self._begun_ns = max(self._begun_ns, int(batch.time_ns[-1]))
            if self.end_ns is not None:
                batch = batch.rows(0, int(np.searchsorted(batch.time_ns, self.end_ns)))  # noqa: PLW2901 - what is left
                if not len(batch):
                    return
            yield batch
