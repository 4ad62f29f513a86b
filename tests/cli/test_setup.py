"""`tsbench init` and `tsbench servers`: files to start from, and the servers that can be had; a shell's completion."""

from __future__ import annotations

import json
import math
import os
import re
import stat
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.support import PROGRAMS
from tests.scenario.test_own_words import WORKS
from tests.test_compose import found_wrong
from tests.test_docs import PARSE
from tsbench.cli.main import main
from tsbench.cli.setup import SCRIPT, WORKFLOW
from tsbench.scenario.spec import Scenario
from tsbench.scenario.validation import check_spec
from tsbench.targets.registry import TARGETS

if TYPE_CHECKING:
    from tests.warm import WarmLocust

DATABASES = sorted(TARGETS.keys() - {"null"})


@pytest.mark.parametrize("target", DATABASES)
@pytest.mark.slow
def test_the_files_to_start_from_are_good_ones(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm_locust: WarmLocust
) -> None:
    pytest.importorskip(driver.module if (driver := TARGETS[target].driver) else "sys")
    monkeypatch.chdir(tmp_path)
    assert main(["init", target]) == 0
    (cell,) = Scenario.load(Path("scenario.toml")).expand()
    assert cell.target.name == target
    check_spec(cell, "init")
    assert found_wrong(WORKFLOW, "github-workflows") == ""
    done = warm_locust.run(tmp_path, "-f", "locustfile.py", text=PARSE)
    assert done.code == 0, done.stderr
    texts = "".join(path.read_text() for path in (Path("scenario.toml"), WORKFLOW, Path("locustfile.py")))
    assert not re.search(r"TARGET|EXTRAS|locustfiles/", texts)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["works", "meters", "devops"])
def test_files_to_start_from_are_about_a_use_case_of_ones_own(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm_locust: WarmLocust
) -> None:
    monkeypatch.chdir(tmp_path)
    if case == "works":
        Path("works.toml").write_text(WORKS.read_text())
    elif case == "meters":
        pytest.importorskip("polars")
        rows = (f"{1_700_000_000 + 10 * i},m{i % 3},{i % 7}" for i in range(602))
        Path("meters.csv").write_text("\n".join(["time,meter,volts", *rows]) + "\n")
        assert main(["check", "meters.csv", "--out", "meters.toml"]) == 0
    name = case if case == "devops" else f"{case}.toml"
    assert main(["init", "sqlite", "--use-case", name]) == 0
    (cell,) = Scenario.load(Path("scenario.toml")).expand()
    check_spec(cell, "init")
    assert cell.queries
    done = warm_locust.run(tmp_path, "-f", "locustfile.py", text=PARSE)
    assert done.code == 0, done.stderr
    assert all(f'self.query("{op.query}")' in Path("locustfile.py").read_text() for op in cell.queries)
    if case == "meters":
        left, due = 301, (cell.drive.rate or 0) * cell.points_of_an_op * cell.seconds
        most = left - 2 * math.sqrt(left)
        assert 0.995 * most < due <= most, "points left for two deviations; a rate has three digits"
        assert main(["run", "scenario.toml"]) == 0
        (summary,) = Path("results").glob("*/*/summary.json")
        made = json.loads(summary.read_text())
        # 266 writes are due in the mean, after 301 points of the load: five deviations are 82.
        assert 567 - 82 <= made["writes"]["stored"] == made["writes"]["acknowledged"] <= 602
        assert made["limited_by"] == "nothing"


def test_init_names_what_is_wrong_with_a_use_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gaps.toml").write_text(WORKS.with_name("gaps.toml").read_text())
    Path("one.csv").write_text("time,volts\n2026-05-01T00:00:00Z,1\n")
    assert main(["check", "one.csv", "--out", "one.toml"]) == 0
    for target, name, why in (
        ("sqlite", "absent.toml", "absent.toml: no such use case"),
        ("sqlite", "absent", "--use-case absent: there is no use case 'absent'"),
        ("sqlite", "setup.cfg", "setup.cfg"),
        ("victoriametrics", "gaps.toml", "holds numbers only"),
        ("sqlite", "one.toml", "--use-case one.toml: has no points after its first half to write; record more"),
    ):
        assert main(["init", target, "--use-case", name]) == 2
        assert why in capsys.readouterr().err
    assert {path.suffix for path in tmp_path.iterdir()} == {".toml", ".csv"}


def test_no_file_is_overwritten_and_without_a_name_a_database_is_chosen_that_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("locustfile.py").write_text("mine")
    assert main(["init"]) == 2
    assert "locustfile.py: there already; nothing was written" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["locustfile.py"]
    Path("locustfile.py").unlink()
    assert main(["init"]) == 0
    assert 'name = "sqlite"' in Path("scenario.toml").read_text()
    assert main(["init", "null"]) == 2
    assert "'null' keeps nothing that could be asked for" in capsys.readouterr().err


