"""The wire formats that are also formats of files, by the names that `tsbench generate` has for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from tsbench.encode import csv, line_protocol, pgcopy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tsbench.model import Batch, Measurement

Chunks: TypeAlias = "Iterable[bytes | memoryview]"


@dataclass(frozen=True, slots=True)
class Format:
    """How points become a file. A `table` holds a single measurement."""

    table: bool
    begin: Callable[[Measurement], bytes]
    chunks: Callable[[Batch], Chunks]
    end: bytes


def _pgcopy_rows(batch: Batch) -> Chunks:
    stream = pgcopy.encode(batch, extra_json=bool(batch.measurement.own_tags))
    yield memoryview(stream)[len(pgcopy.HEADER) : -len(pgcopy.TRAILER)]


def _line_chunks(batch: Batch) -> Chunks:
    return (block.data for block in line_protocol.blocks(batch))


def _csv_chunks(batch: Batch) -> Chunks:
    return (block.data for block in csv.blocks(batch))


FORMATS: dict[str, Format] = {
    "influx": Format(False, lambda _: b"", _line_chunks, b""),
    "csv": Format(True, csv.header, _csv_chunks, b""),
    "pgcopy": Format(True, lambda _: pgcopy.HEADER, _pgcopy_rows, pgcopy.TRAILER),
}
