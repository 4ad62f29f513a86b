"""A load worker takes part with nothing but tsbench's own dependencies and its target's extra."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.cli.support import PATIENCE_S, Command, nothing_left
from tests.drive.support import NULL_LOCUSTFILE
from tsbench.report import PACKAGES
from tsbench.servers.process import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
REFUSE = """
import os, sys
for name in os.environ["REFUSED"].split():
    sys.modules.setdefault(name)  # None: as if it were not installed
"""
"""Python runs a `sitecustomize` that it finds on its path at each start."""


def needed(requirement: str, seen: set[tuple[str, str]] | None = None) -> set[str]:
    """Return the distributions that a requirement installs, with those that they need in turn."""
    wanted, seen = Requirement(requirement), set() if seen is None else seen
    name, found = canonicalize_name(wanted.name), set()
    for extra in ("", *wanted.extras):
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for text in requires(name) or ():
            inner = Requirement(text)
            if inner.marker is None or inner.marker.evaluate({"extra": extra}):
                found |= needed(text, seen)
    return {name} | found


def refused(extra: str) -> list[str]:
    """Return the modules that are installed here and would not be on a worker with that extra."""
    own = needed(f"tsbench[{extra}]" if extra else "tsbench")
    return [
        module
        for module, distributions in packages_distributions().items()
        if not {canonicalize_name(name) for name in distributions} & own
    ]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    with nothing_left():
        yield tmp_path


def environment(place: Path, extra: str) -> dict[str, str]:
    (place / "lean").mkdir()
    (place / "lean" / "sitecustomize.py").write_text(REFUSE)
    return {"PYTHONPATH": str(place / "lean"), "REFUSED": " ".join(refused(extra))}


def test_reports_packages_are_not_among_a_workers() -> None:
    assert {*PACKAGES} - {"jinja2"} <= {*refused("")}  # Locust's page needs jinja2
    assert "psycopg" in refused("")
    assert "psycopg" not in refused("postgres")


@pytest.mark.nightly
@pytest.mark.postgres
@pytest.mark.parametrize(("target", "extra"), [("postgres", "postgres"), ("null", "")])
def test_a_worker_takes_part_with_its_own_dependencies_alone(place: Path, target: str, extra: str) -> None:
    file = ROOT / "locustfiles" / f"{target}.py"
    if target == "null":
        file = place / "null.py"
        file.write_text(NULL_LOCUSTFILE)
    port, env = str(free_port()), {"TSBENCH_CLUSTER_SECRET": "0123456789abcdef0123456789abcdef"}
    words = "--master --headless --expect-workers 1 -u 4 -r 4 -t 600s --load-window 2h --scale 4 --warmup 0s "
    words += f"--only-summary --master-bind-port {port}"
    master = Command(place, "locust", "-f", str(file), *words.split(), env=env)
    lean = {**env, **environment(place, extra)}
    worker = Command(place, "locust", "-f", str(file), "--worker", "--master-port", port, env=lean)
    master.interrupt_once_recorded()
    assert worker.wait() == 0, worker.stderr
    master.wait()
    (summary,) = place.glob("results/*/*/summary.json")
    checks = json.loads(summary.read_text())["validity"]["checks"]
    assert checks["workers"]["state"] == checks["counts"]["state"] == "valid", checks
    assert min(checks["counts"]["counts"].values()) > 0


@pytest.mark.parametrize("words", [("tsbench", "report", "results"), ("locust", "-f")])
def test_what_needs_the_report_extra_says_so_in_one_line(place: Path, words: tuple[str, ...]) -> None:
    program = words[0]
    if program == "locust":
        words = (*words, str(ROOT / "locustfiles" / "sqlite.py"), "--headless", "-t", "1s")
    env = {**os.environ, **environment(place, "")}
    command = [str(Path(sys.executable).parent / program), *words[1:]]
    done = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 2, done.stderr
    assert "is not installed; pip install 'tsbench[report]'" in done.stderr
    assert "Traceback" not in done.stderr
