"""The queries of a file, which the load processes of a run share: each asks every n-th one."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from tsbench.results.process import QUERIES
from tsbench.workload.query_files import Parser, read_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tsbench.results.process import Share
    from tsbench.scenario.spec import Job
    from tsbench.workload.query_files import Asked, AskedText


class QueriesOfFile:
    """A process's share of the measured queries: numbers index, index + of, index + 2 * of, ... after the burn-in."""

    def __init__(self, spec: Job, share: Share, directory: Path) -> None:
        assert spec.query_file is not None  # noqa: S101 - the spec of a run that asks a file
        self._part, self._share = spec.query_file, share
        self._path, self._parser = directory / QUERIES, Parser(spec.measurements())

    def __iter__(self) -> Iterator[Asked | AskedText]:
        first, end = self._part.burn_in, self._part.burn_in + self._part.count
        with self._path.open("rb") as lines:
            for number, line in islice(enumerate(lines), first + self._share.index, end, self._share.of):
                yield read_line(line, number, self._parser)
