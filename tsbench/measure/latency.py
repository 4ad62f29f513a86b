"""One latency of a run, as its summary holds it: as measured, and without the lateness that the client added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tsbench.measure.hist import lowest_of
from tsbench.units import NS_PER_S, format_duration, format_duration_range

if TYPE_CHECKING:
    from tsbench.measure.hist import Histogram
    from tsbench.results.figures import OpFigures

NOTICEABLE = 0.10
"""Share of a measured time from which on the client's part in it is shown."""
BURST_SHARE = 0.10
"""Share of the ops above which a run's ops count as sent in bursts (see `sent_in_bursts`)."""
BURST_REACH = 2.0
"""Factor by which bursts may have raised a latency: within it, a gate that they missed is not judged."""
AT_LEAST = ">= "


@dataclass(frozen=True, slots=True)
class Latency:
    """A latency that lies between two times in ns.

    `most_ns` is what was measured. `least_ns` is the same percentile of the ops without the time by which each was
    sent too late: the client's, known exactly for each op, though not what the server would have done with it earlier.
    If ops had not ended when the run did (`is_open_ended`), the time may also be longer than `most_ns`.
    """

    least_ns: float
    most_ns: float
    is_open_ended: bool = False

    @property
    def is_interval(self) -> bool:
        """True if the client's part is noticeable, so that one number would hide it."""
        return self.most_ns - self.least_ns > NOTICEABLE * self.most_ns

    @property
    def bounds_ns(self) -> tuple[float, float]:
        """The least and the most that it can be; one number twice where the client's part is not noticeable."""
        least_ns = self.least_ns if self.is_interval else self.most_ns
        return least_ns, float("inf") if self.is_open_ended else self.most_ns

    @property
    def text(self) -> str:
        """The time as printed: `5.90 ms`, `5.00-5.90 ms`, or `>= 5.90 ms`."""
        if self.is_open_ended:
            return f"{AT_LEAST}{format_duration(self.bounds_ns[0])}"
        return format_duration_range(self.least_ns, self.most_ns) if self.is_interval else format_duration(self.most_ns)


def latency_of(op: OpFigures, time: str, figure: str) -> Latency | None:
    """Return a latency of an op; None if the run has none.

    Parameters
    ----------
    op
        The figures of an op, or of all writes or queries.
    time
        `response` or `service`.
    figure
        A percentile (`p99`), `max` or `mean`.
    """
    if time == "service":
        measured_ns = op.service_ns.get(figure)
        return None if measured_ns is None else Latency(measured_ns, measured_ns)
    measured_ns = op.response_ns.get(figure)
    if measured_ns is None:
        return None
    least_ns = op.response_undelayed_ns.get(figure, measured_ns)
    return Latency(min(least_ns, measured_ns), measured_ns, figure in op.response_at_least)


def sent_in_bursts(lateness: Histogram, ops: int, duration_s: float) -> float:
    """Return the share of ops that were sent later than the mean time between two of them; 0.0 up to BURST_SHARE.

    A client that catches up sends bursts, which slow the server. `lateness` has the times in ns by which ops were late.
    """
    used = np.flatnonzero(lateness.counts)
    is_later = lowest_of(used) > duration_s * NS_PER_S / max(1, ops)
    share = float(lateness.counts[used][is_later].sum()) / max(1, ops)
    return share if share > BURST_SHARE else 0.0
