"""Keeping: a database that outlives its campaign (`--keep`), so that later ones go on with its data (`--loaded`).

kept.json in the result set says where it is and what was written. A server that tsbench started lives as long as its
keeper: the process that ran the campaign, which then waits for `tsbench cleanup` to end it.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from pydantic import Field, ValidationError

from tsbench.errors import Broken, UserMistake
from tsbench.results.json_files import Count, Named, Number, Part, Several, Text, read_part
from tsbench.results.manifest import check_world
from tsbench.results.rundir import RunDir, write_json
from tsbench.scenario.spec import RunSpec
from tsbench.servers.base import ExternalServer
from tsbench.servers.files import allocated_bytes
from tsbench.servers.interrupts import SIGNALS
from tsbench.servers.launch import bind, unbind
from tsbench.text import short_path
from tsbench.units import format_exact_duration, format_time
from tsbench.workload import WORLD_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tsbench.servers.base import Server

    Stay = Callable[[int, Callable[[], object]], None]

FILE = "kept.json"
NOT_COMPARED = {"scenario", "timeout"}
"""Parts of a specification that say nothing about the data; see also `standing.OWN`."""
_ENDING_S = 120.0
"""Time limit for a server to shut down, in seconds."""


class Keeper(Part):
    """The process that a kept server belongs to."""

    pid: Count
    started_s: Number

    def process(self) -> psutil.Process | None:
        """Return the process; None if it has ended."""
        with suppress(psutil.NoSuchProcess):
            running = psutil.Process(self.pid)
            if running.create_time() == self.started_s and running.status() != psutil.STATUS_ZOMBIE:
                return running
        return None


class Kept(Part):
    """The record of a kept database: where it is, the runs that wrote (the first one loaded), and what they left."""

    endpoint: Text
    runs: Several[Text]
    stored: Count | None
    next_block: Count
    keeper: Keeper | None = None
    settings: Named[Text] = Field(default_factory=dict)
    spoiled: Text = ""
    """Why the stored points are unknown; "" if they are known."""

    def write(self, results: Path) -> None:
        """Write it into a result set."""
        write_json(results / FILE, self.model_dump())

    @property
    def run_dirs(self) -> list[RunDir]:
        """The directories of the runs that wrote."""
        return [RunDir(Path(run)) for run in self.runs]

    def spec(self) -> RunSpec:
        """Return the specification of the run that loaded, with the block of those that wrote later.

        Raises
        ------
        UserMistake
            If a directory is gone or damaged.
        """
        first, *others = self.run_dirs
        spec = _spec(first)
        return spec.model_copy(update={"block": _spec(others[-1]).block_points}) if others else spec

    @property
    def is_only_loaded(self) -> bool:
        """Whether nothing was written in blocks yet, so that these may have any size."""
        return len(self.runs) == 1 and not _spec(self.run_dirs[0]).op


def _spec(run: RunDir) -> RunSpec:
    check_world(run, WORLD_VERSION)
    try:
        return RunSpec.model_validate(run.read_json("spec.json"))
    except ValidationError as error:
        raise UserMistake(f"{run / 'spec.json'} is damaged: {error.errors()[0]['msg']}") from None


class KeptServer(ExternalServer):
    """A kept database: it is measured, but neither started nor stopped."""

    def __init__(self, kept: Kept) -> None:
        super().__init__(kept.endpoint)
        self._kept = kept

    def alive(self) -> bool:
        return self._kept.keeper is None or self._kept.keeper.process() is not None

    def ended(self) -> str:
        return "" if self.alive() else "its keeper has ended"

    def pids(self) -> Sequence[int]:
        keeper = self._kept.keeper.process() if self._kept.keeper is not None else None
        with suppress(psutil.NoSuchProcess):
            return [one.pid for one in keeper.children(recursive=True)] if keeper is not None else ()
        return ()

    def size(self) -> int:
        place = self._kept.settings.get("data_directory")
        return allocated_bytes(Path(place)) if place else 0

    def settings(self) -> Mapping[str, str]:
        return self._kept.settings


def keeper_of(server: Server) -> Keeper | None:
    """Return this process as the keeper of a server; None for one without processes of ours."""
    if isinstance(server, ExternalServer) or not server.pids():
        return None
    return Keeper(pid=os.getpid(), started_s=psutil.Process().create_time())


# --- going on with it -------------------------------------------------------------------------------------------------


def read_kept(results: Path) -> Kept:
    """Return the record of the database that a result set keeps.

    Raises
    ------
    UserMistake
        If it keeps none, its server has ended, or nobody knows what is stored in it.
    """
    if not (results / FILE).exists():
        raise UserMistake(f"--loaded {results}: keeps no database; make one with tsbench load, or run SCENARIO --keep")
    kept = read_part(results / FILE, Kept)
    if kept.spoiled:
        raise UserMistake(f"--loaded {results}: {kept.spoiled}; end it with tsbench cleanup {short_path(results)}")
    if not KeptServer(kept).alive():
        cure = f"tsbench cleanup {short_path(results)} removes its data; load anew with --keep"
        raise UserMistake(f"--loaded {results}: its server has ended; {cure}")
    return kept


_HOW_IT_WAS_LOADED = frozenset({"relative_start", "load.batch", "load.workers", "load.mode", "load.share"})
"""Keys that may differ: the same data are stored. Of a recording `load.share` says its `load.window`."""


def first_difference(cell: RunSpec, spec: RunSpec, own: set[str]) -> str:
    """Return the first key in which a cell needs other data than `spec` loaded, both values, and a cure; "" if none."""
    parts = [one.model_dump(mode="json", exclude={*own, *NOT_COMPARED}, by_alias=True) for one in (cell, spec)]
    anew = f"load by tsbench load {cell.target.name} --scenario FILE"
    for key, *values in _compared("", *parts):
        if key not in _HOW_IT_WAS_LOADED:
            wanted, there = (_as_in_a_file(key, value) for value in values)
            cure = f"take them by --set {key}={there}, or {anew}" if isinstance(there, int | str) else anew
            return f"{key} is {wanted}, and it was loaded with {there}; {cure}"
    return ""


def _as_in_a_file(key: str, value: object) -> object:
    if type(value) is int and key.endswith((".interval", ".window")):
        return format_exact_duration(value)
    return format_time(value) if type(value) is int and key.endswith(".start") else value


def unfit_write(cell: RunSpec, block: int) -> str:
    """Return which of a cell's writes does not divide the blocks of kept data, "" if all do."""
    size = next((op.write for op in cell.writes if op.write and block % op.write), None)
    return f"writes of {size} points do not divide its blocks of {block:,}" if size else ""


