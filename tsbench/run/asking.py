"""The queries of a file, asked by the load processes of a run (`tsbench query`)."""

from __future__ import annotations

import tempfile
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from tsbench.encode.point_files import opened
from tsbench.errors import Broken, UserMistake
from tsbench.model import OpError, Outcome, Verdict
from tsbench.run import peer_queries
from tsbench.scenario.parts import WorldPart
from tsbench.scenario.spec import QueryFilePart
from tsbench.targets.base import Unsupported
from tsbench.units import NS_PER_S
from tsbench.workload.query_files import MS, Asked, AskedText, Parser, line_of, line_of_text, parse_head, read_line
from tsbench.workload.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tsbench.results.figures import Measured
    from tsbench.run.assessment import Findings
    from tsbench.run.trial import Trial
    from tsbench.scenario.spec import Job
    from tsbench.targets.base import Schema
    from tsbench.targets.target import Target


_MOST_BYTES = 1 << 24
"""Length of a line, which may have the keys of many series."""


def read_queries(path: str, blocks: Iterator[bytes]) -> tuple[WorldPart, int, Iterator[Asked]]:
    """Return the world of a file of `tsbench queries`, the loaded time in ns, and the queries.

    Raises
    ------
    UserMistake
        If it is another file; while queries are read, with the number of the line.
    """
    lines = _lines(path, blocks)
    try:
        world, window_ns = parse_head(next(lines, b""))
        part = WorldPart.of(world)
        measurements = world_of(part).measurements
    except ValueError as error:
        raise UserMistake(f"'{path}', line 1: {error}") from None
    return part, window_ns, _parsed(path, lines, Parser(measurements))


def _lines(path: str, blocks: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for block in blocks:
        *whole, rest = (rest + block).split(b"\n")
        yield from whole
        if len(rest) > _MOST_BYTES:
            raise UserMistake(f"'{path}' has a line of more than {_MOST_BYTES:,} bytes: this is no file of queries")
    yield from [rest] if rest.strip() else []


def _parsed(path: str, lines: Iterator[bytes], parser: Parser) -> Iterator[Asked]:
    for number, line in enumerate(lines):
        try:
            yield parser.parse(line, number)
        except ValueError as error:
            raise UserMistake(f"'{path}', line {number + 2}: {error}") from None


def world_of(part: WorldPart) -> World:
    """Return the world that a file of queries names."""
    return World(part.spec(MS))


@dataclass(frozen=True, slots=True)
class QueryFile:
    """The queries of a file, checked one by one; `world` is None for the texts of another program."""

    part: QueryFilePart
    world: WorldPart | None = None
    window_ns: int = 0


@contextmanager
def checked(path: str, target: Target, schema: Schema, *, burn_in: int, limit: int | None) -> Iterator[QueryFile]:
    """Read the first queries of a file (`-`: standard input), at most `limit` after the burn-in, before any is asked.

    Raises
    ------
    UserMistake
        If it is no file of queries, one of them is damaged, or none is left after the burn-in.
    Broken
        If the target cannot be asked a kind of query in it.
    """
    with opened(path) as blocks, tempfile.NamedTemporaryFile(prefix="tsbench-queries-") as lines:
        world, window_ns, asked = _read(path, blocks, target)
        kinds: dict[str, None] = {}
        count = -burn_in
        for query in islice(asked, None if limit is None else burn_in + limit):
            if query.kind not in kinds:
                _expect_supported(query, schema)
                kinds[query.kind] = None
            lines.write(line_of(query.kind, query.query) if isinstance(query, Asked) else line_of_text(query))
            count += 1
        if count <= 0:
            raise UserMistake(f"'{path}' has {count + burn_in:,} queries, and none is left after --burn-in {burn_in}")
        lines.flush()
        part = QueryFilePart(name=path, count=count, burn_in=burn_in, checked=lines.name, kinds=tuple(kinds))
        yield QueryFile(part, world, window_ns)


def _read(
    path: str, blocks: Iterator[bytes], target: Target
) -> tuple[WorldPart | None, int, Iterator[Asked | AskedText]]:
    first = next(blocks, b"")
    whole = chain([first], blocks)
    if peer_queries.are_theirs(first):
        return None, 0, peer_queries.read(path, whole, target)
    return read_queries(path, whole)


def _expect_supported(asked: Asked | AskedText, schema: Schema) -> None:
    try:
        if isinstance(asked, Asked):
            schema.compile(asked.query)
    except Unsupported as why:
        raise Broken(f"{asked.kind} (line {asked.number + 2}) cannot be asked: {why}") from None


def burn_in(trial: Trial) -> None:
    """Make the functions that the texts of another program call, if it is asked to, and ask the unmeasured queries.

    Raises
    ------
    OpError
        If one is not answered.
    """
    spec, parts = trial.spec, trial.parts
    part, parser = _part_of(spec), Parser(spec.measurements())
    functions = peer_queries.functions_of(parts.target) if part.functions else ()
    with trial.limits.step("create", "making the functions") as timeout_s:
        trial.session.run(functions, timeout_s=timeout_s)
    with (
        Path(part.checked).open("rb") as lines,
        closing(trial.limits.connect(parts.target, parts.schema).session) as session,
    ):
        for number, line in enumerate(islice(lines, part.burn_in)):
            asked = read_line(line, number, parser)
            try:
                if isinstance(asked, Asked):
                    session.query(parts.schema.compile(asked.query), asked.query.columns)
                else:
                    session.ask(asked.text)
            except OpError as error:
                why = f"query {number + 1} ({asked.kind}): {error.cause}: {error}"
                raise OpError(Outcome.UNKNOWN, "query", why) from error


def _part_of(spec: Job) -> QueryFilePart:
    assert spec.query_file is not None  # noqa: S101 - steps that ask a file are those of its specifications
    return spec.query_file


def all_asked(spec: Job, observed: Findings) -> Verdict:
    """Return an undecided verdict if the load ended before all queries were asked, and before its time was over."""
    part, measured = _part_of(spec), observed.parts["measured"]
    answered = answers_in(measured)
    if answered < part.count and measured.duration_s < spec.drive.duration / NS_PER_S - 1:
        return Verdict(None, f"{answered:,} of {part.count:,} queries were answered")
    return Verdict(True, "", {"asked": answered})


def answers_in(measured: Measured | None) -> int:
    """Return the number of queries that were answered, whatever they asked."""
    return 0 if measured is None else sum(op.ended for op in measured.ops.values())
