"""Which endpoint may receive which secret, and where a secret is refused."""

from __future__ import annotations

import os
import socket
import string
import struct
import subprocess
import threading
from base64 import b64encode
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.net.loopback import Loopback
from tsbench.errors import UserMistake
from tsbench.targets import credentials, registry

if TYPE_CHECKING:
    from collections.abc import Iterator

SENTINEL = "sentinel4711"
OWN = "postgresql://me@db.example:5432/bench"
REFUSAL = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [*credentials.DATABASE, "TSBENCH_WEB_PASSWORD"]
    for name in (*names, *(f"{name}_FILE" for name in names), "PGPASSWORD", "PGPASSFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(credentials.ENTITLED, "")  # so that it is put back, whatever a test makes of it
    monkeypatch.delenv(credentials.ENTITLED)


# --- the loader -------------------------------------------------------------------------------------------------------


def test_a_secret_comes_from_its_variable_or_its_file_and_the_first_name_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert credentials.read("TSBENCH_TOKEN", "TSBENCH_PASSWORD") is None
    (tmp_path / "p").write_text(" two words \n")
    monkeypatch.setenv("TSBENCH_PASSWORD_FILE", str(tmp_path / "p"))
    assert credentials.read("TSBENCH_TOKEN", "TSBENCH_PASSWORD") == " two words "
    monkeypatch.setenv("TSBENCH_PASSWORD", "direct")
    assert credentials.read("TSBENCH_TOKEN", "TSBENCH_PASSWORD") == "direct"
    monkeypatch.setenv("TSBENCH_TOKEN", "first")
    assert credentials.read("TSBENCH_TOKEN", "TSBENCH_PASSWORD") == "first"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        *[(None, "cannot be read"), (b"", "is empty"), (b"\n", "is empty"), (b"\xff\xfe\0", "not a text")],
        ("fifo", "is a FIFO; write the secret into a file"),
    ],
)
def test_a_file_without_a_secret_is_named_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | str | None, why: str
) -> None:
    if content == "fifo":
        os.mkfifo(tmp_path / "p")
    elif isinstance(content, bytes):
        (tmp_path / "p").write_bytes(content)
    monkeypatch.setenv("TSBENCH_TOKEN_FILE", str(tmp_path / "p"))
    with pytest.raises(UserMistake, match=why) as caught:
        credentials.read("TSBENCH_TOKEN")
    assert str(caught.value).startswith(f"TSBENCH_TOKEN_FILE={tmp_path / 'p'}")
    assert "\n" not in str(caught.value)


# --- whom they belong to ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (OWN, True),
        ("postgresql://me@db.example:5432/another", True),
        ("postgresql://me@DB.Example:5432", True),
        ("postgresql://me@db.example:5432/bench?gzip=1", True),
        ("postgresql://you@db.example:5432/bench", False),
        ("postgresql://db.example:5432/bench", False),
        ("postgresql://me@db.example:5433/bench", False),
        ("postgresql://me@db.example/bench", False),
        ("postgresql://me@db.example.evil.example:5432/bench", False),
        ("http://me@db.example:5432/bench", False),
        ("postgresql://me@db.example:5432/bench?host=evil.example", False),
        ("postgresql://me@db.example:5432/bench?%68ost=evil.example", False),
        ("postgresql://me@db.example:5432/bench?service=evil", False),
        ("postgresql://me@db.example:5432@evil.example/bench", False),
        ("postgresql://me@db.example:5432,evil.example/bench", False),
        ("postgresql://me@db.example:5432#@evil.example/bench", False),
        ("postgresql://me@db.example:5432?gzip=@evil.example/bench", False),
        ("postgresql://me@db.example:5432\\@evil.example/bench", False),
        ("postgresql://me@db.example:5432\t/bench", False),
        ("", False),
    ],
)
def test_secrets_belong_to_a_user_at_a_server_whatever_the_database_there(
    monkeypatch: pytest.MonkeyPatch, other: str, same: bool
) -> None:
    monkeypatch.setenv("TSBENCH_PASSWORD", SENTINEL)
    credentials.entitle(OWN)
    assert credentials.is_entitled(other) is same
    assert credentials.read_for(other, "TSBENCH_PASSWORD") == (SENTINEL if same else None)
    credentials.shed(other)
    assert ("TSBENCH_PASSWORD" in os.environ) is (same or not other)
    credentials.shed("")
    assert os.environ["TSBENCH_PASSWORD"] == SENTINEL


def test_a_user_whose_name_a_parser_might_take_for_the_host_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    credentials.entitle("postgresql://db.example")
    for form in ("postgresql://db.example?gzip=@evil.example/x", "postgresql://db.example#@evil.example/x"):
        assert not credentials.is_entitled(form)


