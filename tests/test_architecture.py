"""The shape of the package, as the design has it: who may import whom, and how large things may grow."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tsbench.servers import SERVERS
from tsbench.targets import TARGETS

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "tsbench"

# A part is a package or a module; the modules of `measure` are parts of their own, because they lie on several levels.
LEVELS: tuple[tuple[str, ...], ...] = (
    ("units", "errors", "children", "measure.hist", "measure.pacing"),
    ("model", "fields"),
    ("workload", "encode", "measure.recorder", "env", "rundir"),
    ("targets", "servers", "collect"),
    (
        *("measure.audit", "measure.validate", "measure.gold", "measure.checks", "measure.limits", "measure.merge"),
        "measure.slo",
        *("scenario", "matrix", "explain", "precheck", "bulk", "assess", "caps", "collected", "beside", "timeouts"),
        "listening",
    ),
    ("drive",),
    ("run", "launch", "campaign", "claims", "report", "generate", "catalogue", "progress"),
    ("cli",),
)
LEVEL = {part: number for number, parts in enumerate(LEVELS) for part in parts}
LOWEST = {*LEVELS[0], *LEVELS[1]}

ONLY: dict[str, set[str]] = {
    "workload": LOWEST,
    "encode": LOWEST,
    "env": LOWEST,
    "rundir": LOWEST,
    "targets": {*LOWEST, "encode"},
    "servers": LOWEST,
    "collect": LOWEST,
    "report": {*LOWEST, "rundir"},
}
"""Parts that may import less than everything below them."""
SAME_LEVEL = {
    "scenario": {"matrix", "explain", "measure.slo", "caps", "timeouts"},
    "precheck": {"scenario", "caps"},
    "beside": {"collected", "assess", "bulk", "precheck", "scenario", "timeouts"},
    "bulk": {"timeouts"},
    "assess": {part for part in LEVELS[4] if part.startswith("measure.")} | {"scenario", "timeouts"},
    **{part: {other for other in LEVELS[4] if other.startswith("measure.")} for part in LEVELS[4] if "." in part},
    "campaign": {"run", "report", "launch", "progress", "claims"},
    "run": {"launch", "progress"},
}
"""Parts that may import others of their level; `test_there_are_no_cycles` sees to the order among them."""
EVENT_LOOP = {"locust", "gevent", "greenlet"}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name without `tsbench.`; packages without `.__init__`."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name:
            found[name] = path
    return found


MODULES = modules()


def part_of(module: str) -> str:
    """Which part a module belongs to: `targets.sqlite` to `targets`, `measure.hist` to itself."""
    head, _, rest = module.partition(".")
    return module if head == "measure" and rest else head


def imported(path: Path, *, types: bool) -> set[str]:
    """What a file imports, as dotted names; with `types` also under `if TYPE_CHECKING`."""
    found: set[str] = set()
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING" and not types:
            skipped.update(child for statement in node.body for child in ast.walk(statement))
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def own(path: Path, *, types: bool) -> set[str]:
    """The modules of the package that a file imports."""
    found = set()
    for name in imported(path, types=types):
        if name == "tsbench" or name.startswith("tsbench."):
            inner = name.removeprefix("tsbench").removeprefix(".")
            while inner and inner not in MODULES:  # `from tsbench.model import Batch` names a thing in a module
                inner = inner.rpartition(".")[0]
            if inner:
                found.add(inner)
    return found


def test_every_part_has_a_level() -> None:
    parts = {part_of(module) for module in MODULES} - {"measure"}
    assert parts - set(LEVEL) == set(), "give the new part a level in this table and in the design"
    assert set(LEVEL) - parts == set(), "the table names parts that are not there"
    assert tree_of(PACKAGE / "measure" / "__init__.py").body[1:] == [], "measure itself holds nothing"


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_lies_below_it(module: str) -> None:
    # Imports for types count: they say who knows of whom, whether or not the interpreter runs them.
    part = part_of(module)
    for other in {part_of(name) for name in own(MODULES[module], types=True)} - {part, "measure"}:
        allowed = ONLY.get(part, {p for p in LEVEL if LEVEL[p] < LEVEL[part]}) | SAME_LEVEL.get(part, set())
        assert other in allowed, f"{module} (level {LEVEL[part]}) imports {other} (level {LEVEL[other]})"


def test_nothing_imports_drive_but_itself() -> None:
    importers = {m for m in MODULES if part_of(m) != "drive" and "drive" in map(part_of, own(MODULES[m], types=True))}
    assert importers == set()


def test_only_drive_imports_the_event_loop() -> None:
    importers = {m for m in MODULES if {n.split(".")[0] for n in imported(MODULES[m], types=True)} & EVENT_LOOP}
    assert {part_of(module) for module in importers} == {"drive"}


def test_there_are_no_cycles() -> None:
    # Imports for types are left out: two modules of one part may speak of each other.
    after = {module: own(path, types=False) - {module} for module, path in MODULES.items()}
    # A package and its modules are one thing for those outside; inside, the package's table imports its modules.
    after = {m: {o for o in others if not m.startswith(f"{o}.")} for m, others in after.items()}
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, f"a cycle: {' -> '.join((*trail[trail.index(module) :], module))}"
        if module not in done:
            for other in sorted(after[module]):
                visit(other, (*trail, module))
            done.add(module)

    for module in MODULES:
        visit(module, ())


NAMES = {*TARGETS, *SERVERS, "timescale", "influxdb", "influxdb3", "mysql", "mongodb", "victoria", "questdb"}
AT_HOME = {"targets", "servers"}


def branches_on_a_name(tree: ast.AST) -> list[int]:
    """The lines with a comparison, a `match` or a membership test on the literal name of a target."""
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
    files = [path for module, path in MODULES.items() if part_of(module) not in AT_HOME]
    files += sorted((ROOT / "locustfiles").glob("*.py"))
    found = [f"{path.relative_to(ROOT)}:{line}" for path in files for line in branches_on_a_name(tree_of(path))]
    assert found == []


def test_the_search_for_branches_finds_one() -> None:
    for text in (
        "if spec.target.name == 'postgres': pass",
        "x = 1 if name in ('sqlite', 'y') else 2",
        "match name:\n  case 'memory': pass",
        "if name.startswith('postgres'): pass",
    ):
        assert branches_on_a_name(ast.parse(text)), text
    assert branches_on_a_name(ast.parse("x = TARGETS['sqlite']; y = {'postgres': 1}")) == []


@pytest.mark.parametrize("module", MODULES)
def test_no_file_has_more_than_400_lines(module: str) -> None:
    assert len(MODULES[module].read_text(encoding="utf-8").splitlines()) <= 400


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
