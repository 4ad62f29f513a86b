"""InfluxDB 2.x: line protocol to /api/v2/write, Flux to /api/v2/query, buckets through influxdb-client.

Writes and queries are synchronous, on our own connection. influxdb-client's writer collects points in the background
and sends them again after a failure, so a benchmark would measure its queue; its parser creates an object per value.
tsbench creates and deletes the bucket, and marks it in its description; a bucket without the mark is refused.

An endpoint is `http://host:8086/?org=ORG&bucket=BUCKET`, with https for TLS. The token comes from TSBENCH_TOKEN or
TSBENCH_PASSWORD (or the files that these with _FILE name), or from the file in the option `token_file`. `gzip=1`
compresses writes.
"""

from __future__ import annotations

import json
import logging
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from tsbench.errors import UserMistake
from tsbench.model import OTHERS, Count, Kind, OpError, Outcome, Rows
from tsbench.targets import credentials, http
from tsbench.targets.base import Inventory, Operation, ServerObject, Statement
from tsbench.targets.http import HttpEndpoint, HttpSession
from tsbench.targets.influxdb import counters, flux, http_api
from tsbench.targets.influxdb.http_api import InfluxSchema
from tsbench.targets.session import decoded, statement_of
from tsbench.targets.target import Driver, Requirement, Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from influxdb_client.client.influxdb_client import InfluxDBClient

    from tsbench.model import Codes, Measurement, Query
    from tsbench.net.http_parser import Response
    from tsbench.net.tcp import NewWaiter
    from tsbench.targets.base import Command

MARK = "Made by tsbench, which deletes it with all that is in it at every run."
"""Description of our buckets."""


@dataclass(frozen=True, slots=True)
class CreateBucket(Operation):
    """Create the bucket of the session's endpoint, marked as ours."""

    text: str = "create bucket"


@dataclass(frozen=True, slots=True)
class DeleteBucket(Operation):
    """Delete the bucket of the session's endpoint, if it exists and is ours."""

    text: str = "delete bucket"


@dataclass(frozen=True, slots=True)
class Influx2Schema(InfluxSchema):
    """Schema with indexed tags, and fields with their types: integers stay integers."""

    name: str
    request = "POST /api/v2/write"

    def create(self, measurements: Sequence[Measurement], tags: Mapping[str, Codes]) -> Sequence[Command]:
        return [*self.drop(measurements), CreateBucket()]

    def drop(self, measurements: Sequence[Measurement]) -> Sequence[Command]:
        return [DeleteBucket()]

    def compile(self, query: Query) -> Statement:
        tags = http_api.tags_of(query)
        may_lack = tuple(one.name for one in query.measurement.fields if one.kind is Kind.TEXT)  # in a torn read
        return Statement(flux.compile_query(query), (tags, may_lack) if tags or may_lack else ())


