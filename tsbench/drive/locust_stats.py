"""Transfer of ops into Locust's own statistics, in batches of a fifth of a second; counts and changes of its users.

Firing Locust's request event for every op costs more than recording a write. If only Locust listens, successful ops are
merged into its statistics as a master merges its workers'; failures, which carry their error, and all ops if a
locustfile listens too, are fired one by one.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from dataclasses import asdict
from typing import TYPE_CHECKING

import gevent
import numpy as np
from locust.stats import StatsEntry, bucket_response_time

from tsbench.clock import epoch_ns
from tsbench.drive import locust_internals
from tsbench.results.process import CHANGES, Done, DoneEvents
from tsbench.results.rundir import write_json
from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from locust.env import Environment
    from locust.runners import Runner
    from locust.stats import RequestStats

    from tsbench.drive.run_plan import RunPlan, RunTimes

PERIOD_S = 0.2
COUNT_S = 0.25
"""How often users are counted."""


class _Op:
    """Data of one op since the last flush."""

    __slots__ = ("length", "response_ns")

    def __init__(self) -> None:
        self.response_ns = array("q")
        self.length = 0


class LocustStats:
    """The batches of one Locust process."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._ops: dict[tuple[str, str], _Op] = defaultdict(_Op)
        self._shared = True
        self._flusher: gevent.Greenlet | None = None

    def start(self) -> None:
        """Prepare for a test that begins."""
        self._shared = locust_internals.count_request_listeners(self._environment) > 1
        self._flusher = gevent.spawn(self._flush_often)

    def stop(self) -> None:
        """Flush after a test has ended; nothing is held back from now on."""
        if self._flusher is not None:
            self._flusher.kill()
        self.flush()

    def add(self, request_type: str, name: str, response_ns: int, length: int, error: Exception | None) -> None:
        """Add an op that has ended; `length` in bytes or rows."""
        if error is None and not self._shared:
            op = self._ops[request_type, name]
            op.response_ns.append(response_ns)
            op.length += length
            return
        self._environment.events.request.fire(
            request_type=request_type,
            name=name,
            response_time=response_ns / 1e6,
            response_length=length,
            exception=error,
            context={},
        )

    def _flush_often(self) -> None:
        while True:
            gevent.sleep(PERIOD_S)
            self.flush()

    def flush(self) -> None:
        """Merge the batch into Locust's statistics; its ops count for the second of the flush."""
        ops, self._ops = self._ops, defaultdict(_Op)
        stats = self._environment.stats
        for (request_type, name), op in ops.items():
            entry = _entry(stats, name, request_type, op)
            stats.get(name, request_type).extend(entry)
            stats.total.extend(entry)


def _entry(stats: RequestStats, name: str, request_type: str, op: _Op) -> StatsEntry:
    """Return one entry of Locust's statistics, with times in ms with fractions, as from Locust's own clients."""
    times_ms = np.frombuffer(op.response_ns, dtype=np.int64) / 1e6
    entry = StatsEntry(stats, name, request_type)
    entry.last_request_timestamp = entry.start_time  # the start time is the time of this call
    entry.num_requests = len(times_ms)
    entry.num_reqs_per_sec[int(entry.start_time)] = len(times_ms)
    entry.total_response_time = float(times_ms.sum())  # type: ignore[assignment]
    entry.min_response_time = float(times_ms.min())  # type: ignore[assignment]
    entry.max_response_time = float(times_ms.max())  # type: ignore[assignment]
    entry.response_times.update(Counter(map(bucket_response_time, times_ms.tolist())))
    entry.total_content_length = op.length
    return entry


class UserCounts:
    """Samples of the number of users in the measured window."""

    def __init__(self) -> None:
        self._seen: Counter[int] = Counter()

    def watch(
        self, count: Callable[[], int], times: Callable[[], RunTimes | None], stopped: Callable[[], bool]
    ) -> None:
        """Sample `count` while the measured window lasts; return when the test is stopped."""
        while not stopped():
            now = times()
            if now is not None and now.measures(epoch_ns()):
                self._seen[count()] += 1
            gevent.sleep(COUNT_S)

    def totals(self, wanted: int) -> tuple[int, int, float]:
        """Return the highest, lowest and mean number; `wanted` if the window ended before the first sample."""
        seen = self._seen or Counter({wanted: 1})
        return max(seen), min(seen), sum(number * times for number, times in seen.items()) / seen.total()


def at_once(users: int, runner: Runner) -> float:
    """Return the spawn rate at which all users start or stop at once: Locust applies it in both directions."""
    return float(max(users, runner.user_count))


def change_load(plan: RunPlan, start_ns: int, runner: Runner, is_over: Callable[[], bool]) -> None:
    """Change the number of users as the run's events say, and note when; rates change by the schedule itself.

    `start_ns` is the beginning of the measured window. Nothing is done to a test that `is_over`.
    """
    done: list[Done] = []
    events = [event for event in plan.spec.event if event.changes_load]
    ends_ns = [*(event.at for event in events[1:]), plan.spec.drive.duration]
    for event, end_ns in zip(events, ends_ns, strict=False):
        gevent.sleep(max(0.0, (start_ns + event.at - epoch_ns()) / NS_PER_S))
        if is_over():
            return
        began_ns = ended_ns = event.at if event.rate is not None else epoch_ns() - start_ns
        if event.users is not None:
            runner.start(event.users, at_once(event.users, runner))  # a master's returns when all workers know
            while (ended_ns := epoch_ns() - start_ns) < end_ns and runner.user_count != event.users and not is_over():
                gevent.sleep(COUNT_S)
        done.append(Done(event.name, began_ns / NS_PER_S, ended_ns / NS_PER_S, changes_load=True))
        write_json(plan.directory / CHANGES, asdict(DoneEvents(tuple(done))))
