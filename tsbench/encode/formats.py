"""The wire formats that are also formats of files, by the names that `tsbench generate` has for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from tsbench.encode import csv, line_protocol, parquet, pgcopy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tsbench.model import Batch, Measurement

Chunks: TypeAlias = "Iterable[bytes | memoryview]"


@dataclass(frozen=True, slots=True)
class Format:
    """How points become a file: the bytes of batches, of one measurement if it is a `table`."""

    table: bool
    chunks: Callable[[Measurement, Iterable[Batch]], Chunks]


def _lines(_: Measurement, batches: Iterable[Batch]) -> Chunks:
    return (block.data for batch in batches for block in line_protocol.blocks(batch))


def _csv(measurement: Measurement, batches: Iterable[Batch]) -> Chunks:
    yield csv.header(measurement)
    yield from (block.data for batch in batches for block in csv.blocks(batch))


def _pgcopy(measurement: Measurement, batches: Iterable[Batch]) -> Chunks:
    yield pgcopy.HEADER
    for batch in batches:
        stream = pgcopy.encode(batch, extra_json=bool(measurement.own_tags))
        yield memoryview(stream)[len(pgcopy.HEADER) : -len(pgcopy.TRAILER)]
    yield pgcopy.TRAILER


FORMATS: dict[str, Format] = {
    "influx": Format(False, _lines),
    "csv": Format(True, _csv),
    "pgcopy": Format(True, _pgcopy),
    "parquet": Format(True, parquet.chunks),
}
