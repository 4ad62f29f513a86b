"""Any endpoint of any target: taken, or refused in one line within seconds; and causes named at once."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING

import bson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.support import TINY, complaint
from tests.examples import examples
from tests.hostile import http, mongodb, postgres
from tests.hostile.doors import SECRET, Channel, FakeServer, environment
from tsbench.cli.main import main
from tsbench.errors import UserMistake
from tsbench.run.time_limits import Limits
from tsbench.targets.registry import get

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from typing import Any

MOST_S = 5.0
GREETING = b"\x50\0\0\0\x0a5.5.5-10.11.6-MariaDB-0+deb12u1\0" + bytes(46)


def greets(channel: Channel) -> None:
    """Be MariaDB, for a moment."""
    channel.send(GREETING)
    channel.waited(1)


def web(channel: Channel) -> None:
    """Be InfluxDB for all, and silent to whoever does not speak HTTP."""
    while True:
        http.read_request(channel)
        channel.send(http.response(fields=b"X-Influxdb-Version: 1.8.10\r\n"))


def elephant(channel: Channel) -> None:
    postgres.begin(channel)
    channel.send(postgres.message(b"E", b"SFATAL\0C28000\0Mno\0\0"))


def leaf(channel: Channel) -> None:
    channel.begin()
    while True:
        number, kind, _ = mongodb.read_message(channel)
        channel.send(mongodb.answer(number, kind, bson.encode(mongodb.HELLO)))


OTHERS: Mapping[str, Callable[[Channel], None]] = {
    "a MariaDB server": greets,
    "an InfluxDB server": web,
    "a PostgreSQL server": elephant,
    "a MongoDB server": leaf,
    "": lambda channel: channel.close(),
}


@pytest.fixture(scope="module")
def ports() -> Iterator[dict[str, int]]:
    """Ports of products, by the name that a message must have."""
    servers = {name: FakeServer(serve) for name, serve in OTHERS.items()}
    for server in servers.values():
        server.__enter__()
    yield {name: server.port for name, server in servers.items()}
    for server in servers.values():
        server.__exit__(None, None, None)


# --- a grammar --------------------------------------------------------------------------------------------------------

DIGITS = "9" * 5_000
SCHEMES = {
    "null": "null", "sqlite": "sqlite", "duckdb": "duckdb", "postgres": "postgresql",
    "influxdb1": "http", "influxdb2": "http", "mongodb": "mongodb", "mariadb": "mariadb", "mysql": "mysql",
    "victoriametrics": "http", "questdb": "http",
}  # fmt: skip
OPTIONS = (
    "sslmode=", "sslmode=verify-full", "sslrootcert=/nonexistent", "sslrootcert=/etc/passwd", "connect_timeout=",
    "host=",
    "hostaddr=x", "port=1", "require_auth=", "require_auth=none,x", "service=x", "passfile=/etc", "options=-cx%3Dy",
    "application_name=", "client_encoding=x", "tls=true", "tls=x", "tlsCAFile=/nonexistent", "tlsCAFile=/etc/passwd",
    "tlsCertificateKeyFile=/dev/null", "authMechanism=PLAIN", "authMechanism=X", "authSource=", "replicaSet=x", "w=0",
    "w=majority", "journal=x", "readPreference=x", "directConnection=x", "compressors=x", "ordered=x",
    "expireAfterSeconds=", "granularity=x", "maxPoolSize=", "serverSelectionTimeoutMS=", "socketTimeoutMS=0", "org=o",
    "bucket=b", "org=", "token_file=/nonexistent", "token_file=/", "token_file=/dev/null", "gzip=1", "rp=x",
    "rp=tsbench",
    "retention=", "shard=1h", "consistency=x", "ssl-mode=", "ssl-mode=REQUIRED", "ssl-mode=VERIFY_IDENTITY",
    "ssl-ca=/nonexistent", "password_file=/nonexistent", "password_file=/", "service=1ms", "stall=", "x=y", "&&", "=",
)  # fmt: skip
ODD = (
    "",
    DIGITS,
    "%00",
    "%",
    "%zz",
    "%0d%0a",
    "\r\nX: y",
    "a b",
    "ü",
    "%ff",
    "'",
    "\\",
    "..",
    "[",
    "]",
    ":",
    "@",
    "\udcff",
    "#",
)
HOSTS = (
    "127.0.0.1",
    "127.0.0.1",
    "127.0.0.1",
    "localhost",
    "[::1]",
    "[::",
    "a.invalid",
    "x" * 70 + ".invalid",
    ".",
    "1,2",
    "-",
    "é",
)


@st.composite
def endpoints(draw: st.DrawFn, ports: Mapping[str, int]) -> tuple[str, str]:
    """Draw a target and an endpoint for it, most of them nearly right."""
    name = draw(st.sampled_from(sorted(SCHEMES)))
    odd = st.sampled_from(ODD)

    def often(*right: str) -> str:
        return draw(st.sampled_from([*right] * 8 + [*ODD]))

    def seldom() -> bool:
        return draw(st.sampled_from([False] * 9 + [True]))

    scheme = draw(st.sampled_from([*SCHEMES.values(), "https", "mongodb+srv", ""])) if seldom() else SCHEMES[name]
    user = often("", "", "somebody@", "some%40body@", "@", ":@")
    host = often(*HOSTS)
    port = often("", ":1", *(f":{one}" for one in ports.values()), ":0", ":65536", ":-1", f":{DIGITS}", ":x")
    path = often("/tsbench", "/tsbench", "/tsbench_x", "/other", "/", "", "/a/b", f"/tsbench{DIGITS}")
    if SCHEMES[name] in {"sqlite", "duckdb"}:
        user, host, port, path = (
            "",
            "",
            "",
            often("/nonexistent/x.db", "/", "/dev/null", "/etc/passwd", f"/{DIGITS}", ":memory:"),
        )
    given_options = draw(st.lists(st.sampled_from(OPTIONS), max_size=3))
    if name == "influxdb2" and draw(st.booleans()):
        path, given_options = "/", ["org=o", "bucket=b", *given_options[:1]]
    written = [f"{one}{draw(odd) if one.endswith('=') or seldom() else ''}" for one in given_options]
    query = f"?{'&'.join(written)}" if written else ""
    return name, f"{scheme}://{user}{host}{port}{path}{query}{draw(odd) if seldom() else ''}"


@pytest.fixture
def connecting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a run only connect, as its first step does."""

    def connect(cell: Any, *_: object, **__: object) -> None:
        target = get(cell.target.name)
        limits = Limits(cell.timeout, cell.target.endpoint)
        limits.connect(target, next(iter(target.schemas.values()))).close()
        raise UserMistake("connected")

    monkeypatch.setattr("tsbench.study.campaign.run_job", connect)