def test_without_an_endpoint_at_the_start_secrets_belong_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TSBENCH_PASSWORD", SENTINEL)
    assert credentials.read_for(OWN, "TSBENCH_PASSWORD") == SENTINEL, "nothing was said: the endpoint is the user's own"
    credentials.entitle("")
    assert credentials.read_for(OWN, "TSBENCH_PASSWORD") is None
    credentials.entitle(OWN)
    assert credentials.read_for(OWN, "TSBENCH_PASSWORD") == SENTINEL


@pytest.mark.parametrize(
    "option", ["passfile=/etc/shadow", "service=x", "sslkey=/etc/key", "host=/run", "%74oken_file=/x"]
)
def test_a_form_cannot_name_a_file_of_this_machine(option: str) -> None:
    credentials.entitle("")
    with pytest.raises(UserMistake, match="cannot be given here"):
        credentials.check_foreign(f"postgresql://me@h/db?{option}", "endpoint")


def test_another_server_finds_nothing_in_the_environment_and_the_next_test_of_the_own_one_finds_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = (
        "PGPASSWORD",
        "PGSERVICE",
        "PGUSER",
        "AWS_SECRET_ACCESS_KEY",
        "KRB5CCNAME",
        "TSBENCH_TOKEN",
        "SSH_AUTH_SOCK",
    )
    for name in names:
        monkeypatch.setenv(name, SENTINEL)
    credentials.entitle(OWN)
    before = dict(os.environ)
    for foreign in ("postgresql://me@evil.example/x", "mysql://me@evil.example/x"):
        credentials.shed(foreign)
        left = subprocess.run(["/usr/bin/env"], capture_output=True, text=True, check=True).stdout
        assert SENTINEL not in left
        assert Path.home() == Path(credentials.NOWHERE)
        assert not credentials.is_entitled(foreign)
        assert credentials.whole_environment()["PGPASSWORD"] == SENTINEL
    credentials.shed(OWN)
    assert dict(os.environ) == before


@contextmanager
def postgres_that_asks_for_a_password() -> Iterator[tuple[int, list[bytes]]]:
    """Start a stranger's server that asks for a PostgreSQL password in plain text; record all bytes."""
    sent: list[bytes] = []

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                client.settimeout(5)
                while data := client.recv(65_536):
                    sent.append(data)
                    if data[4:8] in {struct.pack("!I", code) for code in (80_877_103, 80_877_104)}:
                        client.sendall(b"N")  # no TLS, no GSSAPI
                    else:
                        client.sendall(b"R" + struct.pack("!II", 8, 3) if data[:1] != b"p" else b"E\0\0\0\x05\0")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1], sent
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("variable", ["TSBENCH_PASSWORD", "PGPASSWORD", "PGPASSFILE"])
def test_a_postgresql_that_the_password_is_not_for_never_sees_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    passfile = tmp_path / "pgpass"
    passfile.write_text(f"*:*:*:*:{SENTINEL}\n")
    passfile.chmod(0o600)
    monkeypatch.setenv(variable, str(passfile) if variable == "PGPASSFILE" else SENTINEL)
    target = registry.get("postgres")
    monkeypatch.setenv(credentials.ENTITLED, OWN)
    with pytest.raises(UserMistake, match="name the user"):  # not the one of this machine
        target.connect("postgresql://127.0.0.1:9/x", target.schemas["btree"], timeout_s=3)
    for entitled in (True, False):
        with postgres_that_asks_for_a_password() as (port, sent):
            endpoint = f"postgresql://me@127.0.0.1:{port}/x?require_auth=password"  # else none gets it without TLS
            monkeypatch.setenv(credentials.ENTITLED, endpoint if entitled else OWN)
            with pytest.raises(UserMistake) as caught:
                target.connect(endpoint, target.schemas["btree"], timeout_s=3)
            assert sent, "it was asked"
            assert any(SENTINEL.encode() in data for data in sent) is entitled
            assert ("no secret was sent" in str(caught.value)) is not entitled


def test_an_influxdb_that_the_secrets_are_not_for_never_sees_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in credentials.DATABASE:
        monkeypatch.setenv(name, SENTINEL)
    ends = {"influxdb1": "http://me@127.0.0.1:{}/x", "influxdb2": "http://127.0.0.1:{}/?org=o&bucket=b"}
    spellings = SENTINEL.encode(), b64encode(f"me:{SENTINEL}".encode())
    for name, form in ends.items():
        for entitled in (True, False):
            with Loopback(lambda peer, _: peer.send(REFUSAL)) as server:
                endpoint = form.format(server.port)
                monkeypatch.setenv(credentials.ENTITLED, endpoint if entitled else OWN)
                with pytest.raises(UserMistake) as caught:
                    registry.get(name).connect(endpoint, registry.get(name).schemas["tags"], timeout_s=3)
                seen = b"".join(server.requests)
                assert seen
                assert any(spelling in seen for spelling in spellings) is entitled
                assert ("no secret was sent" in str(caught.value)) is not entitled


