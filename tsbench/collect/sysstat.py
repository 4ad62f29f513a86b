"""sysstat's recordings: a collector that runs its recorder, and a parser for its files.

The whole machine is recorded, in a form that administrators know. What is read is the output of sadf, JSON (`sadf -j`)
or semicolons (`sadf -d`), and binary files by `sadf -j`.

Times need care. A binary file holds UTC; `sadf -j` and `sadf -d` print UTC and mark it so, unless -T or -t asked for
local time, which is then printed without a zone (`-d`), marked `"utc": 0`, or with a zone's ambiguous short name. Rows
with such times are refused unless the caller passes the offset from UTC.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsbench.errors import UserMistake, expect_regular
from tsbench.servers.children import Child

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tsbench.collect.sampler import Row

ACTIVITIES = ("-u", "-r", "-b", "-n", "DEV", "-q")
"""Arguments of sadf for the columns of a row: CPU, memory, disk, network, load."""
MAGIC = (b"\x96\xd5", b"\xd5\x96")
"""First bytes of a binary file of sysstat: 0xd596 in the byte order of its machine."""
KB = 1024
SECTOR = 512  # sysstat's "block"
_LOOPBACK = "lo"
_DERIVED = ("veth", "docker", "br-", "virbr", "ifb", "dummy", "bond", "team")
"""Prefixes of interfaces whose traffic is counted by others already."""
STOP_S = 10.0
"""Time limit for sadc to write its last sample and end, in seconds."""
PLACES = ("/usr/lib/sysstat/sadc", "/usr/lib64/sa/sadc", "/usr/lib/sa/sadc")
"""Paths of sadc, which is not on PATH: Debian, Fedora, others."""


# --- recording -----------------------------------------------------------------------------------------------------


def recorder() -> str | None:
    """Return the path of sadc, None if sysstat is not installed."""
    return next((place for place in PLACES if Path(place).exists()), None) if shutil.which("sadf") else None


_SAMPLED_S = 3.0
"""Time after which sadc has two samples, without which a file has no row; a shorter run has none to miss."""


class SarCollector:
    """Runs sadc during a run, into a file that any sar can read; rows as in `results.rundir.SAR_COLUMNS`."""

    name = "sar"

    def __init__(self, file: Path) -> None:
        self._file = file
        self._child: Child | None = None
        self._began_s = 0.0
        self.trouble = ""

    def start(self) -> None:
        """Start recording, once a second; do nothing if sysstat is not installed."""
        program = recorder()
        if program is None:
            return
        quiet = subprocess.DEVNULL
        self._child = Child([program, "1", str(self._file)], stdout=quiet, stderr=quiet)
        self._began_s = time.monotonic()

    def stop(self) -> Sequence[Row]:
        """Stop recording and return the rows; the file remains."""
        if self._child is None:
            return []
        ended = self._child.ended()
        if ended:
            self.trouble = f"sadc ended early ({ended}); the seconds after that are missing"
        elif not self._child.end(signal.SIGINT, within_s=STOP_S):
            self.trouble = f"sadc did not end within {STOP_S:g} s and was killed; its last seconds may be missing"
        try:
            return read(self._file)
        except UserMistake as mistake:
            if not ended and time.monotonic() - self._began_s < _SAMPLED_S:
                return []
            early = f" (it ended early: {ended})" if ended else ""
            self.trouble = f"sar recorded nothing that can be read{early}: {mistake}"
            return []


# --- reading -------------------------------------------------------------------------------------------------------


def read(path: Path, *, ahead_s: float | None = None) -> list[Row]:
    """Return the rows of a file: `second` (epoch, start of the interval), `host`, and the columns in `_COLUMNS`.

    Parameters
    ----------
    path
        A binary file of sysstat, or the output of `sadf -j` or `sadf -d`.
    ahead_s
        Seconds by which the printed times are ahead of UTC, if they are local; not needed for a binary file.

    Raises
    ------
    tsbench.errors.UserMistake
        If the file has none of these formats, or its times are local and `ahead_s` is None: one line with the cure.
    """
    try:
        expect_regular(path, "choose a file of sysstat's")
        content = path.read_bytes()
    except OSError as error:
        raise UserMistake(f"{path}: {error.strerror}") from None
    text = convert(path) if content[:2] in MAGIC else content.decode("utf-8", errors="replace")
    try:
        rows = list(_json_rows(json.loads(text), ahead_s) if text.lstrip()[:1] == "{" else _lines_rows(text, ahead_s))
    except _LocalTime as local:
        cure = "print it again with `sadf -j` without -T and -t, or use for example --sar-ahead 2h"
        raise UserMistake(f"{path}: its times are local ({local}), of an unknown zone; {cure}") from None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        cure = "use a file of sadc, or the output of `sadf -j FILE -- -u -r -b -n DEV -q`"
        raise UserMistake(f"{path}: not sysstat's data ({error}); {cure}") from None
    if not rows:
        raise UserMistake(f"{path}: holds no samples; one interval needs at least two")
    return rows


def convert(path: Path) -> str:
    """Return the output of `sadf -j` for a binary file, in UTC.

    Raises
    ------
    tsbench.errors.UserMistake
        If sadf is missing or cannot read the file.
    """
    # The locale decides on decimal commas, and variables such as S_TIME_FORMAT on the form of times.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("S_")}
    environment = {**inherited, "LC_ALL": "C", "TZ": "UTC"}
    try:
        command = ["sadf", "-j", str(path), "--", *ACTIVITIES]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        cure = "install the system's package sysstat, or use the output of `sadf -j` on the machine it is from"
        raise UserMistake(f"{path}: sadf cannot be run ({error}); {cure}") from None
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no message"])[0]
        cure = "run `sadf -j` on the machine it is from, whose sysstat has another version"
        raise UserMistake(f"{path}: sadf cannot read it ({said}); {cure}")
    return done.stdout


class _LocalTime(Exception):  # noqa: N818 - becomes a UserMistake
    """A time without a zone."""


def _json_rows(document: Any, ahead_s: float | None) -> Iterator[Row]:
    for host in document["sysstat"]["hosts"]:
        for sample in host.get("statistics", ()):
            stamp = sample["timestamp"]
            utc = stamp.get("utc") == 1 or stamp.get("tz") == "UTC"
            text = f"{stamp['date']} {stamp['time']}"
            end_s = _epoch(text, zone="UTC" if utc else "", ahead_s=ahead_s)
            yield _row(end_s, float(stamp["interval"]), str(host["nodename"]), _json_values(sample))


def _json_values(sample: Mapping[str, Any]) -> dict[str, float]:
    cpus = sample.get("cpu-load") or sample.get("cpu-load-all") or ()
    cpu: Mapping[str, Any] = next((c for c in cpus if c["cpu"] in {"all", "-1"}), {})
    io, memory, queue = (sample.get(key) or {} for key in ("io", "memory", "queue"))
    values = {
        "user": cpu.get("user", cpu.get("usr")),
        "nice": cpu.get("nice"),
        "system": cpu.get("system", _sum(cpu, "sys", "irq", "soft")),
        "iowait": cpu.get("iowait"),
        "steal": cpu.get("steal"),
        "idle": cpu.get("idle"),
        "kbmemused": memory.get("memused"),
        "kbcached": memory.get("cached"),
        "tps": io.get("tps"),
        "bread": io.get("io-reads", {}).get("bread"),
        "bwrtn": io.get("io-writes", {}).get("bwrtn"),
        "load": queue.get("ldavg-1"),
    }
    for face in (sample.get("network") or {}).get("net-dev", ()):
        _add_interface(values, str(face["iface"]), face["rxkB"], face["txkB"])
    return {name: float(value) for name, value in values.items() if value is not None}


def _lines_rows(text: str, ahead_s: float | None) -> Iterator[Row]:
    """Yield the rows of `sadf -d`: a table per activity, below a line of column names; joined by host and time."""
    rows: dict[tuple[str, float], tuple[float, dict[str, Any]]] = {}
    columns: list[str] = []
    for line in text.splitlines():
        if line.startswith(("#", "hostname;")):
            columns = line.lstrip("# ").strip().split(";")
            continue
        cells = line.strip().split(";")
        if len(cells) < 4 or "RESTART" in cells[3]:
            continue
        if len(cells) != len(columns):
            raise ValueError(f"a line of {len(cells)} columns under a head of {len(columns)}")
        host, interval, stamp = cells[:3]
        when, _, zone = stamp.rpartition(" ") if stamp.count(" ") == 2 else (stamp, "", "")
        end_s = float(stamp) if stamp.isdigit() else _epoch(when, zone=zone, ahead_s=ahead_s)
        _, values = rows.setdefault((host, end_s), (float(interval), {}))
        _take(values, dict(zip(columns[3:], cells[3:], strict=True)))
    for (host, end_s), (interval_s, values) in rows.items():
        if values:
            yield _row(end_s, interval_s, host, values)


_LINE_NAMES = {
    **{f"%{state}": state for state in ("user", "nice", "system", "iowait", "steal", "idle")},
    "%usr": "user",
    "%sys": "system",
    "kbmemused": "kbmemused",
    "kbcached": "kbcached",
    "tps": "tps",
    "bread/s": "bread",
    "bwrtn/s": "bwrtn",
    "ldavg-1": "load",
}


def _take(values: dict[str, Any], cells: Mapping[str, str]) -> None:
    if (
        cells.get("CPU", "-1") not in {"-1", "all"} or "DEV" in cells
    ):  # single cores and disks: other lines have the sums
        return
    if "IFACE" in cells:
        _add_interface(values, cells["IFACE"], float(cells["rxkB/s"]), float(cells["txkB/s"]))
        return
    values.update({_LINE_NAMES[name]: float(cell) for name, cell in cells.items() if name in _LINE_NAMES})


def _add_interface(values: dict[str, Any], name: str, received_kb: float, sent_kb: float) -> None:
    if name == _LOOPBACK:  # all that is sent there is received there
        values["loopback"] = received_kb
    elif not name.startswith(_DERIVED):
        values["received"] = values.get("received", 0.0) + received_kb
        values["sent"] = values.get("sent", 0.0) + sent_kb


_COLUMNS = {
    **{f"cpu_{state}_percent": (state, 1) for state in ("user", "nice", "system", "iowait", "steal", "idle")},
    "memory_used_bytes": ("kbmemused", KB),
    "memory_cached_bytes": ("kbcached", KB),
    "disk_ops_per_s": ("tps", 1),
    "disk_read_bytes_per_s": ("bread", SECTOR),
    "disk_write_bytes_per_s": ("bwrtn", SECTOR),
    "network_in_bytes_per_s": ("received", KB),
    "network_out_bytes_per_s": ("sent", KB),
    "loopback_bytes_per_s": ("loopback", KB),
    "load_1m": ("load", 1),
}
"""Columns of a row: name of the value, and its unit."""


def _row(end_s: float, interval_s: float, host: str, values: Mapping[str, float]) -> Row:
    """Return the row of one interval. sysstat records its end; `second` is its beginning, as in all our files."""
    row: Row = {"second": end_s - interval_s, "host": host, "interval_s": interval_s}
    return row | {name: values.get(source, math.nan) * unit for name, (source, unit) in _COLUMNS.items()}


def _epoch(text: str, *, zone: str, ahead_s: float | None) -> float:
    if zone != "UTC" and ahead_s is None:
        raise _LocalTime(" ".join(filter(None, (text, zone))))
    moment = datetime.fromisoformat(text).replace(tzinfo=UTC)
    return moment.timestamp() - (0.0 if zone == "UTC" or ahead_s is None else ahead_s)


def _sum(values: Mapping[str, float], *names: str) -> float | None:
    parts: Sequence[float] = [values[name] for name in names if name in values]
    return sum(parts) if parts else None
