"""Several nodes of MariaDB that replicate by Galera: every node takes writes, and all of them store every point.

A write is acknowledged when all nodes have received it and agree that it conflicts with no other; each stores it some
time later. The nodes that are left go on as long as they were most of those that were there before. One that joins, or
comes back after a kill, is copied from another one by rsync.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from tsbench.errors import Broken, UserMistake, one_line
from tsbench.servers.cluster import Cluster, directories
from tsbench.servers.process import NotReady, free_port
from tsbench.servers.programs import cached_program
from tsbench.targets.mysql.endpoint import parse
from tsbench.targets.mysql.server import MariadbServer
from tsbench.targets.registry import get

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tsbench.servers.cgroup import Group

_LIBRARY = "lib/galera/libgalera_smm.so"
_FEWEST = 3
"""Of two nodes, none is more than half."""
_REGROUP_S = 60.0
"""They exclude a node of which they have heard nothing for 5 to 15 s."""
_EVERY_S = 0.1


class GaleraNode(MariadbServer):
    """One node; `others` are all nodes, this one among them, and `is_first` is true of one that joins nobody."""

    def __init__(self, directory: Path, settings: Mapping[str, str], group: Group | None) -> None:
        if clash := [name for name in settings if name.replace("-", "_").startswith("wsrep")]:
            raise UserMistake(f"settings: {clash[0]}: tsbench sets it itself; take it out")
        super().__init__(directory, settings, group)
        self.channel, self._changes, self._copies = free_port(), free_port(), free_port()
        self._library = Path()
        self.others: Sequence[GaleraNode] = ()
        self.is_first = False
        self.start_limit_s = 180.0  # it is copied from another node meanwhile

    @property
    def address(self) -> str:
        """Host and port for clients."""
        return f"127.0.0.1:{self._port}"

    @property
    def _password_file(self) -> Path:
        return self._directory.parent / "password"  # a copy has the accounts of the first node

    def _programs(self) -> Path:
        programs = super()._programs()
        self._library = programs / _LIBRARY
        if not self._library.exists() or cached_program("rsync") is None:
            raise UserMistake(
                "Galera is not installed, which several nodes of MariaDB need; install galera-4 and rsync"
            )
        return programs

    def _command(self, programs: Path) -> list[str]:
        # Galera replicates InnoDB only: other engines are not to be had.
        return [word for word in super()._command(programs) if not word.startswith("--plugin-load-add")]

    def _options(self) -> dict[str, str]:
        options = super()._options()
        if not self.is_first:
            del options["init_file"]
        channels = ",".join(f"127.0.0.1:{node.channel}" for node in self.others)
        provider = {
            "gmcast.listen_addr": f"tcp://127.0.0.1:{self.channel}",
            "ist.recv_addr": f"127.0.0.1:{self._changes}",
            "gcache.size": "32M",
            "pc.recovery": "false",
        }
        return options | {
            "binlog_format": "ROW",
            "innodb_autoinc_lock_mode": "2",
            "wsrep_on": "ON",
            "wsrep_provider": str(self._library),
            "wsrep_provider_options": ";".join(f"{name}={value}" for name, value in provider.items()),
            "wsrep_cluster_name": "tsbench",
            "wsrep_cluster_address": "gcomm://" + ("" if self.is_first else channels),
            "wsrep_node_name": self._directory.name,
            "wsrep_node_address": f"127.0.0.1:{self.channel}",
            "wsrep_sst_method": "rsync",
            "wsrep_sst_receive_address": f"127.0.0.1:{self._copies}",
        }

    def _ready(self) -> None:
        super()._ready()
        if self.state()["wsrep_local_state_comment"] != "Synced":
            raise NotReady("it is not in step with the other nodes yet")

    def state(self) -> dict[str, str]:
        """Return what the node says of itself and the others, by the names of its status variables."""
        import MySQLdb  # noqa: PLC0415 - settings are checked without it

        from tsbench.targets.mysql import login  # noqa: PLC0415

        of = parse(self.endpoint, get("mariadb"))
        try:
            opened = login.connect(of, of.password(), 5)
            try:
                opened.query(b"SHOW STATUS LIKE 'wsrep%'")
                rows = opened.store_result().fetch_row(0)
            finally:
                opened.close()
        except MySQLdb.Error as error:
            raise NotReady(one_line(error)) from error
        return {name.decode(): value.decode() for name, value in rows}


class GaleraCluster(Cluster[GaleraNode]):
    """Nodes that each store every point."""

    def __init__(
        self, directory: Path, settings: Mapping[str, str], group: Group | None, *, nodes: int, replicas: int
    ) -> None:
        if nodes < _FEWEST or replicas != nodes:
            why = f"Galera needs {_FEWEST} nodes or more, of which each stores every point"
            raise UserMistake(f"nodes = {nodes}, replicas = {replicas}: {why}; give server.replicas = server.nodes")
        servers = [GaleraNode(place, settings, group) for place in directories(directory, nodes)]
        super().__init__(directory, servers, replicas)
        for node in self._nodes:
            node.others = self._nodes

    @property
    def endpoint(self) -> str:
        """URL with all nodes, over which sessions are spread."""
        return f"{self._nodes[0].endpoint}&nodes={quote(','.join(node.address for node in self._nodes))}"

    @property
    def acknowledged_by(self) -> str:
        return f"one of {len(self._nodes)} nodes, when all of them have received it; the others store it later"

    def start(self) -> None:
        for node in self._nodes:
            node.is_first = not any(one.alive() for one in self._nodes)
            try:
                node.start()
            finally:
                node.is_first = False

    def regroup(self) -> str:
        present = [node for node in self._nodes if not node.is_away]
        deadline, reason = time.monotonic() + _REGROUP_S, "none answers"
        while time.monotonic() < deadline:
            try:
                states = [node.state() for node in present]
            except NotReady as error:
                reason = str(error)
            else:
                sizes = {state["wsrep_cluster_size"] for state in states if state["wsrep_ready"] == "ON"}
                if sizes == {str(len(present))} and all(state["wsrep_ready"] == "ON" for state in states):
                    return ""
                reason = "; ".join(
                    f"{state['wsrep_cluster_status']}, {state['wsrep_cluster_size']} nodes" for state in states
                )
            time.sleep(_EVERY_S)
        raise Broken(f"the other nodes do not go on after {_REGROUP_S:g} s ({reason})")