def _compared(place: str, one: object, other: object) -> Iterator[tuple[str, object, object]]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in {**one, **other}:
            yield from _compared(f"{place}.{key}".lstrip("."), one.get(key), other.get(key))
    elif one != other:
        yield place, one, other


# --- the keeper -------------------------------------------------------------------------------------------------------


def apart(work: Callable[[Stay], int]) -> int:
    """Return the exit code of `work`, which runs in a process of its own that may stay.

    `work` receives `stay(code, rest)`: this process then returns `code`, and the other one has no terminal any more,
    and ends when `rest` returns.
    """
    incoming, outgoing = os.pipe()
    here = os.getpid()
    child = os.fork()
    if child:
        os.close(outgoing)
        return _awaited(child, incoming)
    os.close(incoming)
    os.setsid()
    bind(here, signal.SIGTERM)

    def stay(code: int, rest: Callable[[], object]) -> None:
        unbind()
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nothing, number)
        with suppress(OSError):
            os.write(outgoing, bytes([code]))
        os.close(outgoing)
        try:
            rest()
        finally:
            os._exit(0)

    return work(stay)


def _awaited(child: int, incoming: int) -> int:
    """Pass signals on to a child until it sends its exit code or ends, and return the code."""
    before = {number: signal.signal(number, lambda number, _: _signalled(child, number)) for number in SIGNALS}
    try:
        said = os.read(incoming, 1)
        if said:
            return said[0]
        return abs(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    finally:
        os.close(incoming)
        for number, handler in before.items():
            signal.signal(number, handler)


def _signalled(child: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(child, number)


def end(results: Path) -> str:
    """End what a result set keeps, and return what was done in one line; "" if it keeps nothing.

    Raises
    ------
    Broken
        If the server does not end.
    """
    if not (results / FILE).exists():
        return ""
    kept = read_part(results / FILE, Kept)
    keeper = kept.keeper.process() if kept.keeper is not None else None
    if keeper is not None:
        keeper.terminate()
        give_up = time.monotonic() + _ENDING_S
        while kept.keeper is not None and kept.keeper.process() is not None:
            if time.monotonic() > give_up:
                raise Broken(f"the keeper of {kept.endpoint} (process {keeper.pid}) has not ended in {_ENDING_S:g} s")
            time.sleep(0.05)
    (results / FILE).unlink(missing_ok=True)
    return f"ended the database of {short_path(results)} and removed its data" if keeper is not None else ""
