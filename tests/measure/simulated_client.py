"""A load process, its event loop and a server, simulated: every delay is made by hand, so that the truth is known.

The loop polls, then resumes one user after the other. Its own work, callbacks that stall it, and an operating system
that gives it no CPU delay the users; the server's service times and pauses delay the answers. A simulation with the
same seed and an ideal client says what the figures would have been.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace

import numpy as np

from tsbench.measure.hist import Histogram
from tsbench.measure.loop_clock import LoopClock

US, MS, S = 1_000, 1_000_000, 1_000_000_000
PROBE_NS = 5 * MS
_ANSWER, _DUE, _STALL, _PROBE = range(4)


@dataclass(frozen=True, slots=True)
class Case:
    """Delays in ns. `rate_per_s` 0 is a closed loop with think time; a pause or stall comes every so often."""

    seed: int
    users: int = 8
    rate_per_s: float = 0.0
    think_ns: int = 10 * MS
    duration_ns: int = 20 * S
    service_ns: int = 2 * MS
    spread: float = 0.3
    pause_ns: int = 0
    pause_every_ns: int = S
    work_ns: int = 20 * US
    stall_ns: int = 0
    stall_every_ns: int = S
    starved_share: float = 0.0
    starved_ns: int = 0
    is_ideal: bool = False

    def ideal(self) -> Case:
        """Return the same case with a client that does its own work for each op, but for nobody else's time."""
        return replace(self, stall_ns=0, starved_share=0.0, is_ideal=True)


@dataclass(slots=True)
class Seen:
    """What the load process recorded, in ns."""

    response: list[int] = field(default_factory=list)
    undelayed: list[int] = field(default_factory=list)
    timer_lag: list[int] = field(default_factory=list)

    def histograms(self) -> tuple[Histogram, Histogram, Histogram]:
        """Return the three as histograms."""
        return Histogram(self.response), Histogram(self.undelayed), Histogram(self.timer_lag)


class Simulation:
    """Runs a case; `seen` is what its load process records."""

    def __init__(self, case: Case) -> None:
        self.case, self.seen = case, Seen()
        self._server, self._system, self._think, self._arrivals = (
            np.random.default_rng([case.seed, number]) for number in range(4)
        )
        self._events: list[tuple[int, int, int, tuple[int, ...]]] = []
        self._number = 0
        self._now = 0
        self._clock = LoopClock(0)
        self._next_due = 0.0
        self._carried = [0] * case.users

    def _at(self, time_ns: float, kind: int, *about: int) -> None:
        self._number += 1
        heapq.heappush(self._events, (int(time_ns), self._number, kind, about))

    def run(self) -> Seen:
        """Run the case and return what was recorded."""
        for user in range(self.case.users):
            self._next(user)
        if self.case.stall_ns:
            self._at(self.case.stall_every_ns, _STALL)
        self._at(PROBE_NS, _PROBE)
        while self._events and self._now < self.case.duration_ns:
            self._clock.entering_poll(self._now)
            if self._events[0][0] > self._now:
                self._now = self._events[0][0] + 25 * US * (not self.case.is_ideal)
                if self._system.random() < self.case.starved_share:
                    self._now += int(self._system.exponential(self.case.starved_ns))
            else:
                self._now += 2 * US * (not self.case.is_ideal)
            self._clock.left_poll(self._now)
            ready = []
            while self._events and self._events[0][0] <= self._now:
                ready.append(heapq.heappop(self._events))
            polled_ns = self._now
            for happened_ns, _, kind, about in ready:
                self._resume(happened_ns, polled_ns, kind, about)
        return self.seen

    def _resume(self, happened_ns: int, polled_ns: int, kind: int, about: tuple[int, ...]) -> None:
        if kind == _STALL:
            self._now += self.case.stall_ns
            self._at(self._now + self.case.stall_every_ns, _STALL)
        elif kind == _PROBE:
            busy_ns = self._clock.unread_ns(happened_ns - PROBE_NS, self._now)
            self.seen.timer_lag.append(max(0, self._now - happened_ns - busy_ns))
            self._at(self._now + PROBE_NS, _PROBE)
        elif kind == _DUE:
            user, due_ns = about
            self._send(user, due_ns, self._now - due_ns)
        else:
            user, due_ns, sent_ns, delayed_ns = about
            delayed_ns += self._clock.unread_ns(sent_ns, self._now)
            response_ns = self._now - due_ns
            self.seen.response.append(response_ns)
            self.seen.undelayed.append(max(0, response_ns - delayed_ns))
            self._carried[user] = delayed_ns
            self._work()
            self._next(user)

    def _next(self, user: int) -> None:
        """Take the user's next op: after some thinking, or the next arrival, which may have been due before."""
        if not self.case.rate_per_s:
            due_ns = self._now + int(self._think.exponential(self.case.think_ns))
        else:
            self._next_due += self._arrivals.exponential(S / self.case.rate_per_s)
            due_ns = int(self._next_due)
        if due_ns > self._now:
            self._at(due_ns, _DUE, user, due_ns)
        else:
            self._send(user, due_ns, min(self._now - due_ns, self._carried[user]))

    def _send(self, user: int, due_ns: int, delayed_ns: int) -> None:
        if not self.case.rate_per_s:  # a closed loop's op is due when its user gets to it
            due_ns, delayed_ns = self._now, 0
        sent_ns = self._work()
        ended = sent_ns + int(self.case.service_ns * np.exp(self._server.normal(0, self.case.spread)))
        phase = ended % self.case.pause_every_ns
        if self.case.pause_ns and phase < self.case.pause_ns:  # an answer that falls into a pause comes at its end
            ended += self.case.pause_ns - phase
        self._at(ended, _ANSWER, user, due_ns, sent_ns, delayed_ns)

    def _work(self) -> int:
        """Work for an op; return when that is done. Only a real client cannot do anything else meanwhile."""
        ended_ns = self._now + self.case.work_ns
        if not self.case.is_ideal:
            self._now = ended_ns
        return ended_ns


def changes(case: Case, percents: tuple[float, ...]) -> tuple[Seen, dict[float, float]]:
    """Return what a case's client records, and by which share its delays raised each percentile."""
    seen, truth = Simulation(case).run(), Simulation(case.ideal()).run()
    measured, true = Histogram(seen.response), Histogram(truth.response)
    return seen, {p: 1 - true.percentile_ns(p) / measured.percentile_ns(p) for p in percents}
