"""The files of a load process: times and counts of its ops, its writes, its own delays, answers, and its report."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import gevent

from tsbench.drive.answer_sample import AnswerSample
from tsbench.drive.loop_monitor import LoopMonitor
from tsbench.drive.settling_watch import SucceededOps
from tsbench.measure.error_texts import ErrorTexts
from tsbench.measure.recorder import Recorder
from tsbench.results.process import FirstOp, ProcessReport
from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tsbench.clock import Timebase
    from tsbench.model import Outcome
    from tsbench.results.process import Schedule, Share
    from tsbench.scenario.spec import Job

logger = logging.getLogger("tsbench")


class FirstOps:
    """The op of each name that began first; ops end in any order."""

    def __init__(self) -> None:
        self.found: dict[str, FirstOp] = {}
        """The ops by name."""

    def ended(self, name: str, began_ns: int, response_ns: int, service_ns: int, outcome: Outcome) -> None:
        """Take note of an op that has ended; it began at `began_ns`, epoch ns."""
        first = self.found.get(name)
        if first is None or began_ns < first.began_ns:
            self.found[name] = FirstOp(began_ns, response_ns, service_ns, outcome.name.lower())


class ProcessFiles:
    """The files of a load process below a run directory; those of its ops are written once a second.

    `failed` is called, with the reason, when they can no longer be written.
    """

    def __init__(
        self, spec: Job, share: Share, directory: Path, timebase: Timebase, failed: Callable[[str], None]
    ) -> None:
        self.directory = directory
        self.recorder = Recorder(directory, share.name, start_ns=timebase.now_ns())
        self.loop_monitor = LoopMonitor(directory, share.name, timebase)
        self.sample = AnswerSample(spec.seed, spec.check.sample, directory / "process")
        self.firsts = FirstOps() if spec.target.cold else None
        self.failures, self.unconnected = ErrorTexts(), ErrorTexts()
        self._share, self._timebase, self._failed = share, timebase, failed
        self._report: Callable[[int], None] = lambda _: None
        self._flusher = gevent.spawn(self._flush_every_second)

    def _flush_every_second(self) -> None:
        # Not for 0 s: gevent runs all callbacks for up to 5 ms before it polls. Nor gevent.idle: a busy loop never is.
        let_others_run = partial(gevent.sleep, 0.001)
        while True:
            gevent.sleep(1.0)
            now_s = self._timebase.now_ns() // NS_PER_S
            try:
                self.recorder.flush(let_others_run)
                self._report(now_s - 1)
                self.loop_monitor.flush(let_others_run)
            except OSError as error:  # a full disk: what cannot be recorded need not be measured
                self._cannot_write(error)
                return

    def report_rate(self, reporter: Callable[[list[tuple[int, int]], int], None]) -> None:
        """Call `reporter` once a second, until `end_reports`.

        It gets the numbers of ops that succeeded by second, and the second up to which they are whole.
        """
        succeeded = self.recorder.observer = SucceededOps()
        self._report = lambda through_s: reporter(succeeded.take(), through_s)

    def end_reports(self) -> None:
        """Report the rate no more."""
        self.recorder.observer, self._report = None, lambda _: None

    def _cannot_write(self, error: OSError) -> None:
        self._failed(f"cannot write results to {self.directory}: {error.strerror}; free some room")

    def close(
        self, unsent: tuple[Iterable[int], int], *, encode_ns: int, payload_wait_ns: int, schedule: Schedule | None
    ) -> None:
        """Record the `unsent` arrivals as `Recorder.unsent`, and write the files that are complete only at the end."""
        self._flusher.kill()
        try:
            self.recorder.unsent(*unsent)
            self.recorder.close()
            self.loop_monitor.close()
            place = self.directory / "process"
            self.sample.write(place / f"{self._share.name}.answers.jsonl")
            report = ProcessReport(
                share=self._share,
                ops=self.recorder.total,
                answers=dict(self.sample.given),
                ended_ns=self.recorder.ended_ns,
                firsts=self.firsts.found if self.firsts is not None else {},
                encode_ns=encode_ns,
                payload_wait_ns=payload_wait_ns,
                clock_offset_ns=self._timebase.offset_ns,
                schedule=schedule,
                unconnected=self.unconnected.most_common(),
                failures=self.failures.most_common(20),
            )
            (place / f"{self._share.name}.json").write_text(json.dumps(asdict(report)), encoding="utf-8")
        except OSError as error:
            self._cannot_write(error)
