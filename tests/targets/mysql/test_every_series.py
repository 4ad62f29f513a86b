"""Rows of all series are looked up by their key: those of a window, also of series without tags, and the newest."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from tests.targets.data import START_NS, S
from tests.targets.mysql.support import new_database
from tsbench.model import Above, Bucketed, Grouped, Latest, Raw, Stored, Window, WriteMode
from tsbench.targets.base import Statement
from tsbench.targets.mysql import MARIADB, MYSQL
from tsbench.workload.world import World, WorldSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from tsbench.targets.base import Session
    from tsbench.targets.mysql.server import MariadbServer, MysqlServer

SERIES, TICKS = 100, 300


def rows_touched(session: Session) -> int:
    """How many rows the session's last statements looked at."""
    text = "SHOW SESSION STATUS WHERE Variable_name LIKE 'Handler_read%'"
    return sum(int(value) for _, value in session.query(Statement(text), ("name", "value")).records)


each_key = pytest.mark.parametrize(
    ("product", "schema"),
    [
        pytest.param("mariadb", "innodb", marks=pytest.mark.mariadb),
        pytest.param("mariadb", "innodb-by-time", marks=pytest.mark.mariadb),
        pytest.param("mariadb", "rocksdb", marks=pytest.mark.mariadb),
        pytest.param("mysql", "innodb", marks=pytest.mark.mysql),
    ],
)


@each_key
def test_a_window_is_looked_up_by_key(
    mysql_server: Callable[[str], MariadbServer | MysqlServer], product: str, schema: str
) -> None:
    target = {"mariadb": MARIADB, "mysql": MYSQL}[product]
    layout = target.schemas[schema]
    world = World(WorldSpec("cpu-only", SERIES, 1, START_NS, 10 * S))
    (cpu,) = world.measurements
    window = Stored(cpu, world.time_ns(150), world.time_ns(152))
    with new_database(mysql_server(product).endpoint) as url:
        session = target.connect(url, layout)
        session.run(layout.create([cpu], world.tags()))
        statement = layout.compile(window)
        assert session.query(statement, window.columns).records == []  # nor is an empty table a mistake
        for batch in world.batches(0, points=10_000, last_tick=TICKS):
            session.write(layout.encode(batch, WriteMode.BULK))
        session.run(layout.settle([cpu]))
        session.run([Statement('DELETE FROM "tags" WHERE "id" = 5')])
        session.run([Statement("FLUSH STATUS")])
        found = session.query(statement, window.columns).records
        touched = rows_touched(session)
        assert len(found) == 2 * SERIES
        assert len([row for row in found if row[1] is None]) == 2  # those of the series without tags
        assert touched < SERIES * TICKS / 10, touched
        session.close()


@each_key
@pytest.mark.parametrize("keys", [None, ("host_3", "host_98")])
@pytest.mark.parametrize("before", [None, 200])
def test_the_newest_row_of_a_series_is_looked_up_by_key(
    mysql_server: Callable[[str], MariadbServer | MysqlServer],
    product: str,
    schema: str,
    keys: tuple[str, ...] | None,
    before: int | None,
) -> None:
    target = {"mariadb": MARIADB, "mysql": MYSQL}[product]
    layout = target.schemas[schema]
    world = World(WorldSpec("cpu-only", SERIES, 1, START_NS, 10 * S))
    (cpu,) = world.measurements
    newest = Latest(cpu, ("usage_user",), None if before is None else world.time_ns(before), keys)
    with new_database(mysql_server(product).endpoint) as url:
        session = target.connect(url, layout)
        session.run(layout.create([cpu], world.tags()))
        for batch in world.batches(0, points=10_000, last_tick=TICKS):
            session.write(layout.encode(batch, WriteMode.BULK))
        session.run(layout.settle([cpu]))
        session.run([Statement("FLUSH STATUS")])
        found = session.query(layout.compile(newest), newest.columns).records
        touched = rows_touched(session)
        session.close()
    time = datetime.fromtimestamp(world.time_ns((before or TICKS) - 1) // S, UTC).replace(tzinfo=None)
    hosts = keys or [f"host_{number}" for number in range(SERIES)]
    assert sorted(row[:2] for row in found) == sorted((time, host) for host in hosts)
    # Of a few series, the rows after the moment are read, up to three times each.
    most = 3 * len(found) * (TICKS - before) if keys and before else 0
    assert touched < 12 * len(found) + 20 + most, touched


@each_key
@pytest.mark.parametrize("hosts", [("host_3",), ("host_3", "host_98", "host_7")])
def test_a_window_of_some_series_is_looked_up_by_series_and_time(
    mysql_server: Callable[[str], MariadbServer | MysqlServer], product: str, schema: str, hosts: tuple[str, ...]
) -> None:
    target = {"mariadb": MARIADB, "mysql": MYSQL}[product]
    layout = target.schemas[schema]
    world = World(WorldSpec("cpu-only", SERIES, 1, START_NS, 10 * S))
    (cpu,) = world.measurements
    window = Window(world.time_ns(150), world.time_ns(156))
    with new_database(mysql_server(product).endpoint) as url:
        session = target.connect(url, layout)
        session.run(layout.create([cpu], world.tags()))
        for batch in world.batches(0, points=10_000, last_tick=TICKS):
            session.write(layout.encode(batch, WriteMode.BULK))
        session.run(layout.settle([cpu]))
        for query, rows in (
            (Raw(cpu, ("usage_user",), window, hosts), 6 * len(hosts)),
            (Above(cpu, ("usage_user",), "usage_idle", -1.0, window, hosts), 6 * len(hosts)),
            (Bucketed(cpu, ("usage_user",), "max", 60 * S, window, hosts), 1),
            (Grouped(cpu, ("usage_user",), "mean", 60 * S, window, hosts), len(hosts)),
        ):
            session.run([Statement("FLUSH STATUS")])
            found = session.query(layout.compile(query), query.columns).records
            touched = rows_touched(session)
            assert len(found) == rows, query
            # By time the rows of the window itself are few.
            assert touched < (8 * SERIES if layout.by_time else 100 * len(hosts)), (query, touched)
        session.close()
