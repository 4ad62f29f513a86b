"""Cases on small runs of the real command line: the exit code and the JUnit result of each gate."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.support import Command, disturbances
from tsbench.cli.main import main
from tsbench.report import frames

if TYPE_CHECKING:
    from tests.warm import WarmLocust

ROOT = Path(__file__).parent.parent.parent
PASSED, BROKEN, NOT_TOLD, UNDECIDED = "pass", "failure", "error", "skipped"

SCENARIO = """
question = "Do the gates hold?"
gates = {gates}
[world]
use_case = "cpu-only"
scale = 8
streams = 4
[load]
window = "10m"
batch = 1_000
[drive]
users = 2
warmup = "0s"
duration = "1s"
{drive}
[[op]]
write = 1
weight = 4
[[op]]
query = "raw-one"
[check]
answers = 2
{check}
[target]
name = "{target}"
{more}
"""


@dataclass(frozen=True)
class Case:
    """A scenario, its gates, and the expected exit code and JUnit results."""

    name: str
    code: int
    gates: dict[str, str] = field(default_factory=dict)
    in_file: tuple[str, ...] = ()  # of the gates; the others are given by --gate
    target: str = "sqlite"
    drive: str = 'wait = "20ms"'
    check: str = ""
    more: str = ""
    says: str = ""

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


OPEN = 'loop = "open"\nrate = 50.0'
CASES = [
    Case(
        "gates that hold and too few ops for a percentile that they seem to keep",
        0,
        {
            "write:p50<30s": PASSED,
            "query:max<30s": PASSED,
            "failures<0.1%": PASSED,
            "points/s>1": PASSED,
            "write:p99.99<30s": UNDECIDED,
        },
    ),
    Case(
        "gates that hold and gates that do not, of the file and of the command line",
        1,
        {
            "write:p99<1ns": BROKEN,
            "query:max<30s": PASSED,
            "write-1:max<30s": PASSED,
            "points/s>100M": BROKEN,
            "raw-one:ops/s>0.1": PASSED,
            "bytes/point<1": BROKEN,
            "bytes/point<100k": PASSED,
            "raw-one:mean<30s": PASSED,
            "write:p97.5<1ns": BROKEN,
            "load:points/s>1": PASSED,
        },
        in_file=("write:p97.5<1ns", "load:points/s>1"),
    ),
    Case(
        "response and service time in an open loop",
        0,
        {"write:response:p50<30s": PASSED, "write:service:p50<30s": PASSED, "write:max<30s": PASSED},
        drive=OPEN,
    ),
    Case(
        "a run whose answers and writes cannot be checked judges no gate",
        1,
        {"write:p50<20ms": NOT_TOLD, "write:p50>=30ms": NOT_TOLD, "failures<1%": NOT_TOLD},
        target="null",
        drive=OPEN,
        more='settings = { service = "30ms" }',
    ),
    Case("a figure that the run has not", 1, {"bytes/point<100": NOT_TOLD}, target="null"),
    Case("a gate that is none", 2, {"write:p99<50": ""}, says="--gate 'write:p99<50': a time needs a unit"),
    Case(
        "a gate on an op that is not there",
        2,
        {"raw-two:p99<50ms": ""},
        in_file=("raw-two:p99<50ms",),
        says="test.toml: gates: 'raw-two:p99<50ms': no op is called 'raw-two'; did you mean 'raw-one'?",
    ),
]


@pytest.mark.slow
@pytest.mark.usefixtures("unpainted")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_command_line_gives_its_exit_code_and_its_junit_verdicts(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    text = SCENARIO.format(
        gates=json.dumps(case.in_file), target=case.target, drive=case.drive, check=case.check, more=case.more
    )
    scenario = tmp_path / "test.toml"
    scenario.write_text(text, encoding="utf-8")
    by_option = [f"--gate={gate}" for gate in case.gates if gate not in case.in_file]
    files = {name: tmp_path / "out" / f"gates.{name}" for name in ("junit", "markdown", "json")}
    exports = [f"--{name}={path}" for name, path in files.items()]
    code = main(["run", str(scenario), f"--out={tmp_path / 'results'}", *by_option, *exports])
    said = capsys.readouterr()
    if case.says:
        assert code == case.code, said.out + said.err
        assert case.says in said.err
        assert not (tmp_path / "results").exists()
        return

    suite = ET.parse(files["junit"]).getroot()
    became = {c.get("name", ""): c[0].tag if len(c) else PASSED for c in suite.iter("testcase")}
    gates = {name.removeprefix("gate "): what for name, what in became.items() if name.startswith("gate ")}
    built_in = {gate: gates.pop(gate) for gate in list(gates) if gate not in case.gates}
    assert len(built_in) == 3
    (summary,) = json.loads(files["json"].read_text(encoding="utf-8"))["cells"]
    disturbed = summary["validity"]["checks"]["limit"]["state"] != "valid"  # which a busy machine may do to any run
    assert code == (1 if disturbed else case.code), said.out + said.err
    expected = dict(case.gates)
    for gate in summary["gates"]:  # which a busy machine may do, too: the rate is at least what it was
        if gate["gate"] == "points/s>100M" and "the load generator was the limit" in gate["text"]:
            assert summary["limited_by"] == "load generator"
            expected["points/s>100M"] = UNDECIDED
    assert gates == (dict.fromkeys(case.gates, NOT_TOLD) if disturbed else expected)
    results = {result["gate"]: result for result in summary["gates"] if not result["built_in"]}
    assert set(results) == set(case.gates)
    assert {g for g, r in results.items() if r["state"] == "pass"} == {g for g, b in gates.items() if b == PASSED}
    page = files["markdown"].read_text(encoding="utf-8")
    report = next((tmp_path / "results").glob("*/report.html")).read_text(encoding="utf-8")
    valid = summary["validity"]["state"] == "valid"
    for gate, result in results.items():
        assert f"`{gate}`" in page
        assert result["text"] in report.replace("&lt;", "<").replace("&gt;", ">")
        assert (f"gate {gate} " in said.out) == (
            result["state"] == "fail" or (result["state"] in {"not judged", "undecided"} and valid)
        )


def test_a_place_that_cannot_be_written_is_found_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    scenario = tmp_path / "test.toml"
    scenario.write_text(SCENARIO.format(gates=[], target="sqlite", drive="", check="", more=""), encoding="utf-8")
    for place in (tmp_path, scenario / "x.xml"):
        assert main(["run", str(scenario), f"--out={tmp_path / 'results'}", f"--junit={place}"]) == 2
        assert f"--junit {place}: " in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("unpainted")
@pytest.mark.parametrize(
    ("gate", "code", "held"),
    [
        ("write:ops/s<40", 0, "users=1"),  # a user writes 8 to 20 times a second, 16 users 128 times at least
        ("write:ops/s<1", 1, None),  # no load held
    ],
)
def test_a_ramp_that_ends_at_a_gate_that_failed_has_found_what_it_was_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], gate: str, code: int, held: str | None
):
    matrix = '[matrix]\n"drive.users" = [1, 16]'
    text = SCENARIO.format(gates=[gate], target="sqlite", drive='wait = "50ms"', check="", more=matrix)
    scenario = tmp_path / "ramp.toml"
    scenario.write_text("knee = true\n" + text, encoding="utf-8")
    ended = main(["run", str(scenario), f"--out={tmp_path / 'results'}"])
    (path,) = tmp_path.glob("results/*/summary.json")
    summary = json.loads(path.read_text(encoding="utf-8"))
    disturbed = [line for cell in summary["cells"] for line in disturbances(cell)]
    assert (ended, summary["knee"]["held"]) == (code, held) or (ended == 1 and disturbed), capsys.readouterr().err


def words_of(directory: Path, *words: str) -> list[str]:
    """The arguments of a small run of bare Locust."""
    file = ROOT / "locustfiles" / "sqlite.py"
    small = ["-f", str(file), "--headless", "-u", "2", "-r", "2", "-t", "600s", "--scale", "4", "--load-window", "2h"]
    return [*small, "--warmup", "0s", "--results", str(directory), *words]


def locust(directory: Path, *words: str, **environment: str) -> tuple[int, str]:
    """Return the exit code and the log of a bare Locust whose measuring ends when it has recorded some seconds."""
    command = Command(directory, "locust", *words_of(directory, *words), env=environment)
    try:
        command.interrupt_once_recorded()
        return command.wait(), command.stderr
    finally:
        command.end()


@pytest.mark.slow
def test_bare_locust_exits_with_1_when_a_gate_is_broken(tmp_path: Path):
    code, said = locust(tmp_path, "--gate", "write:p99<1ns", TSBENCH_GATES="query:p95<30s")
    assert code == 1, said
    (summary,) = tmp_path.glob("*/*/summary.json")
    found = json.loads(summary.read_text(encoding="utf-8"))
    gates = found["gates"]
    assert "gate write:p99<1ns failed" in said or disturbances(found)  # which gates do not judge
    assert [g["gate"] for g in gates if not g["built_in"]] == ["write:p99<1ns"]


@pytest.mark.slow
def test_bare_locust_takes_gates_from_its_environment_and_exits_with_0_when_they_hold(tmp_path: Path):
    code, said = locust(tmp_path, TSBENCH_GATES="write:p99<30s, failures<1%, bytes/point<10000")
    (summary,) = tmp_path.glob("*/*/summary.json")
    found = json.loads(summary.read_text(encoding="utf-8"))
    gates = found["gates"]
    wanted = ["write:p99<30s", "failures<1%", "bytes/point<10000"]
    state = "not judged" if disturbances(found) else "pass"
    # a few hundred ops in some seconds may be too few for a p99, which fails no run
    states = {g["gate"]: "pass" if g["state"] == "undecided" else g["state"] for g in gates if not g["built_in"]}
    assert states == dict.fromkeys(wanted, state)
    assert code == (0 if state == "pass" else 1), said
    host = frames.of_set(summary.parent, "host")
    inside = host[(host["second"] >= 0) & (host["second"] < 3)]
    assert (inside["client_rss_bytes"] > 20_000_000).all()
    assert len(inside) >= 1
    assert 0 < inside["client_cpu_percent"].mean() < 250


def test_bare_locust_refuses_a_gate_that_is_none_before_it_starts(tmp_path: Path, warm_locust: WarmLocust):
    done = warm_locust.run(tmp_path, *words_of(tmp_path, "--gate", "write:p99<50"))
    assert done.code == 2
    assert "a time needs a unit; write write:p99<50ms, say" in done.stderr
    assert list(tmp_path.iterdir()) == []
