"""Speed of this checkout beside another one of tsbench, for example the commit before: `against.py CHECKOUT`.

    git worktree add --detach ../before HEAD~1 && make -C ../before venv

Both do the same work by their own `tsbench` command, in turn, so that a machine whose speed drifts favours neither. Of
each pair the ratio of the rates is taken; printed are the median of the ratios and their range, which for 7 pairs is
the 98 % confidence interval of the median. A ratio above 1 means that this checkout is faster.

The HTTP server of either run is started by this checkout, anew and in the same way, since the clients are compared: as
another user the same influxd takes up to a fifth more CPU time for a request.

Works whose unit is `ops/CPU s` compare what an op costs the load process's thread, user and system: 20 users write
single points flat out, or think for 2 ms after each, over TCP to a server for each checkout. Both run at the same time
and are stopped by turns, a quarter of a second each, so that other work on the machine meets both alike.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.benchmarks.bench_http import serving
from tsbench.targets.influxdb.server import InfluxServer1
from tsbench.targets.mongodb.server import FerretdbServer
from tsbench.targets.mysql.server import MariadbServer
from tsbench.targets.postgres.server import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tsbench.servers.base import Server

HERE = Path(__file__).parents[2]
LINES = 24 * 360 * 400  # of one day of cpu-only, 400 hosts, every 10 s

SCENARIO = """
question = "How fast is the client?"
[world]
use_case = "{use_case}"
scale = {scale}
[load]
window = "{window}"
[drive]
users = {users}
wait = "0s"
warmup = "1s"
duration = "5s"
processes = {processes}
[check]
answers = 0
readback = 0
[[op]]
write = 1
[target]
name = "{target}"
"""

LOCUSTFILE = """
import mmap, os, struct
from locust import constant, task
from tsbench.drive import TimeSeriesUser, standalone
standalone()
done, place = 0, mmap.mmap(os.open("done", os.O_RDWR), 8)
class Writer(TimeSeriesUser):
    target, use_case, wait_time = "{target}", "{use_case}", constant({think_s})
    @task
    def write_points(self):
        global done
        for _ in range({in_a_task}):
            self.write(1)
        done += {in_a_task}
        place[:] = struct.pack("q", done)
"""
CPU_USERS, THINK_S = 20, 0.002
TURN_S, TURNS = 0.25, 24
START_S = 120.0
SERVERS: dict[str, Callable[[Path], Server]] = {
    "influxdb1": InfluxServer1,
    "postgres": lambda place: PostgresServer(place, {"synchronous_commit": "off"}),
    "mariadb": lambda place: MariadbServer(place, {"innodb_flush_log_at_trx_commit": "0"}),
    "mongodb": FerretdbServer,
}


SCENARIO_KEYS = ("use_case", "scale", "window", "users", "processes", "target")


class Compared(Protocol):
    """One kind of work."""

    @property
    def unit(self) -> str: ...

    def rates(self, checkouts: tuple[Path, Path], pairs: int, directory: Path) -> list[tuple[float, float]]:
        """Do the work with both checkouts, by turns; return each pair's rates."""
        ...


@dataclass(frozen=True)
class Work:
    """One kind of work: the scenario of a run (none: `tsbench generate`), and where in its summary the rate is."""

    unit: str
    use_case: str = "cpu-only"
    scale: int = 100
    window: str = "1m"
    users: int = 8
    processes: int = 1
    target: str = ""
    is_load: bool = False
    is_served: bool = False

    def rates(self, checkouts: tuple[Path, Path], pairs: int, directory: Path) -> list[tuple[float, float]]:
        theirs, ours = checkouts
        return [(self.rate(theirs, directory), self.rate(ours, directory)) for _ in range(pairs)]

    @property
    def scenario(self) -> str:
        """The scenario file's text."""
        return SCENARIO.format(**{key: getattr(self, key) for key in SCENARIO_KEYS})

    def rate(self, checkout: Path, directory: Path) -> float:
        """Do the work with a checkout's command and return its rate."""
        tsbench = str(checkout / ".venv" / "bin" / "tsbench")
        if not self.target:
            began_s = time.perf_counter()
            run([tsbench, "generate", "--scale", "400", "--out", os.devnull])
            return LINES / (time.perf_counter() - began_s)
        scenario = directory / "scenario.toml"
        scenario.write_text(self.scenario)
        results = directory / f"results-{time.monotonic_ns()}"
        with serving(directory) if self.is_served else nullcontext(("", directory)) as (endpoint, _):
            place = ["--endpoint", endpoint] if endpoint else []
            run([tsbench, "run", str(scenario), *place, "--out", str(results)])
        (path,) = results.glob("*/*/summary.json")
        summary = json.loads(path.read_text(encoding="utf-8"))
        if self.is_load:
            return float(summary["load"]["points_per_s"])
        return float(summary["measured"]["ops"]["write-1"]["ops_per_s"])


