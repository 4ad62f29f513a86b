"""RunDir: the files of one run in a result set. All steps after a run read only these.

Layout of a result set (`results/20261120-101500-quickstart/`):

    scenario.toml                  a copy of the scenario file
    summary.json                   {"format", "scenario", "question", "cells": [summary of each run]}
    report.html
    kept.json                      the database that the set keeps, if any (run.keeping.Kept)
    <cell id>/                     one run; `<cell id>.partial/` until its results are, and for good when it failed
        spec.json                  what was to be done (scenario.spec.RunSpec)
        env.json                   host, versions, settings (results.manifest.Manifest)
        latency/<process>.hlog     HdrHistogram V2 log: a line per op, kind and second, `<op>|response` or `|service`
        process/<process>.*        counts of each load process, flushed every second (source of the two below)
        process/window.json  events.json  changes.json   of a run with events: when it began to measure, and what was
                                   done when, to the server and to the load
        ops.parquet                per second and op, see OPS_COLUMNS
        host.parquet               this host and the load processes, see HOST_COLUMNS
        server.parquet             the server's processes, see SERVER_COLUMNS
        nodes.parquet              the same of each of several nodes, see NODES_COLUMNS
        counters.parquet           the server's own counters and its control group's, see COUNTER_COLUMNS
        counters.json              how to plot these counters (results.panels.Panel)
        sar.data sar.parquet       sysstat's binary file and what is in it, also of other hosts, see SAR_COLUMNS
        validate.json audit.json   the checks and their results
        unproven.jsonl             answers without gold, which those of other databases are compared with
        wrong.jsonl                the first query of each kind with a wrong answer, as a file of queries
        locust.log server.log
        errors.log                 tracebacks of unexpected errors, if there were any
        summary.json               the figures, their validity and the gates (results.summary.Summary)
        status.json                written last: {"format", "state": COMPLETE, SERVER_DIED, failed or interrupted, ...}

Seconds (`second`) count from the start of the measured window; warm-up is negative.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
import traceback
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tsbench.errors import Broken, UserMistake
from tsbench.results.json_files import Count, Number, Part, Text, read_json, read_part
from tsbench.results.limits import LIMITS
from tsbench.results.reading import files_of
from tsbench.text import conceal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

FORMAT: Literal[3] = 3
"""The number of this layout and of the shape of its files; results of another one are refused."""

WRONG = "wrong.jsonl"
"""The file of a run with queries whose answers were wrong."""
COMPLETE, SERVER_DIED = "complete", "server died"
"""States of runs whose results are whole; of the second one they end at the server's death, so that it is resumed."""

