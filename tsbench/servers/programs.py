"""Programs of servers: where `tsbench servers install` puts them, or on PATH."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tsbench.errors import UserMistake


def cached_program(name: str) -> Path | None:
    """Return the path of a program, or of a directory of programs, of `tsbench servers install`; else None.

    A program, but no directory, may also be on PATH or in /usr/sbin, which is not on an ordinary user's PATH.
    """
    cache = Path(os.environ.get("TSBENCH_SERVERS") or Path.home() / ".cache" / "tsbench-servers") / "bin"
    if (cache / name).is_dir():
        return cache / name
    program = shutil.which(name, path=str(cache)) or shutil.which(name) or shutil.which(name, path="/usr/sbin")
    return Path(program) if program else None


def install_line(*names: str) -> str:
    """Return the command that installs programs of servers."""
    return f"tsbench servers install {' '.join(names)}"


def not_installed(product: str, *names: str) -> UserMistake:
    """Return the error for a server with a missing program, with the cure."""
    return UserMistake(
        f"{product} is not installed; run {install_line(*names)}, or give the endpoint of a server that runs"
    )
