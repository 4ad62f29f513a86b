"""A server of several nodes, each a process of its own."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

from tsbench.servers import unprivileged
from tsbench.servers.base import Server
from tsbench.servers.managed import ManagedServer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

N = TypeVar("N", bound=ManagedServer)


def directories(directory: Path, nodes: int) -> list[Path]:
    """Return the directory of each node."""
    return [directory.absolute() / f"node-{number}" for number in range(1, nodes + 1)]


class Cluster(Server, Generic[N]):
    """The `nodes` of a server, numbered from 1, and by name the `fronts` before them, if any.

    Its files are in `directory`, those of a node in one of `directories`. `replicas` nodes store each point.
    """

    def __init__(
        self, directory: Path, nodes: Sequence[N], replicas: int, fronts: Mapping[str, ManagedServer] | None = None
    ) -> None:
        self._directory = directory.absolute()
        self._nodes, self._replicas, self._fronts = nodes, replicas, fronts or {}

    @property
    def acknowledged_by(self) -> str:
        """Who has a write when it is acknowledged, for readers of the report."""
        raise NotImplementedError

    def parts(self) -> Mapping[str, Server]:
        return {**{f"node {n}": node for n, node in enumerate(self._nodes, 1)}, **self._fronts}

    @property
    def _whole(self) -> Sequence[ManagedServer]:
        """All processes in the order in which they end."""
        return [*self._fronts.values(), *reversed(self._nodes)]

    def start(self) -> None:
        for server in reversed(self._whole):
            server.start()

    def stop(self) -> None:
        for server in self._whole:
            server.stop()

    def kill(self) -> None:
        for server in self._whole:
            server.kill()

    def remove(self) -> None:
        for server in self._whole:
            server.remove()
        unprivileged.remove(self._directory)

    def alive(self) -> bool:
        """Return True while all run, except those that were stopped or killed on purpose."""
        return any(node.alive() for node in self._nodes) and all(one.alive() or one.is_away for one in self._whole)

    def ended(self) -> str:
        endings = {name: server.ended() for name, server in self.parts().items()}
        return ", ".join(f"{name} {how}" for name, how in endings.items() if how)

    def pids(self) -> Sequence[int]:
        return [pid for server in self._whole for pid in server.pids()]

    def size(self) -> int:
        return sum(node.size() for node in self._nodes)

    def log(self) -> Path | None:
        """Return the path of one file with all logs, each line with the name of its process."""
        path = self._directory / "cluster.log"
        with suppress(OSError), path.open("wb") as whole:
            for name, server in self.parts().items():
                log = server.log()
                if log is not None and log.exists():
                    whole.writelines(name.encode() + b": " + line for line in log.read_bytes().splitlines(True))
        return path

    def settings(self) -> Mapping[str, str]:
        numbers = {"nodes": str(len(self._nodes)), "replicas": str(self._replicas)}
        of_all = {"acknowledged by": self.acknowledged_by, "data_directory": str(self._directory)}
        return {**self._nodes[0].settings(), **numbers, **of_all}
