"""The client's floor: how long a write takes if nothing but the client takes time.

After the load, the run's own writes are sent by one user to a sink (`targets.base.Sink`), a process on loopback that
acknowledges at once, through the same encoder, session and event loop. The median is the least that the client can
measure on this machine: a latency near it is the client's rather than the database's.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from tsbench.run.findings import Findings
from tsbench.servers.children import bind_to_parent
from tsbench.targets.registry import SINKS

if TYPE_CHECKING:
    from tsbench.results.rundir import RunDir
    from tsbench.scenario.spec import RunSpec

NEAR_NS = 10_000_000
"""A median service time above this is far above any client's floor, so that the floor is not measured."""
MEASURED_S = 1.0
"""How long the writes of all ops together are sent to the sink."""
LIMIT_S = 30.0
"""Time limit in seconds, with the start of two processes, which takes a second here and more on a small device."""


def client_floor(run: RunDir, spec: RunSpec, found: Findings) -> Findings:
    """Return the part `client_floor_ns` of the summary: the median service time by write op at the sink, in ns.

    Without such an op, or without a sink of the target, it is empty. `client_floor_error` says why it is not known.
    """
    ops = _quick_writes(found)
    if not ops or spec.target.name not in SINKS:
        return Findings({"client_floor_ns": {}})
    try:
        return Findings({"client_floor_ns": _measure(run, spec.target.name, ops)})
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return Findings({"client_floor_ns": {}, "client_floor_error": " ".join(str(error).split())})


def _quick_writes(found: Findings) -> list[str]:
    ops = (found.parts.get("measured") or {}).get("ops") or {}
    return [
        name for name, op in ops.items() if op["kind"] == "write" and op["ok"] and op["service_ns"]["p50"] < NEAR_NS
    ]


def _measure(run: RunDir, target: str, ops: list[str]) -> dict[str, Any]:
    bind = bind_to_parent(signal.SIGKILL)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = SINKS[target].endpoint.format(port=listener.getsockname()[1])
        descriptor = listener.fileno()
        sink = subprocess.Popen(
            [sys.executable, "-m", "tsbench.run.sink", target, str(descriptor)],
            pass_fds=[descriptor],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=bind,  # noqa: PLW1509 - before any thread of ours touches it
        )
        try:
            done = subprocess.run(
                [sys.executable, "-m", "tsbench.drive.floor_writer", str(run.path), endpoint, str(MEASURED_S), *ops],
                capture_output=True,
                text=True,
                check=False,
                timeout=LIMIT_S,
                preexec_fn=bind,
            )
        finally:
            sink.kill()
            sink.wait()
    if done.returncode:
        raise ValueError((done.stderr.strip().splitlines() or ["it ended without an error message"])[-1])
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured
