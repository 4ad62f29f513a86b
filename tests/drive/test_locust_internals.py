"""The private names of Locust that tsbench depends on, in the oldest and in the newest Locust that is allowed."""

from __future__ import annotations

import ast
import fcntl
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.cli.support import PATIENCE_S, Command, nothing_left
from tests.drive.support import NULL_LOCUSTFILE
from tests.source import tree_of
from tsbench.servers.process import free_port

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
(ALLOWED,) = (r.specifier for r in map(Requirement, PROJECT["dependencies"]) if r.name == "locust")
INTERNALS = "locust_internals.py"
PRIVATE = {
    "default_args_dict",
    "_handlers",
    "_swarm_greenlet",
    "_send_stats",
    "HEARTBEAT_LIVENESS",
    "zmqrpc",
    "update_template_args",
    "_sleep",
}


def names(path: Path) -> set[str]:
    """The names, attributes and imports of a module's code."""
    found: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.alias):
            found.update(node.name.split("."))
    return found


def test_one_module_alone_uses_locusts_private_names() -> None:
    files = [*(ROOT / "tsbench").rglob("*.py"), *(ROOT / "locustfiles").glob("*.py")]
    assert {path.name: names(path) & PRIVATE for path in files if names(path) & PRIVATE}.keys() == {INTERNALS}
    assert names(ROOT / "tsbench" / "drive" / INTERNALS) >= PRIVATE - {"_handlers", "_swarm_greenlet", "_send_stats"}


def test_the_allowed_range_of_locust_has_both_ends_and_the_lock_is_in_it() -> None:
    assert {one.operator for one in ALLOWED} == {">=", "<"}
    (locked,) = (line for line in (ROOT / "requirements.lock").read_text().splitlines() if line.startswith("locust=="))
    assert ALLOWED.contains(locked.removeprefix("locust==").split()[0])


def test_locusts_defaults_are_parsed_once_for_all_options_of_all_messages() -> None:
    text = """
import inspect
from locust import argument_parser, runners
from tsbench.drive import locust_internals
calls = []
parse = argument_parser.setup_parser_arguments
argument_parser.setup_parser_arguments = lambda parser: (calls.append(1), parse(parser))
locust_internals.parse_defaults_once()
locust_internals.parse_defaults_once()
for _ in range(50):
    assert "headless" in runners.argument_parser.default_args_dict()
assert "default_args_dict" in inspect.getsource(runners.WorkerRunner), "a worker parses them elsewhere"
print(len(calls))
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1"]


def test_a_user_that_has_slept_goes_on_at_once_and_any_other_lets_others_run() -> None:
    text = """
import gevent
from locust import TaskSet
from tsbench.drive import locust_internals
locust_internals.sleep_once()
locust_internals.sleep_once()
ran = []
gevent.spawn(ran.append, 1)
for seconds in (locust_internals.SLEPT, 0.0):
    TaskSet._sleep(None, seconds)
    print(len(ran))
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "1"]


# When the second row fails, gevent does so itself, and our module can go.
@pytest.mark.parametrize(("module", "least", "most"), [("tsbench.drive.locust_main", 1, 1), ("locust.main", 10, 99)])
def test_our_load_processes_look_through_the_installed_packages_once(module: str, least: int, most: int) -> None:
    text = f"""
import collections, sys
read = collections.Counter()
sys.addaudithook(lambda event, args: read.update([str(args[0])]) if event == "open" else None)
sys.argv = ["locust", "--version"]
from {module} import main
try:
    main()
finally:
    print(max(count for name, count in read.items() if name.endswith("entry_points.txt")))
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    version, times = done.stdout.splitlines()
    assert version.startswith("locust ")
    assert least <= int(times) <= most


def environment(end: str) -> Path:
    """Return a virtual environment with the oldest or newest Locust, made once and kept outside of the checkout."""
    uv = Path(sys.executable).parent / "uv"
    if not uv.exists():
        pytest.skip("uv is not installed beside this Python; make venv does that")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tsbench-locust"
    cache.mkdir(parents=True, exist_ok=True)
    oldest = next(one.version for one in ALLOWED if one.operator == ">=")
    place = cache / f"{oldest if end == 'oldest' else end}-{python}"
    wanted = f"locust=={oldest}" if end == "oldest" else "locust"
    install = [str(uv), "pip", "install", "--quiet", "--python", str(place / "bin" / "python"), "--upgrade-package"]
    with (cache / f"{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (
            [str(uv), "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(place)],
            [*install, "locust", wanted, "-r", str(ROOT / "pyproject.toml"), "--extra", "report"],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
            if done.returncode:
                pytest.skip(f"no environment with the {end} Locust: {done.stderr.strip().splitlines()[-1]}")
    return place


@pytest.mark.slow
@getattr(pytest.mark, "locust-versions")
@pytest.mark.parametrize("end", ["newest", pytest.param("oldest", marks=pytest.mark.nightly)])
def test_private_names_are_there_and_a_master_and_a_worker_run(end: str, tmp_path: Path) -> None:
    programs = environment(end) / "bin"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TSBENCH_CLUSTER_SECRET": "0123456789abcdef0123456789abcdef"}
    program = "import locust; from tsbench.drive import locust_internals as l; print(locust.__version__, *l.missing())"
    asked = [str(programs / "python"), "-c", program]
    done = subprocess.run(asked, capture_output=True, text=True, check=True, env=env, cwd=tmp_path, timeout=PATIENCE_S)
    version, *missing = done.stdout.split()
    assert missing == []
    assert ALLOWED.contains(version)
    if end == "oldest":
        assert Version(version) == min(Version(one.version) for one in ALLOWED)

    (tmp_path / "null.py").write_text(NULL_LOCUSTFILE)
    (tmp_path / "worker").mkdir()
    port = str(free_port())
    locust = (str(programs / "locust"), "-f", str(tmp_path / "null.py"))
    words = "--headless --expect-workers 1 -u 4 -r 4 -t 600s --scale 4 --load-window 2h --warmup 0s --only-summary"
    with nothing_left():
        master = Command(tmp_path, *locust, "--master", "--master-bind-port", port, *words.split(), env=env)
        worker = Command(tmp_path / "worker", *locust, "--worker", "--master-port", port, env=env)
        try:
            master.interrupt_once_recorded()
            codes = master.wait(), worker.wait()
        finally:
            for command in (master, worker):
                command.end()
    said = master.stderr + worker.stderr
    assert codes == (1, 0), said  # the target keeps nothing, so that no answer can be checked: inconclusive
    assert "Traceback" not in said
    (summary,) = tmp_path.glob("results/*/*/summary.json")
    checks = json.loads(summary.read_text())["validity"]["checks"]
    assert checks["workers"]["state"] == checks["counts"]["state"] == "valid", checks
    assert min(checks["counts"]["counts"].values()) > 0