@pytest.mark.slow
@pytest.mark.filterwarnings("error::UserWarning")  # which would be more lines on the console
@pytest.mark.usefixtures("connecting")
def test_any_endpoint_is_taken_or_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ports: dict[str, int]
) -> None:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    slow: list[tuple[float, str, str]] = []
    met: list[str] = []

    @settings(examples(100), suppress_health_check=(HealthCheck.function_scoped_fixture, HealthCheck.too_slow))
    @given(drawn=endpoints(ports))
    def tried(drawn: tuple[str, str]) -> None:
        name, endpoint = drawn
        words = ["run", str(path), "--yes", "--no-report", "--out", str(tmp_path / "results")]
        began = time.monotonic()
        code = main([*words, "--set", f"target.name={name}", "--endpoint", endpoint])
        slow.append((time.monotonic() - began, name, endpoint))
        shown = capsys.readouterr().err
        assert code == 2, shown
        line = complaint(shown)
        met.append(f"{slow[-1][0]:.1f} s  {line}")
        assert len(line) < 1_500, line
        assert "Errno None" not in line, line
        shutil.rmtree(tmp_path / "results", ignore_errors=True)
        assert slow[-1][0] < MOST_S * (10 if os.environ.get("PYTEST_XDIST_WORKER") else 2), slow[-1]

    with environment(TSBENCH_PASSWORD=SECRET, TSBENCH_TOKEN=SECRET):
        tried()
    print("\n".join(met))
    print(f"{len(slow)} endpoints, {sum(took_s > MOST_S for took_s, *_ in slow)} over 5 s, the slowest {max(slow)}")


# --- causes, as they are printed --------------------------------------------------------------------------------------

