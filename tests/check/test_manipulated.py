"""Changes of stored data that were made by hand are found and located, and data that nobody touched is never accused.

Here some manipulations of each database are carried out; `make manipulations` carries out all of them, and loads all
twenty controls.
"""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.check.manipulated import hands, influxdb, mongodb, postgres, sql
from tests.check.manipulated.bench import Bench
from tests.check.manipulated.controls import CONTROLS
from tests.targets.influxdb import test_v1 as v1
from tests.targets.influxdb import test_v2 as v2
from tests.targets.mysql.support import new_database
from tsbench.check.answers import Answers, read_back
from tsbench.check.audit import account, count_stored
from tsbench.targets.registry import TARGETS
from tsbench.testing.stand import SEED, Stand, world_of
from tsbench.workload import queries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.check.manipulated.bench import Manipulation
    from tests.check.manipulated.controls import Control
    from tsbench.servers.base import Server

_numbers = itertools.count()


def chosen(manipulations: tuple[Manipulation[Any], ...], *names: str) -> list[Any]:
    found = [pytest.param(one, id=one.name) for one in manipulations if one.name in names]
    assert len(found) == len(names)
    return found


@pytest.fixture
def influx_18(influxdb_server: Callable[[str], Server]) -> Iterator[str]:
    url = influxdb_server("1.8").endpoint + f"_m{next(_numbers)}"
    yield url
    v1.ask(url, f'DROP DATABASE "{url.rpartition("/")[2]}"')


@pytest.fixture
def influx_2(influxdb_server: Callable[[str], Server]) -> Iterator[str]:
    url = influxdb_server("2").endpoint.replace("bucket=tsbench", f"bucket=m_{next(_numbers)}")
    yield url
    with v2.client(url) as other:
        other.buckets_api().delete_bucket(other.buckets_api().find_bucket_by_name(v2.bucket_of(url)))


def test_the_manipulations_of_each_database_have_names_of_their_own() -> None:
    every: list[tuple[Manipulation[Any], ...]] = [postgres.MANIPULATIONS, influxdb.MANIPULATIONS, sql.MANIPULATIONS]
    every += mongodb.BY_LAYOUT.values()
    for manipulations in every:
        assert len({one.name for one in manipulations}) == len(manipulations) >= 30
        assert all(one.at for one in manipulations)
    assert len({one.name for one in CONTROLS}) == 20


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.parametrize(
    "manipulation",
    chosen(
        postgres.MANIPULATIONS,
        "a value one higher",
        "a value lost",
        "a row without a time",
        "a row at an infinite time",
        "a tag lost",
        "an own tag changed",
        "a field more",
        "a host without tags",
        "a row deleted and another one twice",
        "a partial point after the run",
    ),
)
def test_a_manipulation_in_postgres_is_found_and_located(
    postgres_endpoint: str, tmp_path: Path, manipulation: Manipulation[Any]
) -> None:
    result = Bench("postgres", "btree", postgres_endpoint, tmp_path).manipulate(manipulation, postgres.Hand.of)
    assert (result.found, result.located) == (True, True), result.differences


OF_INFLUX = chosen(
    influxdb.MANIPULATIONS,
    "the newest value one higher",
    "the first value of a point lost",
    "a point in 1938",
    "another region",
    "a copy with a tag more",
    "a truth value more",
    "a field named as a tag",
    "a tag named as a field",
    "a point of no host",
    "a minute deleted",
    "a partial point before the run",
)


@getattr(pytest.mark, "influxdb-1.8")
@pytest.mark.parametrize(
    "manipulation",
    [*OF_INFLUX, *chosen(influxdb.MANIPULATIONS, "a text in place of a number, in another month")],
)
@pytest.mark.slow
def test_a_manipulation_in_influxdb_18_is_found_and_located(
    influx_18: str, tmp_path: Path, manipulation: Manipulation[Any]
) -> None:
    result = Bench("influxdb1", "tags", influx_18, tmp_path).manipulate(manipulation, hands.of_version_1)
    assert (result.found, result.located) == (True, True), result.differences


@getattr(pytest.mark, "influxdb-2")
@pytest.mark.parametrize("manipulation", OF_INFLUX)
@pytest.mark.slow
def test_a_manipulation_in_influxdb_2_is_found_and_located(
    influx_2: str, tmp_path: Path, manipulation: Manipulation[Any]
) -> None:
    result = Bench("influxdb2", "tags", influx_2, tmp_path).manipulate(manipulation, hands.of_version_2)
    assert (result.found, result.located) == (True, True), result.differences


OF_SQL = chosen(
    sql.MANIPULATIONS,
    "an integer of 2^40 one higher",
    "a value one ulp higher",
    "a series without points",
    "a tag of a series whose points are gone",
    "an extra measurement",
)


