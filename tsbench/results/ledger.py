"""The ledger of writes: a record for every write of a load process, and how it ended."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from tsbench.results.limits import LAST_S, LIMITS
from tsbench.results.reading import files_of, read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    from tsbench.results.rundir import RunDir


LEDGER_DTYPE = np.dtype(
    [
        ("stream", "<i4"),
        ("block", "<i8"),
        ("offset", "<i4"),
        ("points", "<i4"),
        ("acknowledged", "<i4"),
        ("refused", "<i4"),
        ("outcome", "i1"),
        ("sent_ns", "<i8"),
        ("ended_ns", "<i8"),
    ]
)
"""One write: its stream, block and rows (see `drive.feed.encoder`), its outcome and its times.

`acknowledged` and `refused` count points; the outcome of the remaining `points` is unknown. A write whose refused rows
are known has several records, each of rows that were all acknowledged or all refused. Its points became visible to
queries between `sent_ns` and `ended_ns` (epoch ns of the leader's clock), those of an unknown write perhaps later.
"""

LEDGER_RECORD = struct.Struct("<iqiiiibqq")
"""The layout of `LEDGER_DTYPE`, for writing one record at a time."""


def read_ledgers(paths: Iterable[Path]) -> NDArray[np.void]:
    """Return the writes of all processes, one record of `LEDGER_DTYPE` each.

    A record at the end that was cut off by a kill is skipped.

    Raises
    ------
    ValueError
        If a record is damaged: the text names the file.
    OSError
        If one is no file.
    """
    parts = [np.zeros(0, dtype=LEDGER_DTYPE)]
    for path in paths:
        content = read_bytes(path)
        whole = len(content) // LEDGER_DTYPE.itemsize * LEDGER_DTYPE.itemsize
        parts.append(np.frombuffer(content[:whole], dtype=LEDGER_DTYPE))
        if not _is_sound(parts[-1]):
            raise ValueError(f"{path}: damaged: a record of a write that no load process makes")
    return np.concatenate(parts)


def writes_of(run: RunDir) -> NDArray[np.void]:
    """Return the writes of a run's load processes; errors as of `read_ledgers`."""
    return read_ledgers(files_of(run / "process", "*.ledger"))


def _is_sound(writes: NDArray[np.void]) -> bool:
    """Return True if the numbers of all writes are possible; blocks are limited, since their points are generated."""
    most = {"block": len(writes) + LIMITS.blocks, "offset": LIMITS.block_points, "points": LIMITS.block_points}
    largest = {**most, "stream": LIMITS.streams, "outcome": 3, "sent_ns": LAST_S * 10**9, "ended_ns": LAST_S * 10**9}
    if any(((writes[name] < 0) | (writes[name] > highest)).any() for name, highest in largest.items()):
        return False
    told = writes["acknowledged"].astype(np.int64) + writes["refused"]
    return not ((writes["acknowledged"] < 0) | (writes["refused"] < 0) | (told > writes["points"])).any()
