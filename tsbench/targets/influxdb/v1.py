"""InfluxDB 1.x: line protocol to /write, InfluxQL to /query.

Everything that tsbench stores is in a retention policy of its own, `tsbench`, which `create` drops and creates again;
the rest of the database, which may be a user's, is never changed. `create` creates the database and that policy;
InfluxDB creates a measurement when its first point arrives, so a write to a missing one is no error.

`endpoint` says how endpoints are written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import orjson

from tsbench.model import OTHERS, Count, OpError, Outcome, Rows
from tsbench.net.http import Request
from tsbench.targets import http
from tsbench.targets.base import Inventory, ServerObject, Statement, others_text
from tsbench.targets.http import HttpSession
from tsbench.targets.influxdb import counters, http_api
from tsbench.targets.influxdb.http_api import InfluxSchema
from tsbench.targets.influxdb.influxql import any_point, compile_query, quoted
from tsbench.targets.session import decoded, statement_of
from tsbench.targets.target import PeerQueries, Requirement

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tsbench.model import Codes, Measurement, Query
    from tsbench.net.tcp import NewWaiter
    from tsbench.targets.base import Command
    from tsbench.targets.influxdb.endpoint import Influx1Endpoint

_AT_ONCE = 50
"""Measurements of which one statement asks whether they have points."""


@dataclass(frozen=True, slots=True)
class Influx1Schema(InfluxSchema):
    """Schema with indexed tags, and fields with their types: integers stay integers.

    The statements name the session's own database and policy as $database, $policy and $retention.
    """

    name: str
    counts_sparse = False  # InfluxQL counts values of a field, and has no union of them

    def create(self, measurements: Sequence[Measurement], tags: Mapping[str, Codes]) -> Sequence[Statement]:
        return [
            Statement("CREATE DATABASE $database", optional=True),
            *self.drop(measurements),
            Statement("CREATE RETENTION POLICY $policy ON $database $retention"),
        ]

    def drop(self, measurements: Sequence[Measurement]) -> Sequence[Statement]:
        """Return the statement that drops the policy with all its data; no error if it is missing."""
        return [Statement("DROP RETENTION POLICY $policy ON $database")]

    def compile(self, query: Query) -> Statement:
        return Statement(compile_query(query), http_api.tags_of(query))


class Influx1Session(HttpSession):
    """One connection to a server."""

    panels = counters.VARS_PANELS
    refused = staticmethod(http_api.refusal)

    def __init__(
        self, of: Influx1Endpoint, password: str | None, timeout_s: float, waiter: NewWaiter | None = None
    ) -> None:
        super().__init__(of, http.basic_login(of.user, password), timeout_s, waiter)
        options, policy = of.options, of.options.get("rp", "tsbench")
        self._names = {
            "$database": quoted(of.path),
            "$policy": quoted(policy),
            "$retention": f"DURATION {options.get('retention', 'INF')} REPLICATION 1"
            + (f" SHARD DURATION {options['shard']}" if "shard" in options else ""),
        }
        self._place = {"database": of.path, "retentionPolicy": policy}
        target = {"db": of.path, "rp": policy}
        consistency = {"consistency": options["consistency"]} if "consistency" in options else {}
        path = f"/write?{urlencode({**target, 'precision': 'ns', **consistency})}"
        self.writer = http.Writer(self._connection, of, path, self._headers, http_api.write_refusal)
        self._vars = self._request("GET", "/debug/vars")
        self._ask = self._request(
            "POST",
            f"/query?{urlencode({**target, 'epoch': 'ns'})}",
            Content_Type="application/x-www-form-urlencoded",
            Accept="application/json",
        )

    def ping(self, timeout_s: float) -> None:
        self.series("SHOW DATABASES", timeout_s=timeout_s)

    @decoded("InfluxDB")
    def execute(self, command: Command, timeout_s: float) -> None:
        if isinstance(command, http_api.WaitForCompactions):
            http_api.settle(self.facts(), self._busy, self._cached, timeout_s)
            return
        statement = statement_of(command)
        try:
            self.series(self._filled(statement.text), timeout_s=timeout_s)
        except OpError as error:
            if not statement.optional or error.cause != "permission":
                raise

    @decoded("InfluxDB")
    def query(self, statement: Statement, columns: tuple[str, ...]) -> Rows:
        records: list[tuple[Any, ...]] = []
        for series in self.series(statement.text):
            stored = columns[-1] == OTHERS
            records += _stored_records(series, columns, statement.params) if stored else _records(series, columns)
        if not records and columns == Count.columns:  # InfluxQL has no row for a count of zero
            records = [(0,)]
        return Rows(columns, records)

    @decoded("InfluxDB")
    def ask(self, text: str) -> Rows:
        series = self.series(text)
        return Rows((), [(*one.get("tags", {}).values(), *row) for one in series for row in one["values"]])

    @decoded("InfluxDB")
    def facts(self) -> Mapping[str, str]:
        """Return the server's version and configuration, if the login may see them."""
        try:
            diagnostics = self.series("SHOW DIAGNOSTICS")
        except OpError as error:
            if error.cause != "permission":
                raise
            diagnostics = []
        told = {
            f"{series['name']}.{column}": str(value)
            for series in diagnostics
            for column, value in zip(series["columns"], series["values"][0], strict=True)
        }
        version = told.get("build.Version") or self._version()
        settings = {name.removeprefix("config-"): v for name, v in told.items() if name.startswith("config-")}
        return {"version": f"InfluxDB {version}", **settings}

    @decoded("InfluxDB")
    def sizes(self, measurements: Sequence[Measurement]) -> Mapping[str, int]:
        """Return the bytes of the policy's shards and of their write-ahead logs, without the index of series."""
        shards, logs = (
            [dict(zip(one["columns"], one["values"][0], strict=True)) for one in self._own(module)]
            for module in ("tsm1_filestore", "tsm1_wal")
        )
        parts = {"shards": sum(int(shard["diskBytes"]) for shard in shards), "write-ahead log": 0}
        for log in logs:
            current, old = int(log["currentSegmentDiskBytes"]), int(log["oldSegmentsDiskBytes"])
            # A server that was started again counts the segment that it goes on with among the old ones, too.
            parts["write-ahead log"] += current if old == current else current + old
        return parts

    @decoded("InfluxDB")
    def objects(self, measurements: Sequence[Measurement]) -> Sequence[ServerObject]:
        """Return the policy, and the database; neither has an id."""
        database, policy = self._place["database"], self._place["retentionPolicy"]
        if database not in self._column("SHOW DATABASES", "databases"):
            return ()
        policies = self._column("SHOW RETENTION POLICIES ON $database")
        drop = Statement("DROP RETENTION POLICY $policy ON $database")
        ours = [ServerObject(f"retention policy {policy} of database {database}", (drop,))] * (policy in policies)
        try:
            shards = self._column("SHOW SHARDS", database, column="id")
            queries = self._column("SHOW CONTINUOUS QUERIES", database)
        except OpError as error:
            if error.cause != "permission":
                raise
            shards, queries = ["not shown"], []  # whoever may not see them may not drop the database either
        own = {"autogen"}  # which InfluxDB makes with the database
        holds = len({*policies} - own) + len(shards) + len(queries)
        return (*ours, ServerObject(f"database {database}", (Statement("DROP DATABASE $database"),), holds=holds))

    def inventory(self, measurements: Sequence[Measurement], *, series: bool) -> Inventory:
        """Return the other measurements that have points in the policy; points carry their tags, so no `series`."""
        if self._place["database"] not in self._column("SHOW DATABASES", "databases"):
            return Inventory()
        names = sorted({*self._column("SHOW MEASUREMENTS ON $database")} - {m.name for m in measurements})
        with_points: set[str] = set()
        for first in range(0, len(names), _AT_ONCE):
            some = names[first : first + _AT_ONCE]
            with_points |= {one["name"] for one in self.series(any_point(some))}
        return Inventory(tuple(sorted(with_points)))

    def _column(self, text: str, series: str = "", *, column: str = "name") -> list[Any]:
        """Return one column of a statement's answer, of the series of that name (default: of all)."""
        series_of = [one for one in self.series(self._filled(text)) if series in {"", one.get("name")}]
        return [row[one["columns"].index(column)] for one in series_of for row in one.get("values", ())]

    def _filled(self, text: str) -> str:
        """Return a statement with the names of the database and the policy."""
        return re.sub(r"\$(?:database|policy|retention)", lambda name: self._names[name[0]], text)

    @decoded("InfluxDB")
    def counters(self) -> Mapping[str, float]:
        page = self._send(self._vars).body
        try:
            return counters.of_vars(page)
        except ValueError as error:
            raise OpError(Outcome.FAILED, "protocol", f"InfluxDB: no counters at /debug/vars: {error}") from error

    def _busy(self, timeout_s: float) -> int:
        """Return the number of compactions that are active or queued."""
        return sum(
            int(value)
            for series in self._own("tsm1_engine", timeout_s=timeout_s)
            for column, value in zip(series["columns"], series["values"][0], strict=True)
            if column.endswith(("Active", "Queue"))
        )

    def _cached(self, timeout_s: float) -> int:
        """Return the bytes of the policy's caches."""
        series_of = self._own("tsm1_cache", timeout_s=timeout_s)
        return sum(int(one["values"][0][one["columns"].index("memBytes")]) for one in series_of)

    def _own(self, module: str, *, timeout_s: float | None = None) -> Iterator[dict[str, Any]]:
        """Yield the statistics of our policy's shards."""
        for series in self.series(f"SHOW STATS FOR '{module}'", timeout_s=timeout_s):
            if self._place.items() <= series.get("tags", {}).items():
                yield series

    def _version(self) -> str:
        response = self._connection.send(Request(self._of.place, "GET", "/ping", {}))
        return response.header("X-Influxdb-Version") or "unknown"

    def series(self, text: str, *, timeout_s: float | None = None) -> list[dict[str, Any]]:
        """Return the series of a statement's result. An answer with status 200 may contain an error."""
        body = b"q=" + quote(text, safe="").encode()
        response = self._send(self._ask, body, timeout_s=timeout_s)
        try:
            results = orjson.loads(response.body)["results"]
            series: list[dict[str, Any]] = [series for result in results for series in result.get("series", ())]
        except (ValueError, KeyError, TypeError) as error:
            raise OpError(Outcome.UNKNOWN, "protocol", f"InfluxDB: no result in {response.body[:80]!r}") from error
        for result in results:
            if "error" in result:
                outcome, cause = http_api.meaning(400, str(result["error"]), write=False)
                raise OpError(outcome, cause, f"InfluxDB: {result['error']}")
        if any(part.get("partial") for part in (*results, *series)):
            raise OpError(Outcome.FAILED, "truncated", "InfluxDB: the answer was cut at the server's max-row-limit")
        return series


