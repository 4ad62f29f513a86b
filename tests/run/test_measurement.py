"""Whatever is in the files of load processes: figures come of them, or one line that names the file and the part."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.support import TINY
from tsbench.errors import Broken
from tsbench.measure.recorder import Recorder
from tsbench.model import Outcome
from tsbench.results import process
from tsbench.results.process import (
    FirstOp,
    GivenAnswers,
    MasterReport,
    ProcessReport,
    Schedule,
    Share,
    Times,
    WarmUp,
    Worker,
)
from tsbench.results.rundir import RunDir, write_json
from tsbench.run.measurement import measured, recorded
from tsbench.run.processes import Processes
from tsbench.scenario.spec import Scenario

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tsbench.scenario.spec import RunSpec

NOW_S = 1_795_000_000
NAME = "worker-0"
REPORT = f"process/{NAME}.json"
SHARE = Share(NAME, 0, 2, 8)
FILES: dict[str, Any] = {
    process.TIMES: Times(NOW_S - 0.5, NOW_S, NOW_S + 2, NOW_S + 2.1),
    process.MASTER: MasterReport(
        1, 0, 2, 1, 1.5, (Worker(SHARE, "host_1"), Worker(Share("worker-1", 1, 2, 8), "host_2", "killed by SIGKILL"))
    ),
    process.WARMUP: WarmUp(settled=True, duration_s=31.0, limit_s=60.0, tested_s=30),
    REPORT: ProcessReport(
        SHARE, 1, {"raw-one": GivenAnswers(1, 3)}, {"raw-one": FirstOp(NOW_S * 10**9, 5, 4, "ok")}, 10, 0, -3,
        Schedule(1, 1), {"refused": 1}, {"no such table": 1},
    ),
}  # fmt: skip
"""Of a run in which one of two workers was lost."""
ODD: list[Any] = [
    *(float("nan"), float("inf"), -1, 0, 0.5, 2**63, 10**24, 10**18, 1e308, None, True, "", "x", "9" * 10_000),
    *([], [[]], [None], {}, {"": None}, {"a": {}}, {str(n): n for n in range(5_000)}, ...),
]
"""What a part becomes; `...`: it is gone."""


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    (tmp_path / "tiny.toml").write_text(TINY)
    return Scenario.load(tmp_path / "tiny.toml").expand()[0]


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = RunDir.create(tmp_path, "one")
    recorder = Recorder(made.path, NAME, start_ns=NOW_S * 10**9)
    recorder.op("raw-one", due_ns=NOW_S * 10**9, end_ns=NOW_S * 10**9 + 10**6, service_ns=10**6, outcome=Outcome.OK)
    recorder.close()
    for suffix in ("self.hlog", "cpu.jsonl"):
        (made / f"process/{NAME}.{suffix}").write_text("")
    for name, content in FILES.items():
        write_json(made / name, asdict(content))
    return made


def places(content: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to each part of a file."""
    for key in content if isinstance(content, dict) else range(len(content)):
        yield (*above, key)
        if isinstance(content[key], dict | list):
            yield from places(content[key], (*above, key))


def changed(content: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield each place with the whole, once without the part and once with each odd value in its stead."""
    for place in places(content):
        for value in ODD:
            whole = json.loads(json.dumps(content))
            holder = whole
            for key in place[:-1]:
                holder = holder[key]
            if value is ...:
                del holder[place[-1]]
            else:
                holder[place[-1]] = value
            yield place, whole


def complaint(run: RunDir, spec: RunSpec) -> str:
    """Return why the figures of a run cannot be had; "" if they can."""
    try:
        with recorded():
            measured(run, spec)
    except Broken as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", [*FILES])
@pytest.mark.slow
def test_each_part_of_a_process_file_may_be_gone_or_odd(run: RunDir, spec: RunSpec, name: str) -> None:
    told = 0
    for place, whole in changed(json.loads((run / name).read_text())):
        (run / name).write_text(json.dumps(whole))
        if said := complaint(run, spec):
            told += 1
            assert f"{name} is damaged (" in said, place
            keys = {str(key) for key in place if isinstance(key, str)} | {"entries", "digits", "not the report of"}
            assert any(key in said for key in keys), (place, said)
            assert len(said) < 500 + len(str(run.path))
    assert told > 80


def test_figures_of_whole_process_files_come(run: RunDir, spec: RunSpec) -> None:
    with recorded():
        found = measured(run, spec)
    assert found.parts["users"] == 2
    assert found.parts["users_least"] == 1
    assert found.parts["warmup"] == FILES[process.WARMUP]
    assert found.parts["schedule"] == Schedule(1, 1)
    assert found.parts["firsts"]["raw-one"].service_ns == 4
    assert found.checks["workers"].reason.endswith("worker-1 with streams 1, 3, 5, 7 (killed by SIGKILL)")


def test_a_lost_worker_of_many_streams_is_named_with_the_first_ones(run: RunDir) -> None:
    lost = Worker(Share("worker-1", 1, 2, 9_000_000), "host_2")
    write_json(run / process.MASTER, asdict(MasterReport(1, 0, 1, 1, 1, (lost,))))
    assert "streams 1, 3, 5, 7, 9, 11, 13, 15, 17, 19 and 4,499,990 others" in Processes.read(run).verdict().reason


@pytest.mark.parametrize(("least", "drifts"), [(2, ["raw-one"]), (1, [])])
def test_times_that_follow_the_number_of_users_are_no_drift(
    tmp_path: Path, spec: RunSpec, least: int, drifts: list[str]
) -> None:
    run = RunDir.create(tmp_path, "slower")
    share = Share(NAME, 0, 1, 8)
    with closing(Recorder(run.path, NAME, start_ns=NOW_S * 10**9)) as recorder:
        for second in range(12):
            start_ns, service_ns = (NOW_S + second) * 10**9, 10**6 * (1 + second)
            recorder.op(
                "raw-one", due_ns=start_ns, end_ns=start_ns + service_ns, service_ns=service_ns, outcome=Outcome.OK
            )
    for suffix in ("self.hlog", "cpu.jsonl"):
        (run / f"process/{NAME}.{suffix}").write_text("")
    files: dict[str, Any] = {
        process.TIMES: Times(NOW_S - 0.5, NOW_S, NOW_S + 12, NOW_S + 12.1),
        process.MASTER: MasterReport(1, 0, 2, least, 1.5, (Worker(share, "host_1"),)),
        REPORT: replace(FILES[REPORT], share=share),
    }
    for name, content in files.items():
        write_json(run / name, asdict(content))
    with recorded():
        found = measured(run, spec)
    assert [*found.parts["measured"].time_drifts] == drifts


def test_users_of_an_open_loop_who_end_with_its_last_arrivals_are_no_change(run: RunDir, spec: RunSpec) -> None:
    with recorded():
        found = measured(
            run, spec.model_copy(update={"drive": spec.drive.model_copy(update={"loop": "open", "rate": 5.0})})
        )
    assert (found.parts["users"], found.parts["users_least"]) == (2, 2)
