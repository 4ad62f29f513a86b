"""QuestDB as a local process: a jar, run by `java`.

The jar is `questdb/questdb.jar` in `$TSBENCH_SERVERS/bin` (without that variable in `~/.cache/tsbench-servers/bin`),
where `tsbench servers install questdb` puts it, or the one that the setting `jar` names. The server listens on
127.0.0.1 only, with the login that every new QuestDB has: its data is simulated.
"""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from tsbench.errors import UserMistake
from tsbench.servers import unprivileged
from tsbench.servers.process import NotReady, free_port
from tsbench.servers.programs import cached_program, not_installed
from tsbench.targets.local import LocalHttpServer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tsbench.servers.cgroup import Group


_OURS = {"http.bind.to", "pg.net.bind.to", "http.min.enabled", "config.validation.strict"}


class QuestServer(LocalHttpServer):
    """One QuestDB. Settings are those of its server.conf (`cairo.commit.mode`), `jar`, and Java's memory (`heap`)."""

    product = "QuestDB"
    log_name = "questdb.log"
    health = "/ping"
    defaults: ClassVar = {
        # What is acknowledged is on disk, as in the other servers that tsbench starts; the default is not to sync.
        "cairo.commit.mode": "sync",
        # A column of the newest partition takes a page on disk, however few points it has: 16 MB by default.
        "cairo.writer.data.append.page.size": "1M",
        # A long query ends at our limits, not after a minute.
        "query.timeout": "1h",
        # It would tell its makers of each server.
        "telemetry.enabled": "false",
        # Another port for line protocol, without acknowledgements.
        "line.tcp.enabled": "false",
    }

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None, group: Group | None = None) -> None:
        given = dict(settings or {})
        for name in given.keys() & _OURS:
            raise UserMistake(f"settings: {name} is set by tsbench")
        self._jar, self._heap = given.pop("jar", ""), given.pop("heap", "512m")
        if not re.fullmatch(r"[1-9]\d*[kmg]", self._heap):
            raise UserMistake(f"settings: heap = '{self._heap}': write Java's memory, such as 512m")
        super().__init__(directory, given, group)
        self._sql_port = 0

    @property
    def endpoint(self) -> str:
        return f"http://{self.address}/?pg={self._sql_port}"

    def settings(self) -> Mapping[str, str]:
        return {**self.configured, "heap": self._heap, **super().settings()}

    def _program(self) -> Path:
        if cached_program("java") is None:
            raise UserMistake("QuestDB needs Java: install a runtime of version 17 or newer, or give an endpoint")
        if self._jar and not Path(self._jar).is_file():
            raise UserMistake(f"settings: jar = '{self._jar}' is no file; name QuestDB's jar")
        program = Path(self._jar) if self._jar else cached_program("questdb")
        if program is None:
            raise not_installed("QuestDB", "questdb")
        return program

    def _command(self, program: Path) -> tuple[list[str], Mapping[str, str]]:
        self._sql_port = self._sql_port or free_port()
        ours = {
            "http.bind.to": self.address,
            "pg.net.bind.to": f"127.0.0.1:{self._sql_port}",
            "http.min.enabled": "false",
            "config.validation.strict": "true",
        }
        config = self.place / "data" / "conf" / "server.conf"
        unprivileged.make_private(config.parent)
        config.unlink(missing_ok=True)
        unprivileged.write_once(config, "".join(f"{k}={v}\n" for k, v in {**self.configured, **ours}.items()))
        jar = program / "questdb.jar" if program.is_dir() else program
        flags = [f"-Xmx{self._heap}", "-XX:-UsePerfData", f"-Djava.io.tmpdir={self.place}"]
        main = ["-p", str(jar), "-m", "io.questdb/io.questdb.ServerMain", "-d", "data"]
        return [str(cached_program("java")), *flags, *main], {}

    def _ready(self) -> None:
        super()._ready()
        try:
            socket.create_connection(("127.0.0.1", self._sql_port), 5).close()
        except OSError as error:
            raise NotReady(f"its port for SQL: {error}") from error
