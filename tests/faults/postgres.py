"""Faults of a PostgreSQL: of the server that tsbench starts, of one that others use too, and of the way to it."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psutil
import psycopg

from tests.faults import proxy
from tests.faults.bench import IMPATIENT, KEPT, PATIENCE_S, Fault, limits
from tests.faults.hands import (
    CHECKING,
    FIVE_SECONDS,
    LOADING,
    SETTLING,
    behaves,
    disk_full,
    gate_failed,
    nothing,
    on_way,
    refusing,
    room,
    server,
    signalled,
    small_disk,
    some_measured,
    suspend,
    suspended,
    wake,
    writes_counted,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.faults.bench import Stand


def _backend(stand: Stand) -> psutil.Process:
    return next(child for child in stand.served().children() if "127.0.0.1" in "".join(child.cmdline()))


def _killed_at_start(stand: Stand, before: frozenset[int] = frozenset()) -> None:
    def appeared() -> list[psutil.Process]:
        children = psutil.Process(stand.command.process.pid).children()
        return [child for child in children if child.name() == "postgres" and child.pid not in before]

    stand.command.wait_until(appeared)
    appeared()[0].kill()


def _killed_at_cold_start(stand: Stand) -> None:
    stand.until("load")
    _killed_at_start(stand, frozenset([stand.served().pid]))


def _sql(moment: str, *texts: str) -> Callable[[Stand], None]:
    def act(stand: Stand) -> None:
        stand.until(moment)
        assert stand.server is not None
        with psycopg.connect(stand.server.endpoint, autocommit=True) as other:
            for text in texts:
                other.execute(text)

    return act


def _locked(moment: str) -> Callable[[Stand], None]:
    def act(stand: Stand) -> None:
        stand.until(moment)
        with locked(stand, "ACCESS EXCLUSIVE"):
            stand.command.wait(PATIENCE_S)

    return act


@contextmanager
def locked(stand: Stand, mode: str) -> Iterator[None]:
    """Hold a lock on the table as soon as it exists."""
    assert stand.server is not None
    with psycopg.connect(stand.server.endpoint, autocommit=True) as other:
        stand.command.wait_until(lambda: other.execute("SELECT to_regclass('tsbench.cpu')").fetchall()[0][0])
        with other.transaction():
            other.execute(f"LOCK TABLE tsbench.cpu IN {mode} MODE")
            yield


def _unsettled(stand: Stand) -> None:
    """Stop VACUUM and nothing else."""
    stand.until("load")
    with locked(stand, "SHARE UPDATE EXCLUSIVE"):
        stand.command.wait(PATIENCE_S)


def _suspended_while_it_settles(stand: Stand) -> None:
    stand.until("load")
    with locked(stand, "SHARE UPDATE EXCLUSIVE"):
        stand.until("settle")
        suspend(stand)
        try:
            stand.command.wait(PATIENCE_S)
        finally:
            wake(stand)


def _old_password(stand: Stand) -> None:
    assert stand.server is not None
    password = (stand.place / "own" / "pgpass").read_text().strip().rpartition(":")[2]
    with psycopg.connect(stand.server.endpoint, password="other", autocommit=True) as other:
        other.execute(f"ALTER ROLE postgres PASSWORD '{password}'")


def _little_memory(stand: Stand) -> None:
    stand.words = ("--set", "server.memory=12MiB")  # not when the set is resumed


def _wrong_setting(stand: Stand) -> None:
    stand.words = ("--set", 'target.settings={sharde_buffers="1"}')  # not when the set is resumed


def _ctrl_c_twice(stand: Stand) -> None:
    stand.until("load")
    log = stand.partial / "server" / "postgres.log"
    stand.command.signal(signal.SIGINT)
    stand.command.wait_until(lambda: "fast shutdown request" in log.read_text())
    stand.command.signal(signal.SIGINT)


def _orphaned(stand: Stand) -> None:
    stand.until("measured")
    stand.load_process().suspend()  # SIGTERM would not wake it
    stand.command.signal(signal.SIGKILL)


def bit_changed(answer: bytes) -> bytes:
    """Return an answer whose last float has another bit."""
    end = answer.find(b"C\0\0\0\x0dSELECT")
    return answer[: end - 4] + bytes([answer[end - 4] ^ 1]) + answer[end - 3 :] if end > 20 else answer


DIED = r"the server died during the run"
SETTLE = (r"settling", r"took longer than 2\.00 s", r'VACUUM \(ANALYZE\) "cpu"', r"--set timeout\.settle=4s")
NO_ROOM = (r"[Nn]o space left on ", r"results/", r"free some room")
NO_DEATHS = "server deaths<=0"
COLD = (*FIVE_SECONDS, "--set", "target.cold=true")
FAULTS = (
    Fault("server killed while it starts", _killed_at_start, (r"postgres ended at start \(killed by SIGKILL\)",)),
    Fault("a setting that does not exist", nothing,
          (r"settings: sharde_buffers = '1': .*FATAL: +unrecognized configuration parameter",),
          code=2, validity="", words=FIVE_SECONDS, before=_wrong_setting),
    Fault("server killed in the load", signalled(server, signal.SIGKILL, "load"),
          (DIED, r"killed by SIGKILL"), words=LOADING),
    Fault("server killed before the first op", signalled(server, signal.SIGKILL, "measure"),
          (DIED, r"killed by SIGKILL")),
    Fault("server killed while it settles", signalled(server, signal.SIGKILL, "settle"), (DIED, r"killed by SIGKILL"),
          words=("--set", "load.window=100h"), quick=True),
    Fault("server killed as it stops for a cold start", signalled(server, signal.SIGKILL, "cold start"),
          (r"did not stop in order for the cold start \(killed by SIGKILL\)",), words=COLD),
    Fault("server killed at its cold start", _killed_at_cold_start, (r"postgres ended at start \(killed by SIGKILL\)",),
          words=COLD),
    Fault("server killed in the measurement", signalled(server, signal.SIGKILL, "measured"),
          (r"postgres", DIED, r"killed by SIGKILL"), validity="valid", holds=gate_failed(NO_DEATHS, "the server died"),
          quick=True),
    Fault("server killed in the checks", signalled(server, signal.SIGKILL, "check"), (DIED, r"killed by SIGKILL"),
          validity="valid", words=CHECKING, holds=gate_failed(NO_DEATHS, "the server died"), quick=True),
    Fault("server told to end (SIGTERM) in the measurement", signalled(server, signal.SIGTERM, "measured"),
          (DIED, r"exit status 0"), validity="valid", words=FIVE_SECONDS),
    Fault("server suspended in the load", suspended("loading"),
          (r"the bulk load failed: timeout: storing", r"points of cpu", r"127\.0\.0\.1", r"--set timeout\.load=2s"),
          words=(*LOADING, *limits(load=1)), quick=True),
    Fault("server suspended while it settles", _suspended_while_it_settles, SETTLE,
          words=(*SETTLING, *limits(settle=2)), at="own", quick=True),
    Fault("VACUUM kept waiting by somebody else's lock", _unsettled, SETTLE,
          words=(*SETTLING, *limits(settle=2)), at="own"),
    Fault("server suspended in the measurement", suspended("measured"),
          (r"could not be reached any more", r"waited 2 s", r"--set timeout\.connect=4s"), validity="valid",
          words=IMPATIENT, holds=gate_failed(NO_DEATHS, "could not be reached any more"), quick=True),
    Fault("server suspended in the checks", suspended("checking"),
          (r"answers could not be checked", r"--set timeout\.check=4s", r'FROM "cpu"'),
          words=(*CHECKING, *limits(check=2, connect=5)), resumed=KEPT, holds=writes_counted, quick=True),
    Fault("server's backend killed in the measurement", signalled(_backend, signal.SIGKILL, "measured"),
          (r"failed",), validity="valid", words=FIVE_SECONDS, resumed=KEPT),
    Fault("Ctrl-C twice in the load", _ctrl_c_twice, (r"interrupted", r"--resume"), code=130, words=LOADING,
          quick=True, quick_resumed=True),
    Fault("tsbench killed while its load process is suspended", _orphaned, code=-signal.SIGKILL, validity="",
          quick=True),
    Fault("memory limit of a control group", nothing, (r"memory",), words=LOADING, before=_little_memory),
    Fault("disk full in the load", nothing, NO_ROOM,
          words=LOADING, before=small_disk("120m"), quick=True, of_root=True),
    Fault("disk full in the measurement", disk_full("measured"), NO_ROOM,
          words=FIVE_SECONDS, before=small_disk("200m"), cure=room, quick=True, of_root=True),
    Fault("disk full in the checks", disk_full("check"), NO_ROOM,
          words=("--set", "check.answers=1000"), before=small_disk("200m"), cure=room, quick=True, of_root=True),
    Fault("table dropped by somebody else in the measurement", _sql("measured", "DROP TABLE tsbench.cpu"),
          (r"no table|does not exist",), words=FIVE_SECONDS, at="own", resumed=KEPT),
    Fault("table locked by somebody else in the measurement", _locked("measured"), (r"timeout",),
          words=IMPATIENT, at="own", resumed=KEPT),
    Fault("table locked by somebody else in the checks", _locked("check"),
          (r"--set timeout\.check=2s", r"statement timeout"), words=(*CHECKING, *limits(check=1)), at="own",
          resumed=KEPT, holds=some_measured),
    Fault("sessions ended by the administrator", _sql(
              "measured",
              "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tsbench'"),
          (r"failed|connection",), validity="valid", words=FIVE_SECONDS, at="own", resumed=KEPT),
    Fault("password changed in the measurement", _sql("measured", "ALTER ROLE postgres PASSWORD 'other'"),
          (r"password authentication failed",),
          validity="valid", words=FIVE_SECONDS, at="own", cure=_old_password),
    Fault("too few connections allowed", nothing, (r"too many clients|connections",),
          words=("--set", 'target.settings={max_connections="6", superuser_reserved_connections="1"}',
                 "--set", "drive.users=20"), validity="valid", resumed=KEPT),
    Fault("connection refused from the start", nothing, (r"cannot connect to postgresql://",),
          code=2, validity="", words=FIVE_SECONDS, at="proxied", before=refusing),
    Fault("connections refused in the measurement", on_way("measured", lambda p: p.refuse()),
          (r"could not be reached any more",), validity="valid", words=FIVE_SECONDS, at="proxied"),
    Fault("answers later than the limit", behaves("measured", lambda: proxy.Delay(2.5)),
          (r"could not be reached any more",), validity="valid", words=IMPATIENT, at="proxied"),
    Fault("answers cut in the middle", behaves("measured", proxy.Cut),
          (r"could not be reached any more|connection",), validity="valid", words=IMPATIENT, at="proxied"),
    Fault("a bit of an answer changed", behaves("measure", lambda: proxy.Change(proxy.queries, bit_changed)),
          (r"answers are wrong|wrong",), validity="invalid", words=FIVE_SECONDS, at="proxied", resumed=KEPT),
    Fault("lie: 1 of 10 writes acknowledged and not stored",
          behaves("measure", lambda: proxy.Replay(proxy.writes, every=10)),
          (r"acknowledged|stored",), validity="invalid", words=FIVE_SECONDS, at="proxied", resumed=KEPT, quick=True),
    Fault("lie: writes stored twice", behaves("measure", lambda: proxy.Twice(proxy.writes)),
          (r"acknowledged|stored|twice",), validity="invalid", words=FIVE_SECONDS, at="proxied", resumed=KEPT),
    Fault("lie: the answers of another query", behaves("measure", lambda: proxy.Replay(proxy.queries)),
          (r"wrong",), validity="invalid", words=FIVE_SECONDS, at="proxied", resumed=KEPT),
)  # fmt: skip
