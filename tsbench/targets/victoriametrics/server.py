"""VictoriaMetrics as a local process, or as several that vmagent writes to.

The programs are `victoria-metrics` and `vmagent` in `$TSBENCH_SERVERS/bin` (without that variable in
`~/.cache/tsbench-servers/bin`), or on PATH; `tsbench servers install` installs them. They listen on 127.0.0.1 only,
without log-ins: their data is simulated.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tsbench.errors import UserMistake
from tsbench.servers.cluster import Cluster, directories
from tsbench.servers.managed import HttpServer
from tsbench.servers.programs import cached_program, not_installed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tsbench.servers.cgroup import Group

_OURS = ("storageDataPath", "httpListenAddr", "httpListenAddr.useProxyProtocol", "http.pathPrefix", "tls")


class VictoriaServer(HttpServer):
    """A single node. Settings are its flags without the dashes (`inmemoryDataFlushInterval`)."""

    product = "VictoriaMetrics"
    log_name = "victoriametrics.log"

    @property
    def endpoint(self) -> str:
        """URL with the name of the data; it has a port after the first start."""
        return f"http://127.0.0.1:{self._port}/tsbench"

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._port}"

    def settings(self) -> Mapping[str, str]:
        """Return the settings by tsbench; the others are the server's defaults."""
        return {**self._flags(), **super().settings()}

    def _flags(self) -> dict[str, str]:
        # Simulated data may be of any year, and is deleted after a month by default. A long query ends at our limits.
        return {"retentionPeriod": "100y", "search.maxQueryDuration": "1h", **self._settings}

    def _program(self) -> Path:
        for name in _OURS:
            if name in self._settings:
                raise UserMistake(f"settings: {name} is set by tsbench")
        program = cached_program("victoria-metrics")
        if program is None:
            raise not_installed("VictoriaMetrics", "victoria-metrics")
        return program

    def _command(self, program: Path) -> tuple[list[str], Mapping[str, str]]:
        flags = {**self._flags(), "storageDataPath": "data", "httpListenAddr": f"127.0.0.1:{self._port}"}
        return [str(program), *(f"-{name}={value}" for name, value in flags.items())], {"PWD": os.fspath(self.place)}

    def _ready(self) -> None:
        self._expect_answer("/health")


# --- several nodes ----------------------------------------------------------------------------------------------------


class VictoriaAgent(HttpServer):
    """The vmagent that spreads points over the nodes at `addresses`, which is set before it starts."""

    product = "vmagent"
    log_name = "vmagent.log"
    addresses: Sequence[str] = ()

    @property
    def endpoint(self) -> str:
        """URL without the nodes; it has a port after the first start."""
        return f"http://127.0.0.1:{self._port}/tsbench"

    def _program(self) -> Path:
        program = cached_program("vmagent")
        if program is None:
            raise UserMistake("vmagent is not installed, which several nodes need; run tsbench servers install vmagent")
        return program

    def _command(self, program: Path) -> tuple[list[str], Mapping[str, str]]:
        flags = {
            "httpListenAddr": f"127.0.0.1:{self._port}",
            "remoteWrite.tmpDataPath": "data",
            "remoteWrite.flushInterval": "100ms",
            # A node that comes back is written to within a second, not within a minute.
            "remoteWrite.retryMinInterval": "100ms",
            "remoteWrite.retryMaxInterval": "1s",
            **self._settings,
        }
        urls = [f"-remoteWrite.url=http://{address}/api/v1/write" for address in self.addresses]
        return [str(program), *urls, *(f"-{name}={value}" for name, value in flags.items())], {}

    def _ready(self) -> None:
        self._expect_answer("/health")


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
        """URL of vmagent, with the nodes' addresses."""
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