# --- where they may not be --------------------------------------------------------------------------------------------

KEYS = ["password", "passwd", "pwd", "sslpassword", "token", "p", "secret", "api_key"]
WORD = st.text(string.ascii_lowercase, min_size=1, max_size=8).filter(lambda word: word not in KEYS)
SECRET = st.just(SENTINEL)


@st.composite
def spelled(draw: st.DrawFn, word: str) -> str:
    """Draw the word with any of its letters in capitals or percent-encoded, once or twice."""

    def letter(char: str) -> str:
        how = draw(st.sampled_from(["as it is", "capital", "encoded", "encoded twice"]))
        if how == "capital":
            return char.upper()
        code = f"{ord(char):02x}"
        return {"encoded": f"%{code}", "encoded twice": f"%25{code}"}.get(how, char)

    return "".join(letter(char) for char in word)


@st.composite
def urls(draw: st.DrawFn) -> str:
    """A URL with a secret before its host or in its query."""
    scheme = draw(st.sampled_from(["postgresql", "postgres", "http", "https", "HTTP", "sqlite", "x+y"]))
    host = f"{draw(WORD)}{draw(st.sampled_from(['', ':5432']))}"
    path = draw(st.sampled_from(["", "/", "/db", "/a/b.db"]))
    if draw(st.booleans()):
        user = draw(st.one_of(st.just(""), WORD))
        colon = draw(st.sampled_from([":", "%3A", "%3a"]))
        password = draw(st.sampled_from(["", "a/", "a@", "a?", "a#", "a:"])) + SENTINEL
        return f"{scheme}://{user}{colon}{password}@{host}{path}"
    before = draw(st.sampled_from(["?", "?sslmode=require&", "?a=b;", "?&"]))
    equals = draw(st.sampled_from(["=", "%3D", "%20="]))
    return f"{scheme}://{host}{path}{before}{draw(spelled(draw(st.sampled_from(KEYS))))}{equals}{SENTINEL}"


@st.composite
def conninfos(draw: st.DrawFn) -> str:
    """libpq's other form: `host=x password = 'y z'`, its parts in any order."""
    space = st.sampled_from(["", " ", "  ", "\t", "\n"])
    key = draw(st.sampled_from(["password", "sslpassword", "PASSWORD", "Password"]))
    value = draw(st.sampled_from([SENTINEL, f"'{SENTINEL}'", f"'{SENTINEL} and more'", f"\\'{SENTINEL}"]))
    parts = [f"{key}{draw(space)}={draw(space)}{value}", "host=db", "dbname = 'my bench'", "user=me"]
    return draw(st.sampled_from([" ", "  ", "\n", "\t"])).join(draw(st.permutations(parts)))


@given(st.one_of(urls(), conninfos()))
def test_a_secret_in_an_endpoint_is_found_in_every_spelling_and_not_repeated(endpoint: str) -> None:
    with pytest.raises(UserMistake) as caught:
        credentials.refuse_secrets(endpoint, "--endpoint")
    assert str(caught.value).startswith("--endpoint: holds a password or token")
    assert SENTINEL not in str(caught.value)
    assert "\n" not in str(caught.value)


@given(
    st.sampled_from(["postgresql", "http", "https", "null", "memory", "sqlite"]),
    st.one_of(st.just(""), WORD.map(lambda user: f"{user}@")),
    st.one_of(WORD, st.just("[::1]"), st.just("127.0.0.1")),
    st.sampled_from(["", ":5432"]),
    st.one_of(st.just(""), WORD.map(lambda name: f"/{name}/token/password.db")),
    st.lists(
        st.sampled_from(
            [
                "passfile=/run/secrets/password",
                "token_file=/run/secrets/token",
                "options=-csearch_path%3Dtest",
                "options=-c%20password_encryption%3Dmd5",
                "host=/tmp/socket",
                "rp=tsbench",
                "org=tokens",
                "bucket=p",
                "require_auth=scram-sha-256",
                "application_name=pwd",
            ]
        ),
        max_size=3,
    ),
)
def test_an_endpoint_without_a_secret_is_taken(
    scheme: str, user: str, host: str, port: str, path: str, options: list[str]
) -> None:
    credentials.refuse_secrets(f"{scheme}://{user}{host}{port}{path}?{'&'.join(options)}", "--endpoint")


@pytest.mark.parametrize(
    "endpoint", ["sqlite:////data/a:b@c.db", "null://?service=1ms&stall_at=3s&stall=2s", "memory://"]
)
def test_names_of_files_and_of_behaviours_hold_no_secret(endpoint: str) -> None:
    credentials.refuse_secrets(endpoint, "--endpoint")
