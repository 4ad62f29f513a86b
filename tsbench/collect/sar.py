"""A collector that runs sysstat's recorder: the whole machine, in a form that administrators know."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tsbench.collect import sadf
from tsbench.errors import UserMistake
from tsbench.servers.children import Child

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tsbench.collect.sampler import Row

STOP_S = 10.0
"""Time limit for sadc to write its last sample and end, in seconds."""
PLACES = ("/usr/lib/sysstat/sadc", "/usr/lib64/sa/sadc", "/usr/lib/sa/sadc")
"""Paths of sadc, which is not on PATH: Debian, Fedora, others."""


def recorder() -> str | None:
    """Return the path of sadc, None if sysstat is not installed."""
    return next((place for place in PLACES if Path(place).exists()), None) if shutil.which("sadf") else None


class SarCollector:
    """Runs sadc during a run, into a file that any sar can read; rows as in `results.rundir.SAR_COLUMNS`."""

    name = "sar"

    def __init__(self, file: Path) -> None:
        self._file = file
        self._child: Child | None = None
        self.trouble = ""

    def start(self) -> None:
        """Start recording, once a second; do nothing if sysstat is not installed."""
        program = recorder()
        if program is None:
            return
        quiet = subprocess.DEVNULL
        self._child = Child([program, "1", str(self._file)], stdout=quiet, stderr=quiet)

    def stop(self) -> Sequence[Row]:
        """Stop recording and return the rows; the file remains."""
        if self._child is None:
            return []
        ended = self._child.ended()
        if ended:
            self.trouble = f"sadc ended early ({ended}); the seconds after that are missing"
        elif not self._child.end(signal.SIGINT, within_s=STOP_S):
            self.trouble = f"sadc did not end within {STOP_S:g} s and was killed; its last seconds may be missing"
        try:
            return sadf.read(self._file)
        except UserMistake as mistake:
            early = f" (it ended early: {ended})" if ended else ""
            self.trouble = f"sar recorded nothing that can be read{early}: {mistake}"
            return []
