from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from influxdb_client.client.influxdb_client import InfluxDBClient
from influxdb_client.client.write_api import SYNCHRONOUS
from influxdb_client.domain.dialect import Dialect

from tests.targets.influxdb.test_v1 import conflicting, line_of, settled_at
from tsbench.cli.main import main
from tsbench.errors import UserMistake
from tsbench.model import Field, Kind, Measurement, OpError, Outcome, PartialWrite, Raw, Window, WriteMode
from tsbench.targets.influxdb import flux
from tsbench.targets.influxdb.v2 import MARK
from tsbench.targets.registry import TARGETS
from tsbench.testing import data
from tsbench.testing.contract import TargetContract
from tsbench.testing.data import CPU, START_NS, S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tsbench.servers.base import Server
    from tsbench.targets.base import Payload, Schema, Session
    from tsbench.targets.target import Target
    from tsbench.testing.contract_base import Alteration, Point

_numbers = itertools.count()


def client(url: str) -> InfluxDBClient:
    """A client that is not ours."""
    parts = urlsplit(url)
    options = {name: values[0] for name, values in parse_qs(parts.query).items()}
    token = Path(options["token_file"]).read_text()
    return InfluxDBClient(f"http://{parts.netloc}", token, org=options["org"])


def bucket_of(url: str) -> str:
    return parse_qs(urlsplit(url).query)["bucket"][0]


@getattr(pytest.mark, "influxdb-2")
class TestInfluxdb2(TargetContract):
    name = "influxdb2"
    wrong_endpoints = ("nonsense", "http://127.0.0.1:1/x", "http://127.0.0.1:1/?org=o&bucket=b", "http://h/?org=o")

    @pytest.fixture
    def url(self, influxdb_server: Callable[[str], Server]) -> Iterator[str]:
        url = influxdb_server("2").endpoint.replace("bucket=tsbench", f"bucket=test_{next(_numbers)}")
        yield url
        with client(url) as other:
            bucket = other.buckets_api().find_bucket_by_name(bucket_of(url))
            if bucket is not None:
                other.buckets_api().delete_bucket(bucket)

    @staticmethod
    def stored(url: str, measurement: Measurement) -> Sequence[Point]:
        script = f"""from(bucket: "{bucket_of(url)}") |> range(start: 0)
            |> filter(fn: (r) => r._measurement == "{measurement.name}")"""
        points: dict[tuple[int, tuple[str | None, ...]], dict[str, float]] = {}
        tags = (*measurement.tags[:1], *measurement.own_tags)
        with client(url) as other:
            header: list[str] = []
            for row in other.query_api().query_csv(script, dialect=Dialect(annotations=[])):
                if "_time" in row:
                    header = row
                    continue
                values = dict(zip(header, row, strict=False))
                time_ns = int(np.datetime64(values["_time"].removesuffix("Z"), "ns").astype(np.int64))
                series = tuple(values[tag] for tag in tags)
                points.setdefault((time_ns, series), {})[values["_field"]] = float(values["_value"])
        return [
            (
                time_ns,
                int(str(series[0]).removeprefix("host_")) if measurement.tags else None,
                *(values[name] for name in measurement.field_names),
                dict(zip(measurement.own_tags, series[1:], strict=True)) or None,
            )
            for (time_ns, series), values in points.items()
        ]

    def test_a_missing_table_is_a_failure_and_the_session_goes_on(self, session: Session, schema: Schema) -> None:
        """InfluxDB makes measurements as they come; what can be missing is the bucket that they are in."""
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

    def test_a_users_bucket_is_refused(self, target: Target, url: str, schema: Schema) -> None:
        with client(url) as other:
            other.buckets_api().create_bucket(bucket_name=bucket_of(url), description="mine")
        with pytest.raises(UserMistake, match="is not tsbench's"):
            target.connect(url, schema)

    @staticmethod
    def alter(url: str, alteration: Alteration) -> None:
        key, value = next(iter(alteration.tags.items()))
        with client(url) as other:
            if alteration.action == "delete":
                span = [flux.moment(alteration.time_ns + more) for more in (0, 1)]
                where = f'_measurement="{alteration.measurement}" AND {key}="{value}"'
                other.delete_api().delete(*span, where, bucket=bucket_of(url))
            else:
                other.write_api(write_options=SYNCHRONOUS).write(bucket_of(url), record=line_of(alteration))

    def refused_in_part(
        self, session: Session, target: Target, url: str, schema: Schema, mode: WriteMode
    ) -> tuple[Session, Payload, int]:
        """Of 5,000 points 10 are older than the bucket keeps them."""
        session.run(schema.drop([CPU]))
        with client(url) as other:
            day = [{"type": "expire", "everySeconds": 86_400}]
            other.buckets_api().create_bucket(bucket_name=bucket_of(url), description=MARK, retention_rules=day)
        now_ns = time.time_ns() // S * S
        times = [*(now_ns - i * 1_000_000 for i in range(4_990)), *(START_NS + i for i in range(10))]
        batch = data.batch(CPU, data.shared_tags(), time_ns=times)
        return session, schema.encode(batch, mode), 10

    def test_points_that_are_not_counted_in_a_partial_write_are_unknown(self, session: Session, schema: Schema) -> None:
        """InfluxDB answers for the first of several shards that drops points: others' drops are not in its count."""
        with pytest.raises(PartialWrite) as caught:
            session.write(conflicting(session, schema))
        assert (caught.value.acknowledged, caught.value.refused in {2, 3}) == (0, True)
        assert settled_at(9, lambda: self.count(session, schema, CPU)), "of 12 points 5 were refused, not 2 or 3"

    def test_sizes_are_those_of_the_files(self, session: Session, schema: Schema) -> None:
        batch = data.batch(CPU, data.shared_tags(), time_ns=[START_NS + i for i in range(20_000)])
        session.write(schema.encode(batch, WriteMode.BULK))
        assert sum(session.sizes([CPU]).values()) > 200_000  # random floats do not compress

    def test_a_file_can_be_loaded_twice_into_a_bucket(self, url: str, tmp_path: Path) -> None:
        points = tmp_path / "points"
        points.write_text("cpu,hostname=a usage_user=1 1451606400000000000\n")
        for _ in range(2):  # at the second time there are points, and the file's measurements are not known yet
            assert main(["load", "influxdb2", str(points), "--endpoint", url, "--out", str(tmp_path / "r")]) == 0

    def test_the_servers_reason_for_refusing_a_bucket_is_shown(
        self, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        points = tmp_path / "points"
        points.write_text("cpu,hostname=a usage_user=1 1451606400000000000\n")
        odd = url.replace(f"bucket={bucket_of(url)}", "bucket=a%22b")
        assert main(["load", "influxdb2", str(points), "--endpoint", odd, "--out", str(tmp_path / "r")]) in {1, 2}
        assert "quotation mark" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (",result,table,_time,_value\n,_result,0,2016-01-01T00:00:00Z,1\n", "without types"),
        ("#datatype,string,long,duration\n,result,table,points\n,_result,0,1h\n", "duration"),
        ("#datatype,string,long,long\n,result,table,points\n,_result,0\n", "shorter"),
        ("#datatype,string,long,long\n,result,table,points\n,_result,0,many\n", "many"),
        ("<html>", "without types"),
    ],
)
def test_an_answer_of_another_form_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        flux.records(text, ("points",))


