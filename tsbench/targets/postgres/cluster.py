"""Several nodes of PostgreSQL: a primary, and standbys that are copied from it and follow its write-ahead log.

A write is acknowledged when `replicas` nodes have it: the primary and, by `synchronous_standby_names`, one fewer of its
standbys; with one replica nothing waits for them. What a standby must have done by then is the server's own setting
`synchronous_commit` (`on`: it is on the standby's disk; `remote_apply`: its queries see it). Where fewer nodes are left
than there are replicas, those that are left are enough. A primary that is away is replaced by the standby that has
most of its log, and is copied anew when it comes back.
"""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

from tsbench.errors import Broken, UserMistake, one_line
from tsbench.servers.cluster import Cluster, directories
from tsbench.targets.pgwire import process
from tsbench.targets.postgres.server import DATABASE, PASSFILE, USER, PostgresServer, TimescaleServer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tsbench.servers.cgroup import Group

_OURS = ("synchronous_standby_names", "primary_conninfo", "cluster_name", "port")
_KEPT: Mapping[str, str] = {
    # A standby that was away for some seconds of a bulk load finds what it lacks.
    "wal_keep_size": "4GB",
    "max_wal_senders": "40",
    # A killed primary's standbys ask for it again so often.
    "wal_retrieve_retry_interval": "100ms",
}
_PATIENCE_S = 60.0
_EVERY_S = 0.05


class Node(PostgresServer):
    """One node; it follows `source`, or is the primary if that is None."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None, group: Group | None = None) -> None:
        if clash := [name for name in _OURS if name in (settings or {})]:
            raise UserMistake(f"settings: {clash[0]} is set by tsbench; take it out, and say server.replicas")
        name = {"cluster_name": directory.name}  # by which the primary knows it
        super().__init__(directory, {**_KEPT, **(settings or {}), **name}, group)
        self.source: Node | None = None
        self._copied_from: Node | None = None

    @property
    def _passfile(self) -> Path:
        return self._directory.parent / PASSFILE  # a copy has its source's password

    @property
    def port(self) -> int:
        """Port, after the first start."""
        return self._port

    def _create_cluster(self, binaries: Path) -> None:
        source = self.source
        if source is None:
            super()._create_cluster(binaries)
            return
        command = [
            str(binaries / "pg_basebackup"), "-D", str(self.data), "-h", "127.0.0.1", "-p", str(source.port),
            "-U", USER, "--checkpoint=fast", "--write-recovery-conf", "--no-sync",
        ]  # fmt: skip
        self._run(command, {**process.ENVIRONMENT, "PGPASSWORD": self._password()}, cure="install it again")
        self._copied_from = source

    def start(self) -> None:
        if not self.alive() and self.source is not self._copied_from:
            shutil.rmtree(self.data, ignore_errors=True)  # it may have what its source has not
        super().start()

    def follow(self, source: Node | None) -> None:
        """Follow another node, which has all that this one has; None: be the primary."""
        if not self.is_away:
            if source is None:
                self.ask(f"SELECT pg_promote(true, {_PATIENCE_S:.0f})")
            else:
                words = f"host=127.0.0.1 port={source.port} user={USER} password={self._password()}"
                self.ask(f"ALTER SYSTEM SET primary_conninfo = '{words}'")
                self.ask("SELECT pg_reload_conf()")
            self._copied_from = source
        self.source = source

    def ask(self, text: str) -> Any:
        """Execute a statement; return the first value of its answer, None if it has none."""
        import psycopg  # noqa: PLC0415 - settings are checked without it

        limit = f"-c statement_timeout={_PATIENCE_S + 5:.0f}s"
        try:
            with psycopg.connect(
                self.endpoint, connect_timeout=10, password=self._password(), autocommit=True, options=limit
            ) as opened:
                cursor = opened.execute(text.encode())
                return cursor.fetchall()[0][0] if cursor.description else None
        except psycopg.Error as error:
            raise Broken(f"{self._directory.name}: {one_line(error)}") from error


class TimescaleNode(Node, TimescaleServer):
    """One node with TimescaleDB."""


class PostgresCluster(Cluster[Node]):
    """A primary, at first node 1, and its standbys."""

    kind: ClassVar[type[Node]] = Node

    def __init__(
        self, directory: Path, settings: Mapping[str, str], group: Group | None, *, nodes: int, replicas: int
    ) -> None:
        servers = [self.kind(place, settings, group) for place in directories(directory, nodes)]
        super().__init__(directory, servers, replicas)
        self._primary = self._nodes[0]
        for node in self._nodes[1:]:
            node.source = self._primary

    @property
    def endpoint(self) -> str:
        places = ",".join(f"127.0.0.1:{node.port}" for node in self._nodes)
        passfile = quote(os.fsencode(self._directory / PASSFILE))
        return f"postgresql://{USER}@{places}/{DATABASE}?target_session_attrs=read-write&passfile={passfile}"

    @property
    def acknowledged_by(self) -> str:
        if self._replicas == 1:
            return "the primary alone; its standbys follow later"
        level = self._nodes[0].settings()["synchronous_commit"]
        standbys = f"{self._replicas - 1} of its {len(self._nodes) - 1} standbys"
        return f"the primary and {standbys} (synchronous_commit = {level})"

    def start(self) -> None:
        self._primary.start()
        super().start()
        self.regroup()

    @property
    def _whole(self) -> list[Node]:
        """The primary first: it ends when the standbys have all."""
        return [self._primary, *(node for node in self._nodes if node is not self._primary)]

    def regroup(self) -> str:
        """Promote a standby if the primary is away, ask standbys to acknowledge, and wait until they follow."""
        before = self._primary
        if before.is_away:
            self._promote()
        standbys = [node for node in self._nodes if node is not self._primary]
        present = sum(not node.is_away for node in standbys)
        asked = min(self._replicas - 1, present)
        names = ", ".join(f'"{node.settings()["cluster_name"]}"' for node in standbys)
        wanted = f"ANY {asked} ({names})" if asked else ""
        self._primary.ask(f"ALTER SYSTEM SET synchronous_standby_names = '{wanted}'")
        self._primary.ask("SELECT pg_reload_conf()")
        end = self._primary.ask("SELECT pg_current_wal_flush_lsn()")
        follow = f"SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND flush_lsn >= '{end}'"  # noqa: S608
        _await(lambda: self._primary.ask(follow) >= present, "the standbys do not follow their primary")
        return "" if self._primary is before else f"{self._name(self._primary)} took over"

    def _promote(self) -> None:
        """Make that standby the primary which has most of the log, and so all that any has acknowledged."""
        present = [node for node in self._nodes if not node.is_away]
        if not present:
            raise Broken("no node is left that could become the primary")
        receives = "SELECT count(*) FROM pg_stat_wal_receiver WHERE status = 'streaming'"
        received = "SELECT greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) - '0/0'"
        _await(lambda: not any(node.ask(receives) for node in present), "a standby still receives from the old primary")
        primary = self._primary = max(present, key=lambda node: node.ask(received))
        primary.follow(None)
        for node in self._nodes:
            if node is not primary:
                node.follow(primary)

    def _name(self, node: Node) -> str:
        return next(name for name, one in self.parts().items() if one is node)


class TimescaleCluster(PostgresCluster):
    """A primary with TimescaleDB, and its standbys."""

    kind = TimescaleNode


def _await(holds: Any, otherwise: str) -> None:
    """Wait until `holds` returns true; after a minute raise `Broken` with the text `otherwise`."""
    deadline = time.monotonic() + _PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            raise Broken(f"{otherwise} after {_PATIENCE_S:g} s")
        time.sleep(_EVERY_S)
