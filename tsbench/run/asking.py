"""The queries of a file, asked by the load processes of a run (`tsbench query`)."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, BinaryIO

from tsbench.encode.point_files import opened
from tsbench.errors import Broken, UserMistake
from tsbench.model import OpError, Outcome, Verdict
from tsbench.results.process import QUERIES
from tsbench.results.rundir import find_runs
from tsbench.results.summary import Summary
from tsbench.run import assessment, cleanup, peer_queries, preparation
from tsbench.run.assessment import Findings
from tsbench.run.lifecycle import drive_and_measure, first_session, naming_death, real_parts, run_steps
from tsbench.run.standing import Standing
from tsbench.scenario.parts import WorldPart
from tsbench.scenario.spec import QueryFilePart
from tsbench.targets.base import Unsupported
from tsbench.text import short_path
from tsbench.units import NS_PER_S
from tsbench.workload.query_files import MS, Asked, AskedText, Parser, line_of, line_of_text, parse_head, read_line
from tsbench.workload.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tsbench.results.figures import Measured
    from tsbench.results.rundir import RunDir
    from tsbench.run.lifecycle import Parts
    from tsbench.run.phases import Phases, Progress
    from tsbench.run.time_limits import Limits
    from tsbench.scenario.spec import Job
    from tsbench.targets.base import Command, Schema
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
        part = WorldPart.model_validate(world)
        measurements = world_of(part).measurements
    except ValueError as error:
        raise UserMistake(f"'{path}', line 1: {str(error).splitlines()[0]}") from None
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
    lines: BinaryIO
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
    with opened(path) as blocks, tempfile.TemporaryFile() as lines:
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
        lines.seek(0)
        part = QueryFilePart(name=path, count=count, burn_in=burn_in, kinds=tuple(kinds))
        yield QueryFile(part, lines, world, window_ns)


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


def ask(spec: Job, file: QueryFile, results: Path, progress: Progress, functions: Sequence[Command] = ()) -> Summary:
    """Ask the queries of a file; `functions` create what the texts of another program call.

    Raises
    ------
    KeyboardInterrupt
        With the number of answers in its text, which are kept.
    """
    steps = partial(_carry_out, spec, file, functions)
    try:
        return run_steps(spec, results, progress, steps, partial(real_parts, spec), Standing(results))
    except KeyboardInterrupt as interrupt:
        (run,) = find_runs(results)
        answered = _answered(Summary.read(run).measured) if run.has("summary.json") else 0
        text = f"{interrupt}; {answered:,} queries were answered: tsbench report {short_path(results)} shows them"
        raise KeyboardInterrupt(text) from None


def _carry_out(
    spec: Job, file: QueryFile, functions: Sequence[Command], run: RunDir, parts: Parts, progress: Phases
) -> Summary:
    progress.phase("start")
    parts.server.start()
    with naming_death(parts):
        with first_session(run, spec, parts) as (session, limits):
            cleanup.note_nothing_made(run)
            with limits.step("create", "making the functions") as timeout_s:
                session.run(functions, timeout_s=timeout_s)
            _burn_in(spec, file, parts, limits)
        try:
            with (run / QUERIES).open("wb") as copy:
                file.lines.seek(0)
                shutil.copyfileobj(file.lines, copy)
            observed = drive_and_measure(spec, run, parts, progress)
        finally:
            (run / QUERIES).unlink(missing_ok=True)
    observed += Findings(checks={"asked": _all_asked(spec, file.part, observed)})
    return assessment.conclude(
        run, spec, preparation.heading(run, spec, parts.target, parts.schema), observed, progress
    )


def _burn_in(spec: Job, file: QueryFile, parts: Parts, limits: Limits) -> None:
    """Ask the queries before the measured ones; raises OpError if one is not answered."""
    parser = Parser(spec.measurements())
    with closing(limits.connect(parts.target, parts.schema).session) as session:
        for number, line in enumerate(islice(file.lines, file.part.burn_in)):
            asked = read_line(line, number, parser)
            try:
                if isinstance(asked, Asked):
                    session.query(parts.schema.compile(asked.query), asked.query.columns)
                else:
                    session.ask(asked.text)
            except OpError as error:
                why = f"query {number + 1} ({asked.kind}): {error.cause}: {error}"
                raise OpError(Outcome.UNKNOWN, "query", why) from error


def _all_asked(spec: Job, part: QueryFilePart, observed: Findings) -> Verdict:
    """Return an undecided verdict if the load ended before all queries were asked, and before its time was over."""
    measured = observed.parts["measured"]
    answered = _answered(measured)
    if answered < part.count and measured.duration_s < spec.drive.duration / NS_PER_S - 1:
        return Verdict(None, f"{answered:,} of {part.count:,} queries were answered")
    return Verdict(True, "", {"asked": answered})


def _answered(measured: Measured | None) -> int:
    return 0 if measured is None else sum(op.ended for op in measured.ops.values())
