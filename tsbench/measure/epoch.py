"""The clock of a process: epoch time that never jumps.

The wall clock is read once, when this module is imported, and a monotonic clock from then on. A step of the wall clock
during a run (NTP's first correction, an administrator) changes no latency, no rate and no second of the run.
"""

from __future__ import annotations

import time

ORIGIN_NS = time.time_ns() - time.perf_counter_ns()
"""What to add to `time.perf_counter_ns` for ns since 1970, in this process."""


def epoch_ns() -> int:
    """Return ns since 1970: the wall clock's time when this module was imported, plus the time elapsed since."""
    return ORIGIN_NS + time.perf_counter_ns()
