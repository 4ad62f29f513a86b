"""Gather the manifest of a run on this machine (`results.manifest`)."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from tsbench import __version__
from tsbench.results.manifest import Clock, Host, Manifest
from tsbench.workload.version import WORLD_VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

PACKAGES = ("locust", "gevent", "numpy", "polars")
"""What every run uses; a target declares its drivers."""


def manifest(drivers: Sequence[str]) -> Manifest:
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
    found = Manifest(
        world_version=WORLD_VERSION,
        tsbench={"version": __version__, "git": _git()},
        host=host,
        python={"version": platform.python_version(), "implementation": sys.implementation.name},
        packages={name: _version(name) for name in (*PACKAGES, *drivers)},
        clock=Clock(
            source=_read("/sys/devices/system/clocksource/clocksource0/current_clocksource"), utc_s=time.time()
        ),
    )
    return found.with_warnings(_warnings_of(host))


def _warnings_of(host: Host) -> list[str]:
    """Return the properties of a host that make results unreliable, one sentence each."""
    found = []
    if host.load_average[0] > 0.5 * (host.cores or 1):
        found.append(f"the host was busy before the run (load average {host.load_average[0]:.1f})")
    if host.governor not in {"", "performance"}:
        found.append(f"the CPU frequency governor is {host.governor}, so speeds vary; set it to performance")
    return found


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
