"""The counterpart of a server for SQLite: a directory."""

from __future__ import annotations

from tsbench.servers.embedded import EmbeddedServer


class SqliteServer(EmbeddedServer):
    """The directory of an SQLite database."""

    scheme = "sqlite"
    file = "tsbench.db"
