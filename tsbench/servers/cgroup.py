"""Caps on a server's CPU and memory, by a control group (cgroup v1 or v2) in which its processes start.

    group = cgroup.create(Caps(cpu=0.5, memory_bytes=512_000_000))
    server = PostgresServer(directory, settings, group)  # its process starts in the group, and so do its children

`ManagedServer` passes the group to the process, so that no database can forget it. The group is made below the one that
tsbench runs in, so caps from outside apply as well.
"""

from __future__ import annotations

import itertools
import os
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsbench.errors import UserMistake
from tsbench.units import format_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PERIOD_US = 100_000
"""Period of the CPU cap: the group runs for its share of every 0.1 s (the kernel's default), then waits."""
_CURE = "run tsbench as root, or as `systemd-run --user --scope tsbench run ...`, or take [server] out"
_PATIENCE_S = 5.0
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Caps:
    """Upper limits of a server: CPU in cores, and memory with its page cache in bytes; None is no limit."""

    cpu: float | None = None
    memory_bytes: int | None = None

    def __bool__(self) -> bool:
        return self.cpu is not None or self.memory_bytes is not None

    @property
    def controllers(self) -> tuple[str, ...]:
        """Names of the cgroup controllers that the caps need."""
        return tuple(n for n, value in (("cpu", self.cpu), ("memory", self.memory_bytes)) if value is not None)


@dataclass(frozen=True, slots=True)
class _Place:
    """The parent directory for a controller's groups, and the cgroup version of its hierarchy."""

    version: int
    parent: Path


