"""Torn reads of a whole run: a finding in its summary, and a gate where the scenario asks for one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.support import failed_gates
from tests.drive.support import document
from tests.run.test_lifecycle import Log, LoggedServer, leave_an_op, parts
from tsbench.measure.recorder import Recorder
from tsbench.model import Outcome
from tsbench.run.lifecycle import run_job
from tsbench.run.phases import Quiet
from tsbench.run.trial import Parts
from tsbench.scenario.spec import Scenario

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.usefixtures("in_memory")


def checked(tmp_path: Path, *, torn: str, key: str = "host_0") -> Any:
    """Return the summary of a run with one answer under load, in which a row lacks all fields but the first."""
    operations = [{"write": 10}, {"query": "lastpoint"}]
    tables = {"check": {"torn": torn}, "load": {"batch": 60, "workers": 1}, "target": {"name": "memory"}}
    (spec,) = Scenario(tmp_path / "s.toml", document(op=operations, **tables)).expand()
    world = spec.world_at()
    ticks = world.ticks(spec.load.window)
    rows: list[list[Any]] = []
    for batch in world.mixed(range(world.spec.streams), points=9_999, last_tick=ticks):
        for i in range(len(batch)):
            if batch.time_ns[i] == world.time_ns(ticks - 1):
                values = [float(column[i]) for column in batch.fields.values()]
                rows.append([int(batch.time_ns[i]), world.keys()[int(batch.series[i])], *values])
    rows = [[*row[:3], *[None] * (len(row) - 3)] if row[1] == key else row for row in rows]

    def drive(spec: Any, run: Any, endpoint: str, **_watched: Any) -> None:
        leave_an_op(run.path)
        recorder = Recorder(run.path, "writer", start_ns=0)
        recorder.wrote(0, 0, 0, 10, Outcome.FAILED)  # so that the newest rows might have been others
        recorder.close()
        line = json.dumps({"op": "lastpoint", "number": 0, "rows": rows})
        (run / "process" / "local.answers.jsonl").write_text(line + "\n", encoding="utf-8")

    log = Log()
    whole = parts(log, LoggedServer(log))
    made = Parts(whole.target, whole.schema, whole.server, whole.collectors, drive)
    return run_job(spec, tmp_path, Quiet(), lambda *_: made)


@pytest.mark.parametrize(("torn", "failed"), [("report", []), ("fail", ["torn reads<=0"])])
def test_a_torn_read_is_a_finding_and_a_failed_gate_only_where_it_is_asked_for(
    tmp_path: Path, torn: str, failed: list[str]
) -> None:
    summary = checked(tmp_path, torn=torn)
    found = summary.answers
    assert (found.wrong, found.torn_reads.answers, found.torn_reads.rows) == (0, 1, 1)
    assert "a row without usage_system" in found.torn_reads.first.row
    assert summary.validity.checks["answers"].state == "valid"
    assert [name for name in failed_gates(summary.to_json()) if "torn" in name] == failed


def test_without_torn_reads_the_gate_is_passed(tmp_path: Path) -> None:
    summary = checked(tmp_path, torn="fail", key="")
    torn = summary.answers.torn_reads
    assert (torn.answers, torn.rows, torn.first) == (0, 0, None)
    (gate,) = (gate for gate in summary.gates if gate.gate == "torn reads<=0")
    assert gate.text.startswith("no answer had torn rows")
    assert gate.state in {"pass", "not judged"}
