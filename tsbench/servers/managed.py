"""The base class of servers that tsbench runs as its own processes."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from tsbench.errors import Broken, UserMistake
from tsbench.servers import unprivileged
from tsbench.servers.base import Server
from tsbench.servers.children import how_it_ended
from tsbench.servers.files import allocated_bytes, evict
from tsbench.servers.logs import error_lines, telling_line
from tsbench.servers.process import NotReady, ServerProcess, free_port

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tsbench.servers.cgroup import Group
    from tsbench.servers.files import Residency

_PREPARE_S = 300.0  # some seconds, and a minute or two on a small device


class ManagedServer(Server, ABC):
    """A server process whose files are in `directory`, listening on a port of 127.0.0.1.

    Its process starts in `group`, whose caps then apply to it. If tsbench runs as root, the server runs as `nobody`,
    with its files in `place`: below the directory, or elsewhere if that user cannot enter it (see `unprivileged`).
    """

    log_name: str
    start_limit_s = 60.0
    """Time limit for its first answer, in seconds."""
    is_away = True
    """Whether it was not started yet, or was stopped or killed on purpose."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None, group: Group | None = None) -> None:
        self._group = group
        self._directory = directory.absolute()
        self._settings = dict(settings or {})
        self._process: ServerProcess | None = None
        self._port = 0

    @property
    def place(self) -> Path:
        """Directory of all files that the server reads and writes; it belongs to the server's user."""
        return unprivileged.place(self._directory)

    @property
    def data(self) -> Path:
        """Directory of all data that the server stores."""
        return self.place / "data"

    def start(self) -> None:
        if self.alive():
            return
        programs = self._programs()
        self._directory.mkdir(parents=True, exist_ok=True)
        unprivileged.make(self._directory)
        self._port = self._port or free_port()
        try:
            self._process = self._prepare(programs)
            self._process.start(self._ready, group=self._group, timeout_s=self.start_limit_s)
        except Broken as error:
            raise self._blamed(error) from error
        self.is_away = False

    def _blamed(self, error: Broken) -> Broken | UserMistake:
        """Return the error of a start that failed: the user's mistake if the server names one of our settings."""
        for line in (str(error), *reversed(error_lines(self.said()))):
            words = set(re.findall(r"[A-Za-z0-9][\w.]*", line.replace("-", "_")))
            for name in self._settings:
                if name.replace("-", "_") in words:
                    return UserMistake(f"settings: {name} = '{self._settings[name]}': {line}")
        return error

    @abstractmethod
    def _programs(self) -> Path:
        """Return the directory of the programs, or of a copy that the server's user can run."""

    @abstractmethod
    def _prepare(self, programs: Path) -> ServerProcess:
        """Write the server's files below `place` and return the process to start."""

    @abstractmethod
    def _ready(self) -> None:
        """Try a connection; raise `NotReady` to be called again, see `ServerProcess.start`."""

    def _run(self, command: list[str], environment: Mapping[str, str], *, cure: str, text: str = "") -> str:
        """Run a program that prepares the data, in `place` and as the server's user; return what it said.

        Parameters
        ----------
        cure
            What to do if the program cannot be started.
        text
            What it reads.

        Raises
        ------
        Broken
            If it cannot be started, fails or does not end.
        """
        try:
            done: subprocess.CompletedProcess[str] = subprocess.run(
                command, input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                cwd=self.place, env=environment, timeout=_PREPARE_S, **unprivileged.credentials(),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            slow = f"{command[0]} did not end within {_PREPARE_S:g} s in {self.data}; is that disk slow or full?"
            raise Broken(slow) from None
        except OSError as error:
            raise Broken(f"{command[0]} cannot be started ({error.strerror}); {cure}") from error
        if done.returncode:
            errors = "\n".join(line for line in done.stdout.splitlines() if "ERROR" in line)
            said = telling_line(errors or done.stdout) or "it said nothing"
            raise Broken(f"{command[0]} failed in {self.data} ({how_it_ended(done.returncode)}): {said}")
        return done.stdout

    def stop(self) -> None:
        """Shut down in order; open sessions are ended."""
        self.is_away = True
        if self._process is not None:
            self._process.stop()

    def kill(self) -> None:
        self.is_away = True
        if self._process is not None:
            self._process.kill()

    def remove(self) -> None:
        """Delete the directory, and the server's files elsewhere."""
        unprivileged.remove(self._directory)

    def cold(self) -> Residency:
        self.stop()
        if (how := self.ended()) and "SIGKILL" in how:
            text = "its next start would repair its files, and so read them into the page cache before the first query"
            raise Broken(f"the server did not stop in order for the cold start ({how}): {text}; run the cell again")
        residency = evict(self.data)
        self.start()
        return residency

    def alive(self) -> bool:
        return self._process is not None and self._process.alive()

    def ended(self) -> str:
        return self._process.ended() if self._process is not None else ""

    def pids(self) -> Sequence[int]:
        return self._process.pids() if self._process is not None else ()

    def size(self) -> int:
        return allocated_bytes(self.data)

    def log(self) -> Path | None:
        return self._directory / self.log_name

    def settings(self) -> Mapping[str, str]:
        return {**self._settings, "data_directory": str(self.data), "user": unprivileged.user() or "the caller"}


class HttpServer(ManagedServer):
    """A server of one program, the `product`, that answers over HTTP."""

    product: str

    def _programs(self) -> Path:
        program = self._program().absolute()
        return unprivileged.readable(program.parent, [program.name], program.name) / program.name

    def _prepare(self, programs: Path) -> ServerProcess:
        unprivileged.make_private(self.data)
        command, environment = self._command(programs)
        return ServerProcess(
            command,
            log=self._directory / self.log_name,
            directory=self.place,
            # HOME: some programs end without one, although they use none of the defaults in it.
            environment={"PATH": os.defpath, "HOME": str(self.place), **environment},
            user=unprivileged.user(),
        )

    @abstractmethod
    def _program(self) -> Path:
        """Return the path of the program."""

    @abstractmethod
    def _command(self, program: Path) -> tuple[list[str], Mapping[str, str]]:
        """Return the command line and its environment variables."""

    def _expect_answer(self, path: str) -> None:
        """Request a path of the server; raise `NotReady` if it does not answer."""
        try:
            status, body = request(self._port, "GET", path)
        except PermissionError as error:
            raise Broken(f"{self.product} cannot be asked on 127.0.0.1:{self._port}: {error.strerror}") from error
        except (OSError, http.client.HTTPException) as error:
            raise NotReady(str(error) or type(error).__name__) from error
        text = f"{path}: {status} {body.decode(errors='replace')[:200]}"
        if status in {401, 403}:
            raise Broken(f"{self.product} refuses its first request: {text}")
        if status >= 300:
            raise NotReady(text)


def request(port: int, method: str, path: str, document: object = None) -> tuple[int, bytes]:
    """Send a request to a server on this machine, with a document as JSON; return status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, None if document is None else json.dumps(document))
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
