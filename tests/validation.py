"""Asks every kind of query of every database and layout: `python -m tests.validation` writes which answers are right.

Each layout is loaded with small worlds that every kind of query fits, and is asked as a run is checked: seeded queries,
windows that begin and end anywhere, on ticks, and just after them. Answers are compared with gold, which is computed
from the world. The page is `docs/validation.md`, where columns that are not asked anew stay; the command ends with 1 if
an answer is wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tests.validation_page import KINDS, Column, page, read
from tsbench.check.answers import Answers, ask
from tsbench.errors import UserMistake
from tsbench.model import OpError, Window
from tsbench.scenario.use_case import built_in_cases, built_in_spec
from tsbench.targets.registry import TARGETS
from tsbench.testing.stand import START_NS, Stand, fitting
from tsbench.units import NS_PER_S
from tsbench.workload.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tsbench.targets.base import Schema
    from tsbench.targets.target import Target

SEED, SCALE, TICKS, INTERVAL_S = 23, 32, 200, 600
"""As many series as a kind of query chooses at most, and 33 hours: the longest window of a query is a day."""
TRUCKS_INTERVAL_S = 60
"""Trucks have buckets of ten minutes, of several points each; they are late and lost and lack fields and tags."""
TIMEOUT_S = 300.0
OUT = Path("docs/validation.md")
URLS = {"mongodb": "TSBENCH_TEST_MONGODB", "timescaledb": "TSBENCH_TEST_TIMESCALEDB"}
"""Environment variables with the endpoint of a server to ask instead of one that is started."""


def worlds() -> Iterator[tuple[World, list[str]]]:
    """Yield a world of every use case that a kind of query needs, with its kinds; each kind has one world."""
    left = dict.fromkeys(KINDS)
    for name, use_case in built_in_cases().items():
        trucks = name == "iot"
        interval_ns = (TRUCKS_INTERVAL_S if trucks else INTERVAL_S) * NS_PER_S
        scale, streams = (SCALE, 2) if use_case.tags else (1, 1)
        form = "peer" if trucks else "bounded"
        world = World(built_in_spec(name, scale, SEED, START_NS, interval_ns, streams, form))
        kinds = [kind for kind in fitting(world, Window(START_NS, world.time_ns(ticks_of(world)))) if kind in left]
        for kind in kinds:
            del left[kind]
        if kinds:
            yield world, kinds
    assert not left, f"no world for {', '.join(left)}"


def ticks_of(world: World) -> int:
    """Return the number of ticks that are loaded."""
    return TICKS * INTERVAL_S * NS_PER_S // world.spec.interval_ns


def column(
    name: str, target: Target, schema: Schema, url: str, place: Path, count: int, use_case: str | None = None
) -> Column:
    """Return the outcomes on one layout, which has an empty server for itself; or those of one `use_case`."""
    found = Column(name, day=datetime.now(UTC).date().isoformat(), queries=count)
    for world, kinds in worlds():
        if use_case not in {None, world.spec.use_case}:
            continue
        stand = Stand(world, target, schema, url, ticks_of(world))
        try:
            try:
                stand.load()
            except UserMistake:  # a database that takes no floats of many digits
                world = World(replace(world.spec, decimals=4))  # noqa: PLW2901
                stand = Stand(world, target, schema, url, ticks_of(world)).load()
        except (OpError, UserMistake) as error:  # a layout that does not hold such points, too
            found.cells.update(dict.fromkeys(kinds, f"unsupported: {error}"))
            continue
        gold, session = stand.gold(), target.connect(url, schema, timeout_s=TIMEOUT_S)
        session.run(schema.settle(world.measurements))  # as a run does before it measures
        found.version = session.facts()["version"]
        for kind in kinds:
            answers = Answers(place)
            try:
                ask(gold, session, schema, [kind], count, SEED, answers)
            except OpError as error:
                found.wrong[kind] = found.cells[kind] = f"no answer: {error}"
                continue
            answers.compare(gold)
            if why := answers.unsupported.get(kind):
                found.cells[kind] = f"unsupported: {why}"
            elif answers.wrong:
                found.cells[kind] = f"**{answers.wrong} of {answers.checked} wrong**"
                found.wrong[kind] = str(answers.first_wrong)
            else:
                found.cells[kind] = str(answers.checked)
        session.run(schema.drop(world.measurements))
        session.close()
    return found


@contextmanager
def serving(target: str, place: Path) -> Iterator[str]:
    """Start a database's own server, or take the one that the environment names; yield its endpoint."""
    if url := os.environ.get(URLS.get(target, ""), ""):
        yield url
        return
    server = TARGETS[target].new_server(place, {})
    server.start()
    try:
        yield server.endpoint
    finally:
        server.stop()
        server.remove()


def columns(names: Sequence[str], layouts: Sequence[str], count: int, use_case: str | None = None) -> Iterator[Column]:
    """Yield the outcomes on layouts (none: all) of some databases; one that is not installed has an empty column."""
    with TemporaryDirectory(prefix="tsbench-validation-", dir="/var/tmp") as directory:
        for name in names:
            target = TARGETS[name]
            place = Path(directory) / name
            place.mkdir()
            try:
                with serving(name, place) as url:
                    for layout, schema in target.schemas.items():
                        if layout in (layouts or target.schemas):
                            yield column(f"{name}<br>{layout}", target, schema, url, place, count, use_case)
            except UserMistake as mistake:
                yield Column(name, f"not asked: {mistake}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queries", type=int, default=100, help="queries of each kind on each layout (default: 100)")
    startable = [name for name, target in TARGETS.items() if target.durable]
    parser.add_argument("--only", nargs="+", choices=startable, default=startable, metavar="TARGET")
    known = list(dict.fromkeys(layout for name in startable for layout in TARGETS[name].schemas))
    parser.add_argument("--layouts", nargs="+", choices=known, default=[], metavar="LAYOUT", help="default: all")
    parser.add_argument("--use-case", choices=[*built_in_cases()], help="ask only the kinds of its world; default: all")
    parser.add_argument("--out", type=Path, default=OUT, help=f"the page (default: {OUT})")
    given = parser.parse_args()
    kept = read(given.out.read_text(encoding="utf-8")) if given.out.exists() else {}
    found = []
    for each in columns(given.only, given.layouts, given.queries, given.use_case):
        found.append(each)
        if given.use_case is None or each.name not in kept:
            kept[each.name] = each
        kept[each.name].cells.update(each.cells)
        print(each.name.replace("<br>", " "), each.version, f"{len(each.wrong)} kinds wrong", flush=True)
        for kind, first in each.wrong.items():
            print(f"  {kind}: {first}", flush=True)
        given.out.write_text(page(kept.values()), encoding="utf-8")  # after each, as it takes a while
    sys.exit(1 if any(each.wrong for each in found) else 0)


if __name__ == "__main__":
    main()
