"""Service times beside the server's own log, while the client's event loop is busy with something else.

Stub servers (`stub_servers.py`) of four protocols answer writes of one point after fixed, exponential and two-peaked
times and log what they took, from the kernel's stamp of the request on. Twenty users write by tsbench's sessions in one
process whose event loop is kept busy for 0, 30, 60 and 90 % of the time. Of each case p50, p90, p99 and p99.9 of the
service times are put beside the log's, and so are those that the client would have found with its own clock. A case is
within if all four differ by at most 3 % or 60 us. A machine that other work shares delays stamps, too: a client may be
interrupted between its clock and the send.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tsbench.targets.base import Session

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.benchmarks.stub_servers import ENDPOINTS, serving  # noqa: E402

DISTRIBUTIONS = ("fixed", "exponential", "two peaks")
BUSY = (0.0, 0.3, 0.6, 0.9)
PERCENTS = (50, 90, 99, 99.9)
USERS, MEAN_US, THINK_S = 20, 4_000.0, 0.01
SHARE, FLOOR_US = 0.03, 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=ENDPOINTS, default=list(ENDPOINTS), help="protocols")
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of a case (default: 5)")
    asked = parser.parse_args()
    print(f"{'us: log / by stamps / as read':38}" + "".join(f"{f'p{percent}':>26}" for percent in PERCENTS))
    within = [
        case(protocol, distribution, busy, asked.seconds)
        for protocol in asked.only
        for distribution in DISTRIBUTIONS
        for busy in BUSY
    ]
    print(f"{sum(within)} of {len(within)} cases within {SHARE:.0%} or {FLOOR_US:g} us (wanted: 46 of 48)")


def case(protocol: str, distribution: str, busy: float, seconds: float) -> bool:
    """Measure and print one case; return whether it is within."""
    with tempfile.TemporaryDirectory(prefix="tsbench-bench-") as directory:
        log = Path(directory) / "log"
        with serving(protocol, distribution, MEAN_US, log) as endpoint:
            words = [sys.executable, __file__, "client", protocol, endpoint, str(busy), str(seconds)]
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=seconds + 60, cwd=ROOT)
            time.sleep(0.1)
        if done.returncode:
            sys.exit(done.stderr[-2_000:])
        found = json.loads(done.stdout)
        own_us = np.fromfile(log, dtype=np.int64) / 1e3
    is_within, text = True, ""
    for percent in PERCENTS:
        log_us, ours_us, read_us = (
            float(np.percentile(times, percent, method="higher")) for times in (own_us, found["ours"], found["read"])
        )
        is_within &= abs(ours_us - log_us) <= max(SHARE * log_us, FLOOR_US)
        text += f"{f'{log_us:,.0f} / {ours_us:,.0f} / {read_us:,.0f}':>26}"
    name = f"{protocol}, {distribution}, {busy:.0%} ({len(own_us):,})"
    print(f"{name:38}{text}  {'' if is_within else 'NOT within'} {found['unstamped'] or ''}", flush=True)
    return is_within


def client(name: str, endpoint: str, busy: float, seconds: float) -> None:
    """Write with all users; print the service times in us by the stamps and as read, and how many ops had no stamp."""
    from gevent import monkey

    monkey.patch_all()
    import gevent
    from gevent.event import Event

    from tsbench.drive.session_calls import GreenletWaiter
    from tsbench.measure.op_times import Direct
    from tsbench.model import WriteMode
    from tsbench.net.stamps import STAMPED
    from tsbench.scenario.use_case import built_in_spec
    from tsbench.targets.registry import get
    from tsbench.workload.world import World

    target = get(name)
    schema = next(iter(target.schemas.values()))
    world = World(built_in_spec("sensors", 100, 1, 1_451_606_400 * 10**9, 10**10))
    (batch,) = [next(iter(world.batches(0, points=100)))]
    payloads = list(schema.encode_each(batch, 1, WriteMode.SINGLE))
    ours, read, unstamped = [], [], [0]
    begin = Event()  # with all users connected, which takes longer than a short case where the loop is busy

    def use(session: Session) -> None:
        begin.wait()
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            for payload in payloads:
                result = Direct.call(session.arrival, session.write, (payload,))
                if result.error is not None:
                    raise result.error
                ours.append((result.ended_ns - result.began_ns) / 1e3)
                read.append((result.ended_ns + result.lain_ns - result.began_ns) / 1e3)
                unstamped[0] += result.source != STAMPED
                gevent.sleep(THINK_S)
                if time.monotonic() > end_s:
                    break
        session.close()

    def burn() -> None:
        while True:
            until = time.perf_counter() + 0.003 * busy
            while time.perf_counter() < until:
                pass
            gevent.sleep(0.003 * (1 - busy))

    def connected() -> Session:
        session = target.connect(endpoint, schema, timeout_s=30, waiter=GreenletWaiter)
        session.write(payloads[0])  # which may prepare a statement; the log leaves it out
        return session

    if busy:
        gevent.spawn(burn)
    users = [gevent.spawn(use, connected()) for _ in range(USERS)]
    begin.set()
    gevent.joinall(users, raise_error=True)
    print(json.dumps({"ours": ours, "read": read, "unstamped": unstamped[0]}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["client"]:
        client(sys.argv[2], sys.argv[3], float(sys.argv[4]), float(sys.argv[5]))
    else:
        main()
