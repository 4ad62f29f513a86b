"""Sessions with several nodes that do not ask each other, and what the nodes' answers come to."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from tsbench.model import OpError
from tsbench.targets.base import Inventory
from tsbench.targets.http import HttpSession
from tsbench.targets.session import CommandSession, decoded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tsbench.model import Measurement

S = TypeVar("S", bound=HttpSession)
T = TypeVar("T")


class NodesSession(CommandSession, Generic[S]):
    """Base of sessions with several nodes by number, from 1, of which `replicas` have each point.

    A node that does not answer is left out as long as others have copies of its points.
    """

    product: ClassVar[str]

    def __init__(self, nodes: Mapping[int, S], replicas: int, timeout_s: float) -> None:
        super().__init__(timeout_s)
        self._nodes, self._replicas = nodes, replicas

    def _present(self, spare: int | None = None, timeout_s: float | None = None) -> dict[int, S]:
        """Return the nodes that answer, by number, if copies make up for those that do not.

        Fewer than `spare` may be away, by default fewer than there are copies.

        Raises
        ------
        tsbench.model.OpError
            If nobody listens at more nodes, or a node does not answer otherwise.
        """
        most = self._replicas if spare is None else spare
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        found, away = {}, []
        for number, node in self._nodes.items():
            try:
                node.ping(limit_s)
                found[number] = node
            except OpError as error:
                away.append(f"node {number}: {error}")
                if error.cause not in {"refused", "connection"} or len(away) >= most:
                    raise OpError(error.outcome, error.cause, "; ".join(away)) from error
        return found

    def _complete(self) -> dict[int, S]:
        """Return the nodes that answer, when they have all that was acknowledged."""
        return self._present()

    def _of_each(self, ask: Callable[[S], T]) -> dict[int, T]:
        """Return what the nodes that answer are asked, by their numbers."""
        return {number: ask(node) for number, node in self._present().items()}

    def facts(self) -> Mapping[str, str]:
        """Return the facts of the first node that answers."""
        with decoded(self.product):
            return next(iter(self._present().values())).facts()

    def sizes(self, measurements: Sequence[Measurement]) -> Mapping[str, int]:
        """Return the bytes of each node by part."""
        with decoded(self.product):
            found = self._of_each(lambda node: node.sizes(measurements))
            return {f"node {number} {part}": size for number, parts in found.items() for part, size in parts.items()}

    def inventory(self, measurements: Sequence[Measurement], *, series: bool) -> Inventory:
        with decoded(self.product):
            found = [node.inventory(measurements, series=series).tables for node in self._complete().values()]
            return Inventory(tuple(sorted({*chain.from_iterable(found)})))

    def counters(self) -> Mapping[str, float]:
        """Return the counters of all nodes together."""
        total = Counter[str]()
        with decoded(self.product):
            for found in self._of_each(lambda node: node.counters()).values():
                total.update(found)
        return total

    def close(self) -> None:
        for node in self._nodes.values():
            node.close()


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
