"""A session with several nodes of VictoriaMetrics: vmagent takes the writes, and the nodes are asked one by one.

Single nodes do not ask each other. What all of them answer is merged here: copies of a point count once, and points of
one time that differ are both kept, so that whoever compares them finds the difference. vmagent acknowledges a write
before it delivers it: whatever must see all writes waits until it has delivered them. A node that does not answer is
left out as long as others have copies of its points.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from tsbench.model import OpError, Outcome, Rows
from tsbench.results.panels import Panel
from tsbench.targets import http
from tsbench.targets.base import Inventory
from tsbench.targets.session import CommandSession, decoded
from tsbench.targets.victoriametrics import answers
from tsbench.targets.victoriametrics.schemas import Flush, export_of_counted
from tsbench.targets.victoriametrics.session import VictoriaSession, request_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tsbench.model import Measurement
    from tsbench.net.tcp import NewWaiter
    from tsbench.targets.base import Command, Payload, ServerObject, Statement
    from tsbench.targets.victoriametrics.session import VictoriaEndpoint

T = TypeVar("T")
_CALM, _LONG_CALM = 2, 10
"""Seconds for which nodes that answer must have taken no block, so that those that wait are for nodes that are away.

A block that is on its way to a slow node shows nowhere but in the rows that the node has not taken: as long as it has
taken fewer than vmagent made for it, the longer time is waited. (One that was restarted counts from zero.)
"""
_SAME_S = 3.0
"""Seconds in which several counts of one check need not wait again."""
_WAITING = "vmagent_remotewrite_pending_data_bytes"
_TAKEN = "vm_rows_inserted_total"


class ClusterSession(CommandSession):
    """A connection to vmagent, and one to each node, by number from 1, that is opened when the node is first asked.

    A node that does not answer is left out as long as others have copies of its points.
    """

    panels = (
        *VictoriaSession.panels,
        Panel("Waiting in vmagent", "bytes", "gauge", {_WAITING: "not delivered"}, explains_stalls=True),
    )

    def __init__(
        self, of: VictoriaEndpoint, password: str | None, timeout_s: float, waiter: NewWaiter | None = None
    ) -> None:
        alone = {name: value for name, value in of.options.items() if name not in {"nodes", "replicas"}}
        super().__init__(timeout_s)
        self._replicas = of.replicas
        self._nodes = {
            number: VictoriaSession(replace(of, host=host, port=port, options=alone), password, timeout_s, waiter)
            for number, (host, port) in enumerate(of.nodes, 1)
        }
        self._agent = VictoriaSession(of, password, timeout_s, waiter)
        self.arrival = self._agent.arrival
        self._delivered_s = -math.inf
        """When all that was acknowledged was last found delivered."""

    def ping(self, timeout_s: float) -> None:
        """Verify that vmagent answers."""
        self._agent.page(timeout_s)

    def write(self, payload: Payload) -> int:
        """Send the payload's bytes; they are acknowledged by vmagent, and delivered some time later."""
        self._delivered_s = -math.inf
        return self._agent.write(payload)

    def _present(self, spare: int | None = None, timeout_s: float | None = None) -> dict[int, VictoriaSession]:
        """Return the nodes that answer, by number, if copies make up for those that do not.

        Fewer than `spare` may be away, by default fewer than there are copies.

        Raises
        ------
        tsbench.model.OpError
            If nobody listens at more nodes, or a node does not answer otherwise.
        """
        most = self._replicas if spare is None else spare
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        answering, away = {}, []
        for number, node in self._nodes.items():
            try:
                node.ping(limit_s)
                answering[number] = node
            except OpError as error:
                away.append(f"node {number}: {error}")
                if error.cause not in {"refused", "connection"} or len(away) >= most:
                    raise OpError(error.outcome, error.cause, "; ".join(away)) from error
        return answering

    def _of_each(self, ask: Callable[[VictoriaSession], T]) -> dict[int, T]:
        """Return what the nodes that answer are asked, by their numbers."""
        return {number: ask(node) for number, node in self._present().items()}

    # --- administration

    @decoded("VictoriaMetrics")
    def execute(self, command: Command, timeout_s: float) -> None:
        """Execute an operation on every node, after all acknowledged points are delivered."""
        for node in self._delivered(timeout_s).values():
            node.run([command], timeout_s=timeout_s)

    def deliver(self, timeout_s: float) -> None:
        self.run([Flush()], timeout_s=timeout_s)

    def _complete(self) -> dict[int, VictoriaSession]:
        return self._delivered(self._timeout_s)

    def _delivered(self, limit_s: float) -> dict[int, VictoriaSession]:
        """Wait until vmagent has delivered what it acknowledged, and return the nodes that answer.

        What it cannot deliver, because a node is away, stays in its queue.
        """
        self._delivered_s = -math.inf
        nodes = self._present()
        queue, before, calm = Queue(), None, 0
        for page in self._agent.newer_pages(limit_s):
            queue = Queue.of(page)
            if not queue.is_flushed or any(queue.bytes_for(number) for number in nodes):
                continue
            if not queue.undelivered:
                self._delivered_s = time.monotonic()
                return nodes
            sent = [queue.sent.get(number, 0) for number in nodes]
            calm, before = (calm + 1 if sent == before else 0), sent
            if len(nodes) == len(self._nodes) or calm < _CALM:
                continue
            if calm >= _LONG_CALM or _have_taken(nodes, queue):
                return nodes
        text = f"vmagent has not delivered all points after {limit_s:g} s ({queue.undelivered:,} blocks wait)"
        raise OpError(Outcome.UNKNOWN, "timeout", f"VictoriaMetrics: {text}")

    # --- queries

    @decoded("VictoriaMetrics")
    def query(self, statement: Statement, columns: tuple[str, ...]) -> Rows:
        form, measurement, *more = statement.params or ("",)
        if form not in {"count", "stored", "rows", "latest"}:
            text = "several nodes of VictoriaMetrics do not ask each other, so that they have no aggregates"
            raise OpError(Outcome.FAILED, "unsupported", text)
        # Checks begin with counts, by which they compare with what was acknowledged, when nobody writes any more.
        waits = form == "count" and time.monotonic() - self._delivered_s > _SAME_S
        nodes = self._complete() if waits else self._present()
        if form in {"count", "stored"}:
            for node in nodes.values():
                node.run([Flush()])
        if form == "latest":
            found_by_node = [node.query(statement, columns).records for node in nodes.values()]
            return Rows(columns, _newest(found_by_node, keyed=bool(more[0])))
        asked = export_of_counted(statement) if form == "count" else statement
        series = merged([node.series(*request_of(asked)) for node in nodes.values()])
        if form == "count":
            return Rows(columns, [(sum(len(one["timestamps"]) for one in series),)])
        return Rows(columns, list(answers.READERS[form](series, columns, measurement, *more)))

    # --- facts

    def facts(self) -> Mapping[str, str]:
        """Return the facts of the first node that answers."""
        with decoded("VictoriaMetrics"):
            return next(iter(self._present().values())).facts()

    def inventory(self, measurements: Sequence[Measurement], *, series: bool) -> Inventory:
        with decoded("VictoriaMetrics"):
            tables = [node.inventory(measurements, series=series).tables for node in self._complete().values()]
            return Inventory(tuple(sorted({*chain.from_iterable(tables)})))

    def sizes(self, measurements: Sequence[Measurement]) -> Mapping[str, int]:
        """Return the bytes of each node by part, and those that wait in vmagent."""
        with decoded("VictoriaMetrics"):
            by_node = self._of_each(lambda node: node.sizes(measurements))
        parts = {f"node {number} {part}": size for number, sizes in by_node.items() for part, size in sizes.items()}
        waiting = self._waiting()
        return {**parts, "waiting in vmagent": waiting} if waiting else parts

    @decoded("VictoriaMetrics")
    def objects(self, measurements: Sequence[Measurement]) -> Sequence[ServerObject]:
        return next((there for node in self._complete().values() if (there := node.objects(measurements))), ())

    def counters(self) -> Mapping[str, float]:
        """Return the counters of all nodes together, and the bytes that wait in vmagent."""
        total = Counter[str]()
        with decoded("VictoriaMetrics"):
            for values in self._of_each(lambda node: node.counters()).values():
                total.update(values)
        return {**total, _WAITING: self._waiting()}

    @decoded("VictoriaMetrics")
    def _waiting(self) -> int:
        return sum(Queue.of(self._agent.page()).pending.values())

    def close(self) -> None:
        self._agent.close()
        for node in self._nodes.values():
            node.close()