def test_servers_are_listed_with_their_place_or_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TSBENCH_SERVERS", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    program(tmp_path / "bin" / "influxd-2")
    assert main(["servers"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert {name for name, target in TARGETS.items() if target.requirements} <= lines.keys()
    assert f"yes   {tmp_path}/bin/influxd-2" in lines["influxdb2"]
    assert "no    tsbench servers install timescaledb, or give --endpoint" in lines["timescaledb"]


def program(path: Path, text: str = "#!/bin/sh\n") -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IEXEC)


def test_what_lacks_its_tool_is_named_in_one_line_and_the_rest_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    tools, servers = tmp_path / "tools", tmp_path / "it's here"
    for name in ("bash", "tr", "sed", "paste", "mkdir", "mv", "chmod", "sort", "grep"):
        tools.mkdir(exist_ok=True)
        (tools / name).symlink_to(
            next(path for path in (Path("/usr/bin") / name, Path("/bin") / name) if path.exists())
        )
    program(
        tools / "go",
        '#!/bin/sh\nfor last; do :; done\nlast=${last%@*}; at=$GOBIN/${last##*/}; echo >"$at"; chmod +x "$at"\n',
    )
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("TSBENCH_SERVERS", str(servers))
    assert main(["servers", "install"]) == 0
    said = capfd.readouterr()
    assert "influxd-2 is left out: this machine lacks cargo, cc" in said.err
    assert "questdb is left out: this machine lacks java, mvn" in said.err
    assert "victoria-metrics is left out: this machine lacks apt-get, dpkg-deb" in said.err
    assert {path.name for path in (servers / "bin").iterdir()} == {"influxd-1.8", "ferretdb"}
    assert f"{servers}/bin/ferretdb" in said.out

    assert main(["servers", "install", "influxdb2", "mariadb", "sqlite"]) == 1  # asked for by their names
    said = capfd.readouterr()
    assert "influxd-2 is left out" in said.err
    assert "SQLite Python module sqlite3" in said.out
    assert main(["servers", "install", "victoriametrics"]) == 1
    said = capfd.readouterr()
    assert [line.split(" is ")[0] for line in said.err.splitlines()] == [
        "servers: victoria-metrics",
        "servers: vmagent",
    ]
    assert main(["servers", "install", "postgres-18"]) == 1
    assert "no server is called postgres-18" in capfd.readouterr().err


def test_where_none_at_all_can_be_installed_the_last_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    tools, servers = tmp_path / "tools", tmp_path / "servers"
    tools.mkdir()
    for name in ("bash", "tr", "sed", "paste", "mkdir"):
        (tools / name).symlink_to(
            next(path for path in (Path("/usr/bin") / name, Path("/bin") / name) if path.exists())
        )
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("TSBENCH_SERVERS", str(servers))
    assert main(["servers", "install"]) == 1
    lines = capfd.readouterr().err.splitlines()
    assert all(" is left out: this machine lacks " in line for line in lines[:-1])
    assert lines[-1].startswith("servers: none could be installed: each line above names what this machine lacks")
    program(servers / "bin" / "ferretdb", "#!/bin/sh\necho version: v2.7.0\n")
    assert main(["servers", "install"]) == 0, "one of them is there"
    said = capfd.readouterr()
    assert said.out == f"ferretdb 2.7.0 {servers}/bin/ferretdb\n"
    assert "none could be installed" not in said.err


def test_every_server_that_a_target_names_is_one_that_the_script_gets() -> None:
    text = SCRIPT.read_text(encoding="utf-8")
    wanted = [r for target in TARGETS.values() for r in target.requirements if not r.how]
    names = {name for requirement in wanted for name in requirement.programs}
    assert len(names) == 9
    assert [name for name in names if f"get_{re.sub('[.-]', '_', name)}()" not in text] == []
    assert os.access(SCRIPT, os.X_OK)


ASK = """
source <(_TSBENCH_COMPLETE=source_bash tsbench)
for line in "$@"; do
    IFS=" " read -ra COMP_WORDS <<<"$line"
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _tsbench_completion tsbench
    echo "${COMPREPLY[*]}"
done
"""


@pytest.mark.slow
def test_a_shell_completes_commands_scenarios_and_targets(tmp_path: Path) -> None:
    lines = [
        "tsbench serv",
        "tsbench run quick",
        "tsbench web influxdb",
        "tsbench run quickstart --qui",
        "tsbench run my.",
    ]
    environment = {**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", ASK, "bash", *lines], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == ["servers", "quickstart", "influxdb1 influxdb2", "--quiet", ""], done.stderr


def test_no_command_at_all_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    assert "Usage: tsbench" in capsys.readouterr().out
