"""Sessions with VictoriaMetrics: line protocol to /write, queries and exports by POST, its own counters.

Everything that tsbench stores has the label `db` with the endpoint's path, `tsbench` or a name that begins so; `create`
deletes the series with that label and no others. An endpoint is `http://user@host:8428/tsbench`, with https for TLS.
Options after a question mark: `retention`, the server's own (`30d`), past which missing points are no loss; `gzip=1` to
compress writes; of several nodes that tsbench started, `nodes` with their addresses, and `replicas`.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlencode

import orjson

from tsbench.errors import UserMistake
from tsbench.model import OpError, Outcome, Rows
from tsbench.results.panels import Panel
from tsbench.targets import http
from tsbench.targets.base import Inventory, ServerObject, Statement
from tsbench.targets.http import HttpEndpoint, HttpSession
from tsbench.targets.session import decoded, not_mine
from tsbench.targets.victoriametrics import answers
from tsbench.targets.victoriametrics.schemas import DeleteSeries, Flush, WaitForMerges

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tsbench.model import Measurement
    from tsbench.net.http import Request
    from tsbench.net.http_parser import Response
    from tsbench.net.tcp import NewWaiter
    from tsbench.targets.base import Command
    from tsbench.targets.target import Target

_EVERY_S = 0.05
_SECONDS = {"h": 3_600, "d": 86_400, "w": 604_800, "y": 31_536_000}


class VictoriaSession(HttpSession):
    """One connection to a single node, or to vmagent."""

    expected = (200, 204)
    panels = (
        Panel("Requests", "count", "rate", {"vm_http_requests_all_total": "all"}),
        Panel(
            "Values stored",
            "count",
            "rate",
            {
                "vm_rows_received_by_storage_total": "received",
                "vm_rows_ignored_total": "ignored",
                "vm_rows_invalid_total": "invalid",
            },
        ),
        Panel(
            "Series",
            "count",
            "rate",
            {"vm_new_timeseries_created_total": "new", "vm_slow_row_inserts_total": "slow inserts"},
        ),
        Panel("Bytes written", "bytes", "rate", {"vm_filestream_real_written_bytes_total": "files"}),
        Panel("Merges", "count", "rate", {"vm_merges_total": "done"}, explains_stalls=True),
        Panel("Merges at work", "count", "gauge", {"vm_active_merges": "at work"}, explains_stalls=True),
        Panel(
            "Memory, by the server's counters",
            "bytes",
            "gauge",
            {"process_resident_memory_bytes": "resident", "go_memstats_heap_inuse_bytes": "heap"},
            explains_stalls=True,
        ),
    )

    def __init__(
        self, of: VictoriaEndpoint, password: str | None, timeout_s: float, waiter: NewWaiter | None = None
    ) -> None:
        super().__init__(of, http.basic_login(of.user, password), timeout_s, waiter)
        self._database = of.path
        self._requests: dict[str, Request] = {}
        path = f"/write?{urlencode({'db': of.path, 'precision': 'ns'})}"
        self.writer = http.Writer(self._connection, of, path, self._headers, _write_refusal)
        # Without them answers would be kept in a cache, and end half a minute ago.
        self._every_query = [("nocache", "1"), ("latency_offset", "1ms"), ("extra_label", f"db={of.path}")]

    # --- administration

    @decoded("VictoriaMetrics")
    def execute(self, command: Command, timeout_s: float) -> None:
        """Execute an operation; VictoriaMetrics has no statements for administration."""
        if not isinstance(command, Flush | DeleteSeries | WaitForMerges):
            raise not_mine(command)
        self._flush(timeout_s)  # what is not visible would not be deleted
        match command:
            case DeleteSeries():
                self._post("/api/v1/admin/tsdb/delete_series", [("match[]", self._ours)], timeout_s)
            case WaitForMerges():
                self._newer_page(timeout_s)
                http.settle(self._merging, timeout_s, "VictoriaMetrics still compacts")

    @property
    def _ours(self) -> str:
        return f'{{db="{self._database}"}}'

    def ping(self, timeout_s: float) -> None:
        """Verify that the server answers queries."""
        self.series("/api/v1/query", [("query", "1")], timeout_s)

    def _flush(self, timeout_s: float | None = None) -> None:
        self._post("/internal/force_flush", [], timeout_s)

    def _merging(self, timeout_s: float) -> float:
        return answers.metrics(self.page(timeout_s))["vm_active_merges"]

    # --- queries

    @decoded("VictoriaMetrics")
    def query(self, statement: Statement, columns: tuple[str, ...]) -> Rows:
        if not statement.params:
            raise OpError(Outcome.FAILED, "statement", f"this is no query of VictoriaMetrics: {statement.text}")
        form, measurement, *more = statement.params
        if form in {"count", "stored"}:  # by which the checks compare with what was acknowledged
            self._flush()
        path, arguments = request_of(statement)
        if form == "newest":
            return Rows(columns, self._newest_buckets(arguments, columns, measurement, *more))
        return Rows(columns, list(answers.READERS[form](self.series(path, arguments), columns, measurement, *more)))

    def series(
        self, path: str, arguments: list[tuple[str, str]], timeout_s: float | None = None
    ) -> list[dict[str, Any]]:
        """Return the series of an answer."""
        body = self._post(path, [*arguments, *self._every_query], timeout_s).body
        if path.endswith("/export"):
            lines: list[dict[str, Any]] = orjson.loads(b"[" + body.strip().replace(b"\n", b",") + b"]")
            return lines
        document = orjson.loads(body)
        if document["status"] != "success":
            raise OpError(Outcome.FAILED, "statement", f"VictoriaMetrics: {document.get('error')}")
        answer: list[dict[str, Any]] = document["data"]["result"]
        return answer

    def _newest_buckets(
        self,
        arguments: list[tuple[str, str]],
        columns: tuple[str, ...],
        measurement: str,
        limit: int,
        size: int,
        start: int,
        whole: str,
        newest: str,
    ) -> list[tuple[Any, ...]]:
        """Return the newest buckets that have points, asking on from the newest older point where some have none."""
        buckets = list(
            answers.bucket_rows(self.series("/api/v1/query_range", arguments), columns, measurement, (), size)
        )
        while len(buckets) < limit:
            before = self.series("/api/v1/query", [("query", newest), ("time", f"{(start - 1) / 1_000:.3f}")])
            if not before:
                break
            last = round(float(before[0]["value"][1]) * 1_000) // size
            first = max(0, last - (limit - len(buckets)) + 1)
            due = [f"{((bucket + 1) * size - 1) / 1_000:.3f}" for bucket in (first, last)]
            times = [("start", due[0]), ("end", due[1]), ("step", f"{size}ms")]
            series = self.series("/api/v1/query_range", [("query", whole), *times])
            more = list(answers.bucket_rows(series, columns, measurement, (), size))
            if not more or first * size >= start:
                raise OpError(Outcome.UNKNOWN, "protocol", "VictoriaMetrics: no bucket holds the newest point")
            buckets, start = buckets + more, first * size
        return sorted(buckets, key=lambda row: -row[0])[:limit]

    # --- facts

    @decoded("VictoriaMetrics")
    def facts(self) -> Mapping[str, str]:
        return answers.facts(self.page())

    @decoded("VictoriaMetrics")
    def sizes(self, measurements: Sequence[Measurement]) -> Mapping[str, int]:
        return answers.sizes(self._newer_page(self._timeout_s))

    @decoded("VictoriaMetrics")
    def objects(self, measurements: Sequence[Measurement]) -> Sequence[ServerObject]:
        """Return our series as one object; nothing without series."""
        if not self._names():
            return ()
        return (ServerObject(f"series with db = {self._database}", (DeleteSeries(),)),)

    @decoded("VictoriaMetrics")
    def inventory(self, measurements: Sequence[Measurement], *, series: bool) -> Inventory:
        """Return metrics of no measurement that have points among ours; tags come with points, so no `series`."""
        prefixes = tuple(f"{m.name}_" for m in measurements)
        return Inventory(tuple(sorted(name for name in self._names() if not name.startswith(prefixes))))

    def _names(self) -> list[str]:
        """Return the names of our metrics."""
        self._flush()
        arguments = [("match[]", self._ours), ("start", "1"), *self._every_query]  # 0 is taken for none: today
        document = orjson.loads(self._post("/api/v1/label/__name__/values", arguments).body)
        return [str(name) for name in document["data"]]

    @decoded("VictoriaMetrics")
    def counters(self) -> Mapping[str, float]:
        """Return the server's counters, each the sum of all its kinds."""
        metrics = answers.metrics(self.page())
        if not metrics:
            raise OpError(Outcome.FAILED, "protocol", "VictoriaMetrics: no counters at /metrics")
        return metrics

    # --- requests

    def page(self, timeout_s: float | None = None) -> bytes:
        """Return the page of counters."""
        return self._post("/metrics", [], timeout_s).body

    def newer_pages(self, timeout_s: float) -> Iterator[bytes]:
        """Yield the pages of counters that are made from now on, one a second: only they know what was done before."""
        deadline, page = time.monotonic() + timeout_s, self.page(timeout_s)
        while (left_s := deadline - time.monotonic()) > 0:
            time.sleep(_EVERY_S)
            if page != (page := self.page(left_s)):
                yield page

    def _newer_page(self, timeout_s: float) -> bytes:
        return next(self.newer_pages(timeout_s), None) or self.page(timeout_s)

    def _post(self, path: str, form: list[tuple[str, str]], timeout_s: float | None = None) -> Response:
        """Send a form and return the response."""
        if path not in self._requests:
            self._requests[path] = self._request("POST", path, Content_Type="application/x-www-form-urlencoded")
        return self._send(self._requests[path], urlencode(form).encode(), timeout_s=timeout_s)

    def refused(self, response: Response) -> OpError:
        return _refusal(response)


