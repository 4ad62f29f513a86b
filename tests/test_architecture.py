"""The structure of the package: permitted imports, modules that name databases, and maximum sizes."""

from __future__ import annotations

import ast
import re
from functools import cache
from itertools import accumulate
from pathlib import Path

from tests.source import tree_of
from tsbench.targets.registry import TARGETS

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "tsbench"

ORDER: tuple[tuple[str, ...], ...] = (
    ("text",),
    ("model", "units", "errors", "clock"),
    ("plugins",),
    ("workload", "encode", "net", "servers", "results"),
    ("measure",),
    ("collect",),
    ("targets",),
    ("scenario",),
    ("check",),
    ("run",),
    ("study",),
    ("drive", "cli"),
)
"""A package imports those of the lines above its own; `report` is the exception below."""
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}
LOOSE = {*ORDER[0], *ORDER[1], *ORDER[2]}
REPORT_IMPORTS = {*LOOSE, "results", "measure"}
REPORT_IMPORTERS = {"study", "drive", "cli"}
EVENT_LOOP = {"locust", "gevent", "greenlet"}
SHARED_BY_TARGETS = {
    "base",
    "registry",
    "credentials",
    "endpoint",
    "http",
    "local",
    "pgwire",
    "session",
    "sql",
    "sql_session",
    "target",
}
"""Modules of `targets/` that are not databases."""

MAP = ROOT / "docs" / "architecture.md"
HOUSE = ROOT / "docs" / "images" / "house.svg"

# What is not yet as it should be. These lists may only become shorter.
KNOWN_IMPORTS: set[tuple[str, str]] = set()
"""Imports that do not fit the order yet."""
KNOWN_CIRCLES: set[tuple[str, str]] = set()
"""Imports, for types only, that would close a circle: two modules of one package that import each other."""
KNOWN_INTRUDERS: set[tuple[str, str]] = set()
"""Imports of a database's modules by other modules than the registry, each for a reason."""
KNOWN_TALKERS: set[str] = set()
"""Modules that still name a database in a text, which belongs into the target."""


