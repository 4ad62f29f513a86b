"""Clients that write to the same InfluxDB 1.x: ours, Locust's FastHttpUser, wrk, and TSBS's loader.

One point per request with 50 users, in one process each, rounds in turn; ratios are medians of the rounds' ratios, so
that a machine whose speed drifts favours nobody. wrk is C with an event loop: what the server can take. That is done
twice, with the server's data on a disk, where writes wait for each other's fsync and no client can do more than the
disk, and in memory, where it is the clients that differ. At half our rate an open loop's service times are put beside
those of wrk and of vegeta (in VEGETA, or on PATH: `go install github.com/tsenart/vegeta/v12@v12.12.0`) at the same
rate; as root beside a capture of the packets, too, which says what either client added to the same server's times.
Batches of 5,000 lines are loaded beside `tsbs_load_influx` (from a directory in TSBS_BIN, or from PATH), which reads
what its own generator wrote before, while tsbench generates as it loads.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import numpy as np
import psutil

from tsbench.targets.influxdb.server import InfluxServer1
from tsbench.units import NS_PER_S

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.benchmarks.bench_wire import Capture, captured, exchanges  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

USERS, SECONDS, ROUNDS = 50, 8, 5
PAIRS = 7
"""Rounds at the same rate."""
SCALE, HOURS, BATCH = 100, 48, 5_000
ROWS = SCALE * HOURS * 360
BIN = Path(sys.executable).parent
DISK, MEMORY = Path("/var/tmp"), Path("/dev/shm")

FAST = """
import itertools
from locust import FastHttpUser, constant, task
times = itertools.count(1_451_606_400_000_000_000, 1_000)
class Writer(FastHttpUser):
    wait_time = constant(0)
    @task
    def write(self):
        for _ in range({in_a_task}):
            time_ns = next(times)
            line = b"temperature,device_id=%d value=21.5 %d" % (10_001 + time_ns // 1_000 % 100, time_ns)
            self.client.post("/write?db=tsbench&rp=tsbench&precision=ns", data=line)
"""
LOOPED = "FastHttpUser, 100 a task"

WRK = """
local time, delay_ms = 1451606400000000, {delay}
local path = "/write?db=tsbench&rp=tsbench&precision=ns"
function request()
  time = time + 1
  local line = string.format("temperature,device_id=%d value=21.5 %d000", 10001 + time % 100, time)
  return wrk.format("POST", path, nil, line)
end
{paced}
"""
PACED = """
function delay()  -- in whole ms; a mixture comes nearer to the rate
  local r = math.random()
  return math.floor(delay_ms) + (r < delay_ms - math.floor(delay_ms) and 1 or 0)
end
"""

LOAD = """
import json, sys
from tsbench.targets import registry
from tsbench.run.bulk_load import bulk_load
from tsbench.model import WriteMode
from tsbench.scenario.use_case import built_in_spec
from tsbench.workload.world import World
endpoint, workers = sys.argv[1], int(sys.argv[2])
world = World(built_in_spec("cpu-only", {scale}, 1, {start}, 10**10, streams=4))
target = registry.get("influxdb1"); schema = target.schemas["tags"]
session = target.connect(endpoint, schema)
session.run(schema.create(world.measurements, world.tags()))
loaded = bulk_load(
    world, target, schema, endpoint, last_tick={ticks}, workers=workers, batch={batch}, mode=WriteMode.BULK
)
print(json.dumps({{"rows": loaded.points, "seconds": loaded.duration_s, "cpu": loaded.client_cpu_s}}))
"""

OPEN = """
question = "How much later than wrk do we see an answer?"
[world]
use_case = "sensors"
scale = 100
[load]
window = "1m"
[drive]
loop = "open"
rate = {rate}
users = {users}
warmup = "2s"
duration = "{seconds}s"
[[op]]
write = 1
[target]
name = "influxdb1"
endpoint = "{endpoint}"
"""


@dataclass(frozen=True)
class Rate:
    """Requests per second, client CPU in us per request, and percentiles in ms where they are known."""

    per_s: float
    cpu_us: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    mean_ms: float = 0.0
    wire_ms: tuple[float, float] | None = None
    """p50 and p99 between the packets, if they could be captured."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=int, help="only compare open loops, at this rate, with data in memory")
    asked = parser.parse_args()
    if asked.rate:
        with serving(MEMORY) as (endpoint, directory):
            half_rate(endpoint, directory, asked.rate)
        return
    with serving(DISK) as (endpoint, directory):
        print("data on disk:", end=" ")
        ours = single_points(endpoint, directory)
        half_rate(endpoint, directory, ours / 2)
        batches(endpoint, directory)
    if MEMORY.is_dir():
        with serving(MEMORY) as (endpoint, directory):
            print("data in memory:", end=" ")
            single_points(endpoint, directory)


@contextlib.contextmanager
def serving(place: Path) -> Iterator[tuple[str, Path]]:
    """Start a server with its data below `place`; yield its endpoint and a directory."""
    with tempfile.TemporaryDirectory(prefix="tsbench-bench-", dir=place) as directory:
        server = InfluxServer1(Path(directory) / "server")
        server.start()
        try:
            yield server.endpoint, Path(directory)
        finally:
            server.stop()
            server.remove()


# --- one point per request --------------------------------------------------------------------------------------------


def single_points(endpoint: str, directory: Path) -> float:
    """Print the rates of all clients and return ours."""
    print(f"one point per request, {USERS} users, {ROUNDS} rounds of {SECONDS} s, one process each")
    clients = {"tsbench": run_ours, "FastHttpUser": run_fast, LOOPED: run_fast_looped}
    if shutil.which("wrk"):
        clients["wrk"] = run_wrk
    else:
        print("wrk not found: apt-get install wrk")
    found: dict[str, list[Rate]] = {name: [] for name in clients}
    for _ in range(ROUNDS):
        for name, run in clients.items():
            found[name].append(run(endpoint, directory))
    for name, rates in found.items():
        print(
            f"  {name:24} {median(r.per_s for r in rates):>8,.0f}/s {median(r.cpu_us for r in rates):>7.1f} us CPU each"
            f"   ({', '.join(f'{r.per_s:,.0f}' for r in rates)})"
        )
    wanted = {"FastHttpUser": "2.5", LOOPED: "2.5", "wrk": "0.7"}
    for name in clients.keys() - {"tsbench"}:
        ratio = median(o.per_s / t.per_s for o, t in zip(found["tsbench"], found[name], strict=True))
        print(f"  tsbench / {name}: {ratio:.2f}   (wanted: {wanted[name]} at least)")
        # On a machine that others use too, rates tell who got the processor; what a request costs is still the same.
        cpu = median(t.cpu_us / o.cpu_us for o, t in zip(found["tsbench"], found[name], strict=True))
        print(f"  tsbench / {name}, requests per second of client CPU: {cpu:.2f}")
    return median(r.per_s for r in found["tsbench"])


def run_ours(endpoint: str, directory: Path) -> Rate:
    locustfile = str(ROOT / "locustfiles" / "influxdb1.py")
    more = ["--endpoint", endpoint, "--results", str(directory / "results"), "--load-window", "1m", "--warmup", "0s"]
    return run_locust([locustfile, *more, "SingleWriterFlatOut"], directory)


def run_fast(endpoint: str, directory: Path, in_a_task: int = 1) -> Rate:
    """Run Locust's own client, a request per task as in its documentation."""
    (directory / "fast.py").write_text(FAST.format(in_a_task=in_a_task))
    return run_locust([str(directory / "fast.py"), "--host", endpoint.rpartition("/")[0]], directory)


def run_fast_looped(endpoint: str, directory: Path) -> Rate:
    """Run the same without the cost of Locust's choice of a task, as `SingleWriterFlatOut` does."""
    return run_fast(endpoint, directory, in_a_task=100)


def run_locust(arguments: list[str], directory: Path) -> Rate:
    """Run Locust; its CPU covers the time in which it sent requests, so that its start does not count."""
    options = ["--headless", "-u", str(USERS), "-r", str(USERS), "-t", f"{SECONDS}s", "--json"]
    command = [str(BIN / "locust"), "-f", *arguments[:1], *options, *arguments[1:]]
    samples: list[tuple[float, float]] = []
    with (directory / "locust.err").open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=directory)
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            with contextlib.suppress(psutil.NoSuchProcess):
                samples.append((time.time(), sum(watched.cpu_times()[:2])))
            time.sleep(0.05)
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed: {(directory / 'locust.err').read_text()[-2000:]}")
    assert process.stdout is not None
    out = process.stdout.read()
    (entry,) = json.loads(out[out.index("[\n") :])
    assert entry["num_failures"] == 0, entry
    seconds = entry["last_request_timestamp"] - entry["start_time"]
    during = [s for s in samples if entry["start_time"] + 0.5 < s[0] < entry["last_request_timestamp"] - 0.2]
    busy = (during[-1][1] - during[0][1]) / (during[-1][0] - during[0][0])
    rate = entry["num_requests"] / seconds
    return Rate(rate, busy / rate * 1e6)


