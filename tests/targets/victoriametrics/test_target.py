from __future__ import annotations

import itertools
import json
import urllib.error
import urllib.request
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import numpy as np
import pytest

from tsbench.errors import UserMistake
from tsbench.model import (
    Aggregated,
    Field,
    Kind,
    LatestBuckets,
    Measurement,
    OpError,
    Outcome,
    Raw,
    Rows,
    Window,
    WriteMode,
)
from tsbench.targets.base import Payload, Unsupported
from tsbench.targets.victoriametrics import TARGET
from tsbench.targets.victoriametrics.schemas import FIELDS, Flush
from tsbench.targets.victoriametrics.server import VictoriaServer
from tsbench.testing import data
from tsbench.testing.contract import TargetContract
from tsbench.testing.data import CPU, LAG, START_NS, S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tsbench.model import Batch
    from tsbench.targets.base import Schema, Session
    from tsbench.testing.contract_base import Alteration, Point

_numbers = itertools.count()
MS = 1_000_000


def post(url: str, path: str, body: bytes = b"") -> bytes:
    """The answer of a client that is not ours."""
    with urllib.request.urlopen(f"http://{urlsplit(url).netloc}{path}", body or b"x=") as answer:
        found: bytes = answer.read()
    return found


def exported(url: str, selector: str = "", **times: str) -> list[dict[str, Any]]:
    """All samples of our series with this selector, by a client that is not ours, after a flush."""
    post(url, "/internal/force_flush")
    match = f'{{db="{urlsplit(url).path[1:]}"{selector}}}'
    found = post(url, "/api/v1/export", urlencode({"match[]": match, "start": "0", **times}).encode())
    return [json.loads(line) for line in found.splitlines()]


def write(url: str, line: str, precision: str = "ns") -> None:
    post(url, f"/write?db={urlsplit(url).path[1:]}&precision={precision}", line.encode())


def deleted(url: str, selector: str) -> list[str]:
    """Delete whole series, which is all that VictoriaMetrics can; return their samples as lines."""
    lines = []
    for one in exported(url, selector):
        name, *_ = one["metric"].values()
        measurement, _, field = name.partition("_")
        tags = "".join(f",{tag}={text}" for tag, text in one["metric"].items() if tag not in {"__name__", "db"})
        lines += [
            f"{measurement}{tags} {field}={value} {time}"
            for time, value in zip(one["timestamps"], one["values"], strict=True)
        ]
    match = f'{{db="{urlsplit(url).path[1:]}"{selector}}}'
    post(url, "/api/v1/admin/tsdb/delete_series", urlencode({"match[]": match}).encode())
    return lines