def _records(series: dict[str, Any], columns: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield a series' rows under the requested columns; other columns are tags (empty if the series lacks the tag)."""
    records, values, tags = series["columns"], series["values"], series.get("tags", {})
    if tuple(records) == columns:
        return map(tuple, values)
    places = [records.index(name) if name in records else None for name in columns]
    if places[:2] == [0, None] and places[2:] == list(range(1, len(records))):
        tag = tags.get(columns[1], "")
        return ((row[0], tag, *row[1:]) for row in values)
    return (
        tuple(tags.get(name, "") if place is None else row[place] for name, place in zip(columns, places, strict=True))
        for row in values
    )


def _stored_records(
    series: dict[str, Any], columns: tuple[str, ...], of_tags: tuple[str, ...]
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a series for `Stored`, with all its tags and fields."""
    records, tags = series["columns"], series.get("tags", {})
    own = {name for name in of_tags if name in tags}
    places = [records.index(name) if name in records and name not in own else None for name in columns[:-1]]
    others = [(name, place) for place, name in enumerate(records) if place not in places]
    other_tags = {name: value for name, value in tags.items() if name not in own}
    rows = series["values"]
    texts: Iterable[str | None] = repeat(None)
    if others or other_tags:
        texts = (others_text({**other_tags, **{name: row[place] for name, place in others}}) for row in rows)
    # By columns: a Python step for every value of the rows that are read back took a third of the time of all checks.
    values = list(zip(*rows, strict=True)) or [()] * len(records)
    chosen: list[Iterable[Any]] = [
        repeat(tags.get(name) or None) if place is None else values[place]
        for name, place in zip(columns[:-1], places, strict=True)
    ]
    return zip(*chosen, texts, strict=False)


connect = http.opener(Influx1Session)
TAGS = Influx1Schema("tags")
TARGET = http_api.influxdb_target(
    name="influxdb1",
    version="1.x",
    secrets=("TSBENCH_PASSWORD",),
    form="http://user@host:8086/database",
    schemas={TAGS.name: TAGS},
    options=(*http_api.OPTIONS, "consistency", "retention", "rp", "shard"),
    parser="tsbench.targets.influxdb.endpoint:parse",
    opener="tsbench.targets.influxdb.v1:connect",
    server="tsbench.targets.influxdb.server:InfluxServer1",
    peer_queries=PeerQueries("HTTP", text="RawQuery", path="/query?"),
    requirements=tuple(
        Requirement(f"InfluxDB {version} (influxdb1)", programs=(f"influxd-{version}",)) for version in ("1.6", "1.8")
    ),
)