def run_wrk(endpoint: str, directory: Path, delay_ms: float | None = None) -> Rate:
    script = directory / "write.lua"
    script.write_text(WRK.format(delay=delay_ms or 0, paced="" if delay_ms is None else PACED))
    place = f"http://{urlsplit(endpoint).netloc}"
    command = ["wrk", "-t1", f"-c{USERS}", f"-d{SECONDS}s", "--latency", "-s", str(script), place]
    out, cpu_s = measured(command, directory)
    assert "Non-2xx" not in out, out
    requests, rate = (
        float(found[1]) for found in (find(r"(\d+) requests in", out), find(r"Requests/sec:\s+(\S+)", out))
    )
    return Rate(rate, cpu_s / requests * 1e6, percentile(out, "50%"), percentile(out, "99%"))


def percentile(out: str, which: str) -> float:
    value, unit = find(rf"{which}\s+([\d.]+)(us|ms|s)\n", out).groups()
    return float(value) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[unit]


def find(pattern: str, text: str) -> re.Match[str]:
    found = re.search(pattern, text)
    assert found is not None, text
    return found


# --- half the rate ----------------------------------------------------------------------------------------------------


def half_rate(endpoint: str, directory: Path, rate: float) -> None:
    """Print our service times in an open loop, and those of wrk and vegeta at about the same rate."""
    print(f"open loop at half that rate, {rate:,.0f}/s")
    found: dict[str, list[Rate]] = {"tsbench": [], "wrk": [], "vegeta": []}
    vegeta = os.environ.get("VEGETA") or shutil.which("vegeta")
    for _ in range(PAIRS):
        found["tsbench"].append(run_open(endpoint, directory, rate))
        if shutil.which("wrk"):
            # Each of wrk's connections waits that long after an answer.
            delay_ms = max(0.0, USERS / rate * 1e3 - found["tsbench"][-1].mean_ms)
            found["wrk"].append(run_wrk(endpoint, directory, delay_ms=delay_ms))
        if vegeta:
            found["vegeta"].append(run_vegeta(vegeta, endpoint, directory, round(rate)))
    for name, rates in found.items():
        for r in rates:
            seen = "   on the wire {:6.2f}, {:6.2f} ms".format(*r.wire_ms) if r.wire_ms else ""
            print(f"  {name:8} {r.per_s:>8,.0f}/s   p50 {r.p50_ms:6.2f} ms   p99 {r.p99_ms:6.2f} ms{seen}")
    for peer, wanted in (("wrk", "0.8 to 1.2"), ("vegeta", "0.9 to 1.15")):
        for name in ("p50_ms", "p99_ms") if found[peer] else ():
            ratio = median(
                getattr(o, name) / getattr(t, name) for o, t in zip(found["tsbench"], found[peer], strict=True)
            )
            print(f"  tsbench / {peer}, {name[:3]}: {ratio:.2f}   (wanted: {wanted})")
    for client, rates in found.items():
        ratios = [(r.p50_ms / r.wire_ms[0], r.p99_ms / r.wire_ms[1]) for r in rates if r.wire_ms]
        if ratios:
            p50, p99 = (median(side) for side in zip(*ratios, strict=True))
            print(f"  {client} / wire: p50 {p50:.2f}, p99 {p99:.2f}")


