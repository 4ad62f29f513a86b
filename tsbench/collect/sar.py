"""A collector that runs sysstat's recorder: the whole machine, in a form that administrators know."""

from __future__ import annotations

import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tsbench.collect import sadf
from tsbench.errors import UserMistake
from tsbench.servers.children import bind_to_parent, how_it_ended

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
        self._process: subprocess.Popen[bytes] | None = None
        self.trouble = ""

    def start(self) -> None:
        """Start recording, once a second; do nothing if sysstat is not installed."""
        program = recorder()
        if program is None:
            return
        self._process = subprocess.Popen(
            [program, "1", str(self._file)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=bind_to_parent(signal.SIGKILL),  # noqa: PLW1509 - one system call, prepared before the fork
        )

    def stop(self) -> Sequence[Row]:
        """Stop recording and return the rows; the file remains."""
        if self._process is None:
            return []
        ended = self._process.poll()
        if ended is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                with suppress(subprocess.TimeoutExpired):  # one that waits for a broken disk never ends
                    self._process.wait(STOP_S)
                self.trouble = f"sadc did not end within {STOP_S:g} s and was killed; its last seconds may be missing"
        if ended is not None:
            self.trouble = f"sadc ended early ({how_it_ended(ended)}); the seconds after that are missing"
        try:
            return sadf.read(self._file)
        except UserMistake as mistake:
            early = f" (it ended early: {how_it_ended(ended)})" if ended is not None else ""
            self.trouble = f"sar recorded nothing that can be read{early}: {mistake}"
            return []