@pytest.mark.parametrize("manipulation", OF_SQL)
def test_a_manipulation_in_sqlite_is_found_and_located(
    sqlite_endpoint: str, tmp_path: Path, manipulation: Manipulation[Any]
) -> None:
    result = Bench("sqlite", "clustered", sqlite_endpoint, tmp_path).manipulate(manipulation, sql.of_sqlite)
    assert (result.found, result.located) == (True, True), result.differences


@pytest.mark.mysql
@pytest.mark.parametrize("manipulation", OF_SQL)
@pytest.mark.slow
def test_a_manipulation_in_mysql_is_found_and_located(
    mysql_server: Callable[[str], Server], tmp_path: Path, manipulation: Manipulation[Any]
) -> None:
    with new_database(mysql_server("mysql").endpoint) as url:
        result = Bench("mysql", "innodb", url, tmp_path).manipulate(manipulation, sql.of_mysql)
    assert (result.found, result.located) == (True, True), result.differences


@pytest.mark.mongodb
@pytest.mark.parametrize(
    ("layout", "manipulation"),
    [
        pytest.param(layout, one, id=f"{layout}-{one.name}")
        for number, one in enumerate((*mongodb.STRUCTURE, *mongodb.OF_HOURS))
        for layout in [["per-point", "per-value", "bucketed"][number % 3] if one in mongodb.STRUCTURE else "bucketed"]
    ],
)
@pytest.mark.slow
def test_a_change_of_a_documents_structure_is_found_and_located(
    mongodb_endpoint: str, tmp_path: Path, layout: str, manipulation: Manipulation[Any]
) -> None:
    result = Bench("mongodb", layout, mongodb_endpoint, tmp_path).manipulate(manipulation, mongodb.Hand)
    assert (result.found, result.located) == (True, True), result.differences


# --- untouched data ---------------------------------------------------------------------------------------------------


FEW = CONTROLS[::3]


@pytest.mark.postgres
@pytest.mark.parametrize("control", FEW, ids=lambda c: c.name)
@pytest.mark.slow
def test_untouched_data_in_postgres_are_not_accused(postgres_endpoint: str, tmp_path: Path, control: Control) -> None:
    assert control.accused_by("postgres", "btree", postgres_endpoint, tmp_path) == set()


@getattr(pytest.mark, "influxdb-1.8")
@pytest.mark.parametrize("control", FEW, ids=lambda c: c.name)
@pytest.mark.slow
def test_untouched_data_in_influxdb_18_are_not_accused(influx_18: str, tmp_path: Path, control: Control) -> None:
    assert control.accused_by("influxdb1", "tags", influx_18, tmp_path) == set()


@getattr(pytest.mark, "influxdb-2")
@pytest.mark.parametrize("control", FEW, ids=lambda c: c.name)
@pytest.mark.slow
def test_untouched_data_in_influxdb_2_are_not_accused(influx_2: str, tmp_path: Path, control: Control) -> None:
    assert control.accused_by("influxdb2", "tags", influx_2, tmp_path) == set()


@getattr(pytest.mark, "influxdb-1.8")
@pytest.mark.nightly
@pytest.mark.slow
def test_rows_that_were_written_beside_lastpoint_queries_are_not_accused(influx_18: str, tmp_path: Path) -> None:
    """InfluxDB 1.8 may show a point without some fields while it is being written: it must be whole afterwards."""
    target = TARGETS["influxdb1"]
    world = world_of("cpu-only", 20, interval_s=10)
    stand = Stand(world, target, target.schemas["tags"], influx_18, 30).load()
    loaded = stand.gold().loaded
    query = queries.make("lastpoint", world, loaded, SEED, 0)
    done = threading.Event()
    asked = []

    def ask() -> None:
        session = stand.connect()
        while not done.is_set():
            asked.append(len(session.query(stand.schema.compile(query), query.columns)))
        session.close()

    readers = [threading.Thread(target=ask) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        stand.write(tmp_path, 1_000)
    finally:
        done.set()
        for reader in readers:
            reader.join(timeout=30)
    assert len(asked) > 20
    gold, session, answers = stand.gold(), stand.connect(), Answers()
    read_back(gold, session, stand.schema, 10**9, answers)
    answers.compare(gold)
    stored = count_stored(session, stand.schema, stand.world.measurements)
    accounted = account(gold, stored, stand.ledger, stand.loaded_points)
    session.close()
    assert (answers.stored.text, answers.verdict().valid, accounted.verdict().valid) == ("", True, True)
    assert answers.rows == 20 * 30 + 10_000