class Group:
    """A control group with its caps, created by `create` and deleted by `remove`."""

    def __init__(self, caps: Caps, places: Mapping[str, _Place]) -> None:
        name = f"tsbench-{os.getpid()}-{next(_numbers)}"
        self.caps = caps
        self._versions = {controller: place.version for controller, place in places.items()}
        self._paths = {controller: place.parent / name for controller, place in places.items()}
        self._mark: Mapping[str, float] = {}
        self._end: Mapping[str, float] | None = None

    @property
    def directories(self) -> Sequence[Path]:
        """Directories of the group, one per hierarchy."""
        return list(dict.fromkeys(self._paths.values()))

    def make(self) -> None:
        """Create the directories and set the caps; on OSError delete them and raise it."""
        try:
            for path in self.directories:
                path.mkdir()
            if self.caps.cpu is not None:
                self._cap_cpu(round(self.caps.cpu * PERIOD_US))
            if self.caps.memory_bytes is not None:
                self._cap_memory(self.caps.memory_bytes)
        except OSError:
            self.remove()
            raise

    def _cap_cpu(self, quota_us: int) -> None:
        path = self._paths["cpu"]
        if self._versions["cpu"] == 1:
            (path / "cpu.cfs_period_us").write_text(str(PERIOD_US), "ascii")
            (path / "cpu.cfs_quota_us").write_text(str(quota_us), "ascii")
        else:
            (path / "cpu.max").write_text(f"{quota_us} {PERIOD_US}", "ascii")

    def _cap_memory(self, size: int) -> None:
        # Without swap: with it, a server that needs more than its cap would be slower than any small machine.
        path = self._paths["memory"]
        if self._versions["memory"] == 1:
            _write_if_there(path / "memory.swappiness", "0")
            (path / "memory.limit_in_bytes").write_text(str(size), "ascii")
            _write_if_there(path / "memory.memsw.limit_in_bytes", str(size))
        else:
            (path / "memory.max").write_text(str(size), "ascii")
            _write_if_there(path / "memory.swap.max", "0")

    def pids(self) -> Sequence[int]:
        """Return the ids of the processes in the group."""
        return [int(word) for word in _read(self.directories[0] / "cgroup.procs").split()]

    def counters(self) -> Mapping[str, float]:
        """Return the kernel's counters since the group was made, of the capped controllers only."""
        values: dict[str, float] = {}
        if "cpu" in self._paths:
            values |= self._cpu_counters()
        if "memory" in self._paths:
            values |= self._memory_counters()
        return values

    def _cpu_counters(self) -> dict[str, float]:
        stat = _table(self._paths["cpu"] / "cpu.stat")
        counters: dict[str, float] = {key: stat.get(key, 0) for key in ("nr_periods", "nr_throttled")}
        if self._versions["cpu"] == 1:
            counters["throttled_s"] = stat.get("throttled_time", 0) / 1e9
            usage = self._paths.get("cpuacct")
            return counters | ({"cpu_s": _number(usage / "cpuacct.usage") / 1e9} if usage else {})
        return counters | {"throttled_s": stat.get("throttled_usec", 0) / 1e6, "cpu_s": stat.get("usage_usec", 0) / 1e6}

    def _memory_counters(self) -> dict[str, float]:
        path = self._paths["memory"]
        if self._versions["memory"] == 1:
            return {
                "memory_bytes": _number(path / "memory.usage_in_bytes"),
                "memory_peak_bytes": _number(path / "memory.max_usage_in_bytes"),
                "memory_failcnt": _number(path / "memory.failcnt"),
                "oom_kills": _table(path / "memory.oom_control").get("oom_kill", 0),
            }
        events = _table(path / "memory.events")
        return {
            "memory_bytes": _number(path / "memory.current"),
            "memory_peak_bytes": _number(path / "memory.peak"),
            "memory_failcnt": events.get("max", 0),
            "oom_kills": events.get("oom_kill", 0),
        }

    def killed(self) -> str:
        """Return a message if the kernel killed one of the processes for lack of memory, else ""."""
        if not self.counters().get("oom_kills"):
            return ""
        return f"the server was killed for lack of memory (cap {format_size(self.caps.memory_bytes or 0)})"

    def mark(self) -> None:
        """Record the counters at the start of the measured window, for `summary`."""
        self._mark = self.counters()

    def lift(self) -> None:
        """Remove the limits, and keep the counters of the time under them for `summary`.

        If the kernel refuses that, they stay.
        """
        end = self.counters()
        with suppress(OSError):
            for path, text in self._without_limits():
                if path.exists():
                    path.write_text(text, "ascii")
            self._end = end

    def _without_limits(self) -> Iterator[tuple[Path, str]]:
        if self.caps.cpu is not None:
            first = self._versions["cpu"] == 1
            yield (self._paths["cpu"] / "cpu.cfs_quota_us", "-1") if first else (self._paths["cpu"] / "cpu.max", "max")
        if self.caps.memory_bytes is not None and self._versions["memory"] == 1:
            yield self._paths["memory"] / "memory.memsw.limit_in_bytes", "-1"  # first: never below the other one
            yield self._paths["memory"] / "memory.limit_in_bytes", "-1"
        elif self.caps.memory_bytes is not None:
            yield self._paths["memory"] / "memory.max", "max"

    def summary(self) -> dict[str, Any]:
        """Return the caps and the kernel's counters: since the mark, and since the server's first start.

        Both end when the caps were lifted.
        """
        counted = self._end if self._end is not None else self.counters()
        gauges = ("memory_bytes", "memory_peak_bytes")
        since = {name: value - self._mark.get(name, 0) for name, value in counted.items() if name not in gauges}
        return {
            "cpu": self.caps.cpu,
            "memory_bytes": self.caps.memory_bytes,
            "measured": since if self._mark else None,
            "in_all": dict(counted),
            "lifted_for_checks": self._end is not None,
        }

    def remove(self) -> None:
        """Delete the group; wait some seconds for processes that are just ending."""
        give_up = time.monotonic() + _PATIENCE_S
        for path in self.directories:
            while not _removed(path) and time.monotonic() < give_up:
                time.sleep(0.01)


def create(caps: Caps, *, proc: Path = Path("/proc")) -> Group:
    """Create a control group with these caps, below the one of this process.

    Raises
    ------
    tsbench.errors.UserMistake
        If this user may not create groups here, or the kernel lacks a controller: one line with the cure.
    """
    places = _places(caps, proc)
    for place in places.values():
        _sweep(place.parent, proc)
    group = Group(caps, places)
    try:
        group.make()
    except OSError as error:
        text = f"needs the right to create control groups ({error.filename}: {error.strerror}); {_CURE}"
        raise UserMistake(f"[server] {text}") from None
    return group


def missing() -> str:
    """Return the reason why control groups with caps cannot be created here, with the cure; "" if they can."""
    try:
        create(Caps(cpu=1.0, memory_bytes=2**26)).remove()
    except UserMistake as mistake:
        return str(mistake)
    return ""


