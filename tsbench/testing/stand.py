"""A database with a known history, for tests of the checks: a bulk load, then writes with every outcome."""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from tsbench.check.answers import Answers, ask, read_back
from tsbench.check.audit import account, count_stored
from tsbench.check.gold import Gold
from tsbench.check.points import Feed
from tsbench.measure.recorder import Recorder
from tsbench.model import OpError, Outcome, Window, WriteMode
from tsbench.results.ledger import read_ledgers
from tsbench.run.bulk_load import bulk_load
from tsbench.scenario.use_case import built_in_spec
from tsbench.testing.oracle import Oracle
from tsbench.units import NS_PER_S
from tsbench.workload.queries import fit, kinds_of
from tsbench.workload.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tsbench.check.expiry import Expiry
    from tsbench.model import Batch
    from tsbench.targets.base import Payload, Schema, Session
    from tsbench.targets.target import Target

START_NS = 1_451_606_400 * NS_PER_S
SEED = 11
POINTS = 10
"""Points of one write."""
BLOCK = 500

Send: TypeAlias = "Callable[[Session, Payload], int]"
"""A function that sends a write; a defective one sends something else."""
Fate: TypeAlias = tuple[Outcome, bool]
"""The claimed outcome of a write, and whether it was sent."""
CERTAIN: Mapping[int, Fate] = MappingProxyType({})
UNSURE: dict[int, Fate] = {
    3: (Outcome.UNKNOWN, True),
    7: (Outcome.UNKNOWN, False),
    11: (Outcome.FAILED, False),
    59: (Outcome.UNKNOWN, True),
}
"""Writes of sixty with another outcome than OK; the last one is the newest of its stream."""


def world_of(use_case: str, scale: int, *, interval_s: int, streams: int = 2, **spec: Any) -> World:
    """Return a small world of a built-in use case."""
    return World(built_in_spec(use_case, scale, SEED, START_NS, interval_s * NS_PER_S, streams, **spec))


def fitting(world: World, loaded: Window) -> list[str]:
    """Return the kinds of query that fit a world of which a window is loaded."""
    found = []
    for name in kinds_of(world):
        try:
            fit(name, world, loaded)
        except ValueError:
            continue
        found.append(name)
    return found


@dataclass
class Stand:
    """A loaded database file, the ledger of its writes, and the gold answers."""

    world: World
    target: Target
    schema: Schema
    url: str
    ticks: int
    loaded_points: int = 0
    ledger: NDArray[np.void] = field(default_factory=lambda: read_ledgers([]))
    expiry: Expiry | None = None
    known: tuple[str, ...] = ()
    """Tables of other measurements that were there before the load, as a run notes them."""

    @property
    def path(self) -> Path:
        """Path of the database's file (SQLite only)."""
        return Path(self.url.removeprefix("sqlite://"))

    def load(self) -> Stand:
        """Create the database and store the bulk load."""
        session = self.connect()
        self.known = session.inventory(self.world.measurements, series=False).tables
        session.run(self.schema.create(self.world.measurements, self.world.tags()))
        session.close()
        done = bulk_load(
            self.world, self.target, self.schema, self.url,
            last_tick=self.ticks, workers=1, batch=5_000, mode=WriteMode.BULK,
        )  # fmt: skip
        self.loaded_points = done.points
        return self

    def connect(self) -> Session:
        """Open a session."""
        return self.target.connect(self.url, self.schema)

    def write(self, place: Path, count: int, fates: Mapping[int, Fate] = CERTAIN, send: Send | None = None) -> Stand:
        """Send writes as a load process does; `fates` has other outcomes by number, `send` may be defective."""
        for name in ("latency", "process"):
            (place / name).mkdir(parents=True, exist_ok=True)
        recorder = Recorder(place, "p0", start_ns=START_NS)
        session = self.connect()
        for number, (stream, block, offset, piece) in enumerate(islice(self._pieces(), count)):
            outcome, stored = fates.get(number, (Outcome.OK, True))
            error = None
            if stored:
                outcome, error = _sent(session, self.schema.encode(piece, WriteMode.MULTI), outcome, send)
            recorder.wrote(stream, block, offset, len(piece), outcome, error)
        session.close()
        recorder.close()
        self.ledger = read_ledgers([place / "process" / "p0.ledger"])
        return self

    def _pieces(self) -> Iterator[tuple[int, int, int, Batch]]:
        """Yield the writes of a load process with their positions, as its payload queue (not importable here)."""
        streams = [self.world.batches(s, points=BLOCK, first_tick=self.ticks) for s in range(self.world.spec.streams)]
        for block, batches in enumerate(zip(*streams, strict=True)):
            for stream, batch in enumerate(batches):
                for offset in range(0, len(batch), POINTS):
                    yield stream, block, offset, batch.rows(offset, offset + POINTS)

    def gold(self) -> Gold:
        """Return the gold answers."""
        keeps = self.schema.keeps_duplicates
        return Gold(self._feed, self.ledger, keeps_duplicates=keeps, expiry=self.expiry)

    def oracle(self) -> Oracle:
        """Return the answers of a key that has all points in memory."""
        return Oracle(self._feed, self.ledger, keeps_duplicates=self.schema.keeps_duplicates)

    @property
    def _feed(self) -> Feed:
        return Feed(self.world, self.ticks, BLOCK)

    def copy(self, path: Path) -> Stand:
        """Return the same stand on a copy of the file, for planting defects."""
        shutil.copy(self.path, path)  # every connection is closed, so the log has been moved into the file
        return replace(self, url=f"sqlite://{path}")

    def vandalise(self, *statements: str) -> None:
        """Change the stored data by the bare driver; verify that every statement changes something."""
        connection = sqlite3.connect(self.path)
        for statement in statements:
            changed = connection.execute(statement).rowcount
            assert changed != 0, f"nothing changed: {statement}"
        connection.commit()
        connection.close()

    def asked(self, gold: Gold, kinds: Sequence[str], count: int, schema: Schema | None = None) -> Answers:
        """Run queries and check their answers."""
        answers = Answers()
        session = self.connect()
        ask(gold, session, schema or self.schema, kinds, count, SEED, answers)
        session.close()
        answers.compare(gold)
        return answers

    def false_verdicts(self, gold: Gold, schema: Schema | None = None) -> set[str]:
        """Return the checks of stored data that find an error."""
        session, answers = self.connect(), Answers()
        read_back(gold, session, schema or self.schema, 10**9, answers, self.known)
        answers.compare(gold)
        stored = count_stored(session, schema or self.schema, self.world.measurements)
        accounted = account(gold, stored, self.ledger, self.loaded_points)
        session.close()
        verdicts = {"rows": answers.verdict(), "count": accounted.verdict()}
        assert all(verdict.valid is not None for verdict in verdicts.values())
        return {name for name, verdict in verdicts.items() if verdict.valid is False}


def _sent(session: Session, payload: Payload, outcome: Outcome, send: Send | None) -> tuple[Outcome, OpError | None]:
    try:
        acknowledged = send(session, payload) if send else session.write(payload)
    except OpError as error:
        return error.outcome, error
    assert acknowledged == payload.points
    return outcome, None
