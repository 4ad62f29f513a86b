"""Servers for tests: marks by name, `--require`, snapshots, and the embedded PostgreSQL."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import psycopg
import pymongo
import pytest
from markupsafe import escape

import tests.examples  # noqa: F401 - loads the usual profile of Hypothesis, and registers the thorough one
from tests.drive.webui import browser
from tests.namespaces import three_hosts
from tests.warm import WarmLocust
from tsbench import text
from tsbench.errors import UserMistake
from tsbench.servers.base import Server
from tsbench.targets.influxdb.server import InfluxServer1, InfluxServer2
from tsbench.targets.mongodb.server import FerretdbServer
from tsbench.targets.mysql.server import MariadbServer, MysqlServer
from tsbench.targets.postgres.server import PostgresServer, TimescaleServer
from tsbench.targets.questdb.server import QuestServer
from tsbench.targets.registry import TARGETS
from tsbench.targets.victoriametrics.server import VictoriaServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

S = TypeVar("S", bound=Server)

SERVER_MARKS = (
    "postgres",
    "timescaledb",
    "timescaledb-community",
    "influxdb-1.6",
    "influxdb-1.8",
    "influxdb-2",
    "mariadb",
    "galera",
    "mysql",
    "mongodb",
    "mongodb-timeseries",
    "victoria",
    "questdb",
    "netns",
    "cgroup",
    "sysstat",
    "chromium",
    "root",
    "locust-versions",
)
"""A test that needs a server is marked with its name, and skips with a reason where the server is not to be had.

So is one that needs root's rights, which skips by its mark alone, and one that installs other versions of Locust.
"""


_UNSAFE = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "64MB"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require",
        action="append",
        default=[],
        metavar="NAME",
        choices=SERVER_MARKS,
        help="a test that skips is a failure if all that it is marked with is NAME (may be given several times)",
    )
    parser.addoption("--slow", action="store_true", help="also run the tests that take seconds each, as --require does")
    parser.addoption("--nightly", action="store_true", help="also run the tests that guard what rarely changes")
    parser.addoption("--update-snapshots", action="store_true", help="write what is compiled now as the new snapshots")


def pytest_configure(config: pytest.Config) -> None:
    for name in SERVER_MARKS:
        config.addinivalue_line("markers", f"{name}: needs that server")
    config.addinivalue_line("markers", "needs(module, ...): needs modules that are optional")
    config.addinivalue_line("markers", "nightly: left out of a run of all tests without --nightly: make nightly")
    # Containers often set it. The tests start hundreds of processes, and each would compile the package anew (0.2 s).
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell without job control starts `... &` so
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _left_out(config: pytest.Config) -> list[str]:
    """Return the marks that a run of all tests leaves out, as somebody wants it who changes the code."""
    if (given := getattr(config, "workerinput", None)) is not None:
        return list(given["left_out"])
    if config.args_source is not pytest.Config.ArgsSource.TESTPATHS or config.getoption("--nightly"):
        return []
    asked = config.getoption("--slow") or config.getoption("--require") or config.getoption("-m")
    return ["nightly"] if asked else ["nightly", "slow"]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of xdist, which is given all tests by name."""
    node.workerinput["left_out"] = _left_out(node.config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    marks = _left_out(config)
    out = [item for item in items if any(map(item.get_closest_marker, marks))]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if item not in {*out}]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if marks := _left_out(config):
        options = " ".join(f"--{mark}" for mark in marks)
        text = f"Tests marked {' or '.join(marks)} were left out; make test ARGS='{options}' runs them, too."
        terminalreporter.write_line(text)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("root") and os.geteuid() != 0:
        pytest.skip("needs root")
    for name in [name for mark in item.iter_markers("needs") for name in mark.args if find_spec(name) is None]:
        pytest.skip(f"{name} is not installed; pip install 'tsbench[mysql,notebook]'")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Turn a skip into a failure where all that the test needs is required: else another lack may be the reason."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    needed = [name for name in SERVER_MARKS if item.get_closest_marker(name)]
    required = bool(needed) and {*needed} <= {*item.config.getoption("--require")}
    if report.skipped and required and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"--require {' --require '.join(needed)}: {reason}"


