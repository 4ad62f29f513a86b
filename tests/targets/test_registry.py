from __future__ import annotations

import subprocess
import sys
from importlib.metadata import packages_distributions
from typing import TYPE_CHECKING

import pytest

from tests.test_architecture import MODULES, home_of, imported
from tsbench.encode import FORMAT_NAMES
from tsbench.encode.formats import FORMATS
from tsbench.errors import UserMistake
from tsbench.targets.registry import SERVERS, TARGETS, get

if TYPE_CHECKING:
    from pathlib import Path


def test_a_mistyped_target_is_answered_with_the_nearest() -> None:
    with pytest.raises(UserMistake, match="did you mean 'postgres'"):
        get("postgresql")
    with pytest.raises(UserMistake, match=f"there are {', '.join(TARGETS)}"):
        get("xyz")


def test_targets_are_found_under_their_own_names() -> None:
    assert {name: target.name for name, target in TARGETS.items()} == {name: name for name in TARGETS}
    for target in TARGETS.values():
        assert {name: schema.name for name, schema in target.schemas.items()} == {n: n for n in target.schemas}


def test_there_is_a_local_server_for_each_target_that_declares_one() -> None:
    assert set(SERVERS) == {name for name, target in TARGETS.items() if target.startable}


def test_what_generate_can_write_is_what_the_command_line_offers() -> None:
    assert tuple(FORMATS) == FORMAT_NAMES


def test_resolutions_are_units_of_time() -> None:
    assert {target.resolution_ns for target in TARGETS.values()} <= {1, 10**3, 10**6, 10**9}


def third_party(path: Path) -> set[str]:
    """The distributions that a module imports, wherever in it."""
    known = packages_distributions()
    tops = {name.partition(".")[0] for name in imported(path)} - {"tsbench", *sys.stdlib_module_names}
    return {known[top][0] for top in tops if top in known}


def test_targets_declare_the_drivers_that_their_modules_import() -> None:
    homes = {home_of(module) for module in MODULES} - {""}
    shared = set().union(*(third_party(path) for module, path in MODULES.items() if not home_of(module)))
    for home in homes:
        used = set().union(*(third_party(path) for module, path in MODULES.items() if home_of(module) == home))
        mine = [target for target in TARGETS.values() if type(target).__module__.split(".")[2] == home]
        assert used - shared == {name for target in mine for name in target.drivers}, home


def test_a_process_imports_the_driver_of_the_one_database_that_it_deals_with() -> None:
    text = "import sys; from tsbench.run import helper; from tsbench.targets.registry import TARGETS, get\n"
    text += "assert 'postgres' in TARGETS and len(TARGETS) > 5; get('sqlite')\n"
    text += "print(*sorted({'psycopg', 'duckdb', 'polars', 'sqlite3'} & {*sys.modules}))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["sqlite3"]
