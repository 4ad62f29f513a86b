"""Locust's command line in forks of one process that has imported it: for commands that end before they start a load.

Importing Locust and what we need with it takes 0.8 s of CPU, and dozens of commands are refused or merely parsed.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PATIENCE_S = 240.0
LOCUST = "from locust.main import main; main()"
_SERVER = """
import json, os, sys
import locust.main
import tsbench.drive.load_process, tsbench.drive.bare.helper  # not what looks at the command line when it is imported
import gevent
from gevent.monkey import get_original
print("ready", flush=True)
while line := sys.stdin.readline():
    asked = json.loads(line)
    child = get_original("os", "fork")()
    if not child:
        break
    print(os.waitstatus_to_exitcode(get_original("os", "waitpid")(child, 0)[1]), flush=True)
else:
    sys.exit()
gevent.reinit()
for number, name in enumerate((os.devnull, asked["out"], asked["err"])):
    os.dup2(os.open(name, os.O_RDWR | os.O_CREAT, 0o600), number)
os.chdir(asked["place"])
os.environ.clear()
os.environ.update(asked["env"])
sys.argv = asked["argv"]
exec(asked["text"], {"__name__": "__main__"})
"""


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str


class WarmLocust:
    """The process that has imported Locust, and its forks, one at a time."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._server = subprocess.Popen(
            [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._line() == "ready"

    def run(self, place: Path, *words: str, env: Mapping[str, str | None] | None = None, text: str = LOCUST) -> Done:
        """Run `locust` with these words in a directory, or another Python text that finds them in `sys.argv`."""
        environment = {name: value for name, value in {**os.environ, **(env or {})}.items() if value is not None}
        out, err = self._place / "stdout.txt", self._place / "stderr.txt"
        for file in (out, err):
            file.write_text("")
        asked = {"place": str(place), "argv": ["locust", *words], "env": environment, "text": text}
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps({**asked, "out": str(out), "err": str(err)}) + "\n")
        self._server.stdin.flush()
        return Done(int(self._line()), out.read_text(), err.read_text())

    def _line(self) -> str:
        assert self._server.stdout is not None
        ready, _, _ = select.select([self._server.stdout], [], [], PATIENCE_S)
        if not ready:
            self.close()
        assert ready, f"nothing came of it within {PATIENCE_S} s: {[p.read_text() for p in self._place.iterdir()]}"
        return self._server.stdout.readline().strip()

    def close(self) -> None:
        """End the process, and a fork that it waits for."""
        for child in psutil.Process(self._server.pid).children(recursive=True):
            child.kill()
        self._server.kill()
        self._server.communicate()
