"""A small database that is loaded anew for every manipulation, and what the checks say about it afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tsbench.check.answers import Answers, guarded, read_back
from tsbench.check.audit import account, count_stored
from tsbench.model import Stored
from tsbench.targets.registry import TARGETS
from tsbench.testing.stand import START_NS, Stand, world_of
from tsbench.units import NS_PER_S, format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tsbench.check.stored_rows import Flaw, Located
    from tsbench.testing.oracle import Oracle
    from tsbench.testing.stand import Fate
    from tsbench.workload.world import World

MINUTE_NS = 60 * NS_PER_S
LOADED_TICKS, WRITES = 10, 12
WRITTEN_MINUTE, NEWEST_MINUTE = 12, 69
"""A minute of cpu for host_0 and host_2 that a single write stored, and their newest one."""
_DECIMALS = {"victoriametrics": 4}
"""Decimals of floats, where a database does not keep all digits."""
H = TypeVar("H")


def time_ns(minute: float) -> int:
    """Return a time by its minute since the world's start."""
    return START_NS + round(minute * MINUTE_NS)


def truth(oracle: Oracle, minute: float, host: str, measurement: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return tags and fields of a point as it was written."""
    (m,) = (m for m in oracle.world.measurements if m.name == measurement)
    query = Stored(m, time_ns(minute), time_ns(minute) + 1)
    (row,) = (row for row in oracle.answer(query).records if row[1] == host)
    named = dict(zip(query.columns, row, strict=True))
    tags = {name: named[name] for name in (*m.tags, *m.own_tags)}
    return tags, {name: named[name] for name in m.field_names}


@dataclass(frozen=True)
class At:
    """A difference that must be named: its kind and place; a `minute` of None is any time, for changes of many rows."""

    kind: Flaw
    series: str | None = "host_1"
    minute: float | None = 3
    measurement: str = "cpu"
    column: str = ""
    time: str = ""

    def is_at(self, one: Located) -> bool:
        """Return True if a difference that was found is this one."""
        wanted = self.time or (None if self.minute is None else format_time(time_ns(self.minute)))
        return (
            (one.kind, one.measurement, one.series) == (self.kind, self.measurement, self.series)
            and wanted in (None, one.time)
            and self.column in {"", *one.stored, *one.expected}
        )


@dataclass(frozen=True)
class Manipulation(Generic[H]):
    """One change of stored data: `act` makes it by the bare driver; `at` are all differences that it makes.

    Those in `maybe` it makes in some layouts.
    """

    name: str
    act: Callable[[H], None]
    at: tuple[At, ...]
    maybe: tuple[At, ...] = ()


@dataclass
class Result:
    """What the checks found: whether a verdict is false, whether the places are the right ones and no others."""

    name: str
    found: bool
    located: bool
    differences: list[Located] = field(default_factory=list)
    failed: str = ""
    untouched: bool = False

    @property
    def is_right(self) -> bool:
        """Whether a manipulation is found and located, or untouched data are not accused."""
        return not self.found if self.untouched else self.found and self.located

    @property
    def line(self) -> str:
        """One line of the table."""
        if self.untouched:
            return f"{self.name:<52} {'YES' if self.found else 'no'}"
        yes = {True: "yes", False: "NO"}
        what = self.differences[0].text if self.differences else self.failed or "nothing"
        return f"{self.name:<52} {yes[self.found]:<6} {yes[self.located]:<8} {what[:150]}"


@dataclass
class Bench:
    """Loads the same data into one database again and again."""

    target: str
    schema: str
    url: str
    place: Path
    fates: Mapping[int, Fate] = field(default_factory=dict)
    _oracle: Oracle | None = None
    _loads: int = 0

    @property
    def world(self) -> World:
        """The world of four hosts."""
        return world_of("devops", 4, interval_s=60, decimals=_DECIMALS.get(self.target))

    def load(self) -> Stand:
        """Return a stand with all data as they should be."""
        target = TARGETS[self.target]
        self._loads += 1
        stand = Stand(self.world, target, target.schemas[self.schema], self.url, LOADED_TICKS).load()
        return stand.write(self.place / f"load-{self._loads}", WRITES, self.fates)

    def clean(self) -> None:
        """Drop what a manipulation and a load may have left."""
        target = TARGETS[self.target]
        session, measurements = target.connect(self.url, target.schemas[self.schema]), self.world.measurements
        more = replace(measurements[0], name="more")
        session.run(target.schemas[self.schema].drop([*measurements, more]))
        session.close()

    def oracle(self, stand: Stand) -> Oracle:
        """Return the answers of what was written, which are the same for every load."""
        if self._oracle is None:
            self._oracle = stand.oracle()
        return self._oracle

    def check(self, name: str, stand: Stand, at: tuple[At, ...], maybe: tuple[At, ...] = ()) -> Result:
        """Run the checks of a run on what is stored now."""
        answers, session, gold = Answers(), stand.connect(), stand.gold()
        guarded(answers, lambda: read_back(gold, session, stand.schema, 10**9, answers, stand.known))
        answers.compare(gold)
        stored = count_stored(session, stand.schema, stand.world.measurements)
        accounted = account(gold, stored, stand.ledger, stand.loaded_points)
        session.close()
        kept = [one for examples in answers.stored.first.values() for one in examples]
        known = all(any(wanted.is_at(one) for one in kept) for wanted in at)
        others = [one for one in kept if not any(wanted.is_at(one) for wanted in (*at, *maybe))]
        wrong = answers.verdict().valid is False or accounted.verdict().valid is False
        return Result(name, wrong, known and not others, kept, answers.failed)

    def manipulate(self, manipulation: Manipulation[H], hand: Callable[[Stand, Oracle], H]) -> Result:
        """Load, change and check."""
        stand = self.load()
        manipulation.act(hand(stand, self.oracle(stand)))
        return self.check(manipulation.name, stand, manipulation.at, manipulation.maybe)
