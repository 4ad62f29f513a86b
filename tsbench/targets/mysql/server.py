"""MariaDB and MySQL as local servers, from the packages of the system or those that `tsbench servers install` unpacked.

The server listens on 127.0.0.1, and on a socket in its own directory. Every user of the machine can reach the former,
so that the log-in has a random password in a file, which the endpoint names; the server's root account is locked.
"""

from __future__ import annotations

import os
import secrets
from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING

from tsbench.errors import Broken, UserMistake, require
from tsbench.servers import unprivileged
from tsbench.servers.managed import ManagedServer
from tsbench.servers.process import NotReady, ServerProcess
from tsbench.servers.programs import cached_program, not_installed
from tsbench.targets.local import link_loader
from tsbench.targets.mysql.endpoint import local, parse
from tsbench.targets.registry import get

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tsbench.servers.cgroup import Group

_USER = "tsbench"
_AGAIN = "install it again"
_PATH = f"{os.defpath}:/usr/sbin:/sbin"
_OURS = frozenset({"port", "socket", "datadir", "basedir", "bind_address", "user", "pid_file", "init_file",
                   "plugin_dir", "skip_name_resolve", "local_infile", "mysqlx"})  # fmt: skip
_COMMON: Mapping[str, str] = {
    # As for the embedded PostgreSQL, so that results can be compared.
    "innodb_buffer_pool_size": "512M",
    "max_connections": "200",
    # What is acknowledged is on disk. Both are the defaults; set here, since any comparison depends on them.
    "innodb_flush_log_at_trx_commit": "1",
    "innodb_doublewrite": "1",
    # The usual way past the page cache; MySQL's own default differs from version to version.
    "innodb_flush_method": "O_DIRECT",
    # A single server without replicas needs none.
    "skip_log_bin": "1",
    # Statements of a large batch; MariaDB's default is 16 MB.
    "max_allowed_packet": "64M",
    "default_time_zone": "+00:00",
}


class _Server(ManagedServer):
    """One server of either product. Settings are its options, with underscores."""

    product: str
    defaults: Mapping[str, str]

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None, group: Group | None = None) -> None:
        given = {name.replace("-", "_"): value for name, value in (settings or {}).items()}
        if clash := sorted(given.keys() & _OURS):
            raise UserMistake(f"settings: {clash[0]}: tsbench sets it itself; take it out")
        super().__init__(directory, {**_COMMON, **self.defaults, **given}, group)

    @property
    def endpoint(self) -> str:
        return local(self.product.lower(), _USER, self._port, str(self._password_file), self._public_key)

    @property
    def _public_key(self) -> str:
        """File with the key by which the password is encrypted; "" where logging in needs none."""
        return ""

    @property
    def _password_file(self) -> Path:
        return self._directory / "password"

    def _prepare(self, programs: Path) -> ServerProcess:
        if not (self.data / "mysql").is_dir():
            self._create_data(programs)
        if not self._password_file.exists():
            self._password_file.touch(mode=0o600)
            self._password_file.write_text(f"{secrets.token_hex(32)}\n", encoding="utf-8")
        command = [*self._command(programs), *(f"--{name}={value}" for name, value in self._options().items())]
        return ServerProcess(
            command,
            log=self._directory / self.log_name,
            directory=self.place,
            environment=self._environment(programs),
            user=unprivileged.user(),
        )

    def _options(self) -> dict[str, str]:
        accounts = self.place / "accounts.sql"
        accounts.unlink(missing_ok=True)
        unprivileged.write_once(accounts, self._accounts())
        return {
            **self._settings,
            "datadir": str(self.data),
            "port": str(self._port),
            "bind_address": "127.0.0.1",
            # By a name that is short enough wherever it is: a server works in its data directory.
            "socket": "server.sock",
            "pid_file": str(self.place / "server.pid"),
            "init_file": str(accounts),
            "skip_name_resolve": "1",
            "local_infile": "1",
        }

    def _accounts(self) -> str:
        """Return the statements that the server executes when it starts."""
        password = self._password_file.read_text(encoding="utf-8").strip()
        return (
            "".join(
                f"CREATE USER IF NOT EXISTS '{_USER}'@'{host}' IDENTIFIED BY '{password}';\n"
                f"GRANT ALL PRIVILEGES ON *.* TO '{_USER}'@'{host}';\n"
                for host in ("127.0.0.1", "localhost")
            )
            + "ALTER USER 'root'@'localhost' ACCOUNT LOCK;\n"
        )

    @abstractmethod
    def _create_data(self, programs: Path) -> None:
        """Create the data directory with the system's tables."""

    @abstractmethod
    def _command(self, programs: Path) -> list[str]:
        """Return the program with the options that say where its own files are."""

    def _environment(self, programs: Path) -> dict[str, str]:
        # A server that starts deletes the temporary tables of every other server in the same directory.
        return {"PATH": _PATH, "LC_ALL": "C", "TMPDIR": str(self.place)}

    def _ready(self) -> None:
        require("MySQLdb", "mysql")
        import MySQLdb  # noqa: PLC0415 - settings are checked without it

        from tsbench.targets.mysql import login  # noqa: PLC0415

        of = parse(self.endpoint, get(self.product.lower()))
        try:
            login.connect(of, of.password(), 5).close()
        except UserMistake as error:  # the key is made at the first start
            raise NotReady(str(error)) from error
        except MySQLdb.Error as error:
            code, *text = error.args
            if code in {2002, 2003, 2013}:
                raise NotReady(" ".join(map(str, text))) from error
            raise Broken(f"{self.product} refuses its first log-in: {' '.join(map(str, text))}") from error


