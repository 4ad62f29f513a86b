"""What comes before the measured load: the manifest, empty tables, whether the first data is stored, a rehearsal."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from contextlib import closing
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from tsbench import __version__, plugins
from tsbench.check.audit import count_stored
from tsbench.errors import Broken
from tsbench.model import OpError, Text
from tsbench.results.manifest import ClockReading, Host, Manifest
from tsbench.run import assessment, cleanup
from tsbench.targets.base import Statement, Unsupported
from tsbench.targets.registry import TARGETS
from tsbench.units import NS_PER_S, format_time
from tsbench.workload import WORLD_VERSION, queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tsbench.model import Measurement
    from tsbench.results.rundir import RunDir
    from tsbench.run.time_limits import Limits
    from tsbench.scenario.spec import Job, RunSpec
    from tsbench.servers.base import Server
    from tsbench.targets.base import Schema, Session
    from tsbench.targets.target import Target
    from tsbench.workload.world import World

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


def create(session: Session, schema: Schema, world: World, limits: Limits) -> None:
    """Drop what an earlier run left, and create empty tables.

    Raises
    ------
    tsbench.model.OpError
        If a statement fails or takes longer than `timeout.create`.
    """
    made = schema.create(world.measurements, world.tags())  # which refuses names, before anything is dropped
    with limits.step("create", "dropping what an earlier run left") as timeout_s:
        session.run(schema.drop(world.measurements), timeout_s=timeout_s)
    with limits.step("create", "creating the tables") as timeout_s:
        session.run(made, timeout_s=timeout_s)


def expect_plausible(
    session: Session, schema: Schema, measurements: Sequence[Measurement], points: int, *, least: int | None = None
) -> int | None:
    """Stop a run whose data is not stored: fast queries on a half-empty table are worse than none (ClickBench).

    `least` is the number of points that must be stored where the others may have expired. Returns the number that is
    stored, None if it cannot be counted.

    Raises
    ------
    Broken
        If more points are stored than acknowledged, none, or fewer (than `least`) by a schema that keeps all.
    """
    try:
        stored = count_stored(session, schema, measurements)
    except Unsupported:
        return None
    least = points if least is None else min(least, points)
    if stored > points or (schema.keeps_duplicates and stored < least) or not stored:
        raise Broken(f"after the load {stored:,} points are stored, but {points:,} were acknowledged")
    return stored


def rehearse(spec: RunSpec, target: Target, schema: Schema, limits: Limits) -> None:
    """Ask the first query of each kind that is a `Text`, in a session that refuses to write if the target has such.

    The measured load asks without that: it would be measured, too.

    Raises
    ------
    Broken
        If the database does not answer some, with the reason of each; not after a time-out, which the load shows.
    """
    world = spec.world_at()
    loaded, failed = spec.loaded(world), []
    for kind in dict.fromkeys(op.query for op in spec.op if op.query is not None):
        query = queries.make(kind, world, loaded, spec.world.seed, 0)
        if not isinstance(query, Text):
            continue
        with closing(limits.connect(target, schema)) as session:  # one each: an error may end a transaction
            if target.read_only:
                session.run([Statement(target.read_only)])
            try:
                session.query(schema.compile(query), query.columns)
            except Unsupported:  # which is said in its place
                continue
            except OpError as error:
                failed += [f"query '{kind}' fails: {error.cause}: {error}"] if error.cause != "timeout" else []
    if failed:
        raise Broken("; ".join(failed))


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
