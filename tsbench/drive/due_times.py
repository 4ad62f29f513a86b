"""The due times of a load process's ops, and counts of an open loop's arrivals by how they ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import gevent
from gevent.event import Event

from tsbench.drive.fine_timer import FineTimer
from tsbench.measure.pacing import Arrivals, Stripe
from tsbench.results.process import Schedule
from tsbench.scenario.spec import RunSpec
from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tsbench.clock import Timebase
    from tsbench.drive.run_plan import RunTimes
    from tsbench.scenario.spec import Job


@dataclass(slots=True, eq=False)  # so that it can be a key
class Turn:
    """One user's turn: when its op is due, and when the op before ended; epoch ns."""

    due_ns: int = 0
    next_ns: int = 0
    """When the next op of a closed loop is due; 0: when the user asks for its turn."""
    ended_ns: int = 0
    lain_ns: int = 0
    """Time from the end of the op before until this process had its result."""
    woken_late: bool = False
    """Whether this process alone is the reason that a measured op of an open loop is late."""
    free_ns: int = 0
    """When the user would have been free for its next op if this process had never been late."""

    def ended(self, started_ns: int, ended_ns: int, held_up_ns: int, lain_ns: int) -> int:
        """Set an op's end, and return how much later it was sent, in ns, than it would have been by a perfect client.

        That is the time since it was due, or since the user's op before would have ended then, and the time
        `held_up_ns` for which the process was interrupted while it sent.
        """
        ready_ns = self.due_ns if self.due_ns > self.free_ns else self.free_ns  # noqa: FURB136 - half the time of `max`
        delayed_ns = started_ns - ready_ns + held_up_ns if started_ns > ready_ns else held_up_ns
        self.ended_ns, self.lain_ns, self.free_ns = ended_ns, lain_ns, ended_ns - delayed_ns
        return delayed_ns