ANSWERS = "answers there; name its target"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "endpoint", "words"),
    [
        ("mongodb", "mongodb://127.0.0.1:1/tsbench", "127.0.0.1:1: [Errno 111] Connection refused"),
        ("mongodb", "mongodb://a.invalid:1/tsbench", "a.invalid:1: [Errno -2] Name or service not known"),
        ("mongodb", "mongodb://127.0.0.1:{a MariaDB server}/tsbench", f"a MariaDB server {ANSWERS}"),
        ("mongodb", "mongodb://127.0.0.1:{a PostgreSQL server}/tsbench", f"a PostgreSQL server {ANSWERS}"),
        ("mongodb", "mongodb://127.0.0.1:{an InfluxDB server}/tsbench", f"an InfluxDB server {ANSWERS}"),
        ("mongodb", "mongodb://127.0.0.1:{}/tsbench", "127.0.0.1:"),
        ("mongodb", "mongodb://h/tsbench?tls=true&tlsCAFile=/nonexistent", "/nonexistent cannot be read: No such file"),
        ("mongodb", "mongodb://h/tsbench?tls=true&tlsCAFile=/etc/passwd", "NO_CERTIFICATE_OR_CRL_FOUND"),
        ("mongodb", "mongodb://nobody@127.0.0.1:1/tsbench", "no password; set TSBENCH_PASSWORD"),
        ("mongodb", "mongodb://h/tsbench?authMechanism=X", "authmechanism must be in"),
        ("mongodb", "mongodb://u@h/tsbench?authMechanism=PLAIN", "sends the password as it is"),
        ("mongodb", "mongodb://h/tsbench%00", "holds the control character %00"),
        ("mongodb", "mongodb://h/tsbench?w=1&W=0", "the option w is given twice; keep one"),
        ("mongodb", "mongodb://h/tsbench?compressors=x", "Unsupported compressor: x"),
        ("mongodb", f"mongodb://h/tsbench?expireAfterSeconds={DIGITS}", "is not a whole number of seconds"),
        ("postgres", "postgresql://u@127.0.0.1:{a MariaDB server}/tsbench", f"a MariaDB server {ANSWERS}"),
        ("postgres", "postgresql://u@127.0.0.1:{an InfluxDB server}/tsbench", f"an InfluxDB server {ANSWERS}"),
        ("postgres", "postgresql://u@h/x%00", "holds the control character %00"),
        ("influxdb1", "http://127.0.0.1:{a PostgreSQL server}/x", f"a PostgreSQL server {ANSWERS}"),
        ("influxdb1", "http://127.0.0.1:{a MariaDB server}/x", f"a MariaDB server {ANSWERS}"),
        ("influxdb1", "http://127.0.0.1:{a MongoDB server}/x", f"a MongoDB server {ANSWERS}"),
        ("influxdb1", "https://127.0.0.1:{an InfluxDB server}/x", "or write http:// for one without TLS"),
        ("postgres", "postgresql://u@127.0.0.1:1/x", "Connection refused"),
        ("postgres", "postgresql://u@a.invalid/x", "Name or service not known"),
        ("influxdb2", "http://127.0.0.1:1/?org=o&bucket=b", "127.0.0.1:1: [Errno 111] Connection refused"),
        ("mysql", "mysql://u@127.0.0.1:1/tsbench", "Can't connect to server on '127.0.0.1'"),
        ("influxdb2", "http://127.0.0.1:{a MariaDB server}/?org=o&bucket=b", f"a MariaDB server {ANSWERS}"),
        ("mariadb", "mariadb://u@127.0.0.1:{a PostgreSQL server}/tsbench", f"a PostgreSQL server {ANSWERS}"),
        ("mysql", "mysql://u@127.0.0.1:{an InfluxDB server}/tsbench", f"an InfluxDB server {ANSWERS}"),
        ("mongodb", "mongodb://h/tsbench?tls=true&tlsCAFile={fifo}", "/fifo is a FIFO; name a file"),
        ("mysql", "mysql://u@h/tsbench?server-public-key={fifo}", "/fifo is a FIFO; name a file"),
        ("postgres", "postgresql://u@h/x?sslrootcert={fifo}", "/fifo is a FIFO; name a file"),
        ("sqlite", "sqlite:///x%00.db", "holds the control character %00"),
        ("null", "memory://x", "is not an endpoint of the target null"),
        ("null", "null://[x", "is not a URL"),
    ],
)
@pytest.mark.filterwarnings("error")  # which would be more lines on the console
@pytest.mark.usefixtures("connecting")
def test_the_cause_is_named_in_one_line_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ports: dict[str, int], name: str, endpoint: str, words: str
) -> None:
    pytest.importorskip(driver.module if (driver := get(name).driver) else "sys")
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    os.mkfifo(tmp_path / "fifo")
    endpoint = endpoint.replace("{fifo}", str(tmp_path / "fifo"))
    for product, port in ports.items():
        endpoint = endpoint.replace(f"{{{product}}}", str(port))
    began = time.monotonic()
    assert (
        main(
            [
                "run",
                str(path),
                "--yes",
                "--out",
                str(path.parent),
                "--set",
                f"target.name={name}",
                "--endpoint",
                endpoint,
            ]
        )
        == 2
    )
    took_s = time.monotonic() - began
    line = complaint(capsys.readouterr().err)
    print(f"{took_s:.2f} s  {line}")
    assert words in line
    assert "Topology" not in line
    assert took_s < 20  # of a busy machine; 2 s for MongoDB, 4 for others, on an idle one


@pytest.mark.parametrize("token", ["a\r\nX-Other: y", "a\nb", "a\x00b"])
@pytest.mark.parametrize("name", ["influxdb1", "influxdb2", "postgres", "mongodb"])
def test_a_secret_that_no_header_may_hold_is_one_line_and_is_not_shown(tmp_path: Path, name: str, token: str) -> None:
    protocols = {**http.ENDPOINTS, **postgres.ENDPOINTS, **mongodb.ENDPOINTS}
    file = tmp_path / "secret"
    file.write_text(f"{token}x")
    schema = next(iter(get(name).schemas.values()))
    with (
        environment(TSBENCH_PASSWORD_FILE=str(file), TSBENCH_TOKEN_FILE=str(file)),
        pytest.raises(UserMistake, match="holds a line break or a NUL; write the secret alone, on one line") as caught,
    ):
        get(name).connect(protocols[name].format(port=1), schema, timeout_s=5)
    assert "X-Other" not in str(caught.value)
