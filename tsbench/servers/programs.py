"""Programs of servers: where `.ci/servers` installs them, or on PATH."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def cached_program(name: str) -> Path | None:
    """Return the path of a program, or of a directory of programs, in the cache of `.ci/servers`; else None.

    A program, but no directory, may also be on PATH or in /usr/sbin, which is not on an ordinary user's PATH.
    """
    cache = Path(os.environ.get("TSBENCH_SERVERS") or Path.home() / ".cache" / "tsbench-servers") / "bin"
    if (cache / name).is_dir():
        return cache / name
    found = shutil.which(name, path=str(cache)) or shutil.which(name) or shutil.which(name, path="/usr/sbin")
    return Path(found) if found else None
