"""`--require NAME` is what keeps CI from passing because a server was missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import pytest

@pytest.mark.mysql
def test_marked(): pytest.skip("no server here")

def test_unmarked(): pytest.skip("for another reason")
"""


def test_a_required_server_that_is_missing_fails_its_tests_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text(_PROGRAM)
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    command += [f"--rootdir={tmp_path}", "--require=mysql", str(tmp_path)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert "1 failed, 1 skipped" in done.stdout
    assert "--require mysql: Skipped: no server here" in done.stdout