# --- vmagent's queue --------------------------------------------------------------------------------------------------

_FIGURE = re.compile(
    rb'^vmagent_remotewrite_(\w+)(?:\{(?:[^}\n]*[{,\s])?url="(\d+):[^"\n]*"\})? ([0-9.e+]+)$', re.MULTILINE
)


def _newest(answers: Sequence[Sequence[tuple[Any, ...]]], *, keyed: bool) -> list[tuple[Any, ...]]:
    """Return the newest row of each series among those of several nodes; rows of one time that differ are all kept."""
    rows: dict[Any, dict[tuple[Any, ...], None]] = {}
    for row in chain.from_iterable(answers):
        series = row[1] if keyed else None
        kept = rows.setdefault(series, {})
        last = next(iter(kept), row)[0]
        if row[0] > last:
            rows[series] = {row: None}
        elif row[0] == last:
            kept[row] = None
    return [row for kept in rows.values() for row in kept]


@dataclass(frozen=True, slots=True)
class Queue:
    """The points that vmagent has acknowledged and not delivered; nodes are numbered from 1.

    vmagent makes its page of counters once a second. Points wait up to a second before they are in a block;
    `is_flushed` says that all are. `pending` are the bytes of blocks that wait for a node, `sent` the blocks that it
    has taken. A block that is being sent is in neither; it is one of the `undelivered` ones. `made` are the rows, one
    for each value, of all blocks for a node.
    """

    is_flushed: bool = False
    undelivered: int = 0
    pending: Mapping[int, int] = field(default_factory=dict)
    sent: Mapping[int, int] = field(default_factory=dict)
    made: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, page: bytes) -> Queue:
        """Return the queue that a page of vmagent's counters shows."""
        totals: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        for name, number, value in _FIGURE.findall(page):
            totals[name.decode()][int(number or 0)] += int(float(value))
        total = {name: sum(values.values()) for name, values in totals.items()}
        blocks = total.get("block_size_rows_count", 0)
        return cls(
            is_flushed=total.get("rows_pushed_after_relabel_total", 0) <= total.get("block_size_rows_sum", 0),
            undelivered=max(0, blocks - total.get("blocks_sent_total", 0) - total.get("packets_dropped_total", 0)),
            pending=totals["pending_data_bytes"],
            sent=totals["blocks_sent_total"],
            made=totals["rows_pushed_after_relabel_total"],
        )

    def bytes_for(self, number: int) -> int:
        """Return the bytes that wait for a node."""
        return self.pending.get(number, 0)


