"""A server, or a proxy before it, that repeats what it was sent gives no secret away: on no terminal, in no file."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from tests.cli.support import PROGRAMS
from tsbench.errors import Broken, UserMistake, one_line
from tsbench.model import OpError, Outcome
from tsbench.text import conceal, concealed, hide, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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


@pytest.fixture(params=[(), ("/ping", "/health", "/api/v2/buckets", "/api/v2/orgs", "/query")], ids=["all", "later"])
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
@pytest.mark.parametrize("target", ENDPOINTS)
def test_no_output_of_any_command_has_the_secret(target: str, echo: ThreadingHTTPServer, tmp_path: Path) -> None:
    endpoint = ENDPOINTS[target].format(echo.server_address[1])
    points, queries, scenario = tmp_path / "points", tmp_path / "queries", tmp_path / "s.toml"
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
        ["run", str(scenario), "--endpoint", endpoint],
        ["cleanup", target, "--endpoint", endpoint],
    ]
    said = []
    for command in commands:
        done = subprocess.run(
            [PROGRAMS / "tsbench", *command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            timeout=120,
            check=False,
        )
        said.append(done.stdout + done.stderr)
    files = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert any(echo.RequestHandlerClass.asked)  # type: ignore[attr-defined] # the secret was sent
    for form in FORMS:
        assert not [number for number, text in enumerate(said) if form.encode() in text]
        assert not [path for path, text in files.items() if form.encode() in text]


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