@contextmanager
def entries(group: Group | None) -> Iterator[list[int]]:
    """Yield the open files into which a process writes 0 to move into the group; none without a group.

    They are opened here and not in the child, which may have become another user by then: the kernel checks the rights
    of the user who opened them (since 5.16 and the stable releases of January 2022, CVE-2021-4197).
    """
    with ExitStack() as stack:
        directories = group.directories if group is not None else ()
        files = [stack.enter_context((each / "cgroup.procs").open("wb", buffering=0)) for each in directories]
        yield [file.fileno() for file in files]


def _places(caps: Caps, proc: Path) -> dict[str, _Place]:
    mounts, own = _mounts(proc / "self" / "mountinfo"), _memberships(proc / "self" / "cgroup")
    places: dict[str, _Place] = {}
    for controller in caps.controllers:
        place = _first_version(controller, mounts, own) or _second_version(caps.controllers, mounts, own)
        if place is None:
            text = f"this system has no control group for {controller} that tsbench may use; {_CURE}"
            raise UserMistake(f"[server] {text}")
        places[controller] = place
    if "cpu" in places and places["cpu"].version == 1:  # cgroup v1 counts CPU time in a controller of its own
        accounting = _first_version("cpuacct", mounts, own)
        places |= {"cpuacct": accounting} if accounting is not None else {}
    return places


def _first_version(controller: str, mounts: Mapping[str, tuple[str, Path]], own: Mapping[str, str]) -> _Place | None:
    if controller not in mounts or controller not in own:
        return None
    return _Place(1, _below(mounts[controller], own[controller]))


def _second_version(
    controllers: Sequence[str], mounts: Mapping[str, tuple[str, Path]], own: Mapping[str, str]
) -> _Place | None:
    """Return the nearest group at or above our own that delegates these controllers to its children."""
    if "" not in mounts or "" not in own:
        return None
    top = mounts[""][1]
    path = _below(mounts[""], own[""])
    while not set(controllers) <= set(_read(path / "cgroup.subtree_control").split()):
        if path == top:
            return None
        path = path.parent
    return _Place(2, path)


def _below(mount: tuple[str, Path], path: str) -> Path:
    """Return a group's directory; in a container the path may be the host's, and the mount is our own group."""
    root, point = mount
    inner = path.removeprefix(root.rstrip("/")) if path.startswith(root) else ""
    directory = point / inner.lstrip("/")
    return directory if directory.is_dir() else point


def _mounts(mountinfo: Path) -> dict[str, tuple[str, Path]]:
    """Return root and mount point of each hierarchy, by controller; cgroup v2's under an empty name."""
    mounts: dict[str, tuple[str, Path]] = {}
    for line in _read(mountinfo).splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = [*after.split(), "", "", ""][:3]
        place = (before.split()[3], Path(before.split()[4]))
        if kind == "cgroup2":
            mounts.setdefault("", place)
        elif kind == "cgroup":
            for option in options.split(","):
                mounts.setdefault(option, place)
    return mounts


def _memberships(cgroup: Path) -> dict[str, str]:
    """Return the group of this process in each hierarchy, by controller."""
    lines = [line.split(":", 2) for line in _read(cgroup).splitlines()]
    return {controller: path for _, controllers, path in lines for controller in controllers.split(",")}


def _sweep(parent: Path, proc: Path) -> None:
    """Delete the groups of a tsbench that was killed; a group with processes cannot be deleted."""
    for path in parent.glob("tsbench-*-*"):
        if not (proc / path.name.split("-")[1]).exists():
            _removed(path)


def _removed(path: Path) -> bool:
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:  # it still has processes
        return False
    return True


def _write_if_there(path: Path, text: str) -> None:
    """Write a file if the kernel has it: swap may not be accounted for (swapaccount=0)."""
    if path.exists():
        with suppress(OSError):
            path.write_text(text, "ascii")


def _read(path: Path) -> str:
    try:
        return path.read_text("ascii", errors="replace")
    except OSError:
        return ""


def _number(path: Path) -> int:
    text = _read(path).strip()
    return int(text) if text.isdigit() else 0


def _table(path: Path) -> dict[str, int]:
    words = [line.split() for line in _read(path).splitlines()]
    return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdigit()}
