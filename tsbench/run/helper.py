"""Helper processes for bare `locust -f`: initial load, host sampling and checks run outside its event loop.

These tasks would delay that loop, whose lateness is measured, and which answers the web UI and sends the workers'
heartbeats to a master.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tsbench.collect.processes import Tree
from tsbench.collect.recording import collectors_for, watching
from tsbench.errors import Broken, UserMistake, one_line
from tsbench.model import OpError
from tsbench.results.rundir import RunDir
from tsbench.results.summary import Summary
from tsbench.run import assessment, environment
from tsbench.run.bulk_load import create_and_load
from tsbench.run.counter_sources import server_counters
from tsbench.run.findings import Findings
from tsbench.run.time_limits import Limits
from tsbench.scenario.spec import RunSpec
from tsbench.scenario.validation import schema_of
from tsbench.servers.children import bind_to_parent
from tsbench.targets import registry
from tsbench.targets.registry import SERVERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tsbench.targets.base import Session

PATIENCE_S = 30.0
OUTER_LIMIT_S = 7 * 86_400.0
"""Time limit of a helper process in seconds; its own waits have the scenario's shorter [timeout]."""


# --- in Locust's process ----------------------------------------------------------------------------------------------


class HelperProcess:
    """Samples a run from its creation until `stop`. The run's clock must be written before: it is the time axis."""

    def __init__(self, run: RunDir, endpoint: str, server: Sequence[int]) -> None:
        self._child = _started("watch", run, endpoint, server=[*server], client=os.getpid())
        # Its start takes a second or two, so it is started before the test.
        if self._child.stdout is not None:
            select.select([self._child.stdout], [], [], PATIENCE_S)

    def stop(self) -> str:
        """Stop sampling and write the samples. Return an error message, or "" on success."""
        try:
            _, errors = self._child.communicate(timeout=PATIENCE_S)  # closes its input, which ends it
        except subprocess.TimeoutExpired:
            self.kill()
            return f"what the hosts did is lost: the collectors did not end within {PATIENCE_S:g} s"
        if self._child.returncode:
            return f"what the hosts did is lost: {_last_line(errors)}"
        return ""

    def kill(self) -> None:
        """Kill the helper process; its samples are lost."""
        self._child.kill()
        with suppress(subprocess.TimeoutExpired):
            self._child.communicate(timeout=PATIENCE_S)


def store(run: RunDir, endpoint: str) -> dict[str, Any]:
    """Store the initial data of the run's spec, and return the load's part of summary.json.

    Raises
    ------
    UserMistake
        If the server cannot be reached.
    Broken
        If a write failed.
    """
    return _asked(_started("store", run, endpoint))


def conclude(run: RunDir, endpoint: str, loaded: dict[str, Any], *, failure: str, death: str) -> Summary:
    """Check answers and writes, write the summary, and return it.

    After a `failure` of the run the database is not queried; a server's `death` is a failed gate.

    Raises
    ------
    Broken
        If the helper process fails.
    """
    _asked(_started("conclude", run, endpoint, loaded=loaded, failure=failure, death=death))
    return Summary.from_json(run.read_json("summary.json"))


def _started(what: str, run: RunDir, endpoint: str, **job: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tsbench.run.helper",
            what,
            json.dumps({"run": str(run.path), "endpoint": endpoint, **job}),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for Locust
        preexec_fn=bind_to_parent(signal.SIGKILL),  # noqa: PLW1509 - one system call, prepared before the fork
    )


def _asked(child: subprocess.Popen[bytes]) -> dict[str, Any]:
    try:
        said, errors = child.communicate(timeout=OUTER_LIMIT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        raise Broken(f"a process of tsbench did not end within {OUTER_LIMIT_S:g} s") from None
    except BaseException:  # the waiting greenlet is killed
        child.kill()
        raise
    if child.returncode == 2:
        raise UserMistake(_last_line(errors))
    if child.returncode:
        raise Broken(_last_line(errors) or f"a process of tsbench ended with {child.returncode}")
    result: dict[str, Any] = json.loads(said)
    return result


def _last_line(errors: bytes) -> str:
    return errors.decode(errors="replace").strip().rpartition("\n")[2]


# --- in their own -----------------------------------------------------------------------------------------------------


class _Job:
    """A run, with its spec and arguments."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.asked = asked
        self.run = RunDir(Path(asked["run"]))
        self.spec = RunSpec.model_validate(self.run.read_json("spec.json"))
        self.target = registry.get(self.spec.target.name)
        self.schema = schema_of(self.spec, self.target)
        self.endpoint: str = asked["endpoint"]

    def connect(self) -> Session:
        return Limits(self.spec.timeout, self.endpoint).connect(self.target, self.schema)


def _watch(job: _Job) -> dict[str, Any]:
    """Sample until the input ends."""
    server: Sequence[int] = job.asked["server"]
    client = Tree(lambda: [job.asked["client"]], without=lambda: [*server, os.getpid()])
    with watching(
        job.run,
        collectors_for(job.run, lambda: server, lambda: server_counters(job.target, job.endpoint, job.schema), client),
    ):
        print(json.dumps({"watching": True}), flush=True)
        sys.stdin.read()
    return {}


def _store(job: _Job) -> dict[str, Any]:
    world, load = job.spec.world_at(), job.spec.load
    with closing(job.connect()) as session:
        job.run.write_json("env.json", {**environment.manifest(), "server": dict(session.facts())})
        return create_and_load(
            session,
            world,
            job.target,
            job.schema,
            job.endpoint,
            last_tick=world.ticks(load.window),
            workers=load.workers,
            batch=load.batch,
            mode=load.mode,
            timeout=job.spec.timeout,
        )


def _conclude(job: _Job) -> dict[str, Any]:
    run, spec, schema, loaded = job.run, job.spec, job.schema, job.asked["loaded"]
    if job.asked["failure"]:
        assessment.salvage(run, spec, job.asked["failure"])
        return {}
    heading = {**assessment.heading(spec, schema.name), "load": loaded}
    found = assessment.measured(run, spec)
    if job.asked["death"]:
        assessment.conclude(run, spec, heading, found + Findings(death=job.asked["death"]))
        return {}
    found += assessment.examined(
        run,
        spec,
        job.target,
        schema,
        job.endpoint,
        loaded_points=loaded["points"],
        directory_bytes=lambda: _stored_bytes(job),
    )
    assessment.conclude(run, spec, heading, found)
    return {}


def _stored_bytes(job: _Job) -> int:
    """Return the size of the data directory of a server that was started for this run; 0 without one."""
    directory, target = job.run / "server", job.spec.target
    return SERVERS[target.name](directory, target.settings).size() if directory.exists() else 0


def main() -> NoReturn:
    """Run a job (`watch`, `store` or `conclude`) with JSON parameters from the command line; print JSON."""
    jobs = {"watch": _watch, "store": _store, "conclude": _conclude}
    try:
        print(json.dumps(jobs[sys.argv[1]](_Job(json.loads(sys.argv[2])))))
    except (UserMistake, Broken, OpError, OSError) as error:
        print(one_line(error), file=sys.stderr)
        sys.exit(2 if isinstance(error, UserMistake) else 1)
    sys.exit(0)


if __name__ == "__main__":
    main()
