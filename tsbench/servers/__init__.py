"""Local server processes: start, ready, stop, kill, cold, size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tsbench.servers.files import MemoryServer, NullServer, SqliteServer
from tsbench.servers.influxdb import InfluxServer1, InfluxServer2
from tsbench.servers.postgres import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tsbench.servers.base import Server


class ServerFactory(Protocol):
    """What makes a server that lives in a directory; nothing is started."""

    def __call__(self, directory: Path, settings: Mapping[str, str]) -> Server:
        """The server, with settings that go before tsbench's own."""


EMBEDDED = frozenset({"memory", "null", "sqlite"})
"""Databases without a process of their own, which nothing can cap or kill."""
SERVERS: dict[str, ServerFactory] = {
    "memory": MemoryServer,
    "null": NullServer,
    "sqlite": SqliteServer,
    "postgres": PostgresServer,
    "influxdb1": InfluxServer1,
    "influxdb2": InfluxServer2,
}
