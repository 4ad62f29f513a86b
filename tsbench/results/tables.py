"""Rows as data frames with the columns of a run directory's Parquet files.

A module of its own, which is imported where a frame is made: load workers make none, and have no polars installed.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import polars as pl

from tsbench.results.reading import read_table
from tsbench.results.rundir import write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_TYPES = {"int64": pl.Int64, "double": pl.Float64, "string": pl.String}


def frame(rows: Sequence[Mapping[str, Any]] | Mapping[str, Any], columns: Mapping[str, str]) -> pl.DataFrame:
    """Return rows, or arrays by column, as a frame with these columns and types.

    See `OPS_COLUMNS` and `COLLECTED` in `rundir`.
    """
    return pl.DataFrame(rows, schema={name: _TYPES[kind] for name, kind in columns.items()}, strict=False)


def read_frame(path: Path, columns: Mapping[str, str]) -> pl.DataFrame:
    """Return the rows of a Parquet file with these columns.

    Raises
    ------
    tsbench.errors.UserMistake
        If the file is missing or damaged.
    """
    return pl.DataFrame(read_table(path, columns))


def write_parquet(table: pl.DataFrame, path: Path) -> None:
    """Write a frame as a Parquet file, atomically.

    Polars would leave a part of the file on a full disk and raise an error of its own, which is no OSError.

    Raises
    ------
    tsbench.errors.Broken
        If the disk is full or the directory not writable.
    """
    content = io.BytesIO()
    table.write_parquet(content)
    write_atomically(path, content.getbuffer())
