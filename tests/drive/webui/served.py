"""A Locust with its web UI, started as by a user, and requests to it over HTTP."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from http.cookiejar import CookieJar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.drive.webui.browser import PATIENCE_S, wait_until
from tsbench.servers.process import free_port

if TYPE_CHECKING:
    from email.message import Message

LOCUSTFILES = Path(__file__).parents[3] / "locustfiles"
SMALL = {"TSBENCH_SCALE": "10", "TSBENCH_LOAD_WINDOW": "2h", "TSBENCH_WARMUP": "1s"}


@dataclass(frozen=True)
class Answer:
    status: int
    text: str
    headers: Message

    def json(self) -> Any:
        return json.loads(self.text)


class Served:
    """Ended with `close`, in order."""

    def __init__(self, directory: Path, *words: str, target: str = "sqlite", **variables: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.directory = directory
        self._log = directory / "locust.out"
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()), _NoRedirect())
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("LOCUST_", "TSBENCH_"))}
        bus = str(free_port())
        command = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILES / f"{target}.py")]
        command += ["--web-port", str(self.port), "--master-bind-port", bus, "--master-port", bus, *words]
        with self._log.open("wb") as log:
            self.child = subprocess.Popen(
                command, cwd=directory, env={**inherited, **SMALL, **variables}, stdout=log, stderr=subprocess.STDOUT
            )

    def ready(self) -> Served:
        """Wait until the web UI answers."""
        wait_until(lambda: self.child.poll() is not None or self._answers(), "Locust to answer")
        assert self.child.poll() is None, self.log()
        return self

    def _answers(self) -> bool:
        try:
            return self.get("/login").status > 0
        except OSError:
            return False

    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def get(self, path: str, **headers: str) -> Answer:
        return self._ask(urllib.request.Request(self.url + path, headers=headers))

    def post(self, path: str, form: dict[str, Any] | None = None, **headers: str) -> Answer:
        data = urllib.parse.urlencode(form or {}).encode()
        return self._ask(urllib.request.Request(self.url + path, data=data, headers=headers))

    def post_bytes(self, path: str, body: bytes) -> Answer:
        return self._ask(urllib.request.Request(self.url + path, data=body))

    def _ask(self, request: urllib.request.Request) -> Answer:
        try:
            with self._opener.open(request, timeout=PATIENCE_S) as answer:
                return Answer(answer.status, answer.read().decode(), answer.headers)
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.read().decode(), error.headers)

    def raw(self, method: str, path: str, *headers: bytes, body: bytes = b"") -> tuple[int, bytes]:
        """Send a request as it is, without a check of its headers; return the status and the body."""
        named = {header.partition(b":")[0] for header in headers}
        more = [b"Connection: close", b"Content-Length: %d" % len(body)]
        more += [] if b"Host" in named else [b"Host: 127.0.0.1:%d" % self.port]
        head = b"\r\n".join([f"{method} {path} HTTP/1.1".encode(), *more, *headers, b"", b""])
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S) as connection:
            connection.sendall(head + body)
            answer = b"".join(iter(lambda: connection.recv(65_536), b""))
        return int(answer.split(b" ", 2)[1]), answer.partition(b"\r\n\r\n")[2]

    def start(self, users: int = 4, **form: str) -> None:
        answer = self.post("/swarm", {"user_count": users, "spawn_rate": users, **form})
        assert answer.json()["success"], answer.text

    def refusal(self, **form: str) -> str:
        """Why a test cannot be started with these fields, as the form shows it."""
        answer = self.post("/swarm", {"user_count": 1, "spawn_rate": 1, **form})
        assert (answer.status, answer.json()["success"]) == (200, False), answer.text
        return str(answer.json()["message"])

    def live(self) -> Any:
        return self.get("/tsbench/live").json()

    def rows(self, key: str) -> list[dict[str, Any]]:
        (rows,) = (table["rows"] for table in self.live()["tables"] if table["key"] == key)
        return list(rows)

    def close(self) -> None:
        self.child.terminate()
        try:
            self.child.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None