@dataclass(frozen=True)
class CpuWork:
    """Single writes, compared by how many of them a second of the load process's CPU time makes."""

    target: str
    use_case: str = "cpu-only"
    think_s: float = 0.0
    unit: str = "ops/CPU s"

    def rates(self, checkouts: tuple[Path, Path], pairs: int, directory: Path) -> list[tuple[float, float]]:
        with started(self.target) as one, started(self.target) as two:
            return [self._pair(list(zip(checkouts, (one, two), strict=True)), directory) for _ in range(pairs)]

    def _pair(self, sides: list[tuple[Path, str]], directory: Path) -> tuple[float, float]:
        clients: list[Client] = []
        try:
            for checkout, endpoint in sides:
                clients.append(Client(checkout, endpoint, self._locustfile(), Path(tempfile.mkdtemp(dir=directory))))
            for client in clients:
                client.await_ops()
                client.process.send_signal(signal.SIGSTOP)
            for _ in range(TURNS):
                for client in clients:
                    client.take_turn()
            theirs, ours = (client.ops / client.cpu_s for client in clients)
            return theirs, ours
        finally:
            for client in clients:
                client.end()

    def _locustfile(self) -> str:
        in_a_task = 1 if self.think_s else 100
        return LOCUSTFILE.format(target=self.target, use_case=self.use_case, think_s=self.think_s, in_a_task=in_a_task)


@dataclass(frozen=True)
class CommandWork:
    """A command of `tsbench`, compared by how often a minute of CPU does it; `SET` stands for a result set."""

    words: tuple[str, ...]
    unit: str = "a CPU minute"

    def rates(self, checkouts: tuple[Path, Path], pairs: int, directory: Path) -> list[tuple[float, float]]:
        sides = [[str(checkout / ".venv/bin/tsbench"), *self.words] for checkout in checkouts]
        if "SET" in self.words:
            sides = [[word.replace("SET", self._result_set(side[0], directory)) for word in side] for side in sides]
        theirs, ours = sides
        return [(self._rate(theirs), self._rate(ours)) for _ in range(pairs)]

    def _result_set(self, tsbench: str, directory: Path) -> str:
        place = Path(tempfile.mkdtemp(dir=directory))
        (place / "s.toml").write_text(WORKERS.scenario)
        run([tsbench, "run", str(place / "s.toml"), "--out", str(place / "results")])
        (found,) = (place / "results").glob("*")
        return str(found)

    def _rate(self, command: list[str]) -> float:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in {0, 1}:
            sys.exit(f"{' '.join(command)} failed")
        return 60 / (used.ru_utime + used.ru_stime)


