"""The collectors in a process of their own, beside a Locust that was not started by `tsbench run`.

In Locust's own process they would hold up the event loop, whose lateness is what is watched there.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsbench import targets
from tsbench.children import bind_to_parent
from tsbench.collect.counters import CounterCollector
from tsbench.collect.processes import HostCollector, ServerCollector, Tree
from tsbench.collect.sar import SarCollector
from tsbench.collected import counting, watching
from tsbench.rundir import RunDir

if TYPE_CHECKING:
    from collections.abc import Sequence

PATIENCE_S = 20.0


class Beside:
    """Watches from its making until `stop`, which needs the run's clock to be written: it is the rows' time axis."""

    def __init__(self, run: RunDir, target: str, schema: str, endpoint: str, server: Sequence[int]) -> None:
        job = {"run": str(run.path), "target": target, "schema": schema, "endpoint": endpoint}
        self._child = subprocess.Popen(
            [sys.executable, "-m", "tsbench.beside", json.dumps({**job, "server": [*server], "client": os.getpid()})],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for Locust, which then stops this
            preexec_fn=bind_to_parent(signal.SIGKILL),  # noqa: PLW1509 - one system call, prepared before the fork
        )

    def stop(self) -> str:
        """Let it write what it saw; why it could not, or nothing."""
        try:
            _, errors = self._child.communicate(timeout=PATIENCE_S)  # which closes its input
        except subprocess.TimeoutExpired:
            self.kill()
            return f"what the hosts did is lost: the collectors did not end within {PATIENCE_S:g} s"
        if self._child.returncode:
            last = errors.decode(errors="replace").strip().rpartition("\n")[2]
            return f"what the hosts did is lost: {last or f'the collectors ended with {self._child.returncode}'}"
        return ""

    def kill(self) -> None:
        """Stop it without a word."""
        self._child.kill()
        self._child.communicate()


def watch(job: dict[str, Any]) -> None:
    """Watch until the input ends."""
    run = RunDir(Path(job["run"]))
    target = targets.get(job["target"])
    schema = target.schemas[job["schema"]]
    server: Sequence[int] = job["server"]
    client = Tree(lambda: [job["client"]], without=lambda: [*server, os.getpid()])
    collectors = (
        HostCollector(client),
        ServerCollector(lambda: server),
        CounterCollector(lambda: counting(target.connect(job["endpoint"], schema))),
        SarCollector(run / "sar.data"),
    )
    with watching(run, collectors):
        sys.stdin.read()


if __name__ == "__main__":
    watch(json.loads(sys.argv[1]))