def run_vegeta(vegeta: str, endpoint: str, directory: Path, rate: int) -> Rate:
    """Let vegeta send as many requests as fall into the time; its times are from the send, too."""
    url = f"http://{urlsplit(endpoint).netloc}/write?db=tsbench&rp=tsbench&precision=ns"
    lines = (
        b"temperature,device_id=%d value=21.5 %d" % (10_001 + n % 100, 1_451_606_400 * 10**9 + 1_000 * n)
        for n in range(rate * (SECONDS + 1))
    )
    targets, seen = directory / "targets.json", directory / "vegeta.bin"
    targets.write_text(
        "\n".join(json.dumps({"method": "POST", "url": url, "body": base64.b64encode(line).decode()}) for line in lines)
    )
    command = [
        vegeta, "attack", "-format=json", "-lazy", f"-targets={targets}", f"-rate={rate}/1s", f"-duration={SECONDS}s",
        f"-workers={USERS}", f"-max-workers={USERS}", f"-connections={USERS}", f"-output={seen}",
    ]  # fmt: skip
    with wire(endpoint) as capture:
        _, cpu_s = measured(command, directory)
    out, _ = measured([vegeta, "report", "-type=json", str(seen)], directory)
    report = json.loads(out)
    assert report["success"] == 1, report["errors"]
    p50_ms, p99_ms, mean_ms = (report["latencies"][name] / 1e6 for name in ("50th", "99th", "mean"))
    cpu_us = cpu_s / report["requests"] * 1e6
    return Rate(report["throughput"], cpu_us, p50_ms, p99_ms, mean_ms, on_the_wire(capture))


