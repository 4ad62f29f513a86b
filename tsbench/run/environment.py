"""Where a run took place: its manifest (env.json) of host, versions and server, and what a summary says of that."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from tsbench import __version__, plugins
from tsbench.results.manifest import ClockReading, Host, Manifest
from tsbench.run import assessment, cleanup
from tsbench.targets.registry import TARGETS
from tsbench.units import NS_PER_S, format_time
from tsbench.workload import WORLD_VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tsbench.results.rundir import RunDir
    from tsbench.scenario.spec import Job
    from tsbench.servers.base import Server
    from tsbench.targets.base import Schema, Session
    from tsbench.targets.target import Target

PACKAGES = ("locust", "gevent", "numpy", "polars")
"""What every run uses; a target declares its drivers."""
NOT_RECORDED = "processes, log and data directory, since tsbench did not start this server"


def write_manifest(run: RunDir, spec: Job, target: Target, server: Server, session: Session, *, new: bool) -> None:
    """Write env.json: host, versions, the server's settings and facts, warnings, and the time of now.

    `new` means that the session has made its database's file.
    """
    missing = {"not_recorded": NOT_RECORDED} if spec.target.endpoint else {}
    manifest = manifest_of_host(target.driver.distributions if target.driver is not None else ()).with_server(
        {**server.settings(), **session.facts(), **missing}
    )
    packages = manifest.packages | (plugins.versions(target.name) if target.name in TARGETS.added else {})
    manifest = manifest.model_copy(update={"created": cleanup.note_found(spec, session, new=new), "packages": packages})
    manifest.write(run)


def heading(run: RunDir, spec: Job, target: Target, schema: Schema) -> dict[str, Any]:
    """Return what a summary says about which run it is, when it started, and whether its data is durable."""
    manifest = Manifest.read(run)
    utc_s = manifest.clock.utc_s if manifest is not None and manifest.clock is not None else 0
    started = format_time(int(utc_s * NS_PER_S))
    return {**assessment.heading(spec, schema.name), "started": started, "durable": is_durable(run, target)}


def is_durable(run: RunDir, target: Target) -> bool:
    """Return whether acknowledged data survives a crash, as the server's facts say; else as the target declares."""
    manifest = Manifest.read(run)
    said = manifest.server.get("durable") if manifest else None
    return target.durable if said is None else said == "yes"


# --- this machine -----------------------------------------------------------------------------------------------------


def manifest_of_host(drivers: Sequence[str]) -> Manifest:
    """Return the manifest of a run that begins now: host, versions, also of `drivers`, git state, clocks, load."""
    memory = psutil.virtual_memory()
    host = Host(
        cpu=_cpu_model(),
        cores=os.cpu_count() or 0,
        memory_bytes=memory.total,
        memory_available_bytes=memory.available,
        kernel=platform.release(),
        system=_system(),
        machine=platform.machine(),
        governor=_read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        load_average=os.getloadavg(),
    )
    manifest = Manifest(
        world_version=WORLD_VERSION,
        tsbench={"version": __version__, "git": _git()},
        host=host,
        python={"version": platform.python_version(), "implementation": sys.implementation.name},
        packages={name: _version(name) for name in (*PACKAGES, *drivers)},
        clock=ClockReading(
            source=_read("/sys/devices/system/clocksource/clocksource0/current_clocksource"), utc_s=time.time()
        ),
    )
    return manifest.with_warnings(_warnings_of(host))


def _warnings_of(host: Host) -> list[str]:
    """Return the properties of a host that make results unreliable, one sentence each."""
    warnings = []
    if host.load_average[0] > 0.5 * (host.cores or 1):
        warnings.append(f"the host was busy before the run (load average {host.load_average[0]:.1f})")
    if host.governor not in {"", "performance"}:
        warnings.append(f"the CPU frequency governor is {host.governor}, so speeds vary; set it to performance")
    return warnings


def _git() -> str:
    root = Path(__file__).parent.parent.parent
    if not (root / ".git").exists():
        return ""
    try:
        command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=False).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _cpu_model() -> str:
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith(("model name", "Model", "Hardware")):
            return line.partition(":")[2].strip()
    return platform.processor()


def _system() -> str:
    for line in _read("/etc/os-release").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip('"')
    return platform.system()
