from __future__ import annotations

import itertools
import json
import time
import urllib.request
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import pytest

from tsbench.errors import UserMistake
from tsbench.model import OpError, Outcome, PartialWrite, WriteMode
from tsbench.targets.base import Payload
from tsbench.targets.influxdb.v1 import TAGS, TARGET
from tsbench.testing import data
from tsbench.testing.contract import TargetContract, round_trip
from tsbench.testing.data import CPU, START_NS, S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tsbench.model import Measurement
    from tsbench.servers.base import Server
    from tsbench.targets.base import Schema, Session
    from tsbench.targets.target import Target
    from tsbench.testing.contract_base import Alteration, Point

_numbers = itertools.count()


def write(url: str, line: bytes, more: str = "") -> None:
    place, database = url.rsplit("/", 1)
    urllib.request.urlopen(f"{place}/write?db={database}{more}", line).close()


def ask(url: str, text: str) -> list[dict[str, Any]]:
    """The series of an answer, by a client that is not ours."""
    place, database = url.partition("?")[0].rsplit("/", 1)
    query = f"{place}/query?db={database}&rp=tsbench&epoch=ns&q={quote(text)}"
    with urllib.request.urlopen(urllib.request.Request(query, method="POST")) as answer:
        (result,) = json.load(answer)["results"]
    assert "error" not in result, result
    series: list[dict[str, Any]] = result.get("series", [])
    return series


def conflicting(session: Session, schema: Schema) -> Payload:
    """Twelve points, six in each of two shards that have `busy` as a float: two and three of them have it as a text."""
    months = (START_NS, START_NS + 90 * 86_400 * S)
    lines = [
        f"cpu,host=h{i} {'busy=' + chr(34) + 'x' + chr(34) if i < wrong else 'busy=1,load=2,count=3i'} {month + i}"
        for month, wrong in zip(months, (2, 3), strict=True)
        for i in range(6)
    ]
    first = [f"cpu,host=first busy=1,load=2,count=3i {month - 1}" for month in months]
    session.write(Payload(WriteMode.MULTI, "cpu", "", "\n".join(first).encode(), 2, 1))
    return Payload(WriteMode.MULTI, "cpu", "", "\n".join(lines).encode(), len(lines), 1)


def settled_at(wanted: int, count: Callable[[], int]) -> bool:
    """Whether so many points are stored in the end: InfluxDB answers before the other shard has stored its own."""
    deadline = time.monotonic() + 60
    while (stored := count()) < wanted and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.3)
    return stored == count() == wanted


def line_of(alteration: Alteration) -> bytes:
    """The point with its new value, tag or field; world's tags need no escapes."""
    *_, last_tag = alteration.tags
    changed = {**alteration.tags, **({last_tag: "elsewhere"} if alteration.action == "tag" else {})}
    tags = ",".join(f"{name}={value}" for name, value in changed.items())
    field = "more=1i" if alteration.action == "more" else f"{alteration.field}={alteration.value}i"
    return f"{alteration.measurement},{tags} {field} {alteration.time_ns}".encode()