class Influx2Session(HttpSession):
    """One connection to InfluxDB 2.x, whose queries are in Flux."""

    panels = counters.METRICS_PANELS
    refused = staticmethod(http_api.refusal)

    def __init__(self, of: HttpEndpoint, token: str | None, timeout_s: float, waiter: NewWaiter | None = None) -> None:
        super().__init__(of, {"Authorization": f"Token {token}"} if token else {}, timeout_s, waiter)
        self._org, self._bucket, self._token = of.options["org"], of.options["bucket"], token
        path = f"/api/v2/write?{urlencode({'org': self._org, 'bucket': self._bucket, 'precision': 'ns'})}"
        self.writer = http.Writer(self._connection, of, path, self._headers, http_api.write_refusal)
        self._ask = self._request(
            "POST", f"/api/v2/query?{urlencode({'org': self._org})}", Content_Type="application/json"
        )

    @decoded("InfluxDB")
    def execute(self, command: Command, timeout_s: float) -> None:
        match command:
            case CreateBucket():
                self._create(timeout_s)
            case DeleteBucket():
                self._drop(timeout_s)
            case http_api.WaitForCompactions():
                http_api.settle(self.facts(), self._busy, self._cached, timeout_s)
            case _:
                self._flux(statement_of(command).text, timeout_s=timeout_s)

    @decoded("InfluxDB")
    def query(self, statement: Statement, columns: tuple[str, ...]) -> Rows:
        try:
            text = self._flux(statement.text)
        except OpError as error:
            if columns[-1] != OTHERS or "pivot" not in str(error):
                raise
            text = self._flux(flux.with_tags_renamed(statement.text))
        try:
            records = flux.records(text, columns, *statement.params)
        except flux.Failed as error:
            outcome, cause = http_api.meaning(400, str(error), write=False)
            raise OpError(outcome, cause, f"InfluxDB: {error}") from error
        except ValueError as error:
            raise OpError(Outcome.UNKNOWN, "protocol", f"InfluxDB: no annotated CSV: {error}") from error
        if not records and columns == Count.columns:  # Flux has no row for a count of zero
            records = [(0,) * len(columns)]
        return Rows(columns, records)

    @decoded("InfluxDB")
    def facts(self) -> Mapping[str, str]:
        """Return the server's version and options, if the token may see them."""
        version = self._get("/ping").header("X-Influxdb-Version") or "unknown"
        response = self._get("/api/v2/config")
        told = json.loads(response.body)["config"] if response.status == 200 else {}
        return {"version": f"InfluxDB {version.removeprefix('v')}", **{name: str(told[name]) for name in sorted(told)}}

    @decoded("InfluxDB")
    def sizes(self, measurements: Sequence[Measurement]) -> Mapping[str, int]:
        """Return the bytes of the bucket's data and write-ahead logs, without the index of series."""
        bucket = self._found()
        if bucket is None:
            return {}
        label = f'bucket="{bucket["id"]}"'
        # `storage_shard_disk_size` would be both together, but it is up to ten seconds old.
        names = {"data": "storage_tsm_files_disk_bytes{", "log": "storage_wal_size{"}
        return {part: int(sum(self._metrics(name, label))) for part, name in names.items()}

    @decoded("InfluxDB")
    def objects(self, measurements: Sequence[Measurement]) -> Sequence[ServerObject]:
        """Return the bucket, if it exists and is ours."""
        bucket = self._found()
        if bucket is None or bucket.get("description") != MARK:
            return ()
        return (ServerObject(f"bucket {self._bucket}", (DeleteBucket(),), bucket["id"]),)

    def inventory(self, measurements: Sequence[Measurement], *, series: bool) -> Inventory:
        """Return the other measurements that have points in the bucket; points carry their tags, so no `series`."""
        if self._found() is None:
            return Inventory()
        text = self._flux(flux.other_measurements(measurements))
        return Inventory(tuple(sorted(name for (name,) in flux.records(text, ("_value",)))))

    @decoded("InfluxDB")
    def counters(self) -> Mapping[str, float]:
        return counters.of_metrics(self._page())

    def ping(self, timeout_s: float) -> None:
        """Verify that the server accepts our token, and that the bucket, which `create` deletes, is ours if any."""
        bucket = self._found(timeout_s)
        if bucket is not None and bucket.get("description") != MARK:
            raise UserMistake(f"the bucket '{self._bucket}' is not tsbench's; name one that is not there yet")

    def _found(self, timeout_s: float | None = None) -> dict[str, Any] | None:
        path = f"/api/v2/buckets?{urlencode({'org': self._org, 'name': self._bucket})}"
        response = self._get(path, timeout_s=timeout_s)
        if response.status == 404 and b"bucket" in response.body:
            return None
        if response.status != 200:
            raise self.refused(response)
        buckets: list[dict[str, Any]] = json.loads(response.body)["buckets"]
        return next(iter(buckets), None)

    def _drop(self, timeout_s: float) -> None:
        self.ping(timeout_s)
        bucket = self._found(timeout_s)
        if bucket is not None:
            with self._client(timeout_s) as client, _api_errors():
                client.buckets_api().delete_bucket(bucket["id"])

    def _create(self, timeout_s: float) -> None:
        with self._client(timeout_s) as client, _api_errors():
            client.buckets_api().create_bucket(bucket_name=self._bucket, org=self._org, description=MARK)

    def _client(self, timeout_s: float) -> InfluxDBClient:
        # Imported here: this takes as long as all other imports of tsbench.
        from influxdb_client.client.influxdb_client import InfluxDBClient  # noqa: PLC0415

        place = self._of.place
        url = f"{'https' if place.tls else 'http'}://{place}"
        # Without `retries` urllib3 would send a request up to four times.
        timeout_ms = max(1, int(timeout_s * 1_000))
        client = InfluxDBClient(url, self._token or "", org=self._org, timeout=timeout_ms, retries=False)
        # Its warnings of malformed heads are tracebacks; what matters of them is an error besides. The client sets one.
        logging.getLogger("urllib3").setLevel(logging.ERROR)
        return client

    def _busy(self, timeout_s: float) -> float:
        """Return the number of compactions that are active or queued."""
        metrics = counters.of_metrics(self._page(timeout_s))
        return metrics["storage_compactions_active"] + metrics["storage_compactions_queued"]

    def _cached(self, timeout_s: float) -> float:
        """Return the bytes of the bucket's caches."""
        bucket = self._found(timeout_s) or {"id": ""}
        return sum(self._metrics("storage_cache_inuse_bytes{", f'bucket="{bucket["id"]}"', timeout_s=timeout_s))

    def _metrics(self, name: str, label: str = "", *, timeout_s: float | None = None) -> Iterator[float]:
        for line in self._page(timeout_s).decode().splitlines():
            if line.startswith(name) and label in line:
                yield float(line.rpartition(" ")[2])

    def _page(self, timeout_s: float | None = None) -> bytes:
        """Return the page of metrics."""
        return self._send(self._request("GET", "/metrics"), timeout_s=timeout_s).body

    def _get(self, path: str, *, timeout_s: float | None = None) -> Response:
        """Return the response to a request, whatever its status."""
        return self._connection.send(self._request("GET", path), timeout_s=timeout_s)

    def _flux(self, text: str, *, timeout_s: float | None = None) -> str:
        """Return the answer to a script, which may use the bucket's name as the variable `bucket`."""
        script = f"bucket = {flux.text_literal(self._bucket)}\n{text}"
        document = {"query": script, "type": "flux", "dialect": {"annotations": ["datatype"], "header": True}}
        return self._send(self._ask, json.dumps(document).encode(), timeout_s=timeout_s).body.decode()


