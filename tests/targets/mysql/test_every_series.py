"""Rows of all series are looked up by their key: those of a window, also of series without tags, and the newest."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from tests.targets.mysql.support import new_database
from tsbench.model import Aggregated, Condition, Latest, Raw, Stored, Window, WriteMode
from tsbench.scenario.use_case import built_in_spec
from tsbench.targets.base import Statement
from tsbench.targets.mysql import MARIADB, MYSQL
from tsbench.testing.data import START_NS, S
from tsbench.workload.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tsbench.model import Measurement, Query
    from tsbench.targets.base import Session
    from tsbench.targets.mysql.schemas import MysqlSchema
    from tsbench.targets.mysql.server import MariadbServer, MysqlServer

SERIES, TICKS = 100, 300


def rows_touched(session: Session) -> int:
    """How many rows the session's last statements looked at."""
    text = "SHOW SESSION STATUS WHERE Variable_name LIKE 'Handler_read%'"
    return sum(int(value) for _, value in session.query(Statement(text), ("name", "value")).records)


@dataclass(frozen=True, slots=True)
class Filled:
    """A table of `SERIES` series and `TICKS` times each, in a layout."""

    session: Session
    layout: MysqlSchema
    world: World

    @property
    def cpu(self) -> Measurement:
        return self.world.measurements[0]

    def asked(self, query: Query) -> tuple[list[tuple[Any, ...]], int]:
        """The answer to a query, and how many rows were looked at for it."""
        self.session.run([Statement("FLUSH STATUS")])
        found = self.session.query(self.layout.compile(query), query.columns).records
        return [*found], rows_touched(self.session)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((MARIADB, "innodb"), marks=pytest.mark.mariadb),
        pytest.param((MARIADB, "innodb-by-time"), marks=pytest.mark.mariadb),
        pytest.param((MARIADB, "rocksdb"), marks=pytest.mark.mariadb),
        pytest.param((MYSQL, "innodb"), marks=pytest.mark.mysql),
    ],
    ids=lambda param: f"{param[0].name}-{param[1]}",
)
def filled(
    request: pytest.FixtureRequest, mysql_server: Callable[[str], MariadbServer | MysqlServer]
) -> Iterator[Filled]:
    target, schema = request.param
    layout = target.schemas[schema]
    world = World(built_in_spec("cpu-only", SERIES, 1, START_NS, 10 * S))
    with (
        new_database(mysql_server(target.name).endpoint) as url,
        closing(target.connect(url, layout)) as session,
    ):
        session.run(layout.create(world.measurements, world.tags()))
        window = Stored(world.measurements[0], world.time_ns(150), world.time_ns(152))
        assert len(session.query(layout.compile(window), window.columns)) == 0  # an empty table is no mistake
        for batch in world.batches(0, points=10_000, last_tick=TICKS):
            session.write(layout.encode(batch, WriteMode.BULK))
        session.run(layout.settle(world.measurements))
        yield Filled(session, layout, world)


@pytest.mark.slow
def test_a_window_is_looked_up_by_key(filled: Filled) -> None:
    filled.session.run([Statement('UPDATE "tags" SET "id" = "id" + 1000 WHERE "id" = 5')])
    found, touched = filled.asked(Stored(filled.cpu, filled.world.time_ns(150), filled.world.time_ns(152)))
    filled.session.run([Statement('UPDATE "tags" SET "id" = "id" - 1000 WHERE "id" = 1005')])
    assert len(found) == 2 * SERIES
    assert len([row for row in found if row[1] is None]) == 2  # those of the series without tags
    assert touched < SERIES * TICKS / 10, touched


@pytest.mark.parametrize("keys", [None, ("host_3", "host_98")])
@pytest.mark.parametrize("before", [None, 200])
def test_the_newest_row_of_a_series_is_looked_up_by_key(
    filled: Filled, keys: tuple[str, ...] | None, before: int | None
) -> None:
    before_ns = None if before is None else filled.world.time_ns(before)
    found, touched = filled.asked(Latest(filled.cpu, ("usage_user",), before_ns, keys))
    time = datetime.fromtimestamp(filled.world.time_ns((before or TICKS) - 1) // S, UTC).replace(tzinfo=None)
    hosts = keys or [f"host_{number}" for number in range(SERIES)]
    assert sorted(row[:2] for row in found) == sorted((time, host) for host in hosts)
    # Of a few series, the rows after the moment are read, up to three times each.
    most = 3 * len(found) * (TICKS - before) if keys and before else 0
    assert touched < 12 * len(found) + 20 + most, touched


@pytest.mark.parametrize("hosts", [("host_3",), ("host_3", "host_98", "host_7")])
def test_a_window_of_some_series_is_looked_up_by_series_and_time(filled: Filled, hosts: tuple[str, ...]) -> None:
    cpu, window = filled.cpu, Window(filled.world.time_ns(150), filled.world.time_ns(156))
    for query, rows in (
        (Raw(cpu, ("usage_user",), window, hosts), 6 * len(hosts)),
        (Raw(cpu, ("usage_user",), window, hosts, (Condition("usage_idle", ">", -1.0),)), 6 * len(hosts)),
        (Aggregated.of(cpu, ("usage_user",), "max", 60 * S, window, hosts), 1),
        (Aggregated.of(cpu, ("usage_user",), "mean", 60 * S, window, hosts, cpu.tags[:1]), len(hosts)),
    ):
        found, touched = filled.asked(query)
        assert len(found) == rows, query
        # By time the rows of the window itself are few.
        assert touched < (8 * SERIES if filled.layout.by_time else 100 * len(hosts)), (query, touched)
