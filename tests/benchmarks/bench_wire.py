"""Service times beside a capture of the wire: quickstart's mix on four databases, in a closed and in an open loop.

A packet socket on the loopback device takes each packet's headers with the kernel's time. The kernel shows it each
packet twice, when it is sent and when it is received. Of a request we take the copy that is sent: the client's kernel
has it. Of an answer we take the copy that is received, since it has arrived only then. (Between the two lies whatever
the kernel does before it hands a packet over.) A connection carries one op at a time, so that an op lasts from the
first packet of a request to the last one of its answer. The capture must not have lost a packet. There are 20 users
(`--users`), who think for 10 to 30 ms in the closed loop.

Of each run p50, p90, p99, p99.9 and max of all ops' service times are put beside those of the capture. A figure is
within if both differ by at most 2 % or 30 us. Needs root.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tsbench.measure.hist import Histogram
from tsbench.measure.merge import PERCENTS, merge
from tsbench.targets import registry
from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
TARGETS = ("postgres", "mariadb", "mongodb", "influxdb1")
LOOPS = ("closed", "open")
SHARE, FLOOR_NS, WANTED = 0.02, 30_000, "38 of 40"
SCALE = {"mongodb": 4}
"""Hosts of a database that would take 30 s for quickstart's hundred: FerretDB's queries read all of a collection."""
USER_OPS_PER_S = 2
"""A connection with fewer exchanges is not a user's: counters are sampled once a second."""

# Constants of Linux that Python lacks: include/uapi/linux/{if_ether,if_packet,filter}.h and asm-generic/socket.h.
ETH_P_ALL, PACKET_STATISTICS, SOL_PACKET = 0x0003, 6, 263
SO_ATTACH_FILTER, SO_RCVBUFFORCE, SO_TIMESTAMPNS = 26, 33, 35
BUFFER_BYTES = 256 << 20
HEADER_BYTES = 160
PACKET_TYPE = 0xFFFFF000 + 4  # SKF_AD_OFF + SKF_AD_PKTTYPE
INCOMING, OUTGOING = socket.PACKET_HOST, socket.PACKET_OUTGOING


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet of a connection, which the client's port names: when, which way, and how its data begin."""

    time_ns: int
    port: int
    is_request: bool
    head: bytes


@dataclass
class Capture:
    """Packets to and from a server's port on loopback, requests as they are sent and answers as they are received."""

    packets: list[Packet] = field(default_factory=list)
    lost: int = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--loops", nargs="+", choices=LOOPS, default=list(LOOPS))
    parser.add_argument("--users", type=int, default=20)
    asked = parser.parse_args()
    if os.geteuid() != 0:
        print("the wire: capturing packets needs root")
        return
    print(f"{'ms: wire / tsbench':24}" + "".join(f"{name:>20}" for name in PERCENTS))
    within = []
    for name in asked.only:
        with tempfile.TemporaryDirectory(prefix="tsbench-bench-", dir="/var/tmp") as directory:
            server = registry.get(name).new_server(Path(directory) / "server", {})
            server.start()
            try:
                within += on(name, server.endpoint, asked.loops, Path(directory), asked.users)
            finally:
                server.stop()
                server.remove()
    print(f"{sum(within)} of {len(within)} figures within {SHARE:.0%} or {FLOOR_NS / 1e3:g} us (wanted: {WANTED})")


def on(name: str, endpoint: str, loops: list[str], directory: Path, users: int) -> list[bool]:
    """Measure and print one database's runs; return of each figure whether it is within."""
    within, rate = [], 500.0
    for loop in loops:
        scenario = directory / "scenario.toml"
        scenario.write_text(scenario_text(name, loop, rate, users))
        results = directory / loop
        with captured(urlsplit(endpoint).port or 0) as capture:
            command = [str(Path(sys.executable).parent / "tsbench"), "run", str(scenario), "--no-report"]
            done = subprocess.run(
                [*command, "--endpoint", endpoint, "--out", str(results)],
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
            )
        if done.returncode not in {0, 1}:  # 1: on a busy machine a run may be invalid, and its times are still right
            sys.exit(f"{' '.join(command)} failed: {(done.stderr or done.stdout)[-2_000:]}")
        if capture.lost:
            sys.exit(f"{name}, {loop}: the capture lost {capture.lost:,} packets")
        (found,) = results.glob("*/*/summary.json")
        within += show(f"{name}, {loop}", found.parent, capture)
        rate = sum(op["ops_per_s"] for op in json.loads(found.read_text())["measured"]["ops"].values()) / 2
    return within


def scenario_text(name: str, loop: str, rate: float, users: int) -> str:
    """Return quickstart's scenario for one database; in an open loop at this rate."""
    text = (ROOT / "scenarios" / "quickstart.toml").read_text()
    text = text[: text.index("[matrix]")].replace("scale = 100 ", f"scale = {SCALE.get(name, 100)} ")
    text = text.replace("users = 10 ", f"users = {users} ").replace('["30ms", "70ms"]', '["10ms", "30ms"]')
    if loop == "open":
        text = text.replace('loop = "closed"', f'loop = "open"\nrate = {rate:.0f}')
        text = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("wait"))
    return f'{text}[check]\nanswers = 0\nreadback = 0\n[target]\nname = "{name}"\n'