def request_of(statement: Statement) -> tuple[str, list[tuple[str, str]]]:
    """Return the path of a statement, and its arguments by name."""
    path, *lines = statement.text.split("\n")
    return path, [(name, value) for name, _, value in (line.partition("=") for line in lines)]


# --- errors -----------------------------------------------------------------------------------------------------------


def _refusal(response: Response) -> OpError:
    """Return the error for the response to anything but a write."""
    text = http.error_text(response)
    outcome, cause = http.BY_STATUS.get(
        response.status, (Outcome.FAILED, "statement" if response.status < 500 else "server")
    )
    if response.status < 400:
        outcome, cause = Outcome.UNKNOWN, "protocol"
    elif re.search("timeout|too slow|maxQueryDuration", text):
        outcome, cause = Outcome.UNKNOWN, "timeout"
    elif re.search("not enough memory|maxMemoryPerQuery|max(?:SamplesPer|UniqueTimeseries)", text):
        cause = "resources"
    return OpError(outcome, cause, f"VictoriaMetrics: {response.status} {text}")


def _write_refusal(response: Response, points: int) -> OpError:
    """Return the error for a response that does not acknowledge a write.

    VictoriaMetrics reads a request in blocks, and stores each as it comes: a request of several points that is refused
    for what is in it, or for the server's state, may have left some behind.
    """
    error = _refusal(response)
    if response.status in {401, 403, 404, 405, 429} or (points == 1 and 400 <= response.status < 500):
        return OpError(Outcome.FAILED, "data" if error.cause == "statement" else error.cause, str(error))
    return OpError(Outcome.UNKNOWN, "data" if error.cause == "statement" else error.cause, str(error))


