"""Faults of a SQLite file that other processes use too."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from tests.faults.bench import IMPATIENT, KEPT, PATIENCE_S, Fault, limits
from tests.faults.hands import FIVE_SECONDS, nothing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.faults.bench import Stand


@contextmanager
def _other(stand: Stand) -> Iterator[sqlite3.Connection]:
    """Open a connection of somebody else's, which waits for locks."""
    with closing(sqlite3.connect(stand.file, isolation_level=None, timeout=20)) as connection:
        yield connection


def _locked(moment: str) -> Callable[[Stand], None]:
    def act(stand: Stand) -> None:
        stand.until(moment)
        with _other(stand) as other:
            other.execute("BEGIN EXCLUSIVE")
            stand.command.wait(PATIENCE_S)

    return act


def _read_on(stand: Stand) -> None:
    """Hold the write-ahead log by a transaction that has read."""
    stand.until("measure")
    with _other(stand) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM cpu").fetchall()
        stand.command.wait(PATIENCE_S)


def _size_unknown(stand: Stand) -> None:
    assert stand.cell["validity"]["checks"]["answers"]["state"] == "valid"
    assert stand.cell["size"] is None


def _sql(text: str, moment: str) -> Callable[[Stand], None]:
    def act(stand: Stand) -> None:
        stand.until(moment)
        with _other(stand) as other:
            other.execute(text)

    return act


def _damaged(stand: Stand) -> None:
    stand.until("measured")
    with stand.file.open("r+b") as file:
        for page in range(1, stand.file.stat().st_size // 4096):
            file.seek(page * 4096)
            file.write(b"\xa5" * 512)


def _deleted(stand: Stand) -> None:
    stand.until("measured")
    for path in stand.place.glob("own.db*"):
        path.unlink()


def _no_database(stand: Stand) -> None:
    stand.file.write_bytes(b"This is a letter and not a database. " * 400)


def _no_longer(stand: Stand) -> None:
    stand.file.unlink(missing_ok=True)


FAULTS = (
    Fault("file locked by another process in the measurement", _locked("measured"), (r"locked",),
          words=IMPATIENT, at="own", resumed=KEPT),
    Fault("file locked by another process in the load", _locked("load"), (r"locked", r"own\.db", r"timeout\.load"),
          words=("--set", "load.window=100h", *limits(load=1)), at="own"),
    Fault("file read by another process until the end", _read_on,
          (r"the size of the data is not known", r"settling", r"--set timeout\.settle=10s"),
          words=limits(settle=5), at="own", resumed=KEPT, holds=_size_unknown, quick=True),
    Fault("file damaged by another process in the measurement", _damaged, (r"malformed|damaged",),
          words=FIVE_SECONDS, at="own", cure=_no_longer, resumed=KEPT, quick=True, quick_resumed=True),
    Fault("file deleted in the measurement", _deleted, (r"own\.db|no such table|stored",),
          words=FIVE_SECONDS, at="own", resumed=KEPT),
    Fault("file that is no database", nothing, (r"own\.db", r"not a database"),
          code=2, validity="", before=_no_database, cure=_no_longer, at="own"),
    Fault("table dropped by another process in the measurement", _sql("DROP TABLE cpu", "measured"),
          (r"no such table",), words=FIVE_SECONDS, at="own", resumed=KEPT),
    Fault("rows deleted by another process",
          _sql("DELETE FROM cpu WHERE rowid % 50 = 0", "measured"),
          (r"stored|missing|wrong",), validity="invalid", words=FIVE_SECONDS, at="own", resumed=KEPT),
)  # fmt: skip
