"""Reads the load processes' files by second and op, with memory that hardly grows with the run's length."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tsbench.measure.hist import SparseHistogram, decode_line, scan_log
from tsbench.measure.recorder import TIMES
from tsbench.results.json_files import are_counts, parse_json
from tsbench.results.limits import FIRST_S, LAST_S, LIMITS
from tsbench.results.reading import Room, open_file, read_lines
from tsbench.results.rundir import OPS_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import BinaryIO

    import polars as pl
    from numpy.typing import NDArray

COUNTS = ("count", "done", "failed", "unknown", "partial", "points")
"""Counters per second and op: `count` is of ops that were due in the second, the others of ops that ended in it."""
_MOST_PARTS = 64
"""Histograms that are added up at once; the largest take half a MB each."""
LATENCIES = {"p50": 50.0, "p99": 99.0, "max": 100.0}


class _Names:
    """Assigns the numbers 0, 1, ... to names in the order of their first use."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        number = self.numbers.setdefault(name, len(self.numbers))
        if number >= LIMITS.tags:
            raise ValueError(f"more than {LIMITS.tags} names")
        return number


@dataclass(frozen=True, slots=True, eq=False)
class Counters:
    """The counters of one process by second and op: `keys` (n, 2) are (second, index in `ops`), `numbers` (n, 6)."""

    ops: list[str]
    keys: NDArray[np.int64]
    numbers: NDArray[np.int64]
    """A column per name in `COUNTS`."""


def read_objects(path: Path, *, start: int = 0) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the objects of a file of JSON lines from an offset on, each with the offset of its end.

    A last line that is incomplete, as after a kill, is left out.

    Raises
    ------
    ValueError
        If a line is damaged: the text names file and line.
    """
    for number, (offset, line) in enumerate(read_lines(path, start=start), 1):
        try:
            content = parse_json(line)
            if not isinstance(content, dict) or not FIRST_S <= whole({"second": -1, **content}, "second") <= LAST_S:
                raise ValueError("it has no second of a run")  # noqa: TRY301
        except ValueError as error:
            raise ValueError(f"{path}:{number}: damaged line ({error})") from None
        yield offset + len(line), content


def whole(content: Mapping[str, Any], name: str) -> int:
    """Return a count or a time by its name, 0 if it is missing; raises ValueError if it is none of a second."""
    value = content.get(name, 0)
    if type(value) is not int or not 0 <= value <= LIMITS.counted:
        raise ValueError(f"{name} is not a count")
    return value


def read_counters(path: Path, visit: Callable[[int, str, Mapping[str, Any]], None]) -> Counters:
    """Read the `*.ops.jsonl` of a process; `visit` is called with second, op and the object of each line.

    Raises
    ------
    ValueError
        If a line is damaged: the text names file and line.
    """
    names, flat = _Names(), array("q")
    for number, (_, line) in enumerate(read_objects(path), 1):
        try:
            second, op, causes = whole(line, "second"), str(line.get("op", "")), line.get("causes", {})
            if not are_counts(causes) or len(op) > LIMITS.name or number > LIMITS.rows:
                raise ValueError("not the counts of an op in a second")  # noqa: TRY301
            counts = [whole(line, name) for name in COUNTS]
            place = names.number(op)
            visit(second, op, line)
        except ValueError as error:
            raise ValueError(f"{path}:{number}: damaged line ({error})") from None
        flat.extend((second, place, *counts))
    lines = np.frombuffer(flat, dtype=np.int64).reshape(-1, 2 + len(COUNTS))
    keys, inverse = np.unique(lines[:, :2], axis=0, return_inverse=True)
    numbers = np.zeros((len(keys), len(COUNTS)), dtype=np.int64)
    np.add.at(numbers, inverse.ravel(), lines[:, 2:])
    return Counters(list(names.numbers), keys, numbers)


class LogIndex:
    """Index of the histograms in the logs of all processes, by second and op.

    Raises
    ------
    ValueError
        If a line is damaged: the text names file and line.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        tags, flat = _Names(), array("q")
        self._paths = list(paths)
        for file, path in enumerate(self._paths):
            for line in scan_log(path):
                flat.extend((int(line.start_s), tags.number(line.tag), file, line.number, line.offset, line.size))
        lines = np.frombuffer(flat, dtype=np.int64).reshape(-1, 6)
        self._lines = lines[np.lexsort((lines[:, 1], lines[:, 0]))]
        self._tags = [(op, kind) for op, _, kind in (tag.rpartition("|") for tag in tags.numbers)]
        self.ops = list(dict.fromkeys(op for op, kind in self._tags if kind in TIMES))
        """Names of the ops, without repetitions."""
        places = np.array([self.ops.index(op) if kind in TIMES else -1 for op, kind in self._tags], dtype=np.int64)
        keys = np.stack([self._lines[:, 0], places[self._lines[:, 1]]], axis=1)
        self.keys: NDArray[np.int64] = keys[keys[:, 1] >= 0]
        """(second, index in `ops`) of each line with an op's times."""

    def histograms(self) -> Iterator[tuple[int, str, str, SparseHistogram]]:
        """Yield (second, op, kind, histogram over all processes), ordered by second.

        Raises
        ------
        ValueError
            If a histogram is damaged: the text names file and line.
        """
        changes = (np.diff(self._lines[:, :2], axis=0) != 0).any(axis=1)
        edges = [0, *(np.flatnonzero(changes) + 1).tolist(), len(self._lines)]
        files = [open_file(path) for path in self._paths]
        rooms = [Room.of(path) for path in self._paths]
        try:
            for first, end in pairwise(edges):
                group = self._lines[first:end]
                if len(group):
                    op, kind = self._tags[group[0, 1]]
                    yield (
                        int(group[0, 0]),
                        op,
                        kind,
                        self._sum(files, rooms, group[:, 2:].tolist()),
                    )
        finally:
            for file in files:
                file.close()

    def _sum(self, files: Sequence[BinaryIO], rooms: Sequence[Room], places: list[list[int]]) -> SparseHistogram:
        """Return the sum of the histograms of some lines; few are in memory, however many a log has of one second."""
        parts: list[SparseHistogram] = []
        for file, number, offset, size in places:
            files[file].seek(offset)
            text = files[file].read(size).decode(errors="replace")
            parts.append(decode_line(self._paths[file], number, text, rooms[file]))
            if len(parts) > _MOST_PARTS:
                parts = [SparseHistogram.sum(parts)]
        return SparseHistogram.sum(parts)


