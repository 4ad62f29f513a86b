"""Targets of packages that are installed beside tsbench: one that works, and some that do not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.cli.support import says

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """
from dataclasses import replace
from tsbench.targets.sqlite import TARGET as SQLITE
TARGET = replace(SQLITE, name="filedb", product="FileDB")
OTHER = replace(SQLITE, name="another")
"""


def installed(place: Path, **targets: str) -> dict[str, str]:
    """Install a package with these entry points, and return the environment of processes that see it."""
    (place / "filedb.py").write_text(GOOD)
    (place / "raises.py").write_text("raise RuntimeError('no licence\\nfor this machine')")
    info = place / "filedb-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: filedb\nVersion: 1.0\n")
    points = "".join(f"{name} = {where}\n" for name, where in targets.items())
    (info / "entry_points.txt").write_text(f"[tsbench.targets]\n{points}")
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


def test_a_target_of_a_package_is_listed_driven_and_checked(tmp_path: Path) -> None:
    env = installed(tmp_path, filedb="filedb:TARGET")
    says(tsbench(env, "list", "targets")[1], "filedb", "wal, clustered", "questdb")
    (tmp_path / "s.toml").write_text(
        'question = "Does it run?"\nworld = { use_case = "cpu-only", scale = 4, streams = 2 }\nload.window = "1h"\n'
        'target.name = "filedb"\n'
        'drive = { users = 1, warmup = "0s", duration = "1s" }\ncheck.answers = 6\n'
        'op = [{ write = 10 }, { query = "single-groupby-1-1-1" }]\n'
    )
    _, out, err = tsbench(env, "run", str(tmp_path / "s.toml"), "--out", str(tmp_path / "results"))
    assert "Traceback" not in out + err, (out, err)
    (path,) = (tmp_path / "results").glob("*/*/summary.json")
    answers = json.loads(path.read_text())["validity"]["checks"]["answers"]
    assert answers["state"] == "valid"
    assert answers["counts"]["wrong"] == 0


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("raises:TARGET", "raises:TARGET cannot be imported (RuntimeError: no licence for this machine)"),
        ("absent:TARGET", "absent:TARGET cannot be imported (ModuleNotFoundError: No module named 'absent')"),
        ("filedb:GONE", "filedb:GONE cannot be imported (AttributeError"),
        ("filedb:replace", "filedb:replace is a function, not a tsbench.targets.target.Target"),
        ("filedb:OTHER", "filedb:OTHER is called 'another', and its entry point 'filedb'"),
    ],
)
def test_one_that_cannot_be_used_is_named_and_others_do_not_suffer(where: str, why: str, tmp_path: Path) -> None:
    env = installed(tmp_path, filedb=where)
    code, out, _ = tsbench({**env, "COLUMNS": "400"}, "list", "targets")
    assert code == 0
    says(out, "sqlite", "questdb", "cannot be used: ", why)
    (tmp_path / "s.toml").write_text(
        'question = "?"\nworld.use_case = "cpu-only"\nload.window = "1h"\n'
        'target.name = "filedb"\nop = [{ write = 10 }]\n'
    )
    code, _, err = tsbench(env, "run", str(tmp_path / "s.toml"))
    assert code == 2
    assert "Traceback" not in err
    says(err, "the target 'filedb' of an installed package cannot be used: ", why)


def test_names_of_our_own_targets_cannot_be_taken(tmp_path: Path) -> None:
    env = installed(tmp_path, sqlite="raises:TARGET")
    code, out, _ = tsbench(env, "list", "targets")
    assert code == 0
    assert "cannot be used" not in out