@contextmanager
def _started(server: S) -> Iterator[S]:
    """Start a server and remove it at the end; skip where it is not installed."""
    try:
        server.start()
    except UserMistake as mistake:
        pytest.skip(str(mistake))
    yield server
    server.stop()
    server.remove()


@contextmanager
def _started_on_demand(make: Callable[[str], S]) -> Iterator[Callable[[str], S]]:
    """Yield a function that starts the server of a name when it is first asked for; all are removed at the end."""
    servers: dict[str, S] = {}
    with ExitStack() as stack:

        def started(name: str) -> S:
            if name not in servers:
                servers[name] = stack.enter_context(_started(make(name)))
            return servers[name]

        yield started


@pytest.fixture
def own_server() -> Iterator[Callable[[S], S]]:
    """Starts a server that the test may kill, removed at the end; skips where it is not installed."""
    with ExitStack() as stack:
        yield lambda server: stack.enter_context(_started(server))


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """The embedded PostgreSQL, one for all tests; durability is off, since nobody pulls the plug on it."""
    with _started(PostgresServer(tmp_path_factory.mktemp("postgres"), _UNSAFE)) as server:
        yield server


@pytest.fixture(scope="session")
def warm_locust(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmLocust]:
    """Locust's command line without the time to import it; for commands that end before they start a load."""
    warm = WarmLocust(tmp_path_factory.mktemp("warm"))
    yield warm
    warm.close()


@pytest.fixture
def chromium(tmp_path: Path) -> Iterator[browser.Browser]:
    """A browser without history."""
    if browser.program() is None:
        pytest.skip(f"needs one of {', '.join(browser.PROGRAMS)}")
    made = browser.Browser(tmp_path / "profile")
    yield made
    made.close()


@pytest.fixture
def unpainted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves the figures, which take most of the time, out of reports; for tests of what else a command does."""
    monkeypatch.setattr("tsbench.report.style.embed", lambda figure, *, name, alt: escape(alt))


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """Three hosts on one bridge, gone afterwards with all that runs in them."""
    with three_hosts() as names:
        yield names


_numbers = itertools.count()


@contextmanager
def _namespace(endpoint: str) -> Iterator[str]:
    """Yield the URL of an empty namespace of a test's own: a database apiece would cost 0.1 to 0.3 s."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(endpoint, autocommit=True) as admin:
        admin.execute(f"CREATE SCHEMA {name}".encode())
        yield f"{endpoint}{'&' if '?' in endpoint else '?'}options=-csearch_path%3D{name}"
        admin.execute(f"DROP SCHEMA {name} CASCADE".encode())


@pytest.fixture
def postgres_endpoint(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of an empty namespace of the test's own."""
    with _namespace(postgres_server.endpoint) as url:
        yield url


@pytest.fixture(scope="session")
def timescaledb_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TimescaleServer]:
    """TimescaleDB as `tsbench servers install` installs it, one for all tests; durability is off."""
    with _started(TimescaleServer(tmp_path_factory.mktemp("timescaledb"), _UNSAFE)) as server:
        yield server


