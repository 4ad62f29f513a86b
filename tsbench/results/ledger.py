"""The ledger of writes: one record per write of a load process, with its outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray


LEDGER_DTYPE = np.dtype([("stream", "<i4"), ("block", "<i8"), ("offset", "<i4"), ("points", "<i4"), ("outcome", "i1")])
"""One write: its stream, block and range of rows in the block (see `drive.payload_queue`), and its outcome."""


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
