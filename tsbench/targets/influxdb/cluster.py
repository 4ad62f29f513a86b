"""A session with several nodes of InfluxDB 1.x that know nothing of each other: the client makes the copies.

Each series is written to as many nodes as the endpoint has `replicas`, which `placement` chooses. A point is
acknowledged when each of its nodes has acknowledged it; one that some of them refused, or did not answer for, may be
stored on the others, so that nobody knows of it. What all nodes answer is merged here: a point that its nodes hold
alike counts once, and where they hold it differently each of its forms is kept and the answer has a note that names the
nodes. A node that does not answer is left out as long as others have copies of its points. This is not what InfluxDB
Enterprise does, whose nodes pass points and questions on to each other.
"""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from tsbench.model import OTHERS, Count, OpError, Outcome, PartialWrite, Rows
from tsbench.net.stamps import LastArrival
from tsbench.targets import copies, http
from tsbench.targets.base import ServerObject, Statement, Unsupported
from tsbench.targets.copies import NodesSession
from tsbench.targets.influxdb import counters
from tsbench.targets.influxdb.placement import acknowledged_by, placement
from tsbench.targets.influxdb.v1 import Influx1Session, NewestRows, PointCount
from tsbench.targets.session import decoded
from tsbench.units import format_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tsbench.model import Measurement
    from tsbench.net.http import Sent
    from tsbench.net.tcp import NewWaiter
    from tsbench.targets.base import Command, Payload
    from tsbench.targets.influxdb.endpoint import Influx1Endpoint
    from tsbench.targets.influxdb.placement import Numbers

T = TypeVar("T")
_BRIEFEST_S = 0.001


class ClusterSession(NodesSession[Influx1Session]):
    """One connection to each node; a write is sent to all its nodes before any answer is waited for."""

    product = "InfluxDB"
    panels = counters.VARS_PANELS

    def __init__(
        self, of: Influx1Endpoint, password: str | None, timeout_s: float, waiter: NewWaiter | None = None
    ) -> None:
        nodes = {
            number: Influx1Session(replace(of, host=at.host, port=at.port, places=()), password, timeout_s, waiter)
            for number, at in enumerate(of.places, 1)
        }
        super().__init__(nodes, of.replicas, timeout_s)
        self._placement = placement(len(nodes), of.replicas)
        self.arrival = LastArrival([node.arrival for node in nodes.values()])

    def ping(self, timeout_s: float) -> None:
        """Verify that the nodes accept our credentials, as many as must answer."""
        self._present(timeout_s=timeout_s)

    # --- writing

    def write(self, payload: Payload) -> int:
        """Send each point to its nodes; it is acknowledged when all of them have."""
        shares = self._placement.spread(payload.data, payload.points)
        errors = self._sent(shares)
        if not errors:
            return payload.points
        acknowledged = refused = 0
        for numbers, (_, points) in shares.items():
            found = [errors.get(number) for number in numbers]
            first = found[0]
            if found.count(None) == len(found):
                acknowledged += points
            elif all(error is not None and error.outcome is Outcome.FAILED for error in found):
                refused += points
            elif isinstance(first, PartialWrite) and len(shares) == 1 and len({_part(error) for error in found}) == 1:
                acknowledged, refused = first.acknowledged, first.refused  # all say the same of the same points
        raise _error(errors, payload.points, acknowledged, refused)

    def _sent(self, shares: Mapping[Numbers, tuple[bytes | memoryview, int]]) -> dict[int, OpError]:
        """Send shares to their nodes, wait for all answers, and return the errors of the nodes that had one."""
        waiting: dict[int, tuple[Sent, int]] = {}
        errors: dict[int, OpError] = {}
        deadline = time.monotonic() + self._timeout_s
        try:
            for number, node in self._nodes.items():
                own = [share for numbers, share in shares.items() if number in numbers]
                if not own:
                    continue
                lines = own[0][0] if len(own) == 1 else b"\n".join(bytes(lines) for lines, _ in own)
                left_s = max(_BRIEFEST_S, deadline - time.monotonic())
                try:
                    waiting[number] = node.writer.put(lines, left_s), sum(points for _, points in own)
                except OpError as error:
                    errors[number] = error
            for number in [*waiting]:
                try:
                    self._nodes[number].writer.acknowledged(*waiting[number])
                except OpError as error:
                    errors[number] = error
                del waiting[number]
        finally:  # a greenlet may be killed while it waits: the next write would read these answers
            for number in waiting:
                self._nodes[number].close()
        return errors

    # --- administration

    @decoded("InfluxDB")
    def execute(self, command: Command, timeout_s: float) -> None:
        """Execute a statement on all nodes, if all answer, and what waits on those that do."""
        spare = 1 if isinstance(command, Statement) else None
        for number, node in self._present(spare, timeout_s).items():
            try:
                node.run([command], timeout_s=timeout_s)
            except OpError as error:
                raise OpError(error.outcome, error.cause, f"node {number}: {error}") from error

    # --- queries

    @decoded("InfluxDB")
    def query(self, statement: Statement, columns: tuple[str, ...]) -> Rows:
        if isinstance(statement, PointCount):
            return self._count(statement)
        if columns[-1] == OTHERS:
            return self._stored(statement, columns)
        if isinstance(statement, NewestRows):
            found = self._of_each(lambda node: node.query(statement, columns).records)
            return Rows(columns, copies.newest([*found.values()], keyed=statement.keyed))
        text = "several nodes of InfluxDB 1.x do not ask each other, so that they answer no queries as one"
        raise OpError(Outcome.FAILED, "unsupported", text)

    def ask(self, text: str) -> Rows:
        raise Unsupported("several nodes of InfluxDB 1.x do not ask each other")

    def _expected(self, measurement: str, tags: Mapping[str, str], nodes: Mapping[int, object]) -> list[int]:
        """Return those of the `nodes` that must hold a series."""
        return [number for number in self._placement.of_tags(measurement, tags) if number in nodes]

    def _count(self, statement: PointCount) -> Rows:
        """Return the number of points of which every copy is stored."""
        found = self._of_each(lambda node: node.series(statement.by_series))
        counts: dict[tuple[str, tuple[tuple[str, str], ...]], dict[int, int]] = defaultdict(dict)
        for number, series in found.items():
            for one in series:
                first, *rest = (value or 0 for value in one["values"][0][1:])  # none of a field that no point has
                points = first + rest[0] - rest[1] if rest else first
                counts[one["name"], tuple(sorted(one.get("tags", {}).items()))][number] = points
        total, lacking = 0, Counter[int]()
        for (name, tags), by_node in counts.items():
            held = {number: by_node.get(number, 0) for number in self._expected(name, dict(tags), found)}
            total += min(held.values(), default=0)
            most = max(held.values(), default=0)
            lacking.update({number: most - count for number, count in held.items() if count < most})
        notes = [f"node {number} lacks {lacking[number]:,} points that others hold" for number in sorted(lacking)]
        return Rows(Count.columns, [(total,)], tuple(notes))

    def _stored(self, statement: Statement, columns: tuple[str, ...]) -> Rows:
        """Return the stored rows of all nodes, copies that are alike once, with a note of those that are not."""
        found = self._of_each(lambda node: node.query(statement, columns).records)
        held: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        for number, records in found.items():
            for row in records:
                held[row].append(number)
        limit = re.search(r"\bLIMIT (\d+)$", statement.text)
        if limit is not None:  # nodes that answer with the first rows only may each have others
            return Rows(columns, sorted(held, key=lambda row: row[0])[: int(limit[1])])
        wanted = self._replicas if len(found) == len(self._nodes) else 1
        return Rows(columns, [*held], differing(held, columns, len(statement.params), wanted))

    # --- facts

    def facts(self) -> Mapping[str, str]:
        """Return the facts of the first node that answers, and who acknowledges."""
        nodes, replicas = self._placement.nodes, self._placement.replicas
        by = acknowledged_by(nodes, replicas)
        return {**super().facts(), "nodes": str(nodes), "replicas": str(replicas), "acknowledged by": by}

    @decoded("InfluxDB")
    def objects(self, measurements: Sequence[Measurement]) -> Sequence[ServerObject]:
        """Return the objects that any node has; a container holds what the fullest one does."""
        found: dict[str, ServerObject] = {}
        for objects in self._of_each(lambda node: node.objects(measurements)).values():
            for one in objects:
                known = found.setdefault(one.name, one)
                if (one.holds or 0) > (known.holds or 0):
                    found[one.name] = one
        return sorted(found.values(), key=lambda one: one.holds is not None)