def show(name: str, directory: Path, capture: Capture) -> list[bool]:
    """Print one run's figures; return of each whether it is within."""
    measured = json.loads((directory / "summary.json").read_text())["measured"]
    start_s, end_s = measured["window"]["start_s"], measured["window"]["start_s"] + measured["duration_s"]
    ours = Histogram()
    for totals in merge(directory, start_s=start_s, end_s=end_s).totals.values():
        ours.add(totals.service)
    times_ns = [
        ended_ns - began_ns
        for began_ns, ended_ns in exchanges(capture.packets, start_s, end_s)
        if start_s * NS_PER_S <= began_ns < end_s * NS_PER_S
    ]
    wire = Histogram(times_ns)
    within, text = [], ""
    for wire_ns, ours_ns in zip(
        wire.percentiles_ns(PERCENTS.values()), ours.percentiles_ns(PERCENTS.values()), strict=True
    ):
        within.append(abs(ours_ns - wire_ns) <= max(SHARE * wire_ns, FLOOR_NS))
        text += f"{f'{wire_ns / 1e6:.3f} / {ours_ns / 1e6:.3f}':>19}{' ' if within[-1] else '!'}"
    read = sum(op["read"] + op["stepped"] for op in measured["ops"].values())
    print(f"{name:24}{text}  {len(wire):,} / {len(ours):,} ops, {read:,} without a stamp", flush=True)
    return within


# --- ops of a capture -------------------------------------------------------------------------------------------------


def exchanges(packets: list[Packet], start_s: int, end_s: int) -> Iterator[tuple[int, int]]:
    """Yield when each op of a user began and ended, in epoch ns.

    A statement of PostgreSQL that must be prepared first takes two exchanges.
    """
    by_port = defaultdict(list)
    for packet in packets:
        by_port[packet.port].append(packet)
    for connection in by_port.values():
        found = list(_pairs(sorted(connection, key=lambda packet: packet.time_ns)))
        measured = [1 for began_ns, _ in found if start_s * NS_PER_S <= began_ns < end_s * NS_PER_S]
        if len(measured) > USER_OPS_PER_S * (end_s - start_s):
            yield from found


def _pairs(packets: list[Packet]) -> Iterator[tuple[int, int]]:
    began_ns = ended_ns = 0
    is_first_half = False
    for packet in packets:
        if not packet.is_request:
            ended_ns = packet.time_ns
            continue
        if ended_ns and not is_first_half:
            if began_ns:
                yield began_ns, ended_ns
            began_ns = 0
        if ended_ns or not began_ns:
            began_ns = began_ns or packet.time_ns
            is_first_half = packet.head.startswith(b"P\0") and b"B\0" not in packet.head
            ended_ns = 0
    if began_ns and ended_ns:
        yield began_ns, ended_ns


# --- the capture ------------------------------------------------------------------------------------------------------


@contextmanager
def captured(port: int) -> Iterator[Capture]:
    """Capture the packets of a port while the block runs."""
    capture, stopped = Capture(), threading.Event()
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL)) as listening:
        _filter(listening, port)
        listening.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        listening.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        listening.bind(("lo", ETH_P_ALL))
        listening.settimeout(0.2)
        reader = threading.Thread(target=_read, args=(listening, port, capture, stopped))
        reader.start()
        try:
            yield capture
        finally:
            stopped.set()
            reader.join()
            capture.lost = struct.unpack("II", listening.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[1]


def _read(listening: socket.socket, port: int, capture: Capture, stopped: threading.Event) -> None:
    """Read packets until the block has ended and none is left."""
    while True:
        try:
            data, found, _, _ = listening.recvmsg(HEADER_BYTES, 64)
        except TimeoutError:
            if stopped.is_set():
                return
            continue
        seconds, ns = struct.unpack("@ll", found[0][2])
        ip_bytes = 4 * (data[0] & 15)
        source, destination = struct.unpack_from(">HH", data, ip_bytes)
        start = ip_bytes + 4 * (data[ip_bytes + 12] >> 4)
        if struct.unpack_from(">H", data, 2)[0] == start:  # an acknowledgement alone
            continue
        is_request = destination == port
        client = source if is_request else destination
        capture.packets.append(Packet(seconds * NS_PER_S + ns, client, is_request, data[start:]))


def _filter(listening: socket.socket, port: int) -> None:
    """Let the kernel drop all packets but TCP's to the port as they are sent and from it as they are received."""
    load_byte, load_half, load_indexed, load_x, equal, give = 0x30, 0x28, 0x48, 0xB1, 0x15, 0x06
    program = [
        (load_byte, 0, 0, 9),
        (equal, 0, 10, socket.IPPROTO_TCP),
        (load_x, 0, 0, 0),
        (load_indexed, 0, 0, 0),
        (equal, 0, 2, port),
        (load_half, 0, 0, PACKET_TYPE),
        (equal, 4, 5, INCOMING),
        (load_indexed, 0, 0, 2),
        (equal, 0, 3, port),
        (load_half, 0, 0, PACKET_TYPE),
        (equal, 0, 1, OUTGOING),
        (give, 0, 0, HEADER_BYTES),
        (give, 0, 0, 0),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    listening.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", len(program), ctypes.addressof(code)))


if __name__ == "__main__":
    main()