OPS_COLUMNS = {
    "second": "int64",
    "op": "string",
    "count": "int64",  # ops that were due (open loop) or sent (closed loop) in this second and have ended
    "done": "int64",  # ops that ended in this second, in whatever way
    "failed": "int64",
    "unknown": "int64",
    "partial": "int64",  # writes of which some points were refused and others not
    "points": "int64",  # points acknowledged in this second
    "response_p50_ns": "int64",
    "response_p99_ns": "int64",
    "response_max_ns": "int64",
    "service_p50_ns": "int64",
    "service_p99_ns": "int64",
    "service_max_ns": "int64",
}
ERRORS_FILE = "errors.log"
ADDED_COLUMNS = ("partial",)
"""Counts that files of earlier formats lack; those formats did not count them separately, so they are 0."""
HOST_COLUMNS = {
    "second": "double",
    "cpu_percent": "double",  # of the whole host, 0..100
    "memory_bytes": "int64",  # used, without caches
    "disk_read_bytes": "int64",  # in this second
    "disk_write_bytes": "int64",
    "client_cpu_percent": "double",  # the load processes together, 100 = one core
    "client_rss_bytes": "int64",
}
SERVER_COLUMNS = {
    "second": "double",
    "cpu_percent": "double",  # the server's process tree, 100 = one core
    "rss_bytes": "int64",  # shared pages counted once if the platform has PSS, else the sum of RSS
    "read_bytes": "int64",  # in this second
    # Bytes made dirty. Linux counts a whole folio, which may be 1 MB, for every small write that is then synced (100
    # writes of 8 kB counted as 105 MB on 6.18 with ext4), so for writes look at the host's disk or the counters.
    "write_bytes": "int64",
    "open_files": "int64",
}
NODES_COLUMNS = {**SERVER_COLUMNS, "node": "string"}  # of a server of several nodes, a row for each of its processes
COUNTER_COLUMNS = {
    "second": "double",
    "name": "string",  # the server's own name; `group.` are the kernel's counters of its control group
    "value": "double",  # at the end of this second: a total since the server was started, or a gauge
}
SAR_COLUMNS = {
    "second": "double",
    "host": "string",
    "interval_s": "double",  # each row is the mean of this many seconds, from `second` on
    "cpu_user_percent": "double",  # of all cores; the six states make 100
    "cpu_nice_percent": "double",
    "cpu_system_percent": "double",
    "cpu_iowait_percent": "double",
    "cpu_steal_percent": "double",
    "cpu_idle_percent": "double",
    "memory_used_bytes": "double",  # without caches and buffers in newer versions of sysstat, with them before 11.5
    "memory_cached_bytes": "double",
    "disk_ops_per_s": "double",
    "disk_read_bytes_per_s": "double",
    "disk_write_bytes_per_s": "double",
    "network_in_bytes_per_s": "double",  # without the loopback and virtual interfaces
    "network_out_bytes_per_s": "double",
    "loopback_bytes_per_s": "double",
    "load_1m": "double",
}
COLLECTED = {
    "host": HOST_COLUMNS,
    "server": SERVER_COLUMNS,
    "nodes": NODES_COLUMNS,
    "counters": COUNTER_COLUMNS,
    "sar": SAR_COLUMNS,
}
"""Columns of the files that collectors write."""


class Status(Part):
    """How a run ended: its state, and the reason if its results are not whole."""

    format: Count = FORMAT
    state: Text
    error: Text = ""
    finished_s: Number | None = None


@dataclass(frozen=True, slots=True)
class RunDir:
    """The directory of one run."""

    path: Path

    @classmethod
    def create(cls, results: Path, cell_id: str) -> RunDir:
        """Create an empty `<cell id>.partial/` in a result set, replacing that of an earlier, failed attempt."""
        path = results / f"{cell_id}.partial"
        try:
            if path.exists():
                shutil.rmtree(path)
            (path / "latency").mkdir(parents=True)
            (path / "process").mkdir()
        except OSError as error:
            raise UserMistake(f"cannot write to {path}: {error.strerror}; choose another place with --out") from None
        return cls(path)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Mark the run as going on, for as long as this process lives at most: the kernel ends the mark."""
        mark = os.open(self.path, os.O_RDONLY)
        try:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(mark)

    def is_held(self) -> bool:
        """Return True if a process marks the run as going on."""
        mark = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            os.close(mark)
        return False

    @property
    def cell_id(self) -> str:
        """Id of the run."""
        return self.path.name.removesuffix(".partial")

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a JSON file atomically."""
        write_json(self.path / name, content)

    def read_json(self, name: str) -> dict[str, Any]:
        """Return the content of a JSON file.

        Raises
        ------
        UserMistake
            If the file is missing or damaged.
        """
        return read_json(self.path / name)

    def has(self, name: str) -> bool:
        """Return True if the file exists."""
        return (self.path / name).exists()

    def note_traceback(self, error: BaseException) -> None:
        """Append where an error came from to `ERRORS_FILE`, for whoever looks for the fault in the program."""
        with suppress(OSError), (self.path / ERRORS_FILE).open("a", encoding="utf-8") as file:
            file.write(conceal("".join(traceback.format_exception(error))) + "\n")

    def finish(self, state: str, *, error: str = "") -> RunDir:
        """Write status.json, and rename the directory of a run whose results are whole to its final name."""
        self.write_json("status.json", Status(state=state, error=error, finished_s=time.time()).model_dump())
        if state not in {COMPLETE, SERVER_DIED}:
            return self
        final = self.path.with_name(self.cell_id)
        if final.exists():
            shutil.rmtree(final)
        return RunDir(self.path.rename(final))

    def status(self) -> Status:
        """Return how the run ended; `state` is `interrupted` if it ended without writing that.

        Raises
        ------
        UserMistake
            If the file is damaged.
        """
        if not self.has("status.json"):
            return Status(state="interrupted", error="the run ended before it could say how")
        return read_part(self.path / "status.json", Status)


