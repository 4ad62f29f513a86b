"""One fault: a real command in a directory of its own, the fault, and what is found afterwards."""

from __future__ import annotations

import re
import sqlite3
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import psutil
import psycopg

from tests.cli.support import LONG, Command, content, nothing_left, scenario, started
from tests.faults.proxy import Proxy
from tsbench.errors import UserMistake
from tsbench.servers import unprivileged
from tsbench.targets.influxdb.server import InfluxServer1, InfluxServer2
from tsbench.targets.mongodb.server import FerretdbServer
from tsbench.targets.mysql.server import MariadbServer, MysqlServer
from tsbench.targets.postgres.server import PostgresServer
from tsbench.targets.questdb.server import QuestServer
from tsbench.targets.victoriametrics.server import VictoriaServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tsbench.servers.base import Server

CONTROL_GROUPS = Path("/sys/fs/cgroup")
PATIENCE_S = 300.0
MIDDLE = {"loading": ("load", 0.5), "checking": ("check", 1.0)}
"""Phases, and the seconds after which they have certainly begun to send or ask."""
SHORT = {"drive.duration": "1s", "load.window": "10m", "check.answers": "5"}
"""Settings of a resumed run, where the interrupted one had longer ones."""
AGAIN, KEPT, STARTS_ANEW = "runs again, valid", "kept as it is", "nothing to resume"
"""What `--resume` does: runs the cell again; keeps the cell, which is complete, with its verdict; is not possible."""


def limits(**seconds: float) -> tuple[str, ...]:
    return tuple(word for key, value in seconds.items() for word in ("--set", f"timeout.{key}={value}s"))


IMPATIENT = (
    *("--set", "drive.duration=5s", "--set", "drive.timeout=1s", "--set", "drive.stop_timeout=1s"),
    *limits(connect=2, create=5, load=2, settle=5, check=2),
)
"""Limits for servers that do not answer."""


class Skipped(Exception):  # noqa: N818 - not an error
    """Raised where this machine cannot make a fault; the text is the reason."""


@dataclass(frozen=True)
class Fault:
    """One fault, and what must come of it.

    `act` makes it while the command runs. `says` are patterns that the command's one line must match, `validity` is the
    state in the cell's summary, also a pattern ("" if there must be none). `known` is why a row is not yet as
    expected. `make test` carries out the `quick` ones, and resumes only those that are `quick_resumed`.
    """

    name: str
    act: Callable[[Stand], None]
    says: tuple[str, ...] = ()
    code: int = 1
    validity: str = "inconclusive"
    words: tuple[str, ...] = LONG
    at: str = "started"
    """The server: `started` by tsbench, our `own` at an endpoint, that one behind a `proxied` port, or behind a
    proxied port for SQL, which the endpoint's option `pg` names (`sql proxied`)."""
    before: Callable[[Stand], None] = lambda stand: None
    """Prepares the place before the command starts."""
    cure: Callable[[Stand], None] = lambda stand: None
    """Ends the fault before the set is resumed."""
    resumed: str = AGAIN
    known: str = ""
    holds: Callable[[Stand], None] = lambda stand: None
    """Asserts what else must hold when the command has ended."""
    quick: bool = False
    quick_resumed: bool = False
    of_root: bool = False
    """Whether only root can make it."""


@dataclass(frozen=True)
class Database:
    """How a database is asked for, and how a server of our own is started."""

    name: str
    target: str
    process: str = ""
    server: Callable[[Path], Server] | None = None
    words: tuple[str, ...] = ()
    """Further words of each command."""


def nodes(replicas: int, settings: str) -> tuple[str, ...]:
    """Return the words for three nodes with these settings."""
    keys = ("server.nodes=3", f"server.replicas={replicas}", f"target.settings={{{settings}}}")
    return tuple(word for key in keys for word in ("--set", key))


def _questdb(place: Path) -> Server:
    return QuestServer(place, {"cairo.commit.mode": "nosync", "dev.mode.enabled": "true"})


DATABASES = {
    "PostgreSQL": Database(
        "PostgreSQL",
        "postgres",
        "postgres",
        lambda place: PostgresServer(place, {"fsync": "off", "shared_buffers": "64MB"}),
    ),
    "InfluxDB 1.8": Database(
        "InfluxDB 1.8", "influxdb1", "influxd", lambda place: InfluxServer1(place, {"version": "1.8"})
    ),
    "InfluxDB 2": Database("InfluxDB 2", "influxdb2", "influxd", InfluxServer2),
    "MariaDB": Database("MariaDB", "mariadb", "mariadbd", MariadbServer),
    "MySQL": Database("MySQL", "mysql", "mysqld", MysqlServer),
    "FerretDB": Database("FerretDB", "mongodb", "ferretdb", FerretdbServer),
    "VictoriaMetrics": Database("VictoriaMetrics", "victoriametrics", "victoria-metrics", VictoriaServer),
    "QuestDB": Database("QuestDB", "questdb", "java", _questdb),
    "PostgreSQL, three nodes": Database("PostgreSQL, three nodes", "postgres", words=nodes(2, "shared_buffers='32MB'")),
    "MariaDB, three nodes": Database("MariaDB, three nodes", "mariadb", words=nodes(3, "innodb_log_file_size='16M'")),
    "SQLite": Database("SQLite", "sqlite"),
    "DuckDB": Database("DuckDB", "duckdb"),
}


