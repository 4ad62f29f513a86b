"""Standing: a server that stays up with its data for several runs, so that one load serves them all.

Runs load alike if they differ only in how they are driven, measured and checked. The first of them loads; each of the
others finds its points and what the runs between have written, and writes later blocks of the same streams.
"""

from __future__ import annotations

import json
import shutil
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from tsbench.check.audit import count_stored
from tsbench.errors import Broken
from tsbench.results.figures import Reused
from tsbench.results.ledger import writes_of
from tsbench.results.manifest import Manifest
from tsbench.results.rundir import RunDir
from tsbench.results.summary import Summary
from tsbench.run.keeping import Kept, KeptServer, keeper_of
from tsbench.scenario.spec import ADOPT, MEASURE, ROUND
from tsbench.servers import unprivileged
from tsbench.servers.base import kill_processes, stop_and_delete
from tsbench.servers.interrupts import Deferral

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tsbench.model import Measurement
    from tsbench.results.figures import Load
    from tsbench.results.manifest import Created
    from tsbench.scenario.spec import RunSpec
    from tsbench.servers.base import Server
    from tsbench.targets.base import Schema, Session

OWN = {"id", "labels", "question", "drive", "op", "query", "event", "check", "gates", "block", "first_block"}
OWN |= {"resolution_ns", "steps", "pace"}
"""Parts of a specification in which runs with one load may differ."""


def load_key(spec: RunSpec) -> str:
    """Return a text that is the same for runs which share a load: each round of a repeated scenario has its own."""
    return json.dumps(spec.model_dump(mode="json", exclude=OWN), sort_keys=True) + spec.id.partition(ROUND)[2]


def server_directory(run: RunDir) -> Path:
    """Return the directory of a standing server that was started for a run: beside the run's, which is renamed."""
    return run.path.with_name(f"{run.cell_id}.server")


def end_server(server: Server, log_copy: Path | None) -> None:
    """Stop a server and delete its data, keeping its log; Ctrl-C meanwhile only kills the server, to save time."""
    with Deferral(lambda: kill_processes(server)):
        stop_and_delete(server, log_copy)


@dataclass(slots=True)
class StoredData:
    """What the next run must know of the data on a standing server; nothing is `loaded` before the first run."""

    loaded: Load | None = None
    runs: list[RunDir] = field(default_factory=list)
    """The runs since the load, which is the first one's."""
    created: Created | None = None
    stored: int | None = None
    """Number of points at the end of the last run; None if it is not known."""
    next_block: int = 0
    kept: Kept | None = None
    """The record of the campaign that loaded, if it was an earlier one."""


