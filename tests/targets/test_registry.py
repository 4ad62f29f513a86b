from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from pkgutil import resolve_name

import pytest

from tsbench.encode import FORMAT_NAMES
from tsbench.encode.formats import FORMATS
from tsbench.errors import UserMistake
from tsbench.servers.cgroup import Caps, Group
from tsbench.servers.managed import ManagedServer
from tsbench.targets.registry import TARGETS, get

ROOT = Path(__file__).parent.parent.parent


def test_a_mistyped_target_is_answered_with_the_nearest() -> None:
    with pytest.raises(UserMistake, match="did you mean 'postgres'"):
        get("postgresql")
    with pytest.raises(UserMistake, match=f"there are {', '.join(TARGETS)}"):
        get("xyz")


def test_targets_are_found_under_their_own_names() -> None:
    assert {name: target.name for name, target in TARGETS.items()} == {name: name for name in TARGETS}
    for target in TARGETS.values():
        assert {name: schema.name for name, schema in target.schemas.items()} == {n: n for n in target.schemas}


def test_what_a_target_names_by_its_place_is_there() -> None:
    for target in TARGETS.values():
        for place in filter(None, (target.parser, target.opener, target.server)):
            missing = None
            try:
                assert callable(resolve_name(place)), place
            except ModuleNotFoundError as error:
                missing = error.name
            assert missing in {None, target.driver.module if target.driver else None}, "only a driver may be missing"


def test_what_generate_can_write_is_what_the_command_line_offers() -> None:
    assert tuple(FORMATS) == FORMAT_NAMES


@pytest.mark.parametrize("name", [name for name, target in TARGETS.items() if target.startable])
def test_a_server_that_is_a_process_keeps_the_control_group_that_it_is_given(name: str, tmp_path: Path) -> None:
    group = Group(Caps(), {})
    server = TARGETS[name].new_server(tmp_path, {}, group)
    assert TARGETS[name].embedded or (isinstance(server, ManagedServer) and server._group is group)


def test_resolutions_are_units_of_time() -> None:
    assert {target.resolution_ns for target in TARGETS.values()} <= {1, 10**3, 10**6, 10**9}


DRIVERS = {"psycopg", "influxdb_client", "duckdb", "pymongo", "MySQLdb"}
HEAVY = {"polars", "pandas", "pyarrow", "matplotlib"}


def imported_by(program: str) -> set[str]:
    """Return the modules that a fresh interpreter has after it ran a program."""
    text = f"{program}\nimport sys; print('\\n' + ' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.splitlines()[-1].split())


def test_names_are_looked_up_without_importing_a_database() -> None:
    found = imported_by("from tsbench.targets.registry import *; assert 'postgres' in TARGETS and len(TARGETS) > 3")
    assert {name for name in found if name.startswith("tsbench.targets.")} == {"tsbench.targets.registry"}
    found = imported_by("from tsbench.targets.registry import get; get('sqlite')")
    assert not {name for name in found if name.startswith(("tsbench.targets.postgres", "tsbench.targets.influxdb"))}


def test_checking_servers_settings_imports_no_driver_and_nothing_of_reports() -> None:
    servers = "for name in TARGETS: TARGETS[name].new_server(Path('unused'), {})"
    found = imported_by(f"from pathlib import Path; from tsbench.targets.registry import TARGETS\n{servers}")
    assert not found & (DRIVERS | HEAVY)


def write_scenario(path: Path, target: str) -> None:
    """Write a scenario of single writes to a target, as short as it can be."""
    path.write_text(
        f"""
[world]
use_case = "sensors"
scale = 10
[load]
window = "1m"
[drive]
duration = "1s"
[[op]]
write = 1
[target]
name = "{target}"
"""
    )


WITH_DRIVERS = [name for name, target in TARGETS.items() if target.driver is not None]


@pytest.mark.parametrize("name", WITH_DRIVERS)
def test_a_missing_driver_is_one_line_with_the_extra_that_installs_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = TARGETS[name]
    assert target.driver is not None
    monkeypatch.setitem(sys.modules, target.driver.module, None)
    said = rf"^{name}: {target.driver.module} is not installed; pip install 'tsbench\[{target.driver.extra}\]'$"
    with pytest.raises(UserMistake, match=said):
        target.connect("nowhere", next(iter(target.schemas.values())))


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_DRIVERS)
def test_a_scenario_whose_driver_is_missing_is_refused_before_anything_starts(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    assert target.driver is not None
    write_scenario(tmp_path / "s.toml", name)
    program = f"""
import sys
sys.modules[{target.driver.module!r}] = None
from tsbench.cli.main import main
sys.exit(main(["run", "s.toml"]))
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert f"target.name: {name}: {target.driver.module} is not installed; pip install" in done.stderr
    assert not (tmp_path / "results").exists()


def test_the_extras_that_drivers_name_are_extras_of_the_package() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {target.driver.extra for target in TARGETS.values() if target.driver is not None} <= extras.keys()