def _have_taken(nodes: Mapping[int, VictoriaSession], queue: Queue) -> bool:
    """Return True if every node has taken at least the rows that vmagent made for it since it was started."""
    return all(node.counters().get(_TAKEN, 0) >= queue.made.get(number, 0) for number, node in nodes.items())


# --- merging ----------------------------------------------------------------------------------------------------------


def merged(exports: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the series of several nodes' exports, each once, with each pair of time and value once."""
    parts: dict[tuple[tuple[str, str], ...], list[tuple[list[int], list[Any]]]] = defaultdict(list)
    for export in exports:
        own: dict[tuple[tuple[str, str], ...], tuple[list[int], list[Any]]] = {}
        for line in export:  # several of one series are parts of it
            times, values = own.setdefault(tuple(sorted(line["metric"].items())), ([], []))
            times.extend(line["timestamps"])
            values.extend(line["values"])
        for labels, points in own.items():
            parts[labels].append(points)
    points_ofs = []
    for labels, points_of in parts.items():
        times, values = points_of[0]
        if any(points != points_of[0] for points in points_of) or len({*times}) < len(times):
            pairs = {pair: None for points in points_of for pair in zip(*points, strict=True)}
            ordered = sorted(pairs, key=lambda pair: pair[0])
            times, values = [pair[0] for pair in ordered], [pair[1] for pair in ordered]
        points_ofs.append({"metric": dict(labels), "timestamps": times, "values": values})
    return points_ofs


# --- opening ----------------------------------------------------------------------------------------------------------


def _new(
    of: VictoriaEndpoint, password: str | None, timeout_s: float, waiter: NewWaiter | None
) -> VictoriaSession | ClusterSession:
    return (ClusterSession if of.nodes else VictoriaSession)(of, password, timeout_s, waiter)


connect = http.opener(_new)
