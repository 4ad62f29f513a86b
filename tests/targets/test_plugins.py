"""Plug-ins: targets and use cases of installed packages, and files of `--plugin`; ones that work, and that do not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.support import says
from tsbench import plugins

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """
from dataclasses import replace
from tsbench.targets.sqlite import TARGET as SQLITE
TARGET = replace(SQLITE, name="filedb", product="FileDB")
OTHER = replace(SQLITE, name="another")
NEWER = replace(TARGET, interface=99)
PUMPS = __file__.replace("filedb.py", "pumps.toml")
"""
FILE = "\n".join(GOOD.splitlines()[:4])
PUMPS = """
about = "pumps"
tags.pump = { number = "p-{:02}" }
measurement = [{ name = "pump", fields.temp = { walk = 0.1 } }]
query = [{ name = "means", select = ["mean(temp)"], by = ["pump"], window = "10m" }]
"""
LIES = """
from dataclasses import replace
from tsbench.targets.sqlite import TARGET as SQLITE
from tsbench.targets.sqlite import session
def connect(of, schema, **how):
    made = session.connect(of, schema, **how)
    store, made.written = made.write, 0
    def write(payload):
        made.written += 1
        return payload.points if payload.points == 10 and made.written % 5 == 0 else store(payload)
    made.write = write
    return made
LIAR = replace(SQLITE, name="liar", opener="liar:connect")
"""
HANGS = "import time\nwhile True:\n    time.sleep(0.1)\n"


def installed(place: Path, use_cases: str = "", **targets: str) -> dict[str, str]:
    """Install a package with these entry points, and return the environment of processes that see it."""
    (place / "pumps.toml").write_text(PUMPS)
    (place / "filedb.py").write_text(GOOD)
    (place / "raises.py").write_text("raise RuntimeError('no licence\\nfor this machine')")
    info = place / "filedb-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: filedb\nVersion: 1.0\n")
    points = "".join(f"{name} = {where}\n" for name, where in targets.items())
    (info / "entry_points.txt").write_text(f"[tsbench.targets]\n{points}[tsbench.use_cases]\n{use_cases}")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(place), os.environ.get("PYTHONPATH", "")])}


def tsbench(env: dict[str, str], *words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from tsbench.cli import start; sys.exit(start())", *words],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def scenario(place: Path, target: str, use_case: str = "cpu-only", query: str = "single-groupby-1-1-1") -> str:
    (place / "s.toml").write_text(
        f'question = "Does it run?"\nworld = {{ use_case = "{use_case}", scale = 4, streams = 2 }}\n'
        f'load.window = "1h"\ntarget.name = "{target}"\n'
        'drive = { users = 1, warmup = "0s", duration = "1s" }\ncheck.answers = 6\n'
        f'op = [{{ write = 10 }}, {{ query = "{query}" }}]\n'
    )
    return str(place / "s.toml")


def run(env: dict[str, str], place: Path, *words: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run a scenario; return its checks, and the packages that its manifest records."""
    code, out, err = tsbench(env, "run", *words, "--out", str(place / "results"))
    assert code < 2, (out, err)
    assert "Traceback" not in out + err, (out, err)
    (path,) = (place / "results").glob("*/*/summary.json")
    packages = json.loads((path.parent / "env.json").read_text())["packages"]
    return json.loads(path.read_text())["validity"]["checks"], packages


def expect_right(checks: dict[str, Any]) -> None:
    assert (checks["answers"]["state"], checks["answers"]["counts"]["wrong"]) == ("valid", 0)


@pytest.mark.slow
def test_a_target_of_a_package_is_listed_driven_and_checked(tmp_path: Path) -> None:
    env = installed(tmp_path, filedb="filedb:TARGET")
    says(tsbench(env, "list", "targets")[1], "filedb", "wal, clustered", "questdb")
    checks, packages = run(env, tmp_path, scenario(tmp_path, "filedb"))
    expect_right(checks)
    assert packages["filedb"] == "1.0"