@pytest.mark.victoria
class TestVictoriaMetrics(TargetContract):
    name = "victoriametrics"
    wrong_endpoints = ("nonsense", "http://127.0.0.1:1/x", "http://127.0.0.1:8428/", "postgresql://h/tsbench")
    unsupported = {"fields": ("where", "top", "first rows", "ends where", "percentiles")}  # noqa: RUF012

    @pytest.fixture
    def url(self, victoria_server: VictoriaServer) -> Iterator[str]:
        url = f"{victoria_server.endpoint}_{next(_numbers)}"
        yield url
        deleted(url, "")

    @staticmethod
    def write(session: Session, schema: Schema, batches: list[Batch], mode: WriteMode | None = None) -> int:
        """Write, and wait until queries see it: that is not declared of an acknowledged write."""
        acknowledged = TargetContract.write(session, schema, batches, mode)
        session.run([Flush()])
        return acknowledged

    @staticmethod
    def stored(url: str, measurement: Measurement) -> Sequence[Point]:
        found: dict[Any, dict[str, float]] = {}
        for one in exported(url, f',__name__=~"{measurement.name}_.*"'):
            tags = one["metric"]
            for time, value in zip(one["timestamps"], one["values"], strict=True):
                own = tuple((tag, tags[tag]) for tag in measurement.own_tags)
                series = int(tags["host"].removeprefix("host_")) if measurement.tags else None
                row = found.setdefault((time * MS, series, own), {})
                row[tags["__name__"].removeprefix(f"{measurement.name}_")] = float(value)
        return [
            (time, series, *(row[name] for name in measurement.field_names), dict(own) or None)
            for (time, series, own), row in found.items()
        ]

    @staticmethod
    def alter(url: str, alteration: Alteration) -> None:
        name, time = alteration.measurement, alteration.time_ns // MS
        key, value = next(iter(alteration.tags.items()))
        *_, last = alteration.tags
        tags = "".join(f",{tag}={text}" for tag, text in alteration.tags.items())
        series = f',{key}="{value}",__name__=~"{name}_.*"'
        match alteration.action:
            case "delete" | "change" | "tag":
                lines = deleted(url, series)
                field = f" {alteration.field}="
                for line in lines:
                    is_there = line.endswith(f" {time}")
                    if is_there and alteration.action == "delete":
                        continue
                    if is_there and alteration.action == "tag":
                        line = line.replace(f",{last}={alteration.tags[last]}", f",{last}=elsewhere")  # noqa: PLW2901
                    if is_there and alteration.action == "change" and field in line:
                        line = f"{name}{tags}{field}{alteration.value} {time}"  # noqa: PLW2901
                    write(url, line, "ms")
            case "duplicate":
                for one in exported(url, series):
                    at = one["timestamps"].index(time)
                    of = one["metric"]["__name__"].removeprefix(f"{name}_")
                    write(url, f"{name}{tags} {of}={one['values'][at]} {time}", "ms")
            case "more":
                write(url, f"{name}{tags} more=1 {time}", "ms")
            case "part":
                write(url, f"{name}{tags} {alteration.field}={alteration.value} {time}", "ms")
        post(url, "/internal/force_flush")

    # --- what is otherwise here

    def test_dropping_is_harmless_where_nothing_is(self, session: Session, schema: Schema) -> None:
        """There are no tables: what is dropped has no points."""
        self.write(session, schema, self.scattered(CPU, 9, 1))
        for _ in range(2):
            session.run(schema.drop([CPU]))
            assert self.count(session, schema, CPU) == 0

    def test_a_missing_table_is_a_failure_and_the_session_goes_on(self, session: Session, schema: Schema) -> None:
        """A series is made by its first point, so that none can be missing."""
        missing = Measurement("missing", CPU.tags, CPU.fields)
        assert self.count(session, schema, missing) == 0
        session.write(schema.encode(data.batch(missing, data.shared_tags(), time_ns=[START_NS]), WriteMode.MULTI))
        assert self.count(session, schema, missing) == 1

    def test_names_and_tags_are_not_read_as_part_of_a_statement(self, target: Any, url: str, schema: Schema) -> None:
        odd = Measurement("se'lect", ("ho'st", "the {key}"), (Field("or|der by"), Field("time zone %s $1")))
        shared = {"ho'st": data.codes(list(data.ODD)), "the {key}": data.codes(["x"] * len(data.ODD))}
        session = target.connect(url, schema)
        session.run(schema.create([odd], shared))
        batch = replace(
            data.batch(odd, data.shared_tags(), time_ns=[START_NS + i * S for i in range(len(data.ODD))]),
            series=np.arange(len(data.ODD), dtype=np.int32), tags=shared,
        )  # fmt: skip
        self.write(session, schema, [batch])
        window = Window(START_NS, START_NS + 100 * S)
        for keys in (None, *((value,) for value in data.ODD), data.ODD):
            key = self.key(schema, [batch])
            self.agrees(session, schema, Raw(odd, odd.field_names, window, keys), key)
            self.agrees(session, schema, Aggregated.of(odd, odd.field_names, "mean", 30 * S, window, keys), key)
        session.close()

    def test_a_quotation_mark_in_a_name_is_refused(self, url: str, schema: Schema) -> None:
        """The server answers 204, and stores one point of whatever lies up to the next quotation mark."""
        for m in (
            Measurement('a"b', CPU.tags, CPU.fields),
            Measurement("m", ('ho"st', "region"), CPU.fields),
            Measurement("m", CPU.tags, (Field('bu"sy'),)),
        ):
            batch = data.batch(Measurement("m", CPU.tags, m.fields), data.shared_tags(), time_ns=[START_NS])
            with pytest.raises(Unsupported, match="quotation mark in a name"):
                schema.encode(replace(batch, measurement=m), WriteMode.MULTI)
        write(url, 'a"b,ho"st=x v"w=1 1451606400000000000')
        assert exported(url) == []

    def test_numbers_come_back_to_the_last_bit_or_are_refused(
        self, session: Session, schema: Schema, mode: WriteMode
    ) -> None:
        if mode is WriteMode.SINGLE:
            return
        draw = np.random.default_rng(7)
        pieces = [
            np.round(draw.uniform(-below, below, 3_000) * 10.0 ** -draw.integers(0, 6, 3_000), decimals)
            for below, decimals in ((1e5, 6), (1e8, 4), (9e9, 0))
        ]
        edges = [[below - 10.0**-decimals, 10.0**-decimals - below] for below, decimals in ((1e5, 6), (1e8, 4))]
        floats = np.concatenate([*pieces, *edges, [0.0, 9e9 - 1, 1e-6, 0.1, 99_999.999_999]])
        large = draw.integers(-(2**53), 2**53, len(floats), endpoint=True)
        large[:4] = 2**53, -(2**53), 10**15, 0
        m = Measurement("cpu", CPU.tags, (Field("busy"), Field("count", Kind.INT)))
        batch = data.batch(m, data.shared_tags(), time_ns=(START_NS + np.arange(len(floats)) * S).tolist())
        batch = replace(batch, fields={"busy": draw.permutation(floats), "count": draw.permutation(large)})
        self.write(session, schema, [batch], mode)
        everything = Raw(m, m.field_names, Window(START_NS, START_NS + len(floats) * S))
        self.agrees(session, schema, everything, self.key(schema, [batch]))

    @pytest.mark.parametrize(
        "number", [0.1 + 0.2, 1 / 3, 1e-300, 1e-7, 99_999.999_999_9, 999_947.787_303, 5e15 + 0.5, 9e9 + 1, 2.0**60]
    )
    def test_a_float_that_would_be_stored_as_another_is_refused(self, schema: Schema, number: float) -> None:
        batch = data.batch(LAG, {}, time_ns=[START_NS])
        with pytest.raises(Unsupported, match=r"exactly \(field seconds\); give the data fewer digits"):
            schema.encode(replace(batch, fields={**batch.fields, "seconds": np.array([number])}), WriteMode.MULTI)
        with pytest.raises(Unsupported, match=r"cannot express 9007199254740993 exactly \(field kb\)"):
            schema.encode(replace(batch, fields={**batch.fields, "kb": np.array([2**53 + 1])}), WriteMode.MULTI)

    def test_a_number_that_is_refused_would_have_been_stored_as_another(self, url: str) -> None:
        numbers = [1 / 3, 999_947.787_303, 2**53 + 1, 2.0**62 + 1_024]
        for i, number in enumerate(numbers):
            write(url, f"lost{i} v={number!r} {START_NS}")
        found = {one["metric"]["__name__"]: one["values"][0] for one in exported(url)}
        assert [found[f"lost{i}_v"] == number for i, number in enumerate(numbers)] == [False] * len(numbers)

    def test_the_sign_of_zero_is_lost(self, session: Session, url: str, schema: Schema) -> None:
        batch = data.batch(LAG, {}, time_ns=[START_NS])
        self.write(session, schema, [replace(batch, fields={**batch.fields, "seconds": np.array([-0.0])})])
        ((_, _, seconds, _),) = [(*point[:2], point[3], point[4]) for point in self.stored(url, LAG)]
        assert str(seconds) == "0.0"

    def test_times_between_milliseconds_are_refused(self, schema: Schema) -> None:
        with pytest.raises(Unsupported, match="between milliseconds"):
            schema.encode(data.batch(CPU, data.shared_tags(), time_ns=[START_NS + 1]), WriteMode.MULTI)

    def test_two_points_of_a_series_at_one_time_are_kept_or_replaced_as_declared(
        self, session: Session, schema: Schema, mode: WriteMode
    ) -> None:
        """Both are kept; which values were written together is not, unless they are the same point twice."""
        first = data.batch(CPU, data.shared_tags(), time_ns=[START_NS, START_NS + S], series=[0, 0], seed=1)
        for batch in (first, first):
            self.write(session, schema, [batch], mode)
        everything = Raw(CPU, CPU.field_names, Window(START_NS, START_NS + 2 * S))
        assert self.count(session, schema, CPU) == 4
        self.agrees(session, schema, everything, self.key(schema, [first, first]))
        other = data.batch(CPU, data.shared_tags(), time_ns=[START_NS], series=[0], seed=2)
        self.write(session, schema, [other], mode)
        assert self.count(session, schema, CPU) == 5
        columns = zip(*self.ask(session, schema, everything).records, strict=True)
        for found, name in zip(list(columns)[2:], CPU.field_names, strict=True):
            written = [*first.fields[name].tolist() * 2, *other.fields[name].tolist()]
            assert sorted(found) == sorted(written)

    def test_newest_buckets_are_found_behind_any_gap(self, session: Session, schema: Schema) -> None:
        minutes = (0, 1, 7, 8, 9, 5_000, 90_000)
        times = [START_NS + minute * 60 * S + 30 * S for minute in minutes]
        batch = data.batch(CPU, data.shared_tags(), time_ns=times)
        self.write(session, schema, [batch])
        key = self.key(schema, [batch])
        for limit in (1, 2, 3, 5, 7, 9):
            for before in (times[-1] + 1, times[-1], times[3] + 20 * S, times[2] + 1, times[0]):
                self.agrees(session, schema, LatestBuckets(CPU, ("busy", "load"), "max", 60 * S, before, limit), key)

    def test_a_write_that_is_refused_may_have_left_points_behind(self, session: Session, url: str) -> None:
        lines = b"cpu,host=a busy=1 1451606400000000000\ncpu,host=b busy= 1451606400000000000"
        with pytest.raises(OpError, match="busy") as caught:
            session.write(Payload(WriteMode.MULTI, "cpu", "", lines, 2, len(lines)))
        assert (caught.value.outcome, caught.value.cause) == (Outcome.UNKNOWN, "data")
        assert len(exported(url)) in {0, 1}

    def test_our_series_are_listed_and_those_of_no_measurement(self, session: Session, url: str) -> None:
        assert (session.objects([CPU]), session.inventory([CPU], series=True).tables) == ((), ())
        write(url, "cpu,host=a busy=1 1451606400000000000\nmore,host=a usage=1 1451606400000000000")
        write(f"{url}_of_somebody", "other,host=mine busy=1 1451606400000000000")
        assert session.inventory([CPU], series=True).tables == ("more_usage",)
        (found,) = session.objects([CPU])
        session.run(found.remove)
        assert session.objects([CPU]) == ()
        deleted(f"{url}_of_somebody", "")

    def test_what_others_store_stays(self, session: Session, url: str, schema: Schema) -> None:
        other = f"{url}_of_somebody"
        write(other, "cpu,host=mine busy=1 1451606400000000000")
        for commands in (schema.create([CPU], {}), schema.drop([CPU])):
            session.run(commands)
            assert len(exported(other)) == 1
        assert self.count(session, schema, CPU) == 0
        deleted(other, "")