def modules() -> dict[str, Path]:
    """Return the modules by their dotted names without `tsbench.`, packages without `.__init__`, but `testing`."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name and parts[0] not in {"locustfiles", "testing"}:
            found[name] = path
    return found


MODULES = modules()


def package_of(module: str) -> str:
    return module.partition(".")[0]


def packages_around(module: str) -> set[str]:
    """Return the packages that contain a module: importing it runs their `__init__`."""
    return set(accumulate(module.split(".")[:-1], "{}.{}".format))


@cache
def imported(path: Path) -> frozenset[str]:
    """Return the imports of a file as dotted names, also below `if TYPE_CHECKING` and inside functions."""
    found: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(found)


@cache
def own(module: str) -> frozenset[str]:
    """Return the modules of the package that a module imports."""
    found = set()
    for name in imported(MODULES[module]):
        if name.startswith("tsbench."):
            inner = name.removeprefix("tsbench.")
            while inner and inner not in MODULES:  # `from tsbench.model import Batch` names a thing in a module
                inner = inner.rpartition(".")[0]
            if inner:
                found.add(inner)
    return frozenset(found - {module})


def may_import(package: str, other: str) -> bool:
    if package == "report":
        return other in REPORT_IMPORTS
    if other == "report":
        return package in REPORT_IMPORTERS
    return RANK[other] < RANK[package]


def wrong_imports() -> set[tuple[str, str]]:
    """Return the imports against the order, as (module, imported module)."""
    return {
        (module, other)
        for module in MODULES
        for other in own(module)
        if package_of(module) != package_of(other) and not may_import(package_of(module), package_of(other))
    }


def test_only_these_modules_are_in_no_package() -> None:
    assert {module for module in MODULES if "." not in module and MODULES[module].name != "__init__.py"} == LOOSE
    assert {package_of(module) for module in MODULES} == {*RANK, "report"}, "give the new package a place in ORDER"


def test_packages_import_only_what_is_below_them() -> None:
    # Imports for types count: they say who knows of whom, whether or not the interpreter runs them.
    assert wrong_imports() == KNOWN_IMPORTS


def cycle() -> tuple[str, ...]:
    """Return modules that import each other in a circle, or ()."""
    after = {
        module: {found for other in own(module) for found in (other, *packages_around(other))}
        - {module, *packages_around(module)}
        - {other for one, other in KNOWN_CIRCLES if one == module}
        for module in MODULES
    }
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> tuple[str, ...]:
        if module in trail:
            return (*trail[trail.index(module) :], module)
        if module in done:
            return ()
        for other in sorted(after[module] & MODULES.keys()):
            if found := visit(other, (*trail, module)):
                return found
        done.add(module)
        return ()

    return next((found for module in MODULES if (found := visit(module, ()))), ())


def test_no_modules_import_each_other_in_a_circle() -> None:
    # A package's `__init__` may import its own modules, as a table of what is in it.
    assert cycle() == ()


def test_the_picture_of_the_house_has_each_package_on_its_floor() -> None:
    floors: dict[int, set[str]] = {}
    for name, y in re.findall(r'<title>(\w+)</title><rect x="\d+" y="(\d+)"', HOUSE.read_text(encoding="utf-8")):
        if name != "report":
            floors.setdefault(int(y), set()).add(name)
    assert [floors[y] for y in sorted(floors, reverse=True)] == [set(names) for names in ORDER]


def test_only_drive_imports_the_event_loop() -> None:
    importers = {m for m in MODULES if {name.split(".")[0] for name in imported(MODULES[m])} & EVENT_LOOP}
    assert {package_of(module) for module in importers} == {"drive"}


def starts_processes(tree: ast.Module) -> bool:
    """Return True if code starts a process and does not wait for it, or runs Python between fork and exec."""
    named = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "Popen"}
    given = {node.arg for node in ast.walk(tree) if isinstance(node, ast.keyword)}
    called = {node.func.attr for node in ast.walk(tree) if isinstance(node, ast.Call) and hasattr(node.func, "attr")}
    return bool(named & called) or "preexec_fn" in given


def test_only_one_module_starts_processes_that_run_on() -> None:
    assert [m for m, path in MODULES.items() if starts_processes(tree_of(path))] == ["servers.children"]


def test_the_search_for_starts_of_processes_finds_them() -> None:
    for text in ("subprocess.Popen(['true'])", "x = subprocess.Popen(words, stdin=1)", "run(words, preexec_fn=f)"):
        assert starts_processes(ast.parse(text)), text
    assert not starts_processes(ast.parse("x: subprocess.Popen[bytes]; subprocess.run(['true'])"))


# --- the databases ----------------------------------------------------------------------------------------------------


def home_of(module: str) -> str:
    """Return the database of a module: `postgres` for `targets.postgres.session`, "" for modules of none."""
    package, _, rest = module.partition(".")
    home = rest.partition(".")[0]
    return home if package == "targets" and home not in SHARED_BY_TARGETS else ""


def intruders() -> set[tuple[str, str]]:
    """Return imports of a database's modules by others than itself and the registry, as (module, its package)."""
    return {
        (module, f"targets.{home_of(other)}")
        for module in MODULES
        for other in own(module)
        if home_of(other) not in {"", home_of(module)} and module != "targets.registry"
    }


def test_nothing_of_the_product_imports_what_tests_it() -> None:
    assert [module for module in MODULES for name in imported(MODULES[module]) if "tsbench.testing" in name] == []


def test_only_the_registry_imports_databases() -> None:
    assert intruders() == KNOWN_INTRUDERS


WORDS = re.compile(
    r"postgres|sqlite|influx|timescale|mysql|mariadb|mongo|victoria|questdb|psycopg|pgserver|duckdb", re.IGNORECASE
)


