"""Faults of a server of three nodes: while one is away, of one that does not come back, and of the disk under all."""

from __future__ import annotations

import shutil
import signal
from typing import TYPE_CHECKING

from tests.faults.bench import Fault
from tests.faults.hands import LOADING, disk_full, room, small_disk, told

if TYPE_CHECKING:
    from tests.faults.bench import Stand
    from tests.faults.hands import Act


def _events(duration: str, *steps: tuple[str, str]) -> Act:
    """Return a preparation that gives the first command events of node 2."""

    def before(stand: Stand) -> None:
        events = ", ".join(f'{{ at = "{at}", do = "{do}", node = 2 }}' for at, do in steps)
        stand.words = ("--set", f"event=[{events}]", "--set", f"drive.duration={duration}")

    return before


def _spoiled(stand: Stand) -> None:
    """Put a file in the place of a stopped node's data."""
    stand.until("measure")
    stand.command.wait_until(lambda: [*stand.partial.glob("process/events.json")])
    data = stand.partial / "server" / "node-2" / "server" / "data"
    shutil.rmtree(data)
    data.write_text("a file", encoding="utf-8")


FAULTS = (
    Fault("Ctrl-C in the load", told(signal.SIGINT, at="load"), (r"interrupted", r"--resume"), code=130,
          words=LOADING),
    Fault("Ctrl-C while a node is away", told(signal.SIGINT, at="measured"), (r"interrupted", r"--resume"), code=130,
          words=(), before=_events("60s", ("500ms", "kill")), quick=True),
    Fault("a node that does not come back", _spoiled,
          (r"event restart node 2 at 8 s: the server did not come back: .*(?:node-2|results/)",),
          words=(), before=_events("12s", ("1s", "stop"), ("8s", "restart")), quick=True),
    Fault("disk full in the measurement", disk_full("measured"), (r"[Nn]o space left|disk full|free some room",),
          words=("--set", "drive.duration=15s"), before=small_disk("600m"), cure=room, of_root=True),
)  # fmt: skip
