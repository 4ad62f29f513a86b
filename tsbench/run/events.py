"""Events: what a run does to its server in the measured window, when it happened, and the figures around it."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import asdict
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from tsbench.clock import epoch_ns
from tsbench.errors import Broken, UserMistake
from tsbench.measure.hist import Histogram, values_needed
from tsbench.measure.seconds import LogIndex
from tsbench.results.figures import Event, Span
from tsbench.results.json_files import read_part
from tsbench.results.process import CHANGES, EVENTS, TIMES, WINDOW, Done, DoneEvents, MeasuredFrom, Times
from tsbench.results.reading import files_of
from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl
    from numpy.typing import NDArray

    from tsbench.results.rundir import RunDir
    from tsbench.scenario.events import EventPart
    from tsbench.servers.base import Server

RECOVERED, RECOVERED_S = 0.9, 3
"""A rate has recovered once it reached this share of the rate before in each of three consecutive seconds."""


_TAKES_AWAY = frozenset({"kill", "stop", "pause"})


class Events:
    """Executes the events of a run on its server, each when it is due."""

    def __init__(self, server: Server, events: Sequence[EventPart], run: RunDir) -> None:
        self._server, self._run = server, run
        steps: list[tuple[int, str, int | None]] = [(one.at, one.do, one.node) for one in events if one.do]
        steps += [(event.at + event.length, "go on", event.node) for event in events if event.length]
        self._due = sorted(steps, key=lambda step: step[0])
        self._done: list[Done] = []
        self._start_ns = 0
        self._paused: list[int] = []
        self.is_down = False
        """True while the whole server is gone because an event says so."""

    def advance(self) -> None:
        """Execute the events that are due by now; none is before the measured window.

        Raises
        ------
        tsbench.errors.Broken
            If the server does not come back: one line with the event.
        """
        if not self._due or not (self._start_ns or self._run.has(WINDOW)):
            return
        self._start_ns = read_part(self._run / WINDOW, MeasuredFrom).start_s * NS_PER_S
        while self._due and epoch_ns() >= self._start_ns + self._due[0][0]:
            at_ns, do, node = self._due.pop(0)
            began_s, note = self._passed_s(), ""
            try:
                self._do(do, node)
                if node is not None and do in {"kill", "stop", "restart"}:
                    note = self._server.regroup()
            except (Broken, UserMistake) as error:
                name = do if node is None else f"{do} node {node}"
                raise Broken(
                    f"event {name} at {at_ns / NS_PER_S:g} s: the server did not come back: {error}"
                ) from error
            finally:
                self._done.append(Done(do, began_s, self._passed_s(), node=node, note=note))
                self._run.write_json(EVENTS, asdict(DoneEvents(tuple(self._done))))

    def _passed_s(self) -> float:
        return (epoch_ns() - self._start_ns) / NS_PER_S

    def _do(self, do: str, node: int | None) -> None:
        server, whole = self._server, node is None or not self._server.parts()
        server = server if whole else server.parts()[f"node {node}"]
        self.is_down |= whole and do in {"kill", "stop", "restart"}
        match do:
            case "kill":
                server.kill()
            case "stop":
                server.stop()
            case "restart":
                server.stop()
                server.start()
                self.is_down &= not whole
            case "pause":
                self._paused = [*server.pids()]
                self._signal(signal.SIGSTOP)
            case "go on":
                self.close()

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._paused:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def close(self) -> None:
        """Let a paused server go on: it could not end otherwise."""
        self._signal(signal.SIGCONT)
        self._paused = []


# --- figures ----------------------------------------------------------------------------------------------------------


def figures(run: RunDir, per_second: pl.DataFrame | None, time: str) -> tuple[Event, ...]:
    """Return the figures around the events of a run; `time` is the kind of time that counts, `per_second` its ops."""
    done = [one for name in (EVENTS, CHANGES) if run.has(name) for one in read_part(run / name, DoneEvents).done]
    if not done or per_second is None:
        return ()
    done.sort(key=lambda one: one.began_s)
    times = read_part(run / TIMES, Times)
    length_s = times.end_s - times.start_s
    counts = np.zeros((max(1, length_s), 2), dtype=np.int64)
    for second, ok, bad in per_second.select("second", "done", _bad()).iter_rows():
        if 0 <= second < length_s:
            counts[second] += (ok - bad, bad)
    latency: dict[int, Histogram] = {}
    for second, _, kind, rows in LogIndex(files_of(run / "latency", "*.hlog")).histograms():
        if kind == time:
            rows.add_to(latency.setdefault(second - times.start_s, Histogram()))
    return around(done, counts, latency)


def _bad() -> pl.Expr:
    import polars as pl  # noqa: PLC0415 - load workers do without

    return pl.col("failed") + pl.col("unknown") + pl.col("partial")


def around(done: Sequence[Done], counts: NDArray[np.int64], latency: dict[int, Histogram]) -> tuple[Event, ...]:
    """Return the figures before, during and after each event.

    What takes the server away and what brings it back are one event; a change of the load has no rate to come back to.
    `counts` are the ops that succeeded and those that did not, by second of the measured window; so is `latency`.
    """
    groups: list[list[Done]] = []
    for one in done:
        last = groups[-1][-1] if groups else one
        goes_on = last.do in _TAKES_AWAY and one.do in {"restart", "go on"} and last.node == one.node
        groups[-1].append(one) if goes_on else groups.append([one])
    window, free_s = [], 0
    for group, following in zip(groups, [*groups[1:], None], strict=True):
        at_s, back_s = group[0].began_s, group[-1].ended_s
        if group[-1].do in _TAKES_AWAY:  # it never came back
            back_s = max(at_s, float(len(counts)))
        end_s = len(counts) if following is None else min(len(counts), int(following[0].began_s))
        first_s, is_load = min(int(at_s), end_s), group[0].changes_load
        before = _span(free_s, first_s, counts, latency)
        recovered = None
        if not is_load:
            since_s = back_s if group[0].node is None else at_s  # others may go on without one node
            recovered = _recovered(int(np.ceil(since_s)), end_s, counts, before.ops_per_s if before else 0.0)
        until_s = min(end_s, int(np.ceil(back_s))) if is_load else end_s if recovered is None else recovered
        did = " and ".join(one.do for one in group) + ("" if group[0].node is None else f" node {group[0].node}")
        window.append(
            Event(
                did=", ".join((did, *(one.note for one in group if one.note))),
                at_s=at_s,
                away_s=None if is_load else back_s - at_s,
                recovered_s=None if recovered is None else max(0.0, recovered - at_s),
                before=before,
                during=_span(first_s, until_s, counts, latency),
                after=_span(until_s, end_s, counts, latency),
            )
        )
        free_s = until_s
    return tuple(window)


def _recovered(first_s: int, end_s: int, counts: NDArray[np.int64], usual_per_s: float) -> int | None:
    enough = counts[:end_s, 0] >= RECOVERED * usual_per_s
    for second in range(first_s, end_s - RECOVERED_S + 1):
        if usual_per_s and enough[second : second + RECOVERED_S].all():
            return second
    return None


def _span(first_s: int, end_s: int, counts: NDArray[np.int64], latency: dict[int, Histogram]) -> Span | None:
    """Return the figures of whole seconds; None of no second."""
    if end_s <= first_s:
        return None

    def plus(one: Histogram, other: Histogram) -> Histogram:
        one.add(other)
        return one

    whole = reduce(plus, (latency[s] for s in range(first_s, end_s) if s in latency), Histogram())
    ok, bad = counts[first_s:end_s].sum(axis=0).tolist()
    p99_ns = whole.percentile_ns(99) if len(whole) >= values_needed(99) else None
    return Span(from_s=first_s, to_s=end_s, ops_per_s=ok / (end_s - first_s), p99_ns=p99_ns, failed=bad)