@pytest.mark.victoria
def test_a_server_is_killed_and_starts_again_with_what_was_flushed(
    own_server: Callable[[VictoriaServer], VictoriaServer], tmp_path: Path
) -> None:
    server = own_server(VictoriaServer(tmp_path, {"inmemoryDataFlushInterval": "1h"}))
    kept, lost = (data.batch(CPU, data.shared_tags(), time_ns=[START_NS + i * S]) for i in range(2))
    count = Raw(CPU, ("busy",), Window(START_NS, START_NS + 9 * S))
    session = TARGET.connect(server.endpoint, FIELDS)
    session.write(FIELDS.encode(kept, WriteMode.MULTI))
    session.close()
    server.stop()  # in order, which writes all
    server.start()
    session = TARGET.connect(server.endpoint, FIELDS)
    session.write(FIELDS.encode(lost, WriteMode.MULTI))
    server.kill()
    with pytest.raises(OpError):
        session.query(FIELDS.compile(count), count.columns)
    server.start()
    found: Rows = session.query(FIELDS.compile(count), count.columns)
    session.close()
    assert [row[0] for row in found.records] == [START_NS]


@pytest.mark.parametrize(
    ("endpoint", "why"),
    [
        ("http://h:8428", "must be tsbench or begin so"),
        ("http://h:8428/prod", "must be tsbench or begin so"),
        ('http://h:8428/tsbench"}', "must be tsbench or begin so"),
        ("http://h:x/tsbench", "not an endpoint of VictoriaMetrics"),
        ("http://h/tsbench?retention=5 years", "write the server's own"),
        ("http://h/tsbench?colour=red", "the option 'colour' does not exist; there are gzip, retention"),
    ],
)
def test_a_wrong_endpoint_is_answered_with_what_is_right(endpoint: str, why: str) -> None:
    with pytest.raises(UserMistake, match=why):
        TARGET.connect(endpoint, FIELDS)
