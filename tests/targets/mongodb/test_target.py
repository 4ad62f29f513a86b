from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest

from tests.targets.mongodb import bare
from tsbench.check.comparison import canonical
from tsbench.errors import UserMistake
from tsbench.model import Count, Latest, OpError, Outcome, PartialWrite, WriteMode
from tsbench.targets.mongodb import TARGET
from tsbench.targets.mongodb.schemas import BUCKETED, PER_POINT, PER_VALUE, TIMESERIES, TIMESERIES_INDEXED
from tsbench.testing import data
from tsbench.testing.contract import TargetContract
from tsbench.testing.contract_base import ALL
from tsbench.testing.data import CPU, START_NS, S

if TYPE_CHECKING:
    from tsbench.targets.base import Payload, Schema, Session
    from tsbench.targets.target import Target

pytestmark = pytest.mark.mongodb


class TestMongodb(TargetContract):
    name = "mongodb"
    unsupported = dict.fromkeys(TARGET.schemas, ("percentiles", "percentiles of series"))
    variants = {"per-point": "per-point-indexed", "timeseries-indexed": "timeseries"}  # noqa: RUF012
    wrong_endpoints = (
        "nonsense",
        "http://127.0.0.1:1/x",
        "mongodb://127.0.0.1:1/other",
        "mongodb://127.0.0.1:x/tsbench",
    )
    not_made = ("no time series", "mongodb-timeseries")

    @pytest.fixture
    def url(self, mongodb_endpoint: str) -> str:
        return mongodb_endpoint

    stored = staticmethod(bare.stored)
    alter = staticmethod(bare.alter)

    def refused_in_part(
        self, session: Session, target: Target, url: str, schema: Schema, mode: WriteMode
    ) -> tuple[Session, Payload, int]:
        if schema.name == "bucketed":  # an update is refused with all of its points
            with bare.bare(url) as database:
                database["cpu"].create_index("tags.region", unique=True, name="one")
            batch = data.batch(
                CPU,
                data.shared_tags(),
                time_ns=[START_NS, START_NS, START_NS + S, START_NS + 2 * S],
                series=[0, 2, 0, 2],
            )
            return session, schema.encode(batch, mode), 2
        collection, more = ("point_values", [("field", 1)]) if schema.name == "per-value" else ("cpu", [])
        with bare.bare(url) as database:
            database[collection].create_index([("time", 1), ("tags.host", 1), *more], unique=True, name="one")
        batch = data.batch(CPU, data.shared_tags(), time_ns=[START_NS, START_NS + S, START_NS])
        return session, schema.encode(batch, mode), 1

    def test_dropping_is_harmless_where_nothing_is(self, session: Session, schema: Schema) -> None:
        """A collection that is missing is an empty one in MongoDB."""
        session.run(schema.drop(ALL))
        session.run(schema.drop(ALL))
        assert self.count(session, schema, CPU) == 0

    def test_a_missing_table_is_a_failure_and_the_session_goes_on(self, session: Session, schema: Schema) -> None:
        """MongoDB makes collections as documents come; what can be missing is the right to write at all."""
        payload = schema.encode(data.batch(CPU, data.shared_tags(), time_ns=[START_NS]), WriteMode.MULTI)
        payload.text = "insert a$b"
        with pytest.raises(OpError) as caught:
            session.write(payload)
        assert caught.value.outcome is Outcome.FAILED
        assert self.count(session, schema, CPU) == 0


def test_a_server_that_makes_no_time_series_collections_is_found_out_and_named(mongodb_endpoint: str) -> None:
    with bare.bare(mongodb_endpoint) as database:
        if "ferretdb" not in database.command("buildInfo"):
            pytest.skip("this server makes time-series collections")
    for schema in (TIMESERIES, TIMESERIES_INDEXED):
        session = TARGET.connect(mongodb_endpoint, schema)
        with pytest.raises(OpError, match=r"FerretDB 2\.7\.0 .* makes no time-series collections") as caught:
            session.run(schema.create([CPU], data.shared_tags()))
        assert (caught.value.outcome, caught.value.cause) == (Outcome.FAILED, "no time series")
        session.close()


def test_an_unordered_write_stores_all_that_can_be_and_says_which_points_were_refused(mongodb_endpoint: str) -> None:
    for options, refused_rows, stored in (("?ordered=false", (1, 3), 3), ("", (1, 2, 3, 4), 1)):
        session = TARGET.connect(mongodb_endpoint + options, PER_POINT)
        session.run(PER_POINT.create([CPU], data.shared_tags()))
        with bare.bare(mongodb_endpoint) as database:
            database["cpu"].create_index("time", unique=True, name="one")
        times = [START_NS, START_NS, START_NS + S, START_NS, START_NS + 2 * S]
        with pytest.raises(PartialWrite) as caught:
            session.write(PER_POINT.encode(data.batch(CPU, data.shared_tags(), time_ns=times), WriteMode.MULTI))
        assert (caught.value.acknowledged, caught.value.refused_rows) == (stored, refused_rows)
        assert caught.value.cause == "constraint"
        session.close()