@dataclass
class Stand:
    """The place of one fault: directory, server and proxy if any, and the running command."""

    place: Path
    database: Database
    cleaning: ExitStack
    server: Server | None = None
    proxy: Proxy | None = None
    program: tuple[str, ...] = ("tsbench",)
    environment: dict[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    """Further words of the first command, not of the resumed one."""
    _command: Command | None = None

    @property
    def command(self) -> Command:
        assert self._command is not None
        return self._command

    @property
    def file(self) -> Path:
        """The database file at the endpoint of SQLite."""
        return self.place / "own.db"

    @property
    def partial(self) -> Path:
        """The directory of the run."""
        (found,) = self.place.glob("results/*/*.partial")
        return found

    @property
    def cell(self) -> dict[str, Any]:
        """The only cell of the set's summary."""
        (path,) = self.place.glob("results/*/summary.json")
        (found,) = content(path)["cells"]
        return dict(found)

    def endpoint(self) -> tuple[str, ...]:
        """Return the words that name the server, if it is ours."""
        if self.database.server is None:
            return ("--endpoint", f"sqlite://{self.file}")
        assert self.server is not None
        url = self.server.endpoint
        if self.proxy is not None and (sql := _sql_port(url)) == self.proxy.server_port:
            url = url.replace(f"pg={sql}", f"pg={self.proxy.port}")
        elif self.proxy is not None:
            url = url.replace(f":{urlsplit(url).port}/", f":{self.proxy.port}/", 1)
        return ("--endpoint", url)

    def run(self, *words: str) -> Command:
        self._command = started(self.place, *words, program=self.program, env={**self.environment, "TMPDIR": self.tmp})
        return self._command

    @property
    def tmp(self) -> str:
        """The directory of temporary files."""
        return str(self.place / "tmp")

    def end(self) -> None:
        """Kill the command if it is running."""
        if self._command is not None:
            self._command.end()

    def until(self, moment: str) -> None:
        """Wait for a phase of the run, the middle of one (MIDDLE), or `measured`: two recorded seconds."""
        if moment == "measured":
            self.command.until_measured()
        else:
            phase, seconds = MIDDLE.get(moment, (moment, 0.0))
            self.command.until_phase(phase)
            time.sleep(seconds)

    def served(self) -> psutil.Process:
        """Return the server's first process."""
        if self.server is not None:
            return psutil.Process(self.server.pids()[0])
        children = psutil.Process(self.command.process.pid).children()
        return next(child for child in children if child.name().startswith(self.database.process))

    def load_process(self) -> psutil.Process:
        """Return Locust's first process: the master, if it has workers."""
        return self.command.load_process()


@dataclass
class Result:
    """What was found of one fault; `wrong` are the differences from what must come of it."""

    fault: Fault
    database: str
    code: int | None = None
    line: str = ""
    validity: str = ""
    resumed: str = ""
    left: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    skipped: str = ""
    seconds: float = 0.0

    @property
    def is_expected(self) -> bool:
        return not self.wrong

    @property
    def verdict(self) -> str:
        if self.skipped:
            return f"skipped: {self.skipped}"
        if self.is_expected:
            return "yes"
        return f"known: {self.fault.known}" if self.fault.known else f"NO: {'; '.join(self.wrong)}"


def carry_out(fault: Fault, database: str, place: Path, *, resume: bool = True) -> Result:
    """Carry out one fault in a new directory; without `resume` the set is not resumed afterwards."""
    result, began = Result(fault, database), time.monotonic()
    place.mkdir(mode=0o755, exist_ok=True)
    (place / "tmp").mkdir()
    (place / "tmp").chmod(0o1777)
    scenario(place)
    try:
        with nothing_left(), ExitStack() as stack:
            stand = Stand(place, DATABASES[database], stack)
            _serve(stand, fault)
            fault.before(stand)
            stack.callback(stand.end)
            _examine(stand, fault, result, resume=resume)
    except (AssertionError, psutil.Error, psycopg.Error, sqlite3.Error, StopIteration, OSError) as error:
        result.wrong.append(f"{type(error).__name__}: {' '.join(str(error).split())[-600:]}")
    except (Skipped, UserMistake) as reason:
        result.skipped = str(reason)
    result.seconds = time.monotonic() - began
    return result


def _serve(stand: Stand, fault: Fault) -> None:
    """Start a server of our own, and a proxy, if the fault is about one."""
    if fault.at == "started" or stand.database.server is None:
        return
    directory = stand.place / "own"
    directory.mkdir()
    server = stand.server = stand.database.server(directory)
    stand.cleaning.callback(server.remove)
    server.start()
    stand.cleaning.callback(server.stop)
    if fault.at in {"proxied", "sql proxied"}:
        port = urlsplit(server.endpoint).port if fault.at == "proxied" else _sql_port(server.endpoint)
        stand.proxy = stand.cleaning.enter_context(Proxy(int(port or 0)))


def _sql_port(url: str) -> int:
    """Return the port for SQL of an endpoint that has one beside another, else 0."""
    return int(dict(parse_qsl(urlsplit(url).query)).get("pg", 0))


def _examine(stand: Stand, fault: Fault, result: Result, *, resume: bool) -> None:
    target = ("--set", f"target.name={stand.database.target}")
    words = (*target, *stand.database.words, *fault.words, *(() if fault.at == "started" else stand.endpoint()))
    command = stand.run(*words, *stand.words)
    fault.act(stand)
    result.code = command.wait(PATIENCE_S)
    stderr = command.stderr
    result.line = " ".join(line for line in stderr.splitlines() if line.startswith("tsbench:"))
    result.validity, busy = _validity(stand.place)
    _expect(result, "exit code", result.code, fault.code or (1 if busy else 0))
    if not re.fullmatch(fault.validity, result.validity):
        result.wrong.append(f"summary '{result.validity}', not '{fault.validity}'")
    if "Traceback" in stderr or stderr.count("\ntsbench:") > 1:
        result.wrong.append(f"more than one line: {stderr[-300:]}")
    result.wrong += [f"no '{pattern}'" for pattern in fault.says if not re.search(pattern, result.line)]
    fault.holds(stand)
    if fault.code >= 0:  # what a killed tsbench leaves is deleted when the set is resumed
        result.left = left_behind(stand.place, command.process.pid)
    if resume:
        _resume(stand, fault, result, words)
        result.left += left_behind(stand.place, stand.command.process.pid)
    result.wrong += [f"left behind: {one}" for one in result.left]


def _expect(result: Result, what: str, found: object, expected: object) -> None:
    if found != expected:
        result.wrong.append(f"{what} {found!r}, not {expected!r}")


def _validity(place: Path) -> tuple[str, bool]:
    """Return the state of the only cell's validity ("" if the set has no summary), and whether the machine was busy.

    On a busy machine the load generator is the limit. That is no fault, so it is left out of the state.
    """
    for path in place.glob("results/*/summary.json"):
        (cell,) = content(path)["cells"]
        validity = cell["validity"]
        states = {name: check["state"] for name, check in validity["checks"].items()}
        busy = states.pop("limit", "valid") != "valid" and set(states.values()) == {"valid"}
        return ("valid", True) if busy else (str(validity["state"]), False)
    return "", False


def left_behind(place: Path, pid: int) -> list[str]:
    """Return what a command has left that nobody needs: data of servers, unfinished and temporary files, groups."""
    found = [str(path) for path in place.glob("results/*/*/server")]
    found += [str(path) for path in (*place.rglob("results/**/*.new"), *(place / "tmp").iterdir())]
    for origin in unprivileged._origins():
        with suppress(OSError):
            of = Path(origin.read_text())
            if of.is_relative_to(place) and not of.is_relative_to(place / "own"):
                found.append(str(origin))
    return found + [str(path) for path in CONTROL_GROUPS.glob(f"**/tsbench-{pid}-*")]


def _resume(stand: Stand, fault: Fault, result: Result, words: tuple[str, ...]) -> None:
    """Take the set up again without the fault, and note what came of it."""
    results = [path for path in stand.place.glob("results/*") if path.is_dir()]  # `disk_full` fills a file there
    if fault.resumed == STARTS_ANEW or not results:
        result.resumed = STARTS_ANEW if not results else "there is a set to resume"
        _expect(result, "resuming", result.resumed, fault.resumed)
        return
    fault.cure(stand)
    if stand.proxy is not None:
        stand.proxy.accept()
    if stand.server is not None:
        stand.server.start()
    stand.program, stand.environment = ("tsbench",), {}
    if fault.resumed == AGAIN:
        words += tuple(w for k, v in SHORT.items() if f" {k}=" in f" {' '.join(words)}" for w in ("--set", f"{k}={v}"))
    first = result.line
    again = stand.run(*words, "--resume", str(results[0]))
    code = again.wait(PATIENCE_S)
    line = " ".join(line for line in again.stderr.splitlines() if line.startswith("tsbench:"))
    state, busy = _validity(stand.place)
    if (code, line) == (result.code, first):
        result.resumed = KEPT
    elif (code, state) == (1 if busy else 0, "valid"):
        result.resumed = AGAIN
    else:
        result.resumed = f"exit {code}, {state}: {line or again.stderr[-300:]}"
    _expect(result, "resuming", result.resumed, fault.resumed)