def docstrings(tree: ast.Module) -> set[ast.AST]:
    """Return docstrings of the module, its classes and functions, and the texts below assignments."""
    return {
        node.value for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def names_databases(tree: ast.Module) -> bool:
    """Return True if a text of the code (without comments and docstrings) names a database or its driver."""
    apart = docstrings(tree)
    return any(
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node not in apart
        and WORDS.search(node.value)
        for node in ast.walk(tree)
    )


def talkers() -> set[str]:
    """Return the modules outside `targets/` and `encode/` that name a database; a simulated world may have one."""
    homes = {"targets", "encode", "workload", "check.gold_sql"}  # the last answers users' gold, and is a database
    return {m for m, path in MODULES.items() if not {package_of(m), m} & homes and names_databases(tree_of(path))}


def test_no_text_outside_the_targets_names_a_database() -> None:
    assert talkers() == KNOWN_TALKERS


def test_the_search_for_names_finds_one() -> None:
    assert names_databases(ast.parse("x = {'postgres': 1}"))
    assert names_databases(ast.parse("raise E(f'take InfluxDB {version}')"))
    assert not names_databases(ast.parse("def f():\n    'Of SQLite.'\nx = 1\n'As MySQL has it.'"))


NAMES = {*TARGETS, "timescale", "influxdb", "influxdb3", "mysql", "mongodb", "victoria", "questdb"}


def branches_on_a_name(tree: ast.AST) -> list[int]:
    """Return the lines with a comparison, `match` or membership test on the literal name of a target."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            compared: list[ast.AST] = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            compared = [node]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and "with" in node.func.attr:
            compared = list(node.args)
        else:
            continue
        inside = [inner for part in compared for inner in ast.walk(part)]
        found += [node.lineno for inner in inside if isinstance(inner, ast.Constant) and inner.value in NAMES]
    return found


def test_nothing_branches_on_a_targets_name() -> None:
    files = [path for module, path in MODULES.items() if package_of(module) != "targets"]
    files += sorted((ROOT / "locustfiles").glob("*.py"))
    found = [f"{path.relative_to(ROOT)}:{line}" for path in files for line in branches_on_a_name(tree_of(path))]
    assert found == []


def test_the_search_for_branches_finds_one() -> None:
    for text in (
        "if spec.target.name == 'postgres': pass",
        "x = 1 if name in ('sqlite', 'y') else 2",
        "match name:\n  case 'null': pass",
        "if name.startswith('postgres'): pass",
    ):
        assert branches_on_a_name(ast.parse(text)), text
    assert branches_on_a_name(ast.parse("x = TARGETS['sqlite']; y = {'postgres': 1}")) == []


def test_no_value_is_handed_on_behind_the_arguments() -> None:
    assert [m for m, path in MODULES.items() if any(name.startswith("contextvars") for name in imported(path))] == []


# --- sizes ------------------------------------------------------------------------------------------------------------


def test_no_file_has_more_than_600_lines() -> None:
    lines = {module: len(path.read_text(encoding="utf-8").splitlines()) for module, path in MODULES.items()}
    assert {module: count for module, count in lines.items() if count > 600} == {}


def test_no_function_has_more_than_60_lines() -> None:
    long = [
        f"{module}.{node.name} has {node.end_lineno - node.lineno + 1}"
        for module, path in MODULES.items()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= 60
    ]
    assert long == []


def names_with_several_meanings() -> dict[str, list[str]]:
    """Return the public names of classes and type aliases that stand in several modules, with these."""
    places: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for node in tree_of(path).body:
            is_alias = isinstance(node, ast.AnnAssign) and "TypeAlias" in ast.unparse(node.annotation)
            name = node.name if isinstance(node, ast.ClassDef) else ast.unparse(node.target) if is_alias else ""  # type: ignore[attr-defined]
            if name and not name.startswith("_"):
                places.setdefault(name, []).append(module)
    return {name: modules for name, modules in places.items() if len(modules) > 1}


def test_a_class_has_a_name_of_its_own() -> None:
    assert names_with_several_meanings().keys() <= {
        "Connection", "Difference", "Limits", "Manifest", "Part", "Window",
    }, "give the new class another name"  # fmt: skip


def test_the_page_on_the_code_has_the_packages_in_their_order_and_files_that_are_there() -> None:
    page = MAP.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?`) \|", page, re.MULTILINE)
    assert [tuple(re.findall(r"`(\w+)`", row)) for row in rows] == [*ORDER]
    paths = {path for path in re.findall(r"`([\w/]+\.py)`", page) if "/" in path and "NAME" not in path}
    assert len(paths) > 8
    assert [path for path in paths if not (PACKAGE / path).exists() and not (ROOT / path).exists()] == []
