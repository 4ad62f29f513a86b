"""Calls of mysqlclient through the thread pool: 20 users of 5 ms queries (SELECT SLEEP) in one process.

Prints queries per second against the ideal (4,000/s), and beside them direct calls, which block the event loop; then
the event loop's lag at half that rate. Medians of five rounds. Needs mysqlclient and MariaDB (docs/databases/mysql.md).
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

USERS, SECONDS, ROUNDS, SLEEP_S = 20, 4, 5, 0.005


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="tsbench-bench-", dir="/var/tmp") as directory:
        server = MariadbServer(Path(directory) / "server", {})
        server.start()
        try:
            for name, wait_s in (("pool", 0.0), ("direct", 0.0), ("pool", SLEEP_S)):
                rounds = [measured(server.endpoint, name, wait_s) for _ in range(ROUNDS)]
                rate = statistics.median(per_s for per_s, _ in rounds)
                lag_us = statistics.median(lag for _, lag in rounds)
                ideal = USERS / (SLEEP_S + wait_s)
                text = f"{name}, pause {wait_s * 1e3:.0f} ms: {rate:,.0f} queries/s, {rate / ideal:.2f} of the ideal"
                print(f"{text}; event loop late by {lag_us:,.0f} us (p99)")
        finally:
            server.stop()
            server.remove()


def measured(endpoint: str, name: str, wait_s: float) -> tuple[float, float]:
    """Return queries per second and the p99 of the event loop's lag in us, of one round in a process of its own."""
    command = [sys.executable, __file__, endpoint, name, str(wait_s)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    per_s, lag_us = json.loads(done.stdout)
    return per_s, lag_us


def client(endpoint: str, name: str, wait_s: float) -> None:
    from gevent import monkey

    monkey.patch_all()
    import time

    import gevent

    from tsbench.drive.session_calls import caller_for
    from tsbench.targets.base import Statement
    from tsbench.targets.mysql import MARIADB

    caller = caller_for(cooperative=name == "direct")
    sessions = [MARIADB.connect(endpoint, MARIADB.schemas["innodb"]) for _ in range(USERS)]
    query, done, lags_us = Statement(f"SELECT SLEEP({SLEEP_S})"), [0], []
    end_s = time.perf_counter() + SECONDS

    def use(session: MysqlSession) -> None:
        caller.add_user()
        while time.perf_counter() < end_s:
            error = caller.call(session.query, query, ("x",)).error
            if error is not None:
                raise error
            done[0] += 1
            gevent.sleep(wait_s)

    def watch() -> None:
        while (began := time.perf_counter()) < end_s:
            gevent.sleep(0.001)
            lags_us.append((time.perf_counter() - began - 0.001) * 1e6)

    gevent.joinall([gevent.spawn(watch), *(gevent.spawn(use, session) for session in sessions)], raise_error=True)
    print(json.dumps([done[0] / SECONDS, statistics.quantiles(lags_us, n=100)[-1]]))
    for session in sessions:
        session.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        client(sys.argv[1], sys.argv[2], float(sys.argv[3]))
    else:
        main()