def _part(error: OpError | None) -> tuple[int, int] | None:
    return (error.acknowledged, error.refused) if isinstance(error, PartialWrite) else None


def _error(errors: Mapping[int, OpError], points: int, acknowledged: int, refused: int) -> OpError:
    """Return the error of a write that some nodes have not acknowledged; nobody knows of the rest of its points."""
    text = "; ".join(f"node {number}: {errors[number]}" for number in sorted(errors))
    cause = errors[min(errors)].cause
    if refused == points:
        return OpError(Outcome.FAILED, cause, text)
    if not acknowledged and not refused:
        return OpError(Outcome.UNKNOWN, cause, text)
    return PartialWrite(text, acknowledged=acknowledged, refused=refused, cause=cause)


# --- merging ----------------------------------------------------------------------------------------------------------


def differing(
    held: Mapping[tuple[Any, ...], Sequence[int]], columns: tuple[str, ...], tags: int, wanted: int
) -> tuple[str, ...]:
    """Return remarks on copies that differ, and on points that fewer than the `wanted` nodes hold.

    Rows begin with their time and as many `tags`, which identify a point.
    """
    points: dict[tuple[Any, ...], dict[tuple[Any, ...], Sequence[int]]] = defaultdict(dict)
    for row, numbers in held.items():
        points[row[: 1 + tags]][row] = numbers
    differ = [(point, forms) for point, forms in points.items() if len(forms) > 1]
    fewer = [(point, forms) for point, forms in points.items() if sum(map(len, forms.values())) < wanted]
    notes = []
    if differ:
        point, forms = differ[0]
        places = [at for at in range(len(columns)) if len({row[at] for row in forms}) > 1]
        said = (
            f"{_nodes(numbers)} {'have' if len(numbers) > 1 else 'has'} "
            + ", ".join(f"{columns[at]}={row[at]}" for at in places)
            for row, numbers in forms.items()
        )
        notes.append(f"{len(differ):,} x copies that differ, first {_named(point)}: {', '.join(said)}")
    if fewer:
        point, forms = fewer[0]
        (numbers,) = forms.values()
        notes.append(f"{len(fewer):,} x copy that is missing, first {_named(point)}: only {_nodes(numbers)} has it")
    return tuple(notes)


def _nodes(numbers: Sequence[int]) -> str:
    return " and ".join(f"node {number}" for number in numbers)


def _named(point: tuple[Any, ...]) -> str:
    return " ".join([*map(str, point[1:2]), "at", format_time(point[0])])


# --- opening ----------------------------------------------------------------------------------------------------------


def _new(
    of: Influx1Endpoint, password: str | None, timeout_s: float, waiter: NewWaiter | None
) -> Influx1Session | ClusterSession:
    return (ClusterSession if of.places else Influx1Session)(of, password, timeout_s, waiter)


connect = http.opener(_new)