class DueTimes:
    """The due times of a process's ops: now in a closed loop, the process's share of the arrivals in an open one.

    `drained` is called when the schedule, all its ops and the measured window have ended.
    """

    def __init__(self, spec: Job, timebase: Timebase, drained: Callable[[], None]) -> None:
        self.schedule = Schedule()
        self._spec, self._drive = spec, spec.drive
        self._timebase, self._drained = timebase, drained
        self._timer = FineTimer(timebase.origin_ns)
        self.times: RunTimes | None = None
        """The measured window, once the run has begun; the one of a closed loop may be moved."""
        self._started = Event()
        self._stripe: Stripe | None = None
        self._waiting: dict[int, int] = {}
        self._begun: dict[int, int] = {}
        self._is_exhausted = self._is_stopping = False
        self._over_ns = _NEVER_NS
        """When an op was due first for which no points were left: nothing is due from then on."""
        self._count = None if spec.query_file is None else spec.query_file.count
        self._recorded_ns = None
        if isinstance(spec, RunSpec) and spec.drive.arrivals == "recorded":
            self._recorded_ns = spec.recorded_due_ns()
        self.payload_wait_ns = 0
        """How long users waited for an encoded write in the measured window, all users together."""

    @property
    def is_open_loop(self) -> bool:
        """True once an open loop has begun."""
        return self._stripe is not None

    def begin(self, times: RunTimes, index: int, of: int) -> None:
        """Start the schedule as process `index` of `of`."""
        self.times = times
        if self._drive.loop == "open" and self._drive.rate is not None:
            length = None if times.end_ns is None else times.end_ns - times.go_ns
            warmup_ns = times.start_ns - times.go_ns
            changes = tuple((warmup_ns + one.at, one.rate) for one in self._spec.event if one.rate is not None)
            kind, seed = self._drive.arrivals, self._spec.seed
            arrivals = Arrivals(self._drive.rate, kind, seed, length, changes, self._recorded_ns, self._count)
            self._stripe = Stripe(arrivals, index=index, of=of)
        self._started.set()

    def wait_for_go(self) -> None:
        """Block the calling user until the run begins."""
        self._started.wait()
        while self.times is not None and self._timebase.now_ns() < self.times.go_ns:
            self._timer.sleep_until_ns(self.times.go_ns)  # again if gevent's timer ends early, where that is used

    def stop(self) -> None:
        """Stop assigning turns: from now on `wait` returns False."""
        self._is_stopping = True

    def wait(self, turn: Turn) -> bool:
        """Wait until the user's next op is due and set its turn. Return False if the schedule or the run has ended."""
        if self._is_stopping:
            return False
        if self._stripe is None or self.times is None:
            turn.due_ns, turn.next_ns = turn.next_ns or self._timebase.now_ns(), 0
            return True
        since_go_ns = self._stripe.take()
        if since_go_ns is None:
            self._is_exhausted = True
            self._look_for_the_end()
            return False
        turn.due_ns = due_ns = self.times.go_ns + since_go_ns
        is_measured = due_ns >= self.times.start_ns
        self.schedule.scheduled += is_measured
        _add(self._waiting, due_ns, 1)
        self._timer.sleep_until_ns(due_ns)
        if self._stops():  # counted as dropped by `end`
            return False
        _add(self._waiting, due_ns, -1)
        _add(self._begun, due_ns, 1)
        is_late = self._timebase.now_ns() - due_ns > self._drive.late_after
        self.schedule.unfinished += is_measured
        turn.woken_late = is_measured and is_late and turn.free_ns <= due_ns
        self.schedule.generator_late += turn.woken_late
        return True

    def think(self, turn: Turn, think_s: float, *, exactly: bool) -> bool:
        """Let a user of a closed loop wait until so long after its answer arrived, however late that was read.

        `exactly`: its next op is due then. If not, the user may do something else before, and after its last op. Return
        whether others could run meanwhile.
        """
        if self._stripe is not None or not turn.ended_ns:
            return False
        since_ns = turn.ended_ns if exactly else self._timebase.now_ns() - turn.lain_ns
        next_ns = since_ns + int(think_s * NS_PER_S)
        turn.next_ns = next_ns if exactly else 0
        return self._timer.sleep_until_ns(next_ns)

    def _stops(self) -> bool:
        return self._is_stopping

    def held_up(self, turn: Turn, since_ns: int, *, is_first: bool) -> None:
        """Count the time since then, in which a user waited for its payload, as this process's delay of its op.

        In a closed loop the op is due when the payload is ready. The first payload of a kind that was not announced is
        not ready before; that does not make the encoder too slow.
        """
        now_ns = self._timebase.now_ns()
        measured_ns = now_ns if self.times is None else self.times.start_ns
        if not is_first:
            self.payload_wait_ns += max(0, now_ns - max(since_ns, measured_ns))
        if self._stripe is None:
            turn.due_ns = now_ns
            return
        if turn.due_ns >= measured_ns and since_ns - turn.due_ns <= self._drive.late_after < now_ns - turn.due_ns:
            turn.woken_late = True
            self.schedule.generator_late += 1

    def give_up(self, turn: Turn) -> None:
        """Take a turn back, because nothing is left for its op to write or ask: the server is not to blame."""
        if self._stripe is not None and self.times is not None:
            _add(self._begun, turn.due_ns, -1)
            self._over_ns = min(self._over_ns, turn.due_ns)
            if turn.due_ns >= self.times.start_ns:
                self.schedule.scheduled -= 1
                self.schedule.unfinished -= 1
                self.schedule.generator_late -= turn.woken_late
            self._look_for_the_end()

    def ended(self, turn: Turn, started_ns: int) -> None:
        """Count a measured arrival that has ended: as late if it began too long after it was due, else as done."""
        if self._stripe is None or self.times is None:
            return
        _add(self._begun, turn.due_ns, -1)
        if turn.due_ns >= self.times.start_ns:
            self.schedule.unfinished -= 1
            if started_ns - turn.due_ns > self._drive.late_after:
                self.schedule.late += 1
            else:
                self.schedule.done += 1
        self._look_for_the_end()

    def _look_for_the_end(self) -> None:
        if self._is_exhausted and not self._waiting and not self._begun:
            end_ns = (self.times and self.times.end_ns) or 0  # the last op may be due long before it
            end_ns = 0 if self._count is not None else end_ns
            gevent.spawn_later(max(0.0, (end_ns - self._timebase.now_ns()) / NS_PER_S + 0.001), self._drained)

    def end(self) -> tuple[list[int], int]:
        """End all waits, and count what was left of the schedule as dropped.

        Returns
        -------
            The due times of measured arrivals whose ops have not ended, or have not begun because no session was free,
            and the time until which they have waited; epoch ns.
        """
        self._timer.close()
        now_ns = self._timebase.now_ns()
        if self._stripe is None or self.times is None:
            return [], now_ns
        until_ns = min(now_ns, self.times.end_ns or now_ns)
        left = list(self._left(self._stripe, self.times, min(until_ns, self._over_ns)))
        waiting = self._measured(self._waiting)
        due = [due_ns for due_ns in waiting if due_ns < self._over_ns]
        self.schedule.scheduled += len(left) + len(due) - len(waiting)
        left += due
        self.schedule.dropped = len(left)
        return [*left, *self._measured(self._begun)], until_ns

    def _measured(self, counts: Mapping[int, int]) -> list[int]:
        start_ns = self.times.start_ns if self.times is not None else 0
        return [due_ns for due_ns, count in counts.items() if due_ns >= start_ns for _ in range(count)]

    def _left(self, stripe: Stripe, times: RunTimes, until_ns: int) -> Iterator[int]:
        """Yield the due times of measured arrivals that no user has taken."""
        while (since_go_ns := stripe.take()) is not None and times.go_ns + since_go_ns < until_ns:
            if times.go_ns + since_go_ns >= times.start_ns:
                yield times.go_ns + since_go_ns


_NEVER_NS = 2**62


def _add(counts: dict[int, int], due_ns: int, change: int) -> None:
    counts[due_ns] = counts.get(due_ns, 0) + change
    if not counts[due_ns]:
        del counts[due_ns]