@pytest.fixture
def timescaledb_endpoint(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of an empty namespace on the server in TSBENCH_TEST_TIMESCALEDB, else on that for all tests."""
    given = os.environ.get("TSBENCH_TEST_TIMESCALEDB")
    with _namespace(given or request.getfixturevalue("timescaledb_server").endpoint) as url:
        yield url


@pytest.fixture(scope="session")
def influxdb_server(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[str], InfluxServer1 | InfluxServer2]]:
    """Starts InfluxDB of a version ("1.6", "1.8" or "2") when it is first asked for, one for all tests."""

    def make(version: str) -> InfluxServer1 | InfluxServer2:
        place = tmp_path_factory.mktemp("influxdb")
        return InfluxServer2(place) if version == "2" else InfluxServer1(place, {"version": version})

    with _started_on_demand(make) as start:
        yield start


@pytest.fixture(scope="session")
def victoria_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VictoriaServer]:
    """VictoriaMetrics, one for all tests."""
    with _started(VictoriaServer(tmp_path_factory.mktemp("victoria"))) as server:
        yield server


@pytest.fixture(scope="session")
def questdb_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuestServer]:
    """QuestDB, one for all tests; durability is off, since nobody pulls the plug on it."""
    small = {"shared.worker.count": "2", "cairo.commit.mode": "nosync", "dev.mode.enabled": "true"}
    with _started(QuestServer(tmp_path_factory.mktemp("questdb"), small)) as server:
        yield server


@pytest.fixture(scope="session")
def ferretdb_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FerretdbServer]:
    """FerretDB over DocumentDB, one for all tests; durability is off, since nobody pulls the plug on it."""
    with _started(FerretdbServer(tmp_path_factory.mktemp("ferretdb"), _UNSAFE)) as server:
        yield server


@pytest.fixture(scope="session")
def mongodb_url(request: pytest.FixtureRequest) -> str:
    """The URL of a server without log-ins: that in TSBENCH_TEST_MONGODB, else of the FerretDB for all tests."""
    given = os.environ.get("TSBENCH_TEST_MONGODB")
    return given or str(request.getfixturevalue("ferretdb_server").endpoint)


@pytest.fixture
def mongodb_endpoint(mongodb_url: str) -> Iterator[str]:
    """The URL of an empty database of the test's own."""
    name = f"tsbench_{os.getpid()}_{next(_numbers)}"
    yield urlsplit(mongodb_url)._replace(path=f"/{name}").geturl()
    with pymongo.MongoClient[dict[str, Any]](mongodb_url) as client:
        client.drop_database(name)


@pytest.fixture(scope="session")
def mysql_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], MariadbServer | MysqlServer]]:
    """Starts MariaDB or MySQL when it is first asked for, one for all tests; nobody pulls the plug on it."""
    pytest.importorskip("MySQLdb", reason="mysqlclient is not installed; pip install 'tsbench[mysql]'")
    settings = {
        "innodb_buffer_pool_size": "64M",
        "innodb_flush_log_at_trx_commit": "0",
        "innodb_doublewrite": "0",
        "max_allowed_packet": "1M",
    }

    def make(name: str) -> MariadbServer | MysqlServer:
        place = tmp_path_factory.mktemp(name)
        return MariadbServer(place, settings) if name == "mariadb" else MysqlServer(place, settings)

    with _started_on_demand(make) as start:
        yield start


@pytest.fixture
def sqlite_endpoint(tmp_path: Path) -> str:
    """The URL of a database file that is not there yet."""
    return f"sqlite://{tmp_path / 'test.db'}"


@pytest.fixture
def memory_endpoint(tmp_path: Path) -> str:
    """The name of a store that nobody else has."""
    return f"memory://{tmp_path}"


@pytest.fixture
def in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the answer key a target of this process, under the name `memory`."""
    monkeypatch.setitem(TARGETS._places, "memory", "tsbench.testing.memory:TARGET")


@pytest.fixture(autouse=True)
def _secrets_of_one_test() -> Iterator[None]:
    """Forget the secrets that a test read: a process of tests is none of tsbench's."""
    yield
    text._hidden.clear()


@pytest.fixture(scope="session", autouse=True)
def _unpatched() -> Iterator[None]:
    """Importing locust patches the process for gevent: what is measured here would then be something else."""
    yield
    assert "locust" not in sys.modules, "a test imported locust into pytest's own process; start a process for it"
