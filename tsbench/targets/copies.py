"""The nodes that answer among several that do not ask each other, and what their answers come to."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tsbench.model import OpError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Pinged(Protocol):
    """A session with one node."""

    def ping(self, timeout_s: float) -> None:
        """Verify that the node answers."""
        ...


S = TypeVar("S", bound=Pinged)


def present(nodes: Mapping[int, S], replicas: int, timeout_s: float) -> dict[int, S]:
    """Return the nodes that answer, by number, if copies make up for those that do not.

    Raises
    ------
    tsbench.model.OpError
        If nobody listens at as many nodes as there are copies, or a node does not answer otherwise.
    """
    found, away = {}, []
    for number, node in nodes.items():
        try:
            node.ping(timeout_s)
            found[number] = node
        except OpError as error:
            away.append(f"node {number}: {error}")
            if error.cause not in {"refused", "connection"} or len(away) >= replicas:
                raise OpError(error.outcome, error.cause, "; ".join(away)) from error
    return found


def newest(answers: Sequence[Sequence[tuple[Any, ...]]], *, keyed: bool) -> list[tuple[Any, ...]]:
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
