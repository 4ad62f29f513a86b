"""Where a secret comes from, and where one is refused."""

from __future__ import annotations

import os
import string
from pathlib import Path  # noqa: TC003

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsbench.errors import UserMistake
from tsbench.targets import credentials

SENTINEL = "sentinel4711"
OWN = "postgresql://me@db.example:5432/bench"
REFUSAL = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [*credentials.DATABASE, "TSBENCH_WEB_PASSWORD"]
    for name in (*names, *(f"{name}_FILE" for name in names), "PGPASSWORD", "PGPASSFILE"):
        monkeypatch.delenv(name, raising=False)


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
