"""A server, or a proxy before it, that repeats what it was sent gives no secret away: on no terminal, in no file."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import quote

import bson
import psutil
import pytest

from tests.cli.support import PROGRAMS
from tests.hostile import mongodb, mysql, postgres
from tests.hostile.doors import FakeServer
from tsbench.errors import Broken, UserMistake, one_line
from tsbench.model import OpError, Outcome
from tsbench.text import conceal, concealed, hide, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.hostile.doors import Channel

MARK = 'm4rk"of/a secret'
FORMS = (MARK, quote(MARK, safe=""), json.dumps(MARK)[1:-1], base64.b64encode(f"me:{MARK}".encode()).decode())


class _Echo(BaseHTTPRequestHandler):
    """Answers everything but the paths of `fine` with 400 and the request's head in JSON; its version is the login."""

    fine: tuple[str, ...] = ()
    asked: list[str]

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        is_fine = self.path.startswith(self.fine) if self.fine else False
        self.asked.append(self.headers.get("Authorization", ""))
        head = f"{self.requestline} {dict(self.headers)}"
        body = b"{}" if is_fine else json.dumps({"code": "invalid", "error": head, "message": head}).encode()
        self.send_response(200 if is_fine else 400)
        self.send_header("Content-Type", "application/json")
        self.send_header("X-Influxdb-Version", f"1.8 {self.headers.get('Authorization', '')}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_DELETE = do_PUT = _answer  # noqa: N815 - the library's names

    def log_message(self, *_: object) -> None:
        pass


LATER = ("/ping", "/health", "/api/v2/buckets", "/api/v2/orgs", "/query")


@pytest.fixture(params=[pytest.param((), marks=pytest.mark.nightly), LATER], ids=["all", "later"])
def echo(request: pytest.FixtureRequest) -> Iterator[ThreadingHTTPServer]:
    """A server that repeats what it was sent: to the first request, or only to those after the connection's checks."""
    handler = type("Handler", (_Echo,), {"fine": request.param, "asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


ENDPOINTS = {
    "influxdb1": "http://me@127.0.0.1:{}/db",
    "influxdb2": "http://127.0.0.1:{}/?org=o&bucket=b",
    "victoriametrics": "http://me@127.0.0.1:{}/tsbench",
    "questdb": "http://me@127.0.0.1:{}/?pg=1",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "target",
    [pytest.param(name, marks=[] if name == "influxdb2" else [pytest.mark.nightly]) for name in ENDPOINTS],
)
def test_no_output_of_any_command_has_the_secret(target: str, echo: ThreadingHTTPServer, tmp_path: Path) -> None:
    expect_untold(target, ENDPOINTS[target].format(echo.server_address[1]), tmp_path)
    assert any(echo.RequestHandlerClass.asked)  # type: ignore[attr-defined] # the secret was sent


def expect_untold(target: str, endpoint: str, place: Path) -> list[bytes]:
    """Run commands against a server that repeats the secret; verify that neither outputs nor files have it.

    Returns the outputs, whose processes were looked at while they ran.
    """
    points, queries, scenario = place / "points", place / "queries", place / "s.toml"
    points.write_text("cpu,hostname=a usage_user=1 1451606400000000000\n")
    scenario.write_text(
        'question = "Is it told?"\n[world]\nuse_case = "cpu-only"\nscale = 2\n[load]\nwindow = "1m"\n'
        f'[drive]\nduration = "1s"\n[[op]]\nwrite = 1\n[target]\nname = "{target}"\n'
    )
    environment = {**os.environ, "TSBENCH_PASSWORD": MARK, "TSBENCH_TOKEN": MARK}
    environment.pop("TSBENCH_CREDENTIALS_FOR", None)
    commands = [
        ["queries", "--type", "lastpoint", "--scale", "2", "--count", "2", "--out", str(queries)],
        ["load", target, str(points), "--endpoint", endpoint],
        ["query", target, str(queries), "--endpoint", endpoint],
        ["validate", target, str(queries), "--endpoint", endpoint],
        ["run", str(scenario), "--endpoint", endpoint, "--junit", "j.xml", "--markdown", "m.md", "--json", "j.json"],
        ["cleanup", target, "--endpoint", endpoint],
    ]
    said, listed = [], b""
    for command in commands:
        program = [str(PROGRAMS / "tsbench"), *command]
        with subprocess.Popen(
            program, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as running:
            for _ in range(1_200):
                listed += b"\n".join(words_of(running.pid))
                if running.poll() is not None:
                    break
                time.sleep(0.1)
            running.kill()
            assert running.stdout is not None
            said.append(running.stdout.read())
    files = {str(path): path.read_bytes() for path in place.rglob("*") if path.is_file()}
    for form in FORMS:
        assert not [number for number, text in enumerate(said) if form.encode() in text]
        assert not [path for path, text in files.items() if form.encode() in text]
        assert form.encode() not in listed
    return said


def words_of(pid: int) -> list[bytes]:
    """Return the command lines of a process and its children, which everybody on the machine can read."""
    found = []
    with suppress(psutil.Error):
        root = psutil.Process(pid)
        found = [" ".join(one.cmdline()).encode() for one in (root, *root.children(recursive=True))]
    return found


TOLD = f"we know you by {MARK}, {FORMS[1]} and {FORMS[3]}".encode()


def _tells_at_login(channel: Channel) -> None:
    postgres.begin(channel)
    channel.send(postgres.message(b"E", b"SFATAL\0C28P01\0M" + TOLD + b"\0\0"))


def _tells_later(channel: Channel) -> None:
    """Let a client in with a notice, and answer each statement with a notice and an error."""
    postgres.begin(channel)
    notice = postgres.message(b"N", b"SNOTICE\0C00000\0M" + TOLD + b"\0\0")
    channel.send(postgres.WELCOME + notice)
    while True:
        kind, _ = postgres.read_message(channel)
        if kind in {b"Q", b"S"}:
            refused = postgres.message(b"E", b"SERROR\0C42601\0M" + TOLD + b"\0D" + TOLD + b"\0\0")
            channel.send(notice + refused + postgres.READY)


class _Teller(mysql.Dialogue):
    """A MariaDB that lets everybody in and says the secret in each error."""

    def answer(self, statement: bytes) -> None:
        if statement.startswith((b"SELECT @@", b"SET")):
            super().answer(statement)
        else:
            self.send(mysql.error(said=TOLD))


class _TellerAtLogin(mysql.Dialogue):
    def authenticate(self) -> bool:
        self.send(mysql.error(1045, TOLD))
        return False


def _tells_in_documents(channel: Channel) -> None:
    """Answer MongoDB's greeting, and everything after it with an error."""
    while True:
        number, kind, body = mongodb.read_message(channel)
        is_greeting = b"hello" in body or b"ismaster" in body or b"isMaster" in body
        document = mongodb.HELLO if is_greeting else {"ok": 0.0, "code": 18, "errmsg": TOLD.decode()}
        channel.send(mongodb.answer(number, kind, bson.encode(document)))


TELLERS: dict[str, tuple[str, str, Callable[[Channel], None]]] = {
    "postgres, at login": ("postgres", "postgresql://me@127.0.0.1:{}/db", _tells_at_login),
    "postgres, later": ("postgres", "postgresql://me@127.0.0.1:{}/db", _tells_later),
    "mariadb, at login": (
        "mariadb",
        "mariadb://me@127.0.0.1:{}/tsbench",
        lambda channel: _TellerAtLogin(channel).serve(),
    ),
    "mariadb, later": (
        "mariadb",
        "mariadb://me@127.0.0.1:{}/tsbench",
        lambda channel: _Teller(channel).serve(),
    ),
    "mongodb": ("mongodb", "mongodb://me@127.0.0.1:{}/tsbench", _tells_in_documents),
}


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("who", TELLERS)
def test_what_servers_of_other_protocols_say_is_told_without_the_secret(who: str, tmp_path: Path) -> None:
    target, endpoint, serve = TELLERS[who]
    with FakeServer(serve) as server:
        said = expect_untold(target, endpoint.format(server.port), tmp_path)
    assert b"we know you by [secret]" in b"".join(said)


def test_every_form_of_a_secret_is_struck_out_of_errors_and_facts() -> None:
    hide(MARK)
    hide(FORMS[-1])
    for form in FORMS:
        text = f"refused: Authorization: {form} at the end"
        hidden = "refused: Authorization: [secret] at the end"
        assert conceal(text) == hidden
        for error in (UserMistake(text), Broken(text), OpError(Outcome.FAILED, "refused", text)):
            assert str(error) == one_line(error) == hidden
        assert one_line(ValueError(text)) == hidden
        assert concealed({"a": [text, 1, (text,)], "b": None}) == {"a": [hidden, 1, (hidden,)], "b": None}
    cut = shortened("x" * 30 + MARK + "y" * 30, 50)  # cut in its middle
    assert not [part for part in (MARK[:6], MARK[-6:]) if part in cut]


def test_a_secret_that_is_a_short_word_leaves_other_words_readable() -> None:
    hide("sql")
    hide("postgres")
    assert conceal("mysql refused it; is postgresql://me@h PostgreSQL?") == (
        "mysql refused it; is postgresql://me@h PostgreSQL?"
    )
    assert conceal("Password: postgres; 'postgres'") == "Password: [secret]; '[secret]'"
