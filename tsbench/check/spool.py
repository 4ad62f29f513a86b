"""Answers that wait in a file until they are compared, so that they occupy no memory."""

from __future__ import annotations

import marshal
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

import numpy as np

from tsbench.check.packed import Packed
from tsbench.model import Rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tsbench.check.comparison import Row


class SpoolFile:
    """A temporary file of answers."""

    def __init__(self, directory: Path | None = None) -> None:
        self._file = TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115 - `close` closes it

    def keep(self, answer: Packed) -> Callable[[], Packed]:
        """Write an answer to the file, and return a function that reads it.

        Raises
        ------
        OSError
            If the disk is full.
        """
        shape, odd = answer.values.shape, answer.odd
        start = self._file.seek(0, 2)
        rest = answer.rest is not None
        for column in (
            answer.time_ns,
            answer.series,
            answer.values,
            *([answer.rest] if answer.rest is not None else []),
        ):
            np.ascontiguousarray(column).tofile(self._file)

        def read() -> Packed:
            self._file.seek(start)
            time_ns, series = (np.fromfile(self._file, np.int64, shape[0]) for _ in range(2))
            values, *more = (
                np.fromfile(self._file, np.float64, shape[0] * shape[1]).reshape(shape) for _ in range(1 + rest)
            )
            return Packed(time_ns, series, values, [*odd], *more)

        return read

    def keep_rows(self, columns: tuple[str, ...], rows: list[Row]) -> Callable[[], Rows]:
        """Write canonical rows of any columns to the file, and return a function that reads them.

        Raises
        ------
        OSError
            If the disk is full.
        """
        start = self._file.seek(0, 2)
        content = marshal.dumps(rows)
        size = self._file.write(content)
        while size < len(content):
            size += self._file.write(content[size:])

        def read() -> Rows:
            self._file.seek(start)
            return Rows(columns, marshal.loads(self._file.read(size)))  # noqa: S302 - our own, and gone with us

        return read

    def close(self) -> None:
        """Delete the file."""
        self._file.close()