@pytest.mark.slow
def test_a_use_case_of_a_package_is_listed_shown_and_run(tmp_path: Path) -> None:
    env = installed(tmp_path, "pumps = filedb:PUMPS\n", filedb="filedb:TARGET")
    says(tsbench(env, "list", "use-cases")[1], "pumps", "of the package filedb")
    says(tsbench(env, "list", "use-cases", "--show", "pumps")[1], "query means")
    expect_right(run(env, tmp_path, scenario(tmp_path, "sqlite", "pumps", "means"))[0])


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("raises:PUMPS", "raises:PUMPS cannot be imported (RuntimeError: no licence for this machine)"),
        ("filedb:TARGET", "filedb:TARGET is not the path of a file pumps.toml"),
        ("filedb:__file__", "filedb:__file__ is not the path of a file pumps.toml"),
    ],
)
@pytest.mark.slow
def test_a_use_case_that_cannot_be_used_is_named(where: str, why: str, tmp_path: Path) -> None:
    env = installed(tmp_path, f"pumps = {where}\n", filedb="filedb:TARGET")
    code, _, err = tsbench(env, "run", scenario(tmp_path, "sqlite", "pumps", "means"))
    assert code == 2
    says(err, f"the use case 'pumps' of an installed package cannot be used: {why}")
    assert tsbench(env, "list", "use-cases")[0] == 0


@pytest.mark.slow
def test_a_file_is_a_plugin_in_every_process_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "filedb.py").write_text(FILE)
    env = {**os.environ}
    words = (
        scenario(tmp_path, "filedb"),
        "--plugin",
        str(tmp_path / "filedb.py"),
        "--set",
        "drive.processes=2",
        "--set",
        "drive.users=2",
    )
    checks, packages = run(env, tmp_path, *words)
    expect_right(checks)
    assert packages["filedb.py"].startswith("sha256 ")
    assert tsbench(env, "run", words[0])[0] == 2, "without --plugin it is unknown"


@pytest.mark.slow
def test_a_plugin_that_loses_writes_is_invalid(tmp_path: Path) -> None:
    (tmp_path / "liar.py").write_text(LIES)
    checks, _ = run({**os.environ}, tmp_path, scenario(tmp_path, "liar"), "--plugin", str(tmp_path / "liar.py"))
    assert checks["writes"]["state"] == "invalid"


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("absent.py", None, "absent.py: there is no such file"),
        ("my-db.py", GOOD, "must be that of a Python module"),
        ("json.py", GOOD, "another module is called 'json'; rename the file"),
        ("empty.py", "", "empty.py has no target of a name of its own"),
        ("raises.py", "raise RuntimeError('no licence')", "raises cannot be imported (RuntimeError: no licence)"),
        ("ends.py", "import sys; sys.exit(3)", "ends cannot be imported (it ends the process)"),
        (
            "filedb.py",
            GOOD.replace("TARGET = replace(SQLITE, ", "TARGET = replace(SQLITE, interface=99, "),
            "version 99",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(name: str, text: str | None, why: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    code, out, err = tsbench({**os.environ}, "list", "targets", "--plugin", str(tmp_path / name))
    assert (code, out, err.count("\n")) == (2, "", 1), err
    says(err, why)


def test_an_import_without_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "endless.py").write_text(HANGS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(plugins, "IMPORT_S", 0.3)
    with pytest.raises(
        plugins.Unusable, match=r"endless:TARGET cannot be imported \(TimeoutError: it takes longer than"
    ):
        plugins.load("endless:TARGET")
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("raises:TARGET", "raises:TARGET cannot be imported (RuntimeError: no licence for this machine)"),
        ("absent:TARGET", "absent:TARGET cannot be imported (ModuleNotFoundError: No module named 'absent')"),
        ("filedb:GONE", "filedb:GONE cannot be imported (AttributeError"),
        ("filedb:replace", "filedb:replace is a function, not a tsbench.targets.target.Target"),
        ("filedb:OTHER", "filedb:OTHER is called 'another', and its entry point 'filedb'"),
        ("filedb:NEWER", "filedb:NEWER is written for version 99 of the interface, and this tsbench has 1"),
    ],
)
@pytest.mark.slow
def test_one_that_cannot_be_used_is_named_and_others_do_not_suffer(where: str, why: str, tmp_path: Path) -> None:
    env = installed(tmp_path, filedb=where)
    code, out, _ = tsbench({**env, "COLUMNS": "400"}, "list", "targets")
    assert code == 0
    says(out, "sqlite", "questdb", "cannot be used: ", why)
    code, _, err = tsbench(env, "run", scenario(tmp_path, "filedb"))
    assert code == 2
    assert "Traceback" not in err
    says(err, "the target 'filedb' of an installed package cannot be used: ", why)


def test_names_of_our_own_targets_cannot_be_taken(tmp_path: Path) -> None:
    env = installed(tmp_path, sqlite="raises:TARGET")
    code, out, _ = tsbench(env, "list", "targets")
    assert code == 0
    assert "cannot be used" not in out
