"""The nodes that get a series: a stable hash of its name and tags, and of the nodes' numbers, says which."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Numbers = tuple[int, ...]
"""The numbers of some nodes, from 1, ascending."""
_HEAD = re.compile(rb"(?:\\.|[^ \\])*")
_COMMA = re.compile(rb"(?<!\\),")
_MOST = 200_000
"""Heads of lines whose nodes are remembered; hashing takes ten times as long as looking them up."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A number of `nodes`, of which `replicas` get each series: those whose hashes with it are highest.

    So series are spread evenly, and every process finds the same nodes.
    """

    nodes: int
    replicas: int
    _known: dict[bytes, Numbers] = field(default_factory=dict, compare=False)

    @property
    def everywhere(self) -> Numbers:
        """The numbers of all nodes."""
        return tuple(range(1, self.nodes + 1))

    def of_tags(self, measurement: str, tags: Mapping[str, str]) -> Numbers:
        """Return the nodes of the series with these tags; an empty one is a missing one."""
        return self._of([measurement.encode(), *(f"{name}={tag}".encode() for name, tag in tags.items() if tag)])

    def of_line(self, line: bytes) -> Numbers:
        """Return the nodes of a line of line protocol."""
        head = line.partition(b" ")[0]
        if head.endswith(b"\\"):  # the space is a tag's
            head = _HEAD.match(line)[0]  # type: ignore[index]
        found = self._known.get(head)
        if found is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            found = self._known[head] = self._of(_COMMA.split(head))
        return found

    def _of(self, parts: Iterable[bytes]) -> Numbers:
        series = b",".join(sorted(part.replace(b"\\", b"") for part in parts))  # in lines some characters are escaped
        ranked = sorted(self.everywhere, key=lambda number: blake2b(b"%d,%s" % (number, series)).digest())
        return tuple(sorted(ranked[-self.replicas :]))

    def spread(self, lines: bytes | memoryview, points: int) -> dict[Numbers, tuple[bytes | memoryview, int]]:
        """Return lines by the nodes that get them, each time with the number of points."""
        if self.replicas == self.nodes:
            return {self.everywhere: (lines, points)}
        found: dict[Numbers, list[bytes]] = defaultdict(list)
        for line in bytes(lines).split(b"\n"):
            if line:
                found[self.of_line(line)].append(line)
        return {numbers: (b"\n".join(some), len(some)) for numbers, some in found.items()}


@cache
def placement(nodes: int, replicas: int) -> Placement:
    """Return the placement for a number of nodes, one for all sessions of the process: it remembers series."""
    return Placement(nodes, replicas)


def acknowledged_by(nodes: int, replicas: int) -> str:
    """Return who has a point when it is acknowledged, for readers of the report."""
    who = "the one node" if replicas == 1 else f"each of the {replicas} nodes"
    what = "the series are shared out" if replicas == 1 else "the copies are made"
    return f"{who} (of {nodes}) that it was sent to; {what} by the client, not by a cluster of InfluxDB Enterprise"
