"""The ledger of writes: a record for every write of a load process, and how it ended."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray


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
"""One write: which rows of which block of which stream (see `run.encoder`), and how and when it ended.

Of its `points` so many were acknowledged and so many refused; nobody knows of the rest. A write whose refused points
are known by their rows has several records, of rows that were all acknowledged or all refused. Between `sent_ns` and
`ended_ns`, epoch ns of the leader's clock, its points became visible to queries; those of an unknown write may do so
later.
"""

LEDGER_RECORD = struct.Struct("<iqiiiibqq")
"""The layout of `LEDGER_DTYPE`, for writing one record at a time."""


def read_ledgers(paths: Iterable[Path]) -> NDArray[np.void]:
    """Return the writes of all processes, one record of `LEDGER_DTYPE` each.

    A record at the end that was cut off by a kill is skipped.
    """
    parts = [np.zeros(0, dtype=LEDGER_DTYPE)]
    for path in paths:
        content = path.read_bytes()
        whole = len(content) // LEDGER_DTYPE.itemsize * LEDGER_DTYPE.itemsize
        parts.append(np.frombuffer(content[:whole], dtype=LEDGER_DTYPE))
    return np.concatenate(parts)
