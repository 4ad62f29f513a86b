"""20 users of 5 ms queries (SELECT SLEEP) of MariaDB in one process, beside calls in threads and calls that block.

Prints queries per second against the ideal (4,000/s), and the event loop's lag at that rate and at half of it. Medians
of five interleaved rounds. Needs mysqlclient and MariaDB (docs/databases/mysql.md).
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tsbench.targets.mysql.server import MariadbServer

if TYPE_CHECKING:
    from tsbench.targets.mysql.session import MysqlSession

WAYS = ("tsbench", "threads", "direct")
USERS, SECONDS, ROUNDS, SLEEP_S = 20, 4, 5, 0.005


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="tsbench-bench-", dir="/var/tmp") as directory:
        server = MariadbServer(Path(directory) / "server", {})
        server.start()
        try:
            cases = [
                (name, wait_s) for name in WAYS for wait_s in (0.0, SLEEP_S) if (name, wait_s) != ("direct", SLEEP_S)
            ]
            rounds = [[measured(server.endpoint, *case) for case in cases] for _ in range(ROUNDS)]
            for (name, wait_s), found in zip(cases, zip(*rounds, strict=True), strict=True):
                rate = statistics.median(per_s for per_s, _, _ in found)
                lag_us, cpu_us = (statistics.median(figures[i] for figures in found) for i in (1, 2))
                of_ideal = rate / (USERS / (SLEEP_S + wait_s))
                text = f"{name:>7}, pause {wait_s * 1e3:.0f} ms: {rate:6,.0f} queries/s, {of_ideal:.2f} of the ideal"
                print(f"{text}; {cpu_us:4,.0f} us of CPU each; event loop late by {lag_us:,.0f} us (p99)")
        finally:
            server.stop()
            server.remove()


def measured(endpoint: str, name: str, wait_s: float) -> tuple[float, float, float]:
    """Return queries per second, p99 of the event loop's lag and CPU per query in us, of a process of its own."""
    command = [sys.executable, __file__, endpoint, name, str(wait_s)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    per_s, lag_us, cpu_us = json.loads(done.stdout)
    return per_s, lag_us, cpu_us


def client(endpoint: str, name: str, wait_s: float) -> None:
    from gevent import monkey

    monkey.patch_all()
    import time

    import gevent

    from tsbench.drive.session_calls import GreenletWaiter, caller_for
    from tsbench.targets.base import Statement
    from tsbench.targets.mysql import MARIADB

    caller = caller_for(cooperative=name != "threads")
    waiter = GreenletWaiter if name == "tsbench" else None
    sessions = [MARIADB.connect(endpoint, MARIADB.schemas["innodb"], waiter=waiter) for _ in range(USERS)]
    query, done, lags_us = Statement(f"SELECT SLEEP({SLEEP_S})"), [0], []
    end_s = time.perf_counter() + SECONDS

    def use(session: MysqlSession) -> None:
        while time.perf_counter() < end_s:
            error = caller.call(session.arrival, session.query, (query, ("x",))).error
            if error is not None:
                raise error
            done[0] += 1
            gevent.sleep(wait_s)

    def watch() -> None:
        while (began := time.perf_counter()) < end_s:
            gevent.sleep(0.001)
            lags_us.append((time.perf_counter() - began - 0.001) * 1e6)

    before_s = time.process_time()
    gevent.joinall([gevent.spawn(watch), *(gevent.spawn(use, session) for session in sessions)], raise_error=True)
    cpu_us = (time.process_time() - before_s) / done[0] * 1e6
    print(json.dumps([done[0] / SECONDS, statistics.quantiles(lags_us, n=100)[-1], cpu_us]))
    for session in sessions:
        session.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        client(sys.argv[1], sys.argv[2], float(sys.argv[3]))
    else:
        main()
