"""Rows as data frames with the columns of a run directory's Parquet files.

A module of its own, which is imported where a frame is made: load workers make none, and have no polars installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TYPES = {"int64": pl.Int64, "double": pl.Float64, "string": pl.String}


def frame(rows: Sequence[Mapping[str, Any]] | Mapping[str, Any], columns: Mapping[str, str]) -> pl.DataFrame:
    """Return rows, or arrays by column, as a frame with these columns and types.

    See `OPS_COLUMNS` and `COLLECTED` in `rundir`.
    """
    return pl.DataFrame(rows, schema={name: _TYPES[kind] for name, kind in columns.items()}, strict=False)