_STAMP = "%Y%m%d-%H%M%S"
_STAMPED = len("20261123-101500-")


def dated(name: str, time_s: float | None = None) -> str:
    """Return the name of a new result set's directory: an epoch time in s (default: now), in UTC, and a name."""
    return f"{time.strftime(_STAMP, time.gmtime(time_s))}-{name}"


def new_set(out: Path, name: str) -> Path:
    """Create the directory of a new result set and return it; of two that begin in one second, one is dated later.

    Raises
    ------
    UserMistake
        If it cannot be made.
    """
    time_s = time.time()
    while True:
        results = out / dated(name, time_s)
        try:
            results.mkdir(parents=True)
        except OSError as error:
            if not results.is_dir():
                raise UserMistake(f"cannot write to {out}: {error.strerror}; choose another place with --out") from None
            time_s += 1
        else:
            return results


def undated(results: Path) -> str:
    """Return the name of a result set's directory without its date and time."""
    return results.name[_STAMPED:]


def sets_in(place: Path) -> list[Path]:
    """Return a result set or a run itself, and the result sets in another directory, such as that of a series."""
    if (place / "spec.json").exists() or any(place.glob("*/spec.json")):
        return [place]
    return sorted({path.parent.parent for path in place.glob("*/*/spec.json")}) or [place]


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file atomically (by a rename)."""
    write_atomically(path, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())


def write_atomically(path: Path, content: bytes | memoryview) -> None:
    """Write a file atomically (by a rename).

    Raises
    ------
    Broken
        If the disk is full or the directory not writable: one line with the cure.
    """
    partial = path.with_name(path.name + ".new")
    try:
        with suppress(FileNotFoundError):
            partial.unlink()  # it may be a link to a file elsewhere, which would be overwritten
        with partial.open("xb") as file:
            file.write(content)
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        text = f"cannot write {path}: {error.strerror}; free some room or choose another place with --out"
        raise Broken(text) from None


def find_runs(results: Path) -> Iterator[RunDir]:
    """Yield the runs of a result set, complete or not, by name; or the one run in `results` itself.

    Raises
    ------
    UserMistake
        If the directory has no run, or one of another format.
    """
    if not results.is_dir():
        raise UserMistake(f"{results} is not a directory; give a result set such as results/<date>-<scenario>")
    is_run = (results / "spec.json").exists()
    runs = [results] if is_run else [path for path in _directories(results) if (path / "spec.json").exists()]
    if len(runs) > LIMITS.runs:
        raise UserMistake(f"{results} holds {len(runs):,} runs, more than {LIMITS.runs:,}; move some elsewhere")
    if not runs:
        text = f"{results} holds no run of tsbench (no spec.json); give a result set such as results/<date>-<scenario>"
        raise UserMistake(text)
    for path in runs:
        shown = str(path).encode("utf-8", "backslashreplace").decode()
        if shown != str(path):
            raise UserMistake(f"{shown}: its name is no UTF-8, which no page can show; rename the directory")
    expect_this_format(results)
    yield from map(RunDir, runs)


def _directories(results: Path) -> list[Path]:
    """Return the directories in a result set, by name, without links, which lead elsewhere."""
    return [path for path in files_of(results, "*/") if not path.is_symlink()]


def expect_this_format(results: Path) -> None:
    """Refuse a result set, or one run, that another version of tsbench wrote.

    Raises
    ------
    UserMistake
        One line with the cure.
    """
    for name in ("summary.json", "status.json", "env.json"):
        for path in (results / name, *(run / name for run in _directories(results))):
            number = None
            with suppress(UserMistake):  # not there, or damaged: for who needs it to say
                number = read_json(path).get("format")
            if not isinstance(number, int) or number == FORMAT:
                continue
            if number > FORMAT:
                by, cure = f"a newer tsbench (format {number} > {FORMAT})", "update tsbench"
            else:
                by = f"an earlier tsbench (format {number}, now {FORMAT})"
                cure = "run the scenario anew, without --resume"
            raise UserMistake(f"{path.parent} was written by {by}; {cure}")