class Standing:
    """The server of a result set that outlives its runs, at most one, and its data."""

    def __init__(self, results: Path, *, stays: bool = False) -> None:
        """Remove what a tsbench that was killed left in `results`; with `stays` the last run's server is to be kept.

        Until `share` or `go_on` is called it is that of one run, which loads, and whose server ends with it.
        """
        for left in results.glob("*.server"):  # by a tsbench that was killed, and its servers with it
            if not (left / "spec.json").exists():
                unprivileged.remove(left.absolute())
        self._results, self._stays = results, stays
        self._key = ""
        """What runs have in common that share a load; "" of one run by itself."""
        self.record: Kept | None = None
        """The record of the database that this campaign keeps."""
        self._place: Path | None = None
        """The result set that keeps the database, if an earlier campaign has loaded it."""
        self._more = self._fit = False
        self.server: Server | None = None
        self.data = StoredData()

    def share(self, spec: RunSpec, later: Sequence[RunSpec]) -> RunSpec:
        """Return a run's specification with its place in the streams; end a server that has other data.

        `later` are the runs that follow.
        """
        if load_key(spec) != self._key:
            self.close()
        self._key = load_key(spec)
        self._more = self._stays or any(load_key(other) == self._key for other in later)
        steps = spec.steps if self.data.loaded is None else (*ADOPT, *MEASURE)
        return spec.model_copy(update={"first_block": self.data.next_block, "steps": steps})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.record is None:
            self.close()

    @contextmanager
    def kept(self, server: Server, run: RunDir) -> Iterator[None]:
        """Keep the server after a `with` block in which `end` found it fit for another run; else stop it."""
        self.server, self._fit = server, False
        if self._place is not None:  # also for whoever comes after a tsbench that is killed
            self._record(f"{run.cell_id} did not end well, and what it wrote is not known").write(self._place)
        try:
            yield
        finally:
            if self._fit:
                if self._place is not None:
                    self._record().write(self._place)
                log = server.log()
                if log is not None and log.exists():
                    shutil.copyfile(log, run / "server.log")
            else:
                self._stop(run / "server.log")

    def close(self) -> None:
        """Stop the server, if one stands, and delete its data."""
        self._stop(self.data.runs[-1] / "server.log" if self.data.runs else None)

    def _stop(self, log: Path | None) -> None:
        server = self.server
        self.server, self.data, self._place = None, StoredData(), None
        if server is not None:
            end_server(server, log)

    # --- kept beyond the campaign -------------------------------------------------------------------------------------

    def keep(self) -> Kept | None:
        """Write the record of the database that is to stay into the result set, and return it; None if none is."""
        if self.server is None or not self._stays or self._place is not None:
            return None
        self.record = self._record()
        self.record.write(self._results)
        return self.record

    def wait(self) -> None:
        """Wait until this process is to end, then stop the server; or until the server has ended by itself."""
        server = self.server
        with suppress(KeyboardInterrupt):
            while server is not None and server.alive():
                time.sleep(0.5)
            return
        self.close()

    def go_on(self, kept: Kept, results: Path, spec: RunSpec) -> None:
        """Take over the database that another result set keeps, for runs that load as `spec` does."""
        first = kept.run_dirs[0]
        self._key, self._place, self._stays, self.server = load_key(spec), results, True, KeptServer(kept)
        load, created = Summary.read(first).load, _created_by(first)
        self.data = StoredData(load, kept.run_dirs, created, kept.stored, kept.next_block, kept)

    def _record(self, spoiled: str = "") -> Kept:
        server, data = self.server, self.data
        if server is None:
            raise ValueError("nothing stands")
        known: dict[str, Any] = {
            "runs": tuple(str(run.path.absolute()) for run in data.runs),
            "stored": data.stored,
            "next_block": data.next_block,
            "spoiled": spoiled,
        }
        if data.kept is not None:
            return data.kept.model_copy(update=known)
        settings = {name: str(value) for name, value in server.settings().items()}
        return Kept(endpoint=server.endpoint, keeper=keeper_of(server), settings=settings, **known)

    # --- one run ------------------------------------------------------------------------------------------------------

    def begin(
        self, run: RunDir, session: Session, schema: Schema, measurements: Sequence[Measurement], *, expires: bool
    ) -> Load:
        """Return the load whose points a later run finds; the manifest names what it had created.

        Raises
        ------
        Broken
            If the number of stored points is not that at the end of the run before, or not below it if data `expires`.
        """
        if self.data.loaded is None:
            raise ValueError("nothing is loaded")
        if (manifest := Manifest.read(run)) is not None:
            manifest.model_copy(update={"created": self.data.created}).write(run)
        if (before := self.data.stored) is not None:
            stored = count_stored(session, schema, measurements)
            if stored > before or (stored < before and not expires):
                when = f"when {self.data.runs[-1].cell_id} had ended there were {before:,}"
                raise Broken(f"{stored:,} points are stored, but {when}: somebody else changed the data meanwhile")
        return self.data.loaded

    def directory(self, run: RunDir) -> Path:
        """Return the place of a server that is started for a run: beside it if other runs may follow."""
        return server_directory(run) if self._key else run / "server"

    def found(self, run: RunDir, loaded: Load) -> dict[str, Any]:
        """Return the parts of a run's summary about the data that it found; `load` is only the run's own."""
        if not self._key:
            return {}
        if not self.data.runs:
            return {"reused": Reused(points=loaded.points, loaded_by=run.cell_id)}
        names = tuple(one.cell_id for one in self.data.runs)
        wrote = names if Summary.read(self.data.runs[0]).measured is not None else names[1:]
        points = loaded.points if self.data.stored is None else self.data.stored
        return {"load": None, "reused": Reused(points=points, loaded_by=names[0], wrote=wrote)}

    def end(
        self,
        run: RunDir,
        loaded: Load,
        summary: Summary,
        *,
        stored: int | None,
        needs: Sequence[str] = ("writes", "answers"),
    ) -> None:
        """Keep what the next run must know, if data and server are as they should be and a run is to follow.

        `stored` is the number of points at the end (None: not known), `needs` names the checks that must be valid.
        """
        writes, checks = summary.writes, summary.validity.checks
        checked = all(name in checks and checks[name].state == "valid" for name in needs)
        sure = writes is None or writes.unknown == 0
        self._fit = self._more and not summary.death and summary.validity.state != "invalid" and checked and sure
        data = self.data
        if not data.runs:
            data.created = _created_by(run)
        data.loaded, data.stored = loaded, stored
        data.runs.append(RunDir(self._results / run.cell_id))  # its name when it is complete
        data.next_block = max(data.next_block, int(writes_of(run)["block"].max(initial=-1)) + 1)


def _created_by(run: RunDir) -> Created | None:
    """Return the record of what a run created on the user's server; None without one."""
    manifest = Manifest.read(run)
    return manifest.created if manifest is not None else None