class SecondTable:
    """Builds the rows of ops.parquet, one per second and op that occurs in any of the parts.

    All rows are allocated at once and filled in place.
    """

    def __init__(self, parts: Sequence[LogIndex | Counters]) -> None:
        self._ops = {op: number for number, op in enumerate(sorted({op for part in parts for op in part.ops}))}
        codes = [self._codes(part.ops, part.keys) for part in parts]
        self._rows = np.unique(np.concatenate(codes)) if codes else np.zeros(0, dtype=np.int64)
        seconds = self._rows // max(1, len(self._ops))
        span_s = int(np.ptp(seconds)) if len(seconds) else 0
        if len(self._ops) > LIMITS.ops or len(self._rows) > LIMITS.rows or span_s > LIMITS.span_s:
            text = f"{len(self._ops):,} ops in {len(self._rows):,} seconds of {span_s:,}"
            most = f"{LIMITS.ops} of {LIMITS.rows:,} of {LIMITS.span_s:,}"
            raise ValueError(f"the load processes have recorded {text}; a run has at most {most}")
        self._counts = np.zeros((len(self._rows), len(COUNTS)), dtype=np.int64)
        self._latencies = np.zeros((len(self._rows), len(TIMES), len(LATENCIES)), dtype=np.int64)

    def _codes(self, ops: list[str], keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return one number per (second, op), which sorts by second, then by name."""
        numbers = np.array([self._ops[op] for op in ops], dtype=np.int64)
        return keys[:, 0] * max(1, len(self._ops)) + numbers[keys[:, 1]]

    def add_counters(self, part: Counters) -> None:
        """Add the counters of one process."""
        self._counts[np.searchsorted(self._rows, self._codes(part.ops, part.keys))] += part.numbers

    def set_latencies(self, second: int, op: str, kind: str, values_ns: Sequence[int]) -> None:
        """Set one second's percentiles, in the order of `LATENCIES`."""
        row = np.searchsorted(self._rows, second * max(1, len(self._ops)) + self._ops[op])
        self._latencies[row, TIMES.index(kind)] = values_ns

    def frame(self, start_s: int) -> pl.DataFrame:
        """Return the table; its seconds count from `start_s`."""
        from tsbench.results.tables import frame  # noqa: PLC0415 - imports polars, which load workers do without

        names = np.array(list(self._ops), dtype=object)
        seconds, ops = np.divmod(self._rows, max(1, len(self._ops)))
        columns: dict[str, Any] = {"second": seconds - start_s, "op": names[ops] if len(names) else []}
        columns |= {name: self._counts[:, place] for place, name in enumerate(COUNTS)}
        for number, kind in enumerate(TIMES):
            for place, name in enumerate(LATENCIES):
                columns[f"{kind}_{name}_ns"] = self._latencies[:, number, place]
        return frame(columns, OPS_COLUMNS)
