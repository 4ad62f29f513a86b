"""The life cycle of a run, as a list of its steps in order."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import asdict, fields
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.support import failed_gates
from tests.drive.support import document
from tsbench.drive.bare.helper import carry_out
from tsbench.errors import Broken
from tsbench.measure.recorder import Recorder
from tsbench.model import Outcome
from tsbench.results.process import MASTER, TIMES, MasterReport, Times
from tsbench.results.rundir import write_json
from tsbench.run.lifecycle import run_job
from tsbench.run.phases import Quiet
from tsbench.run.trial import Parts
from tsbench.scenario.spec import Scenario
from tsbench.servers.base import Server
from tsbench.servers.children import Channel
from tsbench.servers.files import Residency
from tsbench.targets.base import Session
from tsbench.targets.target import Driver, Endpoint, Target
from tsbench.testing.memory import TARGET as MEMORY
from tsbench.testing.schemas import KEEP
from tsbench.testing.session import MemorySession

if TYPE_CHECKING:
    from collections.abc import Callable

    from tsbench.scenario.spec import RunSpec
    from tsbench.testing.answer_key import Table

pytestmark = pytest.mark.usefixtures("in_memory")


LIFE = [
    "server.start",
    "connect",
    "drop cpu",
    "create cpu",
    "connect",
    "write x 8",
    "close",
    "settle cpu",
    "count",
    "close",
    "collector.start",
    "drive",
    "collector.stop",
    "connect",
    "count",
    "ask x 8",
    "settle cpu",
    "sizes",
    "close",
    "server.stop",
    "server.remove",
]


class Log(list[str]):
    """The steps; repetitions of a step are one entry with a number."""

    def note(self, what: str) -> None:
        same = self[-1].partition(" x ")[0] == what if self else False
        if same:
            self[-1] = f"{what} x {int(self[-1].partition(' x ')[2] or 1) + 1}"
        else:
            self.append(what)


class LoggedSession(Session):
    """A memory session that logs its calls."""

    def __init__(self, log: Log, tables: dict[str, Table]) -> None:
        self._log, self._session = log, MemorySession(KEEP, tables)

    def run(self, statements, *, timeout_s=None):
        for statement in statements:
            self._log.note(statement.text)
        self._session.run(statements)

    def write(self, payload):
        self._log.note("write")
        return self._session.write(payload)

    def query(self, statement, columns):
        self._log.note("count" if columns == ("points",) else "ask")
        return self._session.query(statement, columns)

    def facts(self):
        return {"version": "none"}

    def sizes(self, measurements):
        self._log.note("sizes")
        return {"table": 1_000}

    def objects(self, measurements):
        return self._session.objects(measurements)

    def close(self):
        self._log.note("close")


class LoggedTarget(Target):
    _log: Log
    _tables: dict[str, Table]

    def __init__(self, log: Log) -> None:
        given = {one.name: getattr(MEMORY, one.name) for one in fields(MEMORY)}
        super().__init__(**{**given, "driver": Driver("json", "postgres", ("psycopg",))})
        object.__setattr__(self, "_log", log)
        object.__setattr__(self, "_tables", {})

    def parse(self, endpoint):
        return Endpoint(endpoint, self)

    def connect(self, endpoint, schema, *, timeout_s=30.0, connect_timeout_s=None, waiter=None):
        self._log.note("connect")
        return LoggedSession(self._log, self._tables)


class LoggedServer(Server):
    endpoint = "nowhere"

    def __init__(self, log: Log, *, dies: bool = False) -> None:
        self._log, self.dies, self.driven = log, dies, False

    def start(self):
        self._log.note("server.start")

    def stop(self):
        self._log.note("server.stop")

    def kill(self):
        self._log.note("server.kill")

    def remove(self):
        self._log.note("server.remove")

    def cold(self):
        self._log.note("server.cold")
        return Residency(9, 5, 0, whole_cache=False)

    def alive(self):
        return not (self.dies and self.driven)

    def ended(self):
        return ""

    def pids(self):
        return ()

    def size(self):
        return 4_096

    def log(self):
        return None

    def settings(self):
        return {}


class LoggedCollector:
    name, trouble = "host", ""

    def __init__(self, log: Log) -> None:
        self._log = log

    def start(self):
        self._log.note("collector.start")

    def stop(self):
        self._log.note("collector.stop")
        return []


def parts_of(log: Log, server: LoggedServer, *, fail: BaseException | None = None) -> Callable[..., Parts]:
    whole = parts(log, server, fail=fail)
    return lambda _spec, _run, _group: whole


def parts(log: Log, server: LoggedServer, *, fail: BaseException | None = None) -> Parts:
    def drive(spec, run, endpoint, *, tick, alive, ending):
        log.note("drive")
        server.driven = True
        if fail is not None:
            raise fail
        leave_an_op(run.path)

    return Parts(LoggedTarget(log), KEEP, server, (LoggedCollector(log),), drive)


def leave_an_op(directory: Path) -> None:
    """Leave behind what load processes do: one query that took 1 ms."""
    now_s = int(time.time())
    recorder = Recorder(directory, "local", start_ns=now_s * 10**9)
    recorder.op("raw-one", due_ns=now_s * 10**9, end_ns=now_s * 10**9 + 10**6, service_ns=10**6, outcome=Outcome.OK)
    recorder.close()
    write_json(directory / TIMES, asdict(Times(now_s, now_s, now_s + 1)))
    write_json(directory / MASTER, asdict(MasterReport(1, 0, 1, 1, 1, ())))


def run_from_locust(spec: RunSpec, results: Path, log: Log, server: LoggedServer) -> dict[str, Any]:
    """Carry out a run as the helper process of bare Locust does; the test is Locust, in a thread. Return the end."""
    (here_in, there_out), (there_in, here_out) = os.pipe(), os.pipe()
    locust = Channel(here_in, here_out)
    done: dict[str, Any] = {}

    def drive() -> None:
        while "done" not in (message := locust.receive(within_s=120) or {"done": None}):
            if "ready" in message:
                log.note("drive")
                server.driven = True
                leave_an_op(Path(message["ready"]["directory"]))
                locust.send(ended="")
        done.update(message["done"] or {})

    thread = threading.Thread(target=drive)
    thread.start()
    job = {"spec": spec.model_dump(mode="json", by_alias=True), "results": str(results), "client": os.getpid()}
    carry_out(job, Channel(there_in, there_out), parts_of(log, server))
    thread.join()
    for end in (here_in, there_out, there_in, here_out):
        os.close(end)
    return done


def cell(tmp_path, **tables):
    (spec,) = Scenario(
        tmp_path / "s.toml", document(op=[{"query": "raw-one"}], target={"name": "memory"}, **tables)
    ).expand()
    return spec


def test_a_run_does_everything_once_and_in_order(tmp_path):
    log = Log()
    run_job(cell(tmp_path, load={"batch": 60, "workers": 1}), tmp_path, Quiet(), parts_of(log, LoggedServer(log)))
    assert log == LIFE


def test_a_run_from_bare_locust_does_the_same_in_the_same_order(tmp_path):
    log = Log()
    done = run_from_locust(cell(tmp_path, load={"batch": 60, "workers": 1}), tmp_path, log, LoggedServer(log))
    assert log == LIFE
    assert done["state"] == "complete"
    assert done["summary"]["validity"]["checks"]["answers"]["state"] == "valid"


def test_a_server_that_died_under_bare_locust_fails_its_gate_and_is_not_asked_again(tmp_path):
    log = Log()
    done = run_from_locust(cell(tmp_path), tmp_path, log, LoggedServer(log, dies=True))
    assert "the server died" in failed_gates(done["summary"])["server deaths<=0"]
    assert log[-3:] == ["collector.stop", "server.stop", "server.remove"]


def test_a_cold_run_makes_the_server_cold_after_the_load_and_before_the_measuring(tmp_path):
    log = Log()
    spec = cell(tmp_path)
    spec = spec.model_copy(update={"target": spec.target.model_copy(update={"cold": True})})
    run_job(spec, tmp_path, Quiet(), parts_of(log, LoggedServer(log)))
    assert log.index("settle cpu") < log.index("server.cold") < log.index("drive")


def test_the_manifest_has_the_versions_of_the_drivers_that_the_target_declares_and_of_no_others(tmp_path):
    log = Log()
    spec = cell(tmp_path)
    run_job(spec, tmp_path, Quiet(), parts_of(log, LoggedServer(log)))
    packages = json.loads((tmp_path / spec.id / "env.json").read_text())["packages"]
    assert packages.keys() == {"locust", "gevent", "numpy", "polars", "psycopg"}
    assert packages["psycopg"] == version("psycopg")


@pytest.mark.parametrize("endpoint", [None, "memory://elsewhere"])
def test_the_manifest_says_what_is_not_recorded_of_a_server_of_others(tmp_path, endpoint):
    log = Log()
    spec = cell(tmp_path)
    spec = spec.model_copy(update={"target": spec.target.model_copy(update={"endpoint": endpoint})})
    run_job(spec, tmp_path, Quiet(), parts_of(log, LoggedServer(log)))
    server = json.loads((tmp_path / spec.id / "env.json").read_text())["server"]
    assert ("tsbench did not start this server" in server.get("not_recorded", "")) == (endpoint is not None)


def test_an_interrupted_run_says_in_which_step_it_was(tmp_path):
    log = Log()
    spec = cell(tmp_path)
    with pytest.raises(KeyboardInterrupt, match="interrupted by the user while it was measured"):
        run_job(spec, tmp_path, Quiet(), parts_of(log, LoggedServer(log), fail=KeyboardInterrupt()))
    status = json.loads((tmp_path / f"{spec.id}.partial" / "status.json").read_text())
    assert status["error"] == "interrupted by the user while it was measured"


def test_a_server_that_died_fails_its_gate_and_is_not_asked_again(tmp_path):
    log = Log()
    summary = run_job(cell(tmp_path), tmp_path, Quiet(), parts_of(log, LoggedServer(log, dies=True)))
    (gate,) = (gate for gate in summary.gates if gate.state == "fail")
    assert gate.built_in
    assert "the server died" in gate.text
    assert "not checked therefore: answers, writes, size" in gate.text
    assert not summary.passed
    assert log[-3:] == ["collector.stop", "server.stop", "server.remove"]
    assert summary.measured is not None
    assert summary.measured.query is not None
    assert summary.measured.query.count == 1


@pytest.mark.slow
@pytest.mark.parametrize("failure", [Broken("it broke"), OSError(28, "No space left on device", "f")])
def test_a_run_that_breaks_stops_its_server_and_keeps_its_evidence(tmp_path, failure):
    log = Log()
    spec = cell(tmp_path)
    summary = run_job(spec, tmp_path, Quiet(), parts_of(log, LoggedServer(log), fail=failure))
    assert log[-3:] == ["collector.stop", "server.stop", "server.remove"]
    assert summary.validity.state == "inconclusive"
    status = json.loads((tmp_path / f"{spec.id}.partial" / "status.json").read_text())
    assert status["state"] == "failed"
    assert status["error"] in summary.validity.reason


class OddLog(Log):
    """Raises what nobody expects at one call of a step."""

    def __init__(self, step: str, call: int) -> None:
        super().__init__()
        self._step, self._left = step, call

    def note(self, what: str) -> None:
        super().note(what)
        self._left -= what == self._step
        if self._left == 0 and what == self._step:
            raise KeyError("n")


@pytest.mark.slow
@pytest.mark.parametrize(("step", "call"), [(step, LIFE[: n + 1].count(step)) for n, step in enumerate(LIFE)])
def test_whatever_a_driver_raises_is_one_run_s_failure_and_its_type_is_said(tmp_path, step, call):
    step = step.partition(" x ")[0]
    log = OddLog(step, call)
    spec = cell(tmp_path, load={"batch": 60, "workers": 1})
    run_job(spec, tmp_path, Quiet(), parts_of(log, LoggedServer(log)), reached=True)
    (run,) = tmp_path.glob(f"{spec.id}*/")
    assert "KeyError" in "".join(path.read_text() for path in run.glob("*.json"))
    states = {"failed"} if run.suffix else {"complete", "server died"}
    assert json.loads((run / "status.json").read_text())["state"] in states
    assert "server.stop" in log


def test_a_traceback_is_in_the_run_s_log_and_not_in_its_reason(tmp_path):
    log = Log()
    spec = cell(tmp_path)
    summary = run_job(spec, tmp_path, Quiet(), parts_of(log, LoggedServer(log), fail=ZeroDivisionError("x\ny")))
    errors = tmp_path / f"{spec.id}.partial" / "errors.log"
    assert "ZeroDivisionError: x" in errors.read_text()
    assert 'File "' in errors.read_text()
    assert (
        summary.validity.reason == f"ZeroDivisionError: x y (while it was measured; {errors} has where it comes from)"
    )


def test_an_interrupt_stops_the_server_and_is_passed_on(tmp_path):
    log = Log()
    spec = cell(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_job(spec, tmp_path, Quiet(), parts_of(log, LoggedServer(log), fail=KeyboardInterrupt()))
    assert log[-2:] == ["server.stop", "server.remove"]
    status = json.loads((tmp_path / f"{spec.id}.partial" / "status.json").read_text())
    assert status["state"] == "interrupted"


@pytest.mark.slow
def test_a_half_empty_database_is_not_measured(tmp_path):
    log = Log()
    whole = parts(log, LoggedServer(log))

    class Forgetful(LoggedTarget):
        def connect(self, endpoint, schema, *, timeout_s=30.0, connect_timeout_s=None, waiter=None):
            session = super().connect(endpoint, schema)
            session.write = lambda payload: payload.points
            return session

    forgetful = Parts(Forgetful(log), KEEP, whole.server, whole.collectors, whole.drive)
    summary = run_job(cell(tmp_path), tmp_path, Quiet(), lambda *_: forgetful)
    assert "0 points are stored, but" in summary.validity.reason
    assert "drive" not in log


@pytest.mark.slow
def test_a_damaged_histogram_is_named_and_the_run_has_failed(tmp_path):
    log = Log()
    whole = parts(log, LoggedServer(log))

    def drive(spec, run, endpoint, *, tick, alive, ending):
        leave_an_op(run.path)
        path = run / "latency/local.hlog"
        path.write_text(path.read_text().replace("HIST", "HURT"))

    damaging = Parts(whole.target, KEEP, whole.server, whole.collectors, drive)
    spec = cell(tmp_path)
    summary = run_job(spec, tmp_path, Quiet(), lambda *_: damaging)
    reason = summary.validity.reason
    assert "what the load processes recorded is damaged: " in reason
    assert "local.hlog" in reason
    assert "line " in reason
    assert json.loads((tmp_path / f"{spec.id}.partial" / "status.json").read_text())["state"] == "failed"
    assert log[-2:] == ["server.stop", "server.remove"]