@pytest.mark.parametrize("is_ordered", [True, False], ids=["ordered", "unordered"])
def test_a_point_of_which_a_part_is_stored_is_a_refused_one(mongodb_endpoint: str, *, is_ordered: bool) -> None:
    session = TARGET.connect(mongodb_endpoint + ("" if is_ordered else "?ordered=false"), PER_VALUE)
    session.run(PER_VALUE.create([CPU], data.shared_tags()))
    with bare.bare(mongodb_endpoint) as database:
        values = database["point_values"]
        only_load = {"field": "load"}
        values.create_index("time", unique=True, name="one", partialFilterExpression=only_load)
    times = [START_NS, START_NS + S, START_NS, START_NS + 2 * S]
    with pytest.raises(PartialWrite) as caught:
        session.write(PER_VALUE.encode(data.batch(CPU, data.shared_tags(), time_ns=times), WriteMode.MULTI))
    refused_rows = (2, 3) if is_ordered else (2,)
    assert (caught.value.acknowledged, caught.value.refused_rows) == (4 - len(refused_rows), refused_rows)
    counted = session.query(PER_VALUE.compile(Count(CPU)), ("points",))
    assert counted.records == [(caught.value.acknowledged,)]  # the field `busy` has one value more
    session.close()


def test_what_a_refused_update_of_an_hour_holds_is_named_by_its_rows(mongodb_endpoint: str) -> None:
    for options, refused_rows in (("?ordered=false", (1, 3)), ("", (1, 2, 3))):
        session = TARGET.connect(mongodb_endpoint + options, BUCKETED)
        session.run(BUCKETED.create([CPU], data.shared_tags()))
        with bare.bare(mongodb_endpoint) as database:
            database["cpu"].create_index("tags.region", unique=True, name="one")
        times, series = [START_NS, START_NS, START_NS + S, START_NS + S], [0, 2, 3, 2]
        batch = data.batch(CPU, data.shared_tags(), time_ns=times, series=series)
        with pytest.raises(PartialWrite) as caught:
            session.write(BUCKETED.encode(batch, WriteMode.MULTI))
        assert caught.value.refused_rows == refused_rows
        assert caught.value.acknowledged == len(bare.stored(mongodb_endpoint, CPU)) == 4 - len(refused_rows)
        session.close()


def test_the_newest_rows_of_hourly_documents_are_looked_for_in_the_newest_hours_only(mongodb_endpoint: str) -> None:
    session = TARGET.connect(mongodb_endpoint, BUCKETED)
    session.run(BUCKETED.create([CPU], data.shared_tags()))
    hour = 3_600 * S
    first = START_NS // hour * hour
    times, series = [first, first + hour, first + S, first + hour + 5 * S], [0, 0, 2, 0]
    session.write(BUCKETED.encode(data.batch(CPU, data.shared_tags(), time_ns=times, series=series), WriteMode.MULTI))
    # The newest hour of series 0 has no point before the last two of these moments.
    for before_ns, expected in (
        (None, [first + S, first + hour + 5 * S]),
        (first + hour + S, [first + S, first + hour]),
        (first + hour, [first, first + S]),
    ):
        query = Latest(CPU, ("busy",), before_ns=before_ns)
        statement = BUCKETED.compile(query)
        found = canonical(session.query(statement, query.columns))
        assert [row[0] for row in found] == expected
        names = [name for stage in statement.params[1] for name in stage]
        assert ("$group" in names[: names.index("$unwind")]) is (before_ns is None)
    session.close()


def test_sessions_of_a_process_share_one_client(mongodb_endpoint: str) -> None:
    connected: list[Any] = [TARGET.connect(mongodb_endpoint, PER_POINT) for _ in range(2)]
    first, second = connected
    assert first._shared.client is second._shared.client
    first.close()
    assert second.facts()["version"]
    second.close()


def test_a_write_goes_on_over_a_new_connection_after_its_own_is_broken(mongodb_endpoint: str) -> None:
    session: Any = TARGET.connect(mongodb_endpoint, PER_POINT)
    session.run(PER_POINT.create([CPU], data.shared_tags()))
    payload = PER_POINT.encode(data.batch(CPU, data.shared_tags(), time_ns=[START_NS]), WriteMode.SINGLE)
    assert session.write(payload) == 1
    assert session._connection is not None
    session._connection._wire._socket.shutdown(socket.SHUT_RDWR)
    with pytest.raises(OpError) as caught:
        session.write(payload)
    assert (caught.value.outcome, caught.value.cause) == (Outcome.UNKNOWN, "connection")
    assert session.write(payload) == 1
    session.close()


@pytest.mark.parametrize(
    ("endpoint", "said"),
    [
        ("mongodb://me:secret@h/tsbench", "holds a password"),
        ("mongodb://h/mine", "begins with tsbench"),
        ("mongodb://h/tsbench?w=0", "cannot be accounted for"),
        ("mongodb://h/tsbench?ordered=maybe", "there are true, false"),
        ("mongodb://h/tsbench?granularity=days", "there are seconds, minutes, hours"),
        ("mongodb://h/tsbench?expireAfterSeconds=1h", "whole number of seconds"),
        ("mongodb://h/tsbench?granularity=hours&bucketMaxSpanSeconds=5", "exclude each other"),
        ("mongodb://h/tsbench?nonsense=1", "Unknown option"),
        ("mongodb://h:99999/tsbench", "not a MongoDB endpoint"),
    ],
)
def test_a_wrong_endpoint_is_the_users_mistake_in_one_line(endpoint: str, said: str) -> None:
    with pytest.raises(UserMistake, match=said) as caught:
        TARGET.parse(endpoint)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)