class MariadbServer(_Server):
    """One MariaDB, with MyRocks where that plugin is installed."""

    log_name = "mariadb.log"
    product = "MariaDB"
    # MySQL's redo log has this size in all; 96 MB, the default, is full after seconds of the fastest load.
    defaults: Mapping[str, str] = {"innodb_log_file_size": "1G"}

    def _programs(self) -> Path:
        tree = cached_program("mariadb")
        if tree is not None and (tree / "usr/sbin/mariadbd").exists():
            return unprivileged.readable(tree.absolute(), ["usr"], "mariadb") / "usr"
        if Path("/usr/sbin/mariadbd").exists() and Path("/usr/bin/mariadb-install-db").exists():
            return Path("/usr")
        cure = "install the package mariadb-server, or give the endpoint of a server that runs"
        raise UserMistake(f"MariaDB is not installed; {cure}")

    def _create_data(self, programs: Path) -> None:
        command = [
            str(programs / "bin/mariadb-install-db"), "--no-defaults", f"--basedir={programs}", "--builddir=",
            f"--datadir={self.data}", "--auth-root-authentication-method=normal", "--skip-test-db",
        ]  # fmt: skip
        self._run(command, self._environment(programs), cure=_AGAIN)

    def _command(self, programs: Path) -> list[str]:
        plugins = programs / "lib/mysql/plugin"
        places = [
            "--no-defaults", f"--basedir={programs}", f"--lc-messages-dir={programs / 'share/mysql'}",
            f"--plugin-dir={plugins}",
        ]  # fmt: skip
        if (plugins / "ha_rocksdb.so").exists():
            places.append("--plugin-load-add=ha_rocksdb")
        return [str(programs / "sbin/mariadbd"), *places]

    def _environment(self, programs: Path) -> dict[str, str]:
        libraries = ":".join(str(path) for path in programs.glob("lib/*-linux-gnu")) if programs != Path("/usr") else ""
        environment = {**super()._environment(programs), "PATH": f"{programs / 'bin'}:{programs / 'sbin'}:{_PATH}"}
        return {**environment, "LD_LIBRARY_PATH": libraries} if libraries else environment


class MysqlServer(_Server):
    """One server of Oracle's MySQL."""

    log_name = "mysql.log"
    product = "MySQL"
    defaults: Mapping[str, str] = {"innodb_redo_log_capacity": "1G"}

    @property
    def _public_key(self) -> str:
        return str(self.data / "public_key.pem")

    def _programs(self) -> Path:
        tree = cached_program("mysql-9")
        if tree is not None and (tree / "usr/sbin/mysqld").exists():
            return unprivileged.readable(tree.absolute(), ["usr", "lib"], "mysql") / "usr"
        raise not_installed("MySQL", "mysql-9")

    def _create_data(self, programs: Path) -> None:
        link_loader(self.place, programs.parent / "lib")
        command = [*self._command(programs), f"--datadir={self.data}", "--initialize-insecure"]
        self._run(command, self._environment(programs), cure=_AGAIN)

    def _prepare(self, programs: Path) -> ServerProcess:
        link_loader(self.place, programs.parent / "lib")
        return super()._prepare(programs)

    def _command(self, programs: Path) -> list[str]:
        share = programs / "share/mysql"
        return [
            str(programs / "sbin/mysqld"), "--no-defaults", f"--basedir={programs}", f"--lc-messages-dir={share}",
            f"--character-sets-dir={share / 'charsets'}", "--secure-file-priv=",
            f"--plugin-dir={programs / 'lib/mysql/plugin'}", "--mysqlx=OFF",
        ]  # fmt: skip
