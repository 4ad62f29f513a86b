"""The queries of a file, which the load processes of a run share: each asks one of every n, at turning places."""

from __future__ import annotations

from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING

from tsbench.workload.query_files import Parser, read_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tsbench.results.process import Share
    from tsbench.scenario.spec import Job
    from tsbench.workload.query_files import Asked, AskedText


def queries_of_file(spec: Job, share: Share) -> Iterator[Asked | AskedText]:
    """Yield a process's share of the measured queries: one of each `of` that follow each other, after the burn-in.

    Its place among them goes round: where kinds of query take turns in the file, each process has all of them. Of the
    last ones, if they are fewer, the processes have one each in order, as of the arrivals of an open loop.
    """
    part, index, of = spec.query_file, share.index, share.of
    assert part is not None  # noqa: S101 - the spec of a run that asks a file
    parser = Parser(spec.measurements())
    with Path(part.checked).open("rb") as lines:
        measured = islice(enumerate(lines), part.burn_in, part.burn_in + part.count)
        for turn in count():
            some = list(islice(measured, of))
            place = (index + turn) % of if len(some) == of else index
            if place >= len(some):
                return
            number, line = some[place]
            yield read_line(line, number, parser)