def _token(of: HttpEndpoint) -> str | None:
    """Return the token in the endpoint's file, else the environment's if it may be sent to this endpoint."""
    if file := of.options.get("token_file"):
        return credentials.read_file("the endpoint's token_file", file).strip()
    secret = http.environment_secret(of)
    return None if secret is None else secret.strip()


connect = http.opener(Influx2Session, login="token", secret=_token)


def parse(url: str, target: Target) -> HttpEndpoint:
    """Parse an endpoint."""
    endpoint = http.parse(url, target, HttpEndpoint)
    missing = [name for name in ("org", "bucket") if not endpoint.options.get(name)]
    if endpoint.path:
        raise http.unsent(endpoint, f"/{endpoint.path}")
    if missing or endpoint.user:
        raise UserMistake(f"'{url.rpartition('@')[2]}' is not an InfluxDB 2 endpoint; write {target.form}")
    return endpoint


@contextmanager
def _api_errors() -> Iterator[None]:
    from influxdb_client.rest import ApiException  # noqa: PLC0415
    from urllib3.exceptions import HTTPError, TimeoutError  # noqa: A004, PLC0415

    try:
        yield
    except ApiException as error:
        outcome, cause = http_api.meaning(error.status or 500, str(error.body or error.reason), write=False)
        said = http.message_in(str(error.body or "").encode()) or error.reason
        raise OpError(outcome, cause, f"InfluxDB: {error.status} {said}") from error
    except TimeoutError as error:
        raise OpError(Outcome.UNKNOWN, "timeout", f"InfluxDB: {error}") from error
    except HTTPError as error:
        raise OpError(Outcome.UNKNOWN, "connection", f"InfluxDB: {error}") from error


TAGS = Influx2Schema("tags")
TARGET = http_api.influxdb_target(
    name="influxdb2",
    version="2.x",
    secrets=("TSBENCH_TOKEN", "TSBENCH_PASSWORD"),
    form="http://host:8086/?org=ORG&bucket=BUCKET",
    schemas={TAGS.name: TAGS},
    options=(*http_api.OPTIONS, "bucket", "org", "token_file"),
    parser="tsbench.targets.influxdb.v2:parse",
    opener="tsbench.targets.influxdb.v2:connect",
    server="tsbench.targets.influxdb.server:InfluxServer2",
    driver=Driver("influxdb_client", "influxdb", ("influxdb-client", "urllib3")),
    requirements=(Requirement("InfluxDB 2 (influxdb2)", programs=("influxd-2",)),),
)
