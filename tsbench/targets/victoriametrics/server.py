"""VictoriaMetrics as a local process, or as several that vmagent writes to.

The programs are `victoria-metrics` and `vmagent` in `$TSBENCH_SERVERS/bin` (without that variable in
`~/.cache/tsbench-servers/bin`), or on PATH; `tsbench servers install` installs them. They listen on 127.0.0.1 only,
without log-ins: their data is simulated.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar

from tsbench.errors import UserMistake
from tsbench.servers.cluster import Cluster, directories
from tsbench.servers.programs import cached_program, not_installed
from tsbench.targets.local import LocalHttpServer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tsbench.servers.cgroup import Group

_OURS = ("storageDataPath", "httpListenAddr", "httpListenAddr.useProxyProtocol", "http.pathPrefix", "tls")


class VictoriaServer(LocalHttpServer):
    """A single node. Settings are its flags without the dashes (`inmemoryDataFlushInterval`)."""

    product = "VictoriaMetrics"
    log_name = "victoriametrics.log"
    health = "/health"
    # Simulated data may be of any year, and is deleted after a month by default. A long query ends at our limits.
    defaults: ClassVar = {"retentionPeriod": "100y", "search.maxQueryDuration": "1h"}

    def _program(self) -> Path:
        for name in _OURS:
            if name in self._settings:
                raise UserMistake(f"settings: {name} is set by tsbench")
        program = cached_program("victoria-metrics")
        if program is None:
            raise not_installed("VictoriaMetrics", "victoria-metrics")
        return program

    def _command(self, program: Path) -> tuple[list[str], Mapping[str, str]]:
        flags = {**self.configured, "storageDataPath": "data", "httpListenAddr": self.address}
        return [str(program), *(f"-{name}={value}" for name, value in flags.items())], {"PWD": os.fspath(self.place)}


# --- several nodes ----------------------------------------------------------------------------------------------------


class VictoriaAgent(LocalHttpServer):
    """The vmagent that spreads points over the nodes at `addresses`, which is set before it starts."""

    product = "vmagent"
    log_name = "vmagent.log"
    health = "/health"
    addresses: Sequence[str] = ()

    def _program(self) -> Path:
        program = cached_program("vmagent")
        if program is None:
            raise UserMistake("vmagent is not installed, which several nodes need; run tsbench servers install vmagent")
        return program

    def _command(self, program: Path) -> tuple[list[str], Mapping[str, str]]:
        flags = {
            "httpListenAddr": self.address,
            "remoteWrite.tmpDataPath": "data",
            "remoteWrite.flushInterval": "100ms",
            # A node that comes back is written to within a second, not within a minute.
            "remoteWrite.retryMinInterval": "100ms",
            "remoteWrite.retryMaxInterval": "1s",
            **self._settings,
        }
        urls = [f"-remoteWrite.url=http://{address}/api/v1/write" for address in self.addresses]
        return [str(program), *urls, *(f"-{name}={value}" for name, value in flags.items())], {}


class VictoriaCluster(Cluster[VictoriaServer]):
    """Single nodes behind vmagent, which acknowledges points, and sends each to `replicas` of the nodes.

    All fields of a point go to the same nodes: its series are spread by their labels without the metric's name. vmagent
    is stopped first, which keeps on disk what it has not delivered.
    """

    def __init__(
        self, directory: Path, settings: Mapping[str, str], group: Group | None, *, nodes: int, replicas: int
    ) -> None:
        shards = {"shardByURL": "true", "shardByURLReplicas": str(replicas), "shardByURL.ignoreLabels": "__name__"}
        flags = {f"remoteWrite.{name}": value for name, value in shards.items()}
        self._agent = VictoriaAgent(directory / "vmagent", flags, group)
        servers = [VictoriaServer(place, settings, group) for place in directories(directory, nodes)]
        super().__init__(directory, servers, replicas, {self._agent.product: self._agent})

    @property
    def endpoint(self) -> str:
        nodes = ",".join(node.address for node in self._nodes)
        return f"{self._agent.endpoint}?nodes={nodes}&replicas={self._replicas}"

    @property
    def acknowledged_by(self) -> str:
        return f"vmagent, which delivers each point later to {self._replicas} of {len(self._nodes)} nodes"

    def start(self) -> None:
        for node in self._nodes:
            node.start()
        self._agent.addresses = [node.address for node in self._nodes]
        self._agent.start()

    def settings(self) -> Mapping[str, str]:
        return {**self._agent.settings(), **super().settings()}