def wire(endpoint: str) -> contextlib.AbstractContextManager[Capture | None]:
    return captured(urlsplit(endpoint).port or 0) if os.geteuid() == 0 else contextlib.nullcontext()


def on_the_wire(capture: Capture | None, start_s: int | None = None) -> tuple[float, float] | None:
    """Return p50 and p99 in ms of the ops from that second on, or from the first whole one."""
    if capture is None or capture.lost:
        return None
    start_s = start_s or capture.packets[0].time_ns // NS_PER_S + 1
    end_s = start_s + SECONDS - 1
    times_ms = [
        (ended_ns - began_ns) / 1e6
        for began_ns, ended_ns in exchanges(capture.packets, start_s, end_s)
        if start_s * NS_PER_S <= began_ns < end_s * NS_PER_S
    ]
    p50_ms, p99_ms = np.percentile(times_ms, (50, 99))
    return float(p50_ms), float(p99_ms)


def run_open(endpoint: str, directory: Path, rate: float) -> Rate:
    scenario = directory / "open.toml"
    scenario.write_text(OPEN.format(rate=round(rate), users=USERS, seconds=SECONDS, endpoint=endpoint))
    results = directory / "open-results"
    shutil.rmtree(results, ignore_errors=True)
    with wire(endpoint) as capture:
        _, cpu_s = measured(
            [str(BIN / "tsbench"), "run", str(scenario), "--no-report", "--out", str(results)], directory
        )
    (found,) = results.glob("*/influxdb1*/summary.json")
    summary = json.loads(found.read_text())["measured"]
    op = summary["ops"]["write-1"]
    service = op["service_ns"]
    p50_ms, p99_ms, mean_ms = (service[k] / 1e6 for k in ("p50", "p99", "mean"))
    seen = on_the_wire(capture, summary["window"]["start_s"])
    return Rate(op["ops_per_s"], cpu_s / op["count"] * 1e6, p50_ms, p99_ms, mean_ms, seen)