# --- endpoint ---------------------------------------------------------------------------------------------------------


class VictoriaEndpoint(HttpEndpoint):
    """An endpoint whose path is the value of the label `db`."""

    __slots__ = ()
    usual_port: ClassVar[int] = 8428

    @property
    def expire_after_s(self) -> int | None:
        retention = self.options.get("retention", "")
        return int(retention[:-1]) * _SECONDS[retention[-1]] if retention else None

    @property
    def replicas(self) -> int:
        """Number of nodes that store each point."""
        return int(self.options.get("replicas", "1"))

    @property
    def delivers_later(self) -> bool:
        """True of several nodes: vmagent acknowledges points."""
        return bool(self.nodes)


def parse(url: str, target: Target) -> VictoriaEndpoint:
    """Parse an endpoint."""
    endpoint = http.parse(url, target, VictoriaEndpoint)
    if not re.fullmatch(r"tsbench\w*", endpoint.path, re.ASCII):
        why = "tsbench deletes all series whose label db is the endpoint's path, which must be tsbench or begin so"
        raise UserMistake(f"'{endpoint.shown}': {why}; write {target.form}")
    if not re.fullmatch(r"(?:[1-9]\d{0,5}[hdwy])?", endpoint.options.get("retention", "")):
        raise UserMistake(f"retention={endpoint.options['retention']}: write the server's own, such as 30d or 1y")
    if not re.fullmatch(r"[1-9]\d?", endpoint.options.get("replicas", "1")):
        raise UserMistake(f"replicas={endpoint.options['replicas']}: write the number of nodes that store each point")
    return endpoint
