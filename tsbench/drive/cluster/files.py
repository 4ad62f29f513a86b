"""Transfer of files from a worker without access to the leader's file system, in pieces, when the worker ends."""

from __future__ import annotations

import secrets
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsbench.units import format_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TOKEN = "process/leader"  # noqa: S105 - not a secret: it identifies a run directory
PIECE_BYTES = 1_000_000
FILE_BYTES = 2_000_000_000
TOTAL_BYTES = 10_000_000_000
"""Maximum size of one file, and of all files of a test. The ledger grows fastest, by 21 bytes a write."""
_ENDINGS = (
    *("latency/{}.hlog", "process/{}.self.hlog", "process/{}.cpu.jsonl", "process/{}.ops.jsonl"),
    *("process/{}.ledger", "process/{}.answers.jsonl", "process/{}.json"),
)
"""The files of a load process, by its name."""


def mark(directory: Path) -> str:
    """Write a token into a run directory, by which a worker recognises it."""
    token = secrets.token_hex(8)
    (directory / TOKEN).write_text(token, encoding="utf-8")
    return token


def place_for(directory: Path, token: str) -> tuple[Path, bool]:
    """Return the directory for a worker's files, and whether they must be sent to the leader.

    It is the run directory if the worker shares it with the leader, else a new one.
    """
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
    """Yield the files of a directory as messages, each small enough not to delay others."""
    for path in sorted([*(directory / "latency").iterdir(), *(directory / "process").iterdir()]):
        name = f"{path.parent.name}/{path.name}"
        with path.open("rb") as file:
            while data := file.read(PIECE_BYTES):
                yield {"name": name, "data": zlib.compress(data)}


class RefusedFile(Exception):  # noqa: N818 - a worker's files are refused
    """Raised for files of a worker that the master does not accept: one line that names the worker."""


class FileInbox:
    """The master's store for the files of its workers, with a size limit.

    A worker must not fill the master's disk or memory; what its files hold is read within `results.limits`.
    """

    def __init__(self, directory: Path, *, file_bytes: int = FILE_BYTES, total_bytes: int = TOTAL_BYTES) -> None:
        self._directory, self._file_bytes, self._total_bytes = directory, file_bytes, total_bytes
        self._received: dict[str, int] = {}
        self._refused: set[str] = set()

    def receive(self, worker: str, message: Mapping[str, Any]) -> None:
        """Append a piece to the file of a worker; ignore it if an earlier one of that worker was refused.

        Raises
        ------
        Refused
            If the name is not one of the worker's own files, the piece cannot be unpacked, or a size limit is exceeded.
            The worker's files are deleted then: it counts as one that did not finish.
        """
        if worker in self._refused:
            return
        try:
            name, data = self._checked(worker, message)
        except RefusedFile:
            self._refused.add(worker)
            for ending in _ENDINGS:
                (self._directory / ending.format(worker)).unlink(missing_ok=True)
            raise
        with (self._directory / name).open("ab") as file:
            file.write(data)
        self._received[name] = self._received.get(name, 0) + len(data)

    def _checked(self, worker: str, message: Mapping[str, Any]) -> tuple[str, bytes]:
        name, packed = str(message.get("name")), message.get("data")
        if name not in [ending.format(worker) for ending in _ENDINGS]:
            raise RefusedFile(f"{worker} sent a file called {name[:100]!r}; its files are not taken")
        unpacker = zlib.decompressobj()
        try:
            data = unpacker.decompress(packed if isinstance(packed, bytes) else b"", PIECE_BYTES + 1)
        except zlib.error as error:
            raise RefusedFile(f"{worker} sent a piece of {name} that cannot be unpacked ({error})") from None
        if len(data) > PIECE_BYTES or not unpacker.eof:
            raise RefusedFile(
                f"{worker} sent a piece of {name} with more than {format_size(PIECE_BYTES)}, or a part of one"
            )
        if self._received.get(name, 0) + len(data) > self._file_bytes:
            raise RefusedFile(
                f"{worker} sent more than {format_size(self._file_bytes)} of {name}; make the test shorter"
            )
        if sum(self._received.values()) + len(data) > self._total_bytes:
            limit = format_size(self._total_bytes)
            raise RefusedFile(f"{worker} sent {name} after {limit} of all workers' files; make the test shorter")
        return name, data
