"""What the processes of a load reported at their end, read together."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tsbench.model import Verdict
from tsbench.results.figures import Window
from tsbench.results.json_files import read_part
from tsbench.results.limits import LIMITS
from tsbench.results.process import MASTER, TIMES, GivenAnswers, MasterReport, ProcessReport, Schedule, Times
from tsbench.results.reading import damaged, files_of
from tsbench.text import listed
from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from tsbench.results.process import FirstOp, Worker
    from tsbench.results.rundir import RunDir


@dataclass(frozen=True, slots=True)
class Processes:
    """What the load processes and Locust's master reported at their end.

    `master` is None if Locust did not end by itself.
    """

    times: Times
    master: MasterReport | None
    reports: list[ProcessReport]

    @classmethod
    def read(cls, run: RunDir) -> Processes:
        """Read the run's process files; a process that was killed has not written its own."""
        times = read_part(run / TIMES, Times)
        if times.end_s - times.start_s > LIMITS.span_s:
            raise damaged(run / TIMES, f"end_s is more than {LIMITS.span_s // 86_400} days after start_s")
        names = [path.stem for path in files_of(run / "latency", "*.hlog")]
        reports = [_report(run, name) for name in names if run.has(f"process/{name}.json")]
        return cls(times, read_part(run / MASTER, MasterReport) if run.has(MASTER) else None, reports)

    @property
    def duration_s(self) -> float:
        """Duration of the measured window: whole seconds, or until the last answer if nothing was left to ask then."""
        times = self.times
        if times.stopped_s is None or not times.start_s < times.stopped_s < times.end_s:
            return times.end_s - times.start_s
        ended_s = max((report.ended_ns for report in self.reports), default=0) / NS_PER_S
        return (ended_s if times.start_s < ended_s < times.stopped_s else times.stopped_s) - times.start_s

    @property
    def stopped_s(self) -> float:
        """When the test was stopped, in epoch s."""
        return self.times.end_s if self.times.stopped_s is None else self.times.stopped_s

    @property
    def mean_users(self) -> float:
        """Mean number of users in the measured window; 0 if it is not known."""
        return self.master.users_mean if self.master is not None else 0

    @property
    def workers(self) -> tuple[Worker, ...]:
        """The workers that had a share in the run; none without a master."""
        return self.master.workers if self.master is not None else ()

    def missing(self) -> list[Worker]:
        """Return the workers that did not finish, or that were not heard any more."""
        ended = {report.share.name for report in self.reports}
        return [worker for worker in self.workers if worker.share.name not in ended or worker.refused]

    @property
    def window(self) -> Window:
        """The measured window, and the duration of the warm-up before it."""
        start_s = self.times.start_s
        return Window(start_s=start_s, duration_s=self.duration_s, warmup_s=start_s - self.times.go_s)

    @property
    def schedule(self) -> Schedule | None:
        """Arrivals of all processes together; None in a closed loop."""
        parts = [asdict(report.schedule) for report in self.reports if report.schedule is not None]
        return Schedule(**{key: sum(part[key] for part in parts) for key in parts[0]}) if parts else None

    @property
    def firsts(self) -> dict[str, FirstOp]:
        """The first op of each name of a cold run, over all processes."""
        items = [item for report in self.reports for item in report.firsts.items()]
        items.sort(key=lambda item: item[1].began_ns, reverse=True)  # of several the last remains, which began first
        return dict(sorted(dict(items).items()))

    @property
    def unconnected(self) -> Counter[str]:
        """Users without a session, by reason."""
        counts = Counter[str]()
        for report in self.reports:
            counts.update(report.unconnected)
        return counts

    @property
    def answers(self) -> dict[str, GivenAnswers]:
        """Answers in the measured window, by kind of query."""
        answers: dict[str, GivenAnswers] = {}
        for kind, given in (item for report in self.reports for item in report.answers.items()):
            answers.setdefault(kind, GivenAnswers()).add(given.count, given.rows, given.empty)
        return answers

    def verdict(self) -> Verdict:
        """Return an invalid verdict if a worker was lost: its last ops are unknown, its remaining ones not done."""
        texts = [
            f"{worker.share.name} with streams {listed(worker.share.streams)}"
            + (f" ({why})" if (why := worker.refused or worker.ended) else "")
            for worker in self.missing()
        ]
        if texts:
            return Verdict(False, f"{len(texts)} of {len(self.workers)} workers ended early: {'; '.join(texts)}")
        return Verdict(True, "", {"workers": max(1, len(self.workers))})


def _report(run: RunDir, name: str) -> ProcessReport:
    """Return the report of a process, which may have been sent by another machine; raises UserMistake."""
    path = run / f"process/{name}.json"
    report = read_part(path, ProcessReport)
    if report.share.name != name:
        raise damaged(path, f"not the report of {name}")
    return report