class Client:
    """A Locust of one checkout, whose turns are counted: its ops, and the CPU time of its event loop's thread."""

    def __init__(self, checkout: Path, endpoint: str, locustfile: str, place: Path) -> None:
        self.ops, self.cpu_s = 0, 0.0
        self._place = place
        (place / "locustfile.py").write_text(locustfile)
        (place / "done").write_bytes(bytes(8))
        users = ["-u", str(CPU_USERS), "-r", str(CPU_USERS)]
        command = [str(checkout / ".venv" / "bin" / "locust"), "-f", "locustfile.py", "--headless", *users]
        command += ["--endpoint", endpoint, "--results", "results", "--load-window", "1m", "--warmup", "1s"]
        with (place / "log").open("w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=place)

    def await_ops(self) -> None:
        """Wait until all users have written for a while."""
        give_up = time.monotonic() + START_S
        while self._counts()[0] < 100 * CPU_USERS:
            if self.process.poll() is not None or time.monotonic() > give_up:
                sys.exit(f"{self._place} failed: {(self._place / 'log').read_text()[-2000:]}")
            time.sleep(0.05)

    def take_turn(self) -> None:
        """Let it run for a while."""
        before_ops, before_s = self._counts()
        self.process.send_signal(signal.SIGCONT)
        time.sleep(TURN_S)
        self.process.send_signal(signal.SIGSTOP)
        ops, cpu_s = self._counts()
        self.ops += ops - before_ops
        self.cpu_s += cpu_s - before_s

    def _counts(self) -> tuple[int, float]:
        pid = self.process.pid
        ran_ns = int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0])
        return struct.unpack("q", (self._place / "done").read_bytes())[0], ran_ns / 1e9

    def end(self) -> None:
        """Interrupt it, and wait until it has ended."""
        for number in (signal.SIGCONT, signal.SIGINT):
            with suppress(ProcessLookupError):
                self.process.send_signal(number)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def started(target: str) -> Iterator[str]:
    """Start a server by this checkout and yield its endpoint."""
    with tempfile.TemporaryDirectory(prefix="tsbench-bench-", dir="/var/tmp") as directory:
        server = SERVERS[target](Path(directory) / "server")
        server.start()
        try:
            yield server.endpoint
        finally:
            server.stop()
            server.remove()


WORKERS = Work("ops/s", users=50, processes=2, target="null", use_case="sensors")
WORKS: dict[str, Compared] = {
    "generate": Work("lines/s"),
    "load": Work("points/s", window="12h", target="postgres", is_load=True),
    "http": Work("requests/s", users=50, target="influxdb1", use_case="sensors", is_served=True),
    "ceiling": Work("ops/s", target="null"),
    "start": CommandWork(("list", "targets")),
    "report": CommandWork(("report", "SET")),
    "workers": WORKERS,
    "http-cpu": CpuWork("influxdb1", "sensors"),
    "http-cpu-think": CpuWork("influxdb1", "sensors", THINK_S),
    "postgres-cpu": CpuWork("postgres"),
    "postgres-cpu-think": CpuWork("postgres", think_s=THINK_S),
    "mariadb-cpu": CpuWork("mariadb", "sensordata"),
    "mariadb-cpu-think": CpuWork("mariadb", "sensordata", THINK_S),
    "mongodb-cpu": CpuWork("mongodb"),
    "mongodb-cpu-think": CpuWork("mongodb", think_s=THINK_S),
}


def run(command: list[str]) -> None:
    """Run a command; 1 is an accepted exit code, because a run that finds the client to be the limit ends with it."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in {0, 1}:
        sys.exit(f"{' '.join(command)} failed: {done.stderr.strip() or done.stdout.strip()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path, help="the other checkout, with its own .venv (make venv)")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--only", choices=WORKS, nargs="+", default=list(WORKS))
    given = parser.parse_args()
    where = "/dev/shm" if Path("/dev/shm").is_dir() else None  # memory: it is the clients that differ
    with tempfile.TemporaryDirectory(prefix="tsbench-bench-", dir=where) as directory:
        for name in given.only:
            work = WORKS[name]
            pairs = work.rates((given.checkout.resolve(), HERE), given.pairs, Path(directory))
            ratios = sorted(ours / theirs for theirs, ours in pairs)
            before, now = (statistics.median(side) for side in zip(*pairs, strict=True))
            print(
                f"{name:18} {before:>11,.0f} before, {now:>11,.0f} {work.unit:10} now;"
                f" ratio {statistics.median(ratios):.2f}, {ratios[0]:.2f} to {ratios[-1]:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
