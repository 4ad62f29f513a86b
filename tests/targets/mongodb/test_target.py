from __future__ import annotations

import socket
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pymongo
import pytest

from tests.targets import data
from tests.targets.contract import ALL, Alteration, Point, TargetContract
from tests.targets.data import CPU, START_NS, S
from tsbench.errors import UserMistake
from tsbench.model import OpError, Outcome, PartialWrite, WriteMode
from tsbench.targets.mongodb import TARGET
from tsbench.targets.mongodb.schemas import PER_POINT, TIMESERIES, TIMESERIES_INDEXED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pymongo.database import Database

    from tsbench.model import Measurement
    from tsbench.targets.base import Payload, Schema, Session, Target

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@contextmanager
def bare(url: str) -> Iterator[Database[dict[str, Any]]]:
    """The database of an endpoint, by pymongo alone."""
    with pymongo.MongoClient[dict[str, Any]](url, tz_aware=True) as client:
        yield client.get_default_database()


def at(time_ns: int) -> datetime:
    """The time as BSON has it."""
    return EPOCH + timedelta(milliseconds=time_ns // 1_000_000)


pytestmark = pytest.mark.mongodb


class TestMongodb(TargetContract):
    name = "mongodb"
    wrong_endpoints = (
        "nonsense",
        "http://127.0.0.1:1/x",
        "mongodb://127.0.0.1:1/other",
        "mongodb://127.0.0.1:x/tsbench",
    )

    @pytest.fixture
    def url(self, mongodb_endpoint: str) -> str:
        return mongodb_endpoint

    @pytest.fixture(autouse=True)
    def _layout_that_the_server_can_make(self, request: pytest.FixtureRequest, target: Target) -> None:
        if {"schema", "url"} <= set(request.fixturenames):
            schema, url = request.getfixturevalue("schema"), request.getfixturevalue("url")
            session = target.connect(url, schema)
            try:
                session.run(schema.create([CPU], data.shared_tags()))
            except OpError as error:
                if error.cause != "no time series":
                    raise
                request.node.add_marker("mongodb-timeseries")
                pytest.skip(str(error))
            finally:
                session.close()

    @staticmethod
    def stored(url: str, measurement: Measurement) -> Sequence[Point]:
        with bare(url) as database:
            return [
                (
                    round((one["time"] - EPOCH) / timedelta(milliseconds=1)) * 1_000_000,
                    int(one["tags"]["host"].removeprefix("host_")) if measurement.tags else None,
                    *(float(one[name]) for name in measurement.field_names),
                    {tag: one["tags"][tag] for tag in measurement.own_tags} or None,
                )
                for one in database[measurement.name].find()
            ]

    @staticmethod
    def alter(url: str, alteration: Alteration) -> None:
        key, *_ = alteration.tags
        *_, last_tag = alteration.tags
        where = {"time": at(alteration.time_ns), f"tags.{key}": alteration.tags[key]}
        with bare(url) as database:
            points = database[alteration.measurement]
            match alteration.action:
                case "delete":
                    points.delete_many(where)
                case "duplicate":
                    points.insert_one({**points.find_one(where, {"_id": 0})})  # type: ignore[dict-item]
                case "change":
                    points.update_one(where, {"$set": {alteration.field: alteration.value}})
                case "tag":
                    points.update_one(where, {"$set": {f"tags.{last_tag}": "elsewhere"}})
                case "more":
                    points.update_one(where, {"$set": {"more": 1}})
                case "part":
                    point = {"time": at(alteration.time_ns), "tags": dict(alteration.tags)}
                    points.insert_one({**point, alteration.field: alteration.value})

    def refused_in_part(
        self, session: Session, target: Target, url: str, schema: Schema, mode: WriteMode
    ) -> tuple[Session, Payload, int]:
        with bare(url) as database:
            database["cpu"].create_index([("time", 1), ("tags.host", 1)], unique=True, name="one")
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
    with bare(mongodb_endpoint) as database:
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
        with bare(mongodb_endpoint) as database:
            database["cpu"].create_index("time", unique=True, name="one")
        times = [START_NS, START_NS, START_NS + S, START_NS, START_NS + 2 * S]
        with pytest.raises(PartialWrite) as caught:
            session.write(PER_POINT.encode(data.batch(CPU, data.shared_tags(), time_ns=times), WriteMode.MULTI))
        assert (caught.value.acknowledged, caught.value.refused_rows) == (stored, refused_rows)
        assert caught.value.cause == "constraint"
        session.close()


def test_sessions_of_a_process_share_one_client(mongodb_endpoint: str) -> None:
    first, second = (TARGET.connect(mongodb_endpoint, PER_POINT) for _ in range(2))
    assert first._shared.client is second._shared.client
    first.close()
    assert second.facts()["version"]
    second.close()


def test_a_write_goes_on_over_a_new_connection_after_its_own_is_broken(mongodb_endpoint: str) -> None:
    session = TARGET.connect(mongodb_endpoint, PER_POINT)
    session.run(PER_POINT.create([CPU], data.shared_tags()))
    payload = PER_POINT.encode(data.batch(CPU, data.shared_tags(), time_ns=[START_NS]), WriteMode.SINGLE)
    assert session.write(payload) == 1
    assert session._messages is not None
    session._messages._wire._socket.shutdown(socket.SHUT_RDWR)  # type: ignore[attr-defined]
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
        TARGET.check_endpoint(endpoint)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)
