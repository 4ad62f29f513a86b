"""A load worker must install without a compiler and without mysqlclient; `make check-install` really does it."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = (ROOT / "requirements.lock").read_text()
NO_WHEELS = {"mysqlclient": "MySQLdb", "hdrhistogram": "hdrh"}
"""Packages without wheels for 64-bit ARM under Linux, and their import names."""


def name_of(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None, requirement
    return re.sub(r"[-_.]+", "-", found.group()).lower()


def locked() -> dict[str, str]:
    """Return the lock's entries: `name==version ; marker`, and the lines of hashes that follow."""
    heads = re.findall(r"^(\S.*?) \\\n((?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", LOCK, re.MULTILINE)
    return dict(heads)


@pytest.mark.parametrize("name", NO_WHEELS)
def test_what_has_no_wheels_is_not_needed(name: str) -> None:
    assert name not in {name_of(requirement) for requirement in PROJECT["dependencies"]}


def test_mysqlclient_is_an_extra_of_its_own() -> None:
    extras = PROJECT["optional-dependencies"]
    assert [extra for extra, names in extras.items() if "mysqlclient" in map(name_of, names)] == ["mysql"]
    assert not re.search(r"^mysqlclient\b", LOCK, re.MULTILINE)


def test_the_lock_leaves_out_on_arm_what_has_no_wheels_there() -> None:
    for entry in locked():
        if name_of(entry) in NO_WHEELS:
            assert "platform_machine != 'aarch64'" in entry


def test_every_locked_package_has_a_version_and_hashes() -> None:
    heads = [line for line in LOCK.splitlines() if line and not line.startswith((" ", "#"))]
    entries = locked()
    assert len(entries) == len(heads) > 50
    for entry, hashes in entries.items():
        assert re.match(r"[a-z0-9-]+==[0-9][^ ]*( ; |$)", entry), entry
        assert "--hash=" in hashes


def test_the_lock_names_no_index() -> None:
    assert not re.search(r"://|--(extra-)?index|--find-links", LOCK)


def test_the_lock_has_every_dependency() -> None:
    assert {name_of(requirement) for requirement in PROJECT["dependencies"]} <= {name_of(entry) for entry in locked()}


def test_no_module_needs_what_has_no_wheels() -> None:
    """An import at a module's head: inside a function it is the caller's choice."""
    found = []
    for path in [*(ROOT / "tsbench").rglob("*.py"), *(ROOT / "locustfiles").glob("*.py")]:
        for node in ast.parse(path.read_text()).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found += [f"{path.relative_to(ROOT)}: {n}" for n in names if n.partition(".")[0] in NO_WHEELS.values()]
    assert not found