def test_an_empty_answer_has_no_rows() -> None:
    for text in ("", "\r\n", "#datatype,string,long,long\r\n,result,table,points\r\n\r\n"):
        assert flux.records(text, ("points",)) == []


def test_an_error_within_an_answer_is_one() -> None:
    table = "#datatype,string,long,long\n,result,table,points\n,_result,0,5\n\n"
    for error in ("#datatype,string,string\n,error,reference\n,it broke,897\n", "error,reference\nit broke,897\n"):
        with pytest.raises(flux.Failed, match="it broke"):
            flux.records(table + error, ("points",))


def test_times_are_read_and_written_to_the_nanosecond() -> None:
    for time_ns in (0, 1, START_NS, START_NS + 123_456_789, START_NS + 120_000_000):
        text = f"#datatype,string,long,dateTime:RFC3339Nano\n,result,table,_time\n,_result,0,{flux.moment(time_ns)}\n"
        assert flux.records(text, ("time",)) == [(time_ns,)]


@pytest.mark.parametrize("tags", [("pump",), ()])
def test_a_text_that_a_row_lacks_is_none_also_where_only_a_torn_read_makes_one(tags: tuple[str, ...]) -> None:
    for nullable in (True, False):
        m = Measurement("m", tags, (Field("v"), Field("state", Kind.TEXT, "", nullable, ("on", "off"))))
        query = Raw(m, ("v", "state"), Window(0, 10 * S))
        statement = TARGETS["influxdb2"].schemas["tags"].compile(query)
        own = "".join(f",{tag}" for tag in tags)
        text = f"#datatype,string,long,dateTime:RFC3339,double,string{',string' * len(tags)}\n"
        text += f",result,table,_time,v,state{own}\n" + "".join(
            f",,0,1970-01-01T00:00:0{second}Z,1.5,{state}{',p' * len(tags)}\n"
            for second, state in enumerate(("on", ""))
        )
        made = flux.records(text, query.columns, *statement.params)
        assert [row[-1] for row in made] == ["on", None]