class Influxdb1Contract(TargetContract):
    name = "influxdb1"
    version: str
    unsupported = {"tags": ("top", "percentiles", "percentiles of series")}  # noqa: RUF012
    wrong_endpoints = ("nonsense", "http://127.0.0.1:1/x", "http://127.0.0.1:8086/", "postgresql://h/x")

    @pytest.fixture
    def url(self, influxdb_server: Callable[[str], Server]) -> Iterator[str]:
        url = influxdb_server(self.version).endpoint + f"_{next(_numbers)}"
        yield url
        ask(url, f'DROP DATABASE "{urlsplit(url).path[1:]}"')

    @staticmethod
    def stored(url: str, measurement: Measurement) -> Sequence[Point]:
        names = ", ".join(f'"{name}"' for name in measurement.field_names)
        found = ask(url, f'SELECT {names} FROM "{measurement.name}" GROUP BY *')
        return [
            (
                row[0],
                int(series["tags"]["host"].removeprefix("host_")) if measurement.tags else None,
                *map(float, row[1:]),
                {tag: series["tags"][tag] for tag in measurement.own_tags} or None,
            )
            for series in found
            for row in series["values"]
        ]

    def test_a_missing_table_is_a_failure_and_the_session_goes_on(self, session: Session, schema: Schema) -> None:
        """InfluxDB makes measurements as they come; what can be missing is the policy that they are in."""
        session.run(schema.drop([CPU]))
        batch = data.batch(CPU, data.shared_tags(), time_ns=[START_NS])
        for act in (
            lambda: session.write(schema.encode(batch, WriteMode.MULTI)),
            lambda: self.count(session, schema, CPU),
        ):
            with pytest.raises(OpError) as caught:
                act()
            assert (caught.value.outcome, caught.value.cause) == (Outcome.FAILED, "no table")
        session.run(schema.create([CPU], {}))
        assert self.count(session, schema, CPU) == 0

    def test_what_a_user_has_in_the_database_stays(self, session: Session, url: str, schema: Schema) -> None:
        write(url, b"cpu,host=mine busy=1 1451606400000000000")
        for statements in (schema.create([CPU], {}), schema.drop([CPU])):
            session.run(statements)
            assert len(ask(url, 'SELECT * FROM "autogen"."cpu"')) == 1

    @staticmethod
    def alter(url: str, alteration: Alteration) -> None:
        name, time_ns, tags = alteration.measurement, alteration.time_ns, alteration.tags
        if alteration.action == "delete":
            key, value = next(iter(tags.items()))
            ask(url, f'DELETE FROM "{name}" WHERE time = {time_ns} AND "{key}" = \'{value}\'')
        else:
            write(url, line_of(alteration), "&rp=tsbench")

    def refused_in_part(
        self, session: Session, target: Target, url: str, schema: Schema, mode: WriteMode
    ) -> tuple[Session, Payload, int]:
        """Of 5,000 points 10 are older than the retention policy."""
        session.close()
        limited = target.connect(f"{url}?retention=1d&shard=1h&gzip=1&consistency=one", schema)
        limited.run(schema.create([CPU], {}))
        now_ns = time.time_ns() // S * S
        times = [*(now_ns - i * 1_000_000 for i in range(4_990)), *(START_NS + i for i in range(10))]
        batch = data.batch(CPU, data.shared_tags(), time_ns=times)
        return limited, schema.encode(batch, mode), 10

    def test_a_write_of_which_no_point_is_taken_has_failed(self, target: Target, url: str, schema: Schema) -> None:
        limited = target.connect(f"{url}?retention=1d", schema)
        limited.run(schema.create([CPU], {}))
        batch = data.batch(CPU, data.shared_tags(), time_ns=[START_NS, START_NS + 1])
        with pytest.raises(OpError, match="dropped=2") as caught:
            limited.write(schema.encode(batch, WriteMode.MULTI))
        assert (caught.value.outcome, caught.value.cause) == (Outcome.FAILED, "data")
        assert self.count(limited, schema, CPU) == 0
        limited.close()

    def test_points_that_are_not_counted_in_a_partial_write_are_unknown(self, session: Session, schema: Schema) -> None:
        """InfluxDB answers for the first of several shards that drops points: others' drops are not in its count."""
        with pytest.raises(PartialWrite) as caught:
            session.write(conflicting(session, schema))
        assert (caught.value.acknowledged, caught.value.refused in {2, 3}) == (0, True)
        assert settled_at(9, lambda: self.count(session, schema, CPU)), "of 12 points 5 were refused, not 2 or 3"

    def test_a_partial_write_that_counts_nothing_is_unknown(self, session: Session, schema: Schema) -> None:
        lines = b"cpu,host=a busy=1 1451606400000000000\ncpu,host=b busy= 1451606400000000000"
        with pytest.raises(OpError, match="dropped=0") as caught:
            session.write(Payload(WriteMode.MULTI, "cpu", "", lines, 2, len(lines)))
        assert (caught.value.outcome, caught.value.cause) == (Outcome.UNKNOWN, "partial write")
        assert self.count(session, schema, CPU) == 1

    def test_sizes_are_those_of_the_files(self, session: Session, schema: Schema) -> None:
        before = sum(session.sizes([CPU]).values())
        batch = data.batch(CPU, data.shared_tags(), time_ns=[START_NS + i for i in range(20_000)])
        session.write(schema.encode(batch, WriteMode.BULK))
        assert before == 0
        assert sum(session.sizes([CPU]).values()) > 200_000  # random floats do not compress


@getattr(pytest.mark, "influxdb-1.6")
@round_trip("test_points_that_the_database_does_not_take_are_refused_alone_or_with_all_others_as_declared")
class TestInfluxdb16(Influxdb1Contract):
    version = "1.6"


@getattr(pytest.mark, "influxdb-1.8")
class TestInfluxdb18(Influxdb1Contract):
    version = "1.8"


@pytest.mark.parametrize(
    ("endpoint", "why"),
    [
        ("http://h:8086", "names no database"),
        ("http://h:8086/a/b", "the path /a before the database is not sent on"),
        ("http://h:x/db", "not an endpoint of InfluxDB"),
        ("http://h/db?rp=autogen", "must begin with tsbench"),
        ("http://h/db?retention=5 years", "no duration"),
        ("http://h/db?consistency=maybe", "any, one, quorum and all"),
        ("http://h/db?colour=red", "the option 'colour' does not exist; there are gzip, consistency"),
    ],
)
def test_a_wrong_endpoint_is_answered_with_what_is_right(endpoint: str, why: str) -> None:
    with pytest.raises(UserMistake, match=why):
        TARGET.connect(endpoint, TAGS)
