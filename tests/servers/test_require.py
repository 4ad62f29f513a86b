"""`--require NAME` keeps CI from passing when a server was missing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import pytest

@pytest.mark.mysql
def test_marked(): pytest.skip("no server here")

def test_unmarked(): pytest.skip("for another reason")

@pytest.mark.mysql
@pytest.mark.netns
def test_of_two_marks(): pytest.skip("no namespaces here")
"""


@pytest.mark.slow
def test_a_required_server_that_is_missing_fails_its_tests_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text(_PROGRAM)
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    command += [f"--rootdir={tmp_path}", str(tmp_path)]
    for required, failed, skipped in (((), 0, 3), (("mysql",), 1, 2), (("mysql", "netns"), 2, 1)):
        words = [*command, *(f"--require={name}" for name in required)]
        done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=False)
        assert re.search(rf"{f'{failed} failed, ' if failed else ''}{skipped} skipped in", done.stdout), done.stdout
        assert ("--require mysql: Skipped: no server here" in done.stdout) == ("mysql" in required)
        assert ("--require mysql --require netns: Skipped" in done.stdout) == ("netns" in required)