# --- batches ----------------------------------------------------------------------------------------------------------


def batches(endpoint: str, directory: Path) -> None:
    """Print the time for loading lines in batches, and that of TSBS's loader."""
    programs = program("tsbs_load_influx"), program("tsbs_generate_data")
    print(f"batches of {BATCH:,} lines, cpu-only, {ROWS:,} lines")
    data = directory / "cpu.data"
    if all(programs):
        command = [
            str(programs[1]), "--use-case=cpu-only", f"--scale={SCALE}", "--seed=1", "--format=influx",
            "--timestamp-start=2016-01-01T00:00:00Z", f"--timestamp-end=2016-01-{1 + HOURS // 24:02d}T00:00:00Z",
            "--log-interval=10s",
        ]  # fmt: skip
        with data.open("wb") as out:
            subprocess.run(command, stdout=out, stderr=subprocess.DEVNULL, check=True)
    else:
        print("peer not found: put tsbs_load_influx and tsbs_generate_data on PATH or name their directory: TSBS_BIN")
    for workers in (1, 2, 4):
        ours, theirs = [], []
        for _ in range(2):
            ours.append(load_ours(endpoint, directory, workers))
            if all(programs):
                theirs.append(load_peer(endpoint, directory, str(programs[0]), data, workers))
        for name, found in (("tsbench", ours), ("peer", theirs)):
            if found:
                rate, cpu = median(f[0] for f in found), median(f[1] for f in found)
                print(
                    f"  {workers} workers  {name:8} {rate:>9,.0f} lines/s   client CPU {cpu:5.2f} s per million lines"
                )
        if theirs:
            rate = median(o[0] / t[0] for o, t in zip(ours, theirs, strict=True))
            cpu = median(o[1] / t[1] for o, t in zip(ours, theirs, strict=True))
            print(f"  {workers} workers  ratio    {rate:>9.2f}            {cpu:18.2f}   (wanted: CPU 0.6 s at most)")


def load_ours(endpoint: str, directory: Path, workers: int) -> tuple[float, float]:
    code = LOAD.format(scale=SCALE, start=1_451_606_400 * 10**9, ticks=HOURS * 360, batch=BATCH)
    out, _ = measured([sys.executable, "-c", code, endpoint, str(workers)], directory)
    result = json.loads(out)
    assert result["rows"] == ROWS
    return result["rows"] / result["seconds"], result["cpu"] / ROWS * 1e6


def load_peer(endpoint: str, directory: Path, loader: str, data: Path, workers: int) -> tuple[float, float]:
    place = f"http://{urlsplit(endpoint).netloc}"
    command = [
        loader, f"--urls={place}", f"--workers={workers}", f"--batch-size={BATCH}", f"--file={data}",
        "--reporting-period=0", "--gzip=false",
    ]  # fmt: skip
    out, cpu_s = measured(command, directory)
    rows, seconds = find(r"loaded (\d+) rows in ([\d.]+)sec", out).groups()
    assert int(rows) == ROWS
    return int(rows) / float(seconds), cpu_s / ROWS * 1e6


# --- helpers ----------------------------------------------------------------------------------------------------------


def measured(command: list[str], directory: Path) -> tuple[str, float]:
    """Return a command's output, and the CPU seconds that it and its children used."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=directory)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def median(values: object) -> float:
    return statistics.median(values)  # type: ignore[arg-type]


def program(name: str) -> str | None:
    place = os.environ.get("TSBS_BIN")
    return shutil.which(name, path=place) if place else shutil.which(name)


if __name__ == "__main__":
    main()
