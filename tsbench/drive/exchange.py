"""Files of a worker that does not share the leader's file system: sent in pieces when the worker ends."""

from __future__ import annotations

import re
import secrets
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TOKEN = "process/leader"  # noqa: S105 - not a secret: it only tells one run directory from another
PIECE_BYTES = 1_000_000
_NAMES = re.compile(r"(latency|process)/[A-Za-z0-9_.-]+")


def mark(directory: Path) -> str:
    """Mark a run directory, so that a worker can tell whether it sees the same one."""
    token = secrets.token_hex(8)
    (directory / TOKEN).write_text(token, encoding="utf-8")
    return token


def place_for(directory: Path, token: str) -> tuple[Path, bool]:
    """Where a worker writes: the run directory if it is the leader's own, else a new one; and whether to send it."""
    try:
        if (directory / TOKEN).read_text(encoding="utf-8") == token:
            return directory, False
    except OSError:
        pass
    own = Path(tempfile.mkdtemp(prefix="tsbench-worker-"))
    (own / "latency").mkdir()
    (own / "process").mkdir()
    return own, True


def pieces(directory: Path) -> Iterator[dict[str, Any]]:
    """The files of a directory as messages, each small enough not to hold up the others."""
    for path in sorted([*(directory / "latency").iterdir(), *(directory / "process").iterdir()]):
        name = f"{path.parent.name}/{path.name}"
        with path.open("rb") as file:
            while data := file.read(PIECE_BYTES):
                yield {"name": name, "data": zlib.compress(data)}


def receive(directory: Path, worker: str, message: Mapping[str, Any]) -> None:
    """Append a piece to the file of a worker.

    Raises
    ------
    ValueError
        If the name is not one of that worker's own files.
    """
    name = str(message["name"])
    if not _NAMES.fullmatch(name) or not name.partition("/")[2].startswith(f"{worker}."):
        raise ValueError(f"{worker} sent a file called {name!r}")
    with (directory / name).open("ab") as file:
        file.write(zlib.decompress(message["data"]))
