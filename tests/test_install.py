"""Everything must install without a compiler and without mysqlclient, and a load worker from a small lock of its own.

`make check-install` really does it.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.cli.support import PATIENCE_S, TINY
from tests.source import tree_of
from tsbench.cli.main import main
from tsbench.report import PACKAGES

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKS = {name: (ROOT / name).read_text() for name in ("requirements.lock", ".ci/worker.lock")}
LOCK, WORKER_LOCK = LOCKS.values()
NO_WHEELS = {"mysqlclient": "MySQLdb", "hdrhistogram": "hdrh"}
"""Packages without wheels for 64-bit ARM under Linux, and their import names."""


def name_of(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None, requirement
    return re.sub(r"[-_.]+", "-", found.group()).lower()


def locked(lock: str = LOCK) -> dict[str, str]:
    """Return the lock's entries: `name==version ; marker`, and the lines of hashes that follow."""
    heads = re.findall(r"^(\S.*?) \\\n((?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", lock, re.MULTILINE)
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


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_package_has_a_version_and_hashes(name: str) -> None:
    heads = [line for line in LOCKS[name].splitlines() if line and not line.startswith((" ", "#"))]
    entries = locked(LOCKS[name])
    assert len(entries) == len(heads) > 50
    for entry, hashes in entries.items():
        assert re.match(r"[a-z0-9-]+==[0-9][^ ]*( ; |$)", entry), entry
        assert "--hash=" in hashes


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_names_no_index(name: str) -> None:
    assert not re.search(r"://|--(extra-)?index|--find-links", LOCKS[name])


def names_in(*extras: str) -> set[str]:
    """The packages that tsbench and these extras name; an extra that stands for others is resolved."""
    found = {name_of(requirement) for requirement in PROJECT["dependencies"]}
    for extra in extras:
        for requirement in PROJECT["optional-dependencies"][extra]:
            inner = re.fullmatch(r"tsbench\[(.*)\]", requirement)
            found |= names_in(*inner[1].split(",")) if inner is not None else {name_of(requirement)}
    return found


def test_the_lock_has_every_dependency_and_a_workers_has_those_of_a_worker() -> None:
    assert names_in("all", "dev") <= {name_of(entry) for entry in locked()}
    worker = {name_of(entry) for entry in locked(WORKER_LOCK)}
    assert names_in("postgres", "influxdb") <= worker
    assert not worker & ((names_in("report", "zstd", "duckdb", "embedded") - names_in("postgres")) - {"jinja2"})


def test_a_workers_versions_are_those_that_the_tests_run_with() -> None:
    versions = {entry.partition(" ;")[0] for entry in locked(LOCK)}
    assert {entry.partition(" ;")[0] for entry in locked(WORKER_LOCK)} <= versions


def test_all_is_every_extra_but_those_that_need_a_compiler_or_develop() -> None:
    extras = PROJECT["optional-dependencies"]
    assert names_in("all") == names_in(*({*extras} - {"all", "mysql", "notebook", "dev"}))


def test_no_module_needs_what_has_no_wheels() -> None:
    """An import at a module's head: inside a function it is the caller's choice.

    The modules of the driver's own calls are imported when a session is opened.
    """
    found, own = [], {ROOT / f"tsbench/targets/mysql/{name}.py" for name in ("connection", "login", "session")}
    for path in {*(ROOT / "tsbench").rglob("*.py"), *(ROOT / "locustfiles").glob("*.py")} - own:
        for node in tree_of(path).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found += [f"{path.relative_to(ROOT)}: {n}" for n in names if n.partition(".")[0] in NO_WHEELS.values()]
    assert not found


WITHOUT = f"""
import sys
sys.modules.update(dict.fromkeys({PACKAGES!r}))
from tsbench.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
"""Runs a command of tsbench as if nothing of the extra `report` were installed."""


def without_report(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    called = [sys.executable, "-c", WITHOUT, *words]
    return subprocess.run(called, cwd=place, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--report", "--no-report"])
def test_a_run_needs_nothing_of_the_extra_report_and_says_what_its_report_lacks(tmp_path: Path, option: str) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    done = without_report(tmp_path, "run", "tiny.toml", option)
    assert done.returncode in {0, 1}, done.stderr
    assert "Traceback" not in done.stderr
    assert "p50" in done.stdout
    assert done.stdout.count("no report: jinja2, matplotlib, pandas, polars, pyarrow not installed; pip install") == 1
    assert [path.name for path in tmp_path.glob("results/*/sqlite/summary.json")] == ["summary.json"]
    assert not [*tmp_path.glob("results/*/report.html")]
    assert "no tables of seconds were kept" in next(tmp_path.glob("results/*/sqlite/env.json")).read_text()


def test_the_page_needs_the_extra_report_and_says_so_before_locust_starts(tmp_path: Path) -> None:
    done = without_report(tmp_path, "web", "sqlite")
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"tsbench: \w+ is not installed; pip install 'tsbench\[report\]'\n", done.stderr)


def test_scenarios_are_in_the_wheel_and_found_by_name(tmp_path: Path) -> None:
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert hatch["force-include"] == {name: f"tsbench/{name}" for name in ("locustfiles", "scenarios")}
    done = without_report(tmp_path, "list", "scenarios")
    assert {"quickstart", "studies/low-end"} <= {line.partition(" ")[0] for line in done.stdout.splitlines()}
    done = without_report(tmp_path, "run", "quickstart", "--only", "none")
    assert "no such cell; there are postgres-btree" in done.stderr


@pytest.mark.parametrize("what", ["targets", "queries", "use-cases", "scenarios"])
def test_a_list_breaks_no_name_at_any_width(
    what: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def words(columns: str) -> set[str]:
        monkeypatch.setenv("COLUMNS", columns)
        assert main(["list", what]) == 0
        return set(capsys.readouterr().out.split())

    assert words("40") == words("80") == words("1000")
