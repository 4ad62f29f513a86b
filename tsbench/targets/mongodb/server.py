"""FerretDB over DocumentDB as a local server: MongoDB's protocol, with the data in PostgreSQL. It is not MongoDB.

The programs are `ferretdb` and the directory `documentdb`, a PostgreSQL with its libraries, in `$TSBENCH_SERVERS/bin`
(without that variable in `~/.cache/tsbench-servers/bin`); `tsbench servers install` installs them. FerretDB
listens on 127.0.0.1 without log-ins: its data is simulated, and it runs no programs for users. PostgreSQL listens on a
socket in its data directory, which only its own user may enter.
"""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tsbench.errors import Broken, UserMistake
from tsbench.servers import unprivileged
from tsbench.servers.logs import telling_line
from tsbench.servers.managed import ManagedServer
from tsbench.servers.process import NotReady, ServerProcess
from tsbench.servers.programs import cached_program, install_line, not_installed
from tsbench.targets.local import link_loader
from tsbench.targets.mongodb import endpoint
from tsbench.targets.pgwire import process

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tsbench.servers.cgroup import Group

_ENDPOINT_SETTINGS = ("ordered", "w", "journal", "granularity", "bucketMaxSpanSeconds", "expireAfterSeconds")
"""Settings that become options of the endpoint, since sessions apply them, not the server."""
_EXTENSIONS = "pg_cron,pg_documentdb_core,pg_documentdb"
_OURS: Mapping[str, str] = {
    "listen_addresses": "",
    # The server's own data directory, by a name that is short enough for a socket wherever that is.
    "unix_socket_directories": "/proc/self/cwd",
    "port": "5432",
    "shared_preload_libraries": _EXTENSIONS,
    # DocumentDB creates collections and indexes over connections to itself.
    "documentdb.localhost_connection_string": "host=/proc/self/cwd",
    "cron.database_name": "postgres",
    "cron.use_background_workers": "on",
    # It logs every index that it builds, twice.
    "cron.log_run": "off",
    "cron.log_statement": "off",
}


class FerretdbServer(ManagedServer):
    """One FerretDB and the PostgreSQL below it. Settings are PostgreSQL's, or options of the endpoint."""

    log_name = "mongodb.log"

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None, group: Group | None = None) -> None:
        given = dict(settings or {})
        self._options = {name: given.pop(name) for name in _ENDPOINT_SETTINGS if name in given}
        if clash := sorted(given.keys() & _OURS.keys()):
            raise UserMistake(f"settings: {clash[0]}: tsbench sets it itself; take it out")
        endpoint.check_options("settings", self._options)
        super().__init__(directory, {**process.SETTINGS, **given}, group)
        self._store: ServerProcess | None = None

    @property
    def endpoint(self) -> str:
        return endpoint.local(self._port, self._options)

    def settings(self) -> Mapping[str, str]:
        return {"server": "FerretDB over DocumentDB, started by tsbench", **super().settings()}

    def _programs(self) -> Path:
        ferretdb, documentdb = cached_program("ferretdb"), cached_program("documentdb")
        if ferretdb is None or documentdb is None:
            missing = "FerretDB" if ferretdb is None else "DocumentDB"
            raise not_installed(f"MongoDB cannot be started by tsbench, and {missing}", "ferretdb", "documentdb")
        top = ferretdb.absolute().parent
        return unprivileged.readable(top, ["ferretdb", "documentdb"], "ferretdb")

    def _prepare(self, programs: Path) -> ServerProcess:
        link_loader(self.place, programs / "documentdb" / "lib")
        binaries = programs / "documentdb" / "usr" / "lib" / "postgresql" / "18" / "bin"
        if not (self.data / "PG_VERSION").exists():
            self._create_store(binaries)
        self._start_store(binaries)
        unprivileged.make_private(self.place / "state")
        # Both names of directories are relative to `place`, where it is started.
        url = "postgres://postgres@/postgres?host=/proc/self/cwd/data&port=5432"
        return ServerProcess(
            [
                str(programs / "ferretdb"), f"--postgresql-url={url}", f"--listen-addr=127.0.0.1:{self._port}",
                "--no-auth", "--telemetry=disable", "--debug-addr=-", "--state-dir=state", "--log-level=warn",
            ],
            log=self._directory / self.log_name,
            directory=self.place,
            environment={"PATH": os.defpath, "HOME": str(self.place)},
            user=unprivileged.user(),
        )  # fmt: skip

    def _create_store(self, binaries: Path) -> None:
        self._command(
            [
                str(binaries / "initdb"), "-D", "data", "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8",
                # Not the machine's locales: its C library is another one.
                "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8",
            ]
        )  # fmt: skip
        extensions = [part for name in ("shared_preload_libraries", "cron.database_name") for part in _option(name)]
        # By itself, without accepting connections, it executes what it reads.
        single = [str(binaries / "postgres"), "--single", "-j", "-D", "data", *extensions, "postgres"]
        said = self._command(single, "CREATE EXTENSION documentdb CASCADE;\n\n")
        if "ERROR:" in said:
            raise Broken(f"DocumentDB could not be set up in {self.data}: {telling_line(said)}")

    def _command(self, command: list[str], text: str = "") -> str:
        """Run one of PostgreSQL's programs in `place`; return what it said."""
        return self._run(
            command, process.ENVIRONMENT, cure=f"run {install_line('ferretdb', 'documentdb')} again", text=text
        )

    def _start_store(self, binaries: Path) -> None:
        if self._store is not None:
            self._store.stop()
        settings, log = {**self._settings, **_OURS}, self._directory / self.log_name
        self._store = process.server_process(binaries, "data", settings, log=log, place=self.place)
        self._store.start(self._store_ready, group=self._group)

    def _store_ready(self) -> None:
        with socket.socket(socket.AF_UNIX) as probe, _short(self.data) as short:
            try:
                probe.connect(f"{short}/.s.PGSQL.5432")
            except OSError as error:
                raise NotReady(error.strerror or str(error)) from error

    def _ready(self) -> None:
        import pymongo  # noqa: PLC0415 - settings are checked without it
        from pymongo.errors import PyMongoError  # noqa: PLC0415

        client: pymongo.MongoClient[dict[str, object]] = pymongo.MongoClient(
            "127.0.0.1", self._port, serverSelectionTimeoutMS=1_000, timeoutMS=10_000
        )
        try:
            client.admin.command("listDatabases")  # its answer comes from the data
        except PyMongoError as error:  # also of a server that answers: PostgreSQL recovers, for example
            raise NotReady(str(error)) from error
        finally:
            client.close()

    # --- both processes

    def stop(self) -> None:
        """Shut down in order: FerretDB, then PostgreSQL."""
        super().stop()
        if self._store is not None:
            self._store.stop()

    def kill(self) -> None:
        super().kill()
        if self._store is not None:
            self._store.kill()

    def alive(self) -> bool:
        return super().alive() and self._store is not None and self._store.alive()

    def ended(self) -> str:
        return super().ended() or (self._store.ended() if self._store is not None else "")

    def pids(self) -> Sequence[int]:
        return [*super().pids(), *(self._store.pids() if self._store is not None else ())]


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """Yield a name of a directory that is short enough for the address of a socket in it."""
    descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _option(name: str) -> tuple[str, str]:
    return "-c", f"{name}={_OURS[name]}"
