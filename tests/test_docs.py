"""The commands in README and docs/ work, and the files and tables that they list exist.

Commands go through the parsers that they are for, scenarios and locustfiles are loaded, the examples are run, and
tables are compared with the code that they describe. Commands in the headers of scenarios and locustfiles count too.
"""

from __future__ import annotations

import ast
import itertools
import json
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.main import get_command

from tests import database_tables
from tests.cli.support import TINY, Command, content, only
from tests.servers.test_paths import AWKWARD
from tests.source import tree_of
from tests.test_compose import SERVICES
from tsbench.cli.main import app
from tsbench.measure.gates import parse_gate
from tsbench.report.baseline import parse_relative
from tsbench.results.summary import Summary
from tsbench.scenario import matrix
from tsbench.scenario.file import scenario_file
from tsbench.scenario.file_keys import SearchPart
from tsbench.scenario.prepared import recorded
from tsbench.scenario.spec import Scenario, select
from tsbench.scenario.types import FILE
from tsbench.scenario.use_case import UseCaseFile, read_use_case
from tsbench.scenario.validation import check_spec
from tsbench.targets import duckdb, registry
from tsbench.targets.credentials import refuse_secrets
from tsbench.targets.postgres.server import SETTINGS
from tsbench.targets.target import INTERFACE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.warm import WarmLocust
    from tsbench.targets.postgres.server import PostgresServer

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = {path: path.read_text(encoding="utf-8") for path in (README, *sorted((ROOT / "docs").rglob("*.md")))}
FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```\n", re.MULTILINE | re.DOTALL)
BLOCKS = [(path, *found) for path, text in PAGES.items() for found in FENCED.findall(text)]
PROSE = {path: FENCED.sub("", text) for path, text in PAGES.items()}
SPANS = [(path, span) for path, text in PROSE.items() for span in re.findall(r"`([^`\n]+)`", text)]
OURS = {"tsbench", "locust", "make", "servers"}
OTHERS = {"sudo", "python3", "pip", "export", "sadc", "pytest"}
"""Programs of other projects, which have their own arguments."""
PLACEHOLDERS = {"my.toml", "other.toml", "dashboard.toml", "s.toml", "..."}


# --- commands ---------------------------------------------------------------------------------------------------------


def typed() -> Iterator[list[str]]:
    """Yield every line of a shell block; spans between backticks that begin with one of our commands; headers."""
    for _, language, text in BLOCKS:
        if language == "sh":
            yield from (shlex.split(line, comments=True) for line in text.replace("\\\n", " ").splitlines())
    for _, span in SPANS:
        if Path((words := _split(span))[0]).name in OURS and len(words) > 1:
            yield words
    for path in sorted((ROOT / "locustfiles").glob("*.py")):
        doc = ast.get_docstring(tree_of(path)) or ""
        yield from (shlex.split(line, comments=True) for line in doc.splitlines() if line.startswith("locust "))
    for path in [*(ROOT / "scenarios").rglob("*.toml"), ROOT / "docker-compose.yml"]:
        found = re.findall(r"^# {3,}((?:tsbench|docker) .*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        yield from (shlex.split(line, comments=True) for line in found)


def _split(span: str) -> list[str]:
    try:
        return shlex.split(span) or [""]
    except ValueError:  # a single quote in something else
        return [""]


def commands() -> list[list[str]]:
    """Return the commands, also those of a pipe, without duplicates and without redirections."""
    unique = {}
    for words in typed():
        kept = words[: words.index(">")] if ">" in words else words
        while "|" in kept:
            one, kept = kept[: kept.index("|")], kept[kept.index("|") + 1 :]
            unique[shlex.join(one)] = one
        unique[shlex.join(kept)] = kept
    return [words for words in unique.values() if words]


COMMANDS = commands()


def of(program: str) -> list[list[str]]:
    """Return the arguments of the commands that start a program."""
    return [words[1:] for words in COMMANDS if Path(words[0]).name == program]


def test_every_command_is_one_of_a_known_program() -> None:
    assert {Path(words[0]).name for words in COMMANDS} - OURS - OTHERS == {"docker"}, "a command that no test looks at"
    assert len(COMMANDS) > 50
    known = {"sh", "toml", "python", "yaml"}  # yaml: tests/test_compose.py
    assert {language for _, language, _ in BLOCKS} == known, "a block that no test here looks at"
    indented = [line for text in PROSE.values() for line in text.splitlines() if re.match(r" {4}\S", line)]
    assert indented == [], "commands stand in ```sh blocks"


def parsed(words: list[str]) -> tuple[str, dict[str, Any], list[str]]:
    """Return the sub-command, its parameters and the rest for Locust; no parameters if only its name is mentioned."""
    command = get_command(app)
    with command.make_context("tsbench", [*words]) as context:
        name, inner, rest = command.resolve_command(context, words)  # type: ignore[attr-defined]
        if not rest and name in {"run", "report", "compare", "history", "web"}:
            return name, {}, []  # named in the text, not to be typed
        with inner.make_context(name, rest, parent=context) as found:
            return name, found.params, found.args


@pytest.mark.slow
def test_the_commands_of_tsbench_are_understood(subtests: pytest.Subtests) -> None:
    for words in of("tsbench"):
        with subtests.test(shlex.join(words)):
            expect_understood(words)


def expect_understood(words: list[str]) -> None:
    """Verify that a command of ours is parsed, and that the scenarios, locustfiles and servers of it are there."""
    if "--plugin" in words:  # run below, with its file
        return
    if words[0].startswith("--"):  # not parsed: some of these options act while they are
        assert [words] == [[name] for one in get_command(app).params for name in one.opts if name == words[0]]
        return
    name, given, _ = parsed(words)
    if name == "run" and given:
        for path in map(str, given["scenarios"]):
            several = sorted(ROOT.glob(path)) if "*" in path else [path]
            assert several
            for one in several:
                check_scenario(str(one), given)
    if name == "web" and given:
        assert (ROOT / "locustfiles" / f"{given['target']}.py").exists()
    if name == "servers":
        script = (ROOT / "tsbench/targets/get-servers.sh").read_text(encoding="utf-8")
        for server in given["names"] or []:
            assert server in registry.TARGETS or f"get_{re.sub('[.-]', '_', server)}()" in script


def expect_gates(texts: list[str]) -> list[str]:
    """Verify the gates on ratios to a baseline, and return the other ones."""
    ratios = [text for text in texts if text.endswith("x")]
    for text in ratios:
        parse_relative(text)
    return [text for text in texts if text not in ratios]


def check_scenario(path: str, given: dict[str, Any]) -> None:
    """Verify that a scenario in the text exists and that the gates and endpoints given with it fit."""
    for gate in expect_gates(given["gate"] or []):
        parse_gate(gate)
    if path in PLACEHOLDERS:
        return
    endpoint = given["endpoint"]
    overrides = [*(given["override"] or []), *([f"target.endpoint={endpoint}"] if endpoint else [])]
    for cell in select(
        Scenario.load(ROOT / scenario_file(Path(path)), overrides=overrides).expand(), given["only"] or []
    ):
        if endpoint:
            check_spec(cell, path)


PARSE = """
import json, sys
from locust import argument_parser
from locust.util.load_locustfile import load_locustfile
words = sys.argv[1:]
classes, _ = load_locustfile(words[words.index("-f") + 1])
parsed = argument_parser.parse_options(words)
group = next(g for g in argument_parser.get_parser()._action_groups if g.title == "tsbench")
options = [[a.option_strings[0], a.env_var, a.default] for a in group._group_actions]
print(json.dumps({"asked": parsed.user_classes, "there": sorted(classes), "options": options}))
"""


def locust_commands() -> list[list[str]]:
    """Return the arguments of commands of Locust, and of `tsbench web` those that it passes to Locust."""
    found = [words for words in of("locust") if len(words) > 1]  # `locust -f` is a name only
    for words in of("tsbench"):
        if words[0] == "web":
            _, given, rest = parsed(words)
            found += [["-f", f"locustfiles/{given['target']}.py", *rest]] if rest else []
    return found


def loaded(warm_locust: WarmLocust, words: list[str]) -> dict[str, Any]:
    """What Locust makes of a command line, in a process of its own."""
    done = warm_locust.run(ROOT, *words, text=PARSE)
    assert done.code == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.nightly
def test_the_commands_of_locust_are_understood_with_the_locustfile_that_they_name(
    warm_locust: WarmLocust, subtests: pytest.Subtests
) -> None:
    for words in locust_commands():
        with subtests.test(shlex.join(words)):
            found = loaded(warm_locust, words)
            assert set(found["asked"]) <= set(found["there"])


def test_the_targets_of_make_are_there(subtests: pytest.Subtests) -> None:
    for words in of("make"):
        with subtests.test(shlex.join(words)):
            done = subprocess.run(["make", "--dry-run", *words], cwd=ROOT, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr


def test_docker_compose_is_given_profiles_and_services_that_are_there(subtests: pytest.Subtests) -> None:
    for words in of("docker"):
        with subtests.test(shlex.join(words)):
            assert words[0] == "compose"
            assert {"up", "cp"} & set(words)
            pairs = [*itertools.pairwise(words)]
            profiles = {value for option, value in pairs if option == "--profile"}
            assert profiles <= {profile for service in SERVICES.values() for profile in service.get("profiles", [])}
            named = {re.split("[=:]", value)[0] for option, value in pairs if option in {"--scale", "cp"}}
            assert named <= SERVICES.keys()


# --- examples ---------------------------------------------------------------------------------------------------------


def test_the_scenarios_are_good_ones_and_so_are_their_parts(
    tmp_path: Path, subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TSBENCH_CACHE", str(tmp_path / "cache"))
    expect_meters(tmp_path)
    for page, language, text in BLOCKS:
        if language == "toml":
            with subtests.test(page.name, text=text):
                expect_good(text, tmp_path)


def expect_good(block: str, tmp_path: Path) -> None:
    """Verify that a scenario, or a part of one, has as many cells as it says, and that all of them could run."""
    document = tomllib.loads(block)
    if "about" in document:  # a use case, for the scenario below it
        UseCaseFile.model_validate(document, context=FILE)
        if isinstance(document.get("recording"), list):
            expect_hosts(block, tmp_path)
            return
        (tmp_path / ("town.toml" if "recording" in document else "pumps.toml")).write_text(block, encoding="utf-8")
        rows = (f"{1_772_500_000 + n * 5},m{n % 7},s{n % 7 % 2},{n * 0.5},OK,\n" for n in range(70_000))
        (tmp_path / "meters-1.csv").write_text(
            "ts,meter_id,site,energy,status,mode\n" + "".join(rows), encoding="utf-8"
        )
        return
    if "world" not in document:  # a part of a scenario
        whole = tomllib.loads(TINY)
        for key, value in document.items():
            matrix.put(whole, key, value)
        cells = Scenario(tmp_path / "my.toml", whole).expand()
    else:
        path = tmp_path / "my.toml"
        path.write_text(block, encoding="utf-8")
        cells = Scenario.load(path).expand()
    assert len(cells) == _cells(document)
    for cell in cells:
        if "server" not in document:  # which takes root's rights to check
            check_spec(cell, "docs")


def expect_hosts(block: str, place: Path) -> None:
    """Verify that a use case of two measurements has the rows of both."""
    lines = ["cpu,host=a,cpu=cpu0 usage_user=1,usage_idle=2 1000000000", "mem,host=a used_percent=3 1000000000"]
    (place / "telegraf.lp").write_text("\n".join(lines), encoding="utf-8")
    (place / "hosts.toml").write_text(block, encoding="utf-8")
    assert [one.rows for one in recorded(read_use_case(place / "hosts.toml").recording).measurements] == [1, 1]


def _cells(document: dict[str, Any]) -> int:
    count = 1
    axes = [
        axis
        for part in document.get("matrix", {}).values()
        for axis in (part.values() if isinstance(part, dict) else [part])
    ]
    if "search" in document:
        axes += SearchPart.model_validate(document["search"]).values.values()
    for values in axes:
        count *= len(values)
    return count


def expect_checked(run: Path, code: int, why: str) -> None:
    """Verify that all checks are valid; `limit` may fail if others use the machine."""
    summary = content(run / "summary.json")
    wanted = ("answers", "writes", "counts", "ops")
    checks = summary["validity"]["checks"]
    assert {name: checks[name]["state"] for name in wanted} == dict.fromkeys(wanted, "valid"), why
    assert code == (0 if Summary.model_validate(summary).passed else 1)


READINGS = ROOT / "docs" / "gallery" / "readings.py"


def expect_meters(place: Path) -> None:
    """Make README's table, and its use case by README's command."""
    subprocess.run([sys.executable, READINGS], cwd=place, check=True)
    (checked,) = (words for words in of("tsbench") if {"readings.csv", "meters.toml"} <= {*words})
    assert Command(place, "tsbench", *checked).wait() == 0


@pytest.mark.slow
@pytest.mark.postgres
def test_the_example_runs_as_it_stands_but_shorter_and_its_results_may_lie_anywhere(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    expect_meters(tmp_path)
    (block,) = (text for path, language, text in BLOCKS if path == README and language == "toml")
    (tmp_path / "my.toml").write_text(block, encoding="utf-8")
    words = ["run", "my.toml", "--only", "postgres", "--out", AWKWARD]
    command = Command(tmp_path, "tsbench", *words, "--set", "drive.duration=3s", "--set", "drive.warmup=1s")
    code = command.wait()
    run = only(tmp_path, "*/*-my/postgres")
    assert run.parent.parent.name == AWKWARD
    expect_checked(run, code, command.stderr)
    assert f"report: {AWKWARD}/" in command.stdout.replace("\n", "")


@pytest.mark.slow
def test_the_locustfile_runs_as_it_stands(tmp_path: Path) -> None:
    (block,) = (text for path, language, text in BLOCKS if language == "python" and path.name == "locustfiles.md")
    (tmp_path / "my.py").write_text(block, encoding="utf-8")
    words = ["-f", "my.py", "--headless", "-u", "2", "-t", "8s", "--load-window", "30m", "--scale", "5"]
    command = Command(tmp_path, "locust", *words)
    code = command.wait()
    expect_checked(only(tmp_path, "results/*-locust/sqlite-wal"), code, command.stderr)


PLUGINS = ROOT / "docs" / "plugins.md"


@pytest.mark.slow
def test_the_file_of_a_target_runs_as_it_stands(tmp_path: Path) -> None:
    block, _ = (text for path, language, text in BLOCKS if language == "python" and path == PLUGINS)
    (tmp_path / "mydb.py").write_text(block, encoding="utf-8")
    ((_, _, scenario, *options),) = (words for words in COMMANDS if "--plugin" in words)
    words = ["run", str(ROOT / scenario), *options, "--set", "drive.duration=3s", "--set", "world.scale=10"]
    command = Command(tmp_path, "tsbench", *words)
    code = command.wait()
    expect_checked(only(tmp_path, "results/*-quickstart/mydb"), code, command.stderr)


def test_the_interface_of_plugins_exists_and_is_what_the_example_uses() -> None:
    promised = {}
    for module, names in rows(PLUGINS, 2):
        if module.startswith("`tsbench."):
            promised[module.strip("`")] = re.findall(r"`(\w+)`", names)
    missing = [f"{module}.{name}" for module, names in promised.items() for name in names
               if not hasattr(import_module(module), name)]  # fmt: skip
    assert missing == []
    used = [
        (node.module, alias.name)
        for path in (ROOT / "examples" / "plugin").rglob("*.py")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tsbench.")
        for alias in node.names
    ]
    beyond = {"Alteration", "Point", "NewWaiter"}  # for annotations only
    assert [one for one in used if one[1] not in {*promised.get(str(one[0]), ()), *beyond} and one[1] != "sql"] == []
    assert f"This is version {INTERFACE} of the interface" in PLUGINS.read_text(encoding="utf-8")


def test_the_gates_are_gates(subtests: pytest.Subtests) -> None:
    spans = sorted({span for _, span in SPANS if re.search(r"[a-z/\d][<>]=?\d", span) and "--gate" not in span})
    assert spans
    for span in spans:
        with subtests.test(span):
            for gate in expect_gates([span]):
                parse_gate(gate)


# --- what is listed ---------------------------------------------------------------------------------------------------


def rows(path: Path, columns: int) -> list[list[str]]:
    """Return the cells of a page's tables with `columns` columns."""
    lines = [line for line in PROSE[path].splitlines() if line.startswith("|") and line.count("|") == columns + 1]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_table_has_every_target_with_layouts_of_it() -> None:
    seen = {}
    for _, named, started in rows(README, 3):
        targets, layouts = (re.findall(r"`([^`]+)`", part) for part in (named + ": ").split(": ", 1))
        for name in targets:
            assert set(layouts) <= set(registry.get(name).schemas), name
            seen[name] = started
    assert seen.keys() == registry.TARGETS.keys()


@pytest.mark.parametrize("name", database_tables.TABLES)
def test_tables_of_databases_are_what_the_targets_declare(name: str) -> None:
    assert [*database_tables.written(name)] == [database_tables.written(name)[1]] * 2, "python -m tests.database_tables"


def test_a_table_that_is_not_what_a_target_declares_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duckdb, "TARGET", replace(duckdb.TARGET, durability="everything", secrets=("TSBENCH_TOKEN",)))
    for name in database_tables.TABLES:
        page, made = database_tables.written(name)
        assert page != made, name


def test_every_database_has_a_page_that_names_its_schemas() -> None:
    text = "".join(PAGES[path] for path in PAGES if path.parent.name == "databases")
    wanted = {name: {name, *target.schemas} for name, target in registry.TARGETS.items()}
    assert {name: {word for word in words if f"`{word}`" not in text} for name, words in wanted.items()} == {
        name: set() for name in wanted
    }


def test_no_page_shows_an_endpoint_with_a_secret() -> None:
    found = [url for text in PAGES.values() for url in re.findall(r"[a-z0-9]+://[^\s`'\")>]+", text)]
    assert len(found) > 15
    for url in found:
        refuse_secrets(url, "docs")


def test_the_options_of_a_locustfile_are_those_that_it_has(warm_locust: WarmLocust) -> None:
    page = ROOT / "docs" / "locustfiles.md"
    told = {row[0].strip("`"): (row[1].strip("`"), row[2]) for row in rows(page, 4) if row[0].startswith("`--")}
    found = loaded(warm_locust, ["-f", "locustfiles/sqlite.py"])["options"]
    options = {name: (variable, default) for name, variable, default in found}
    assert {name: variable for name, (variable, _) in told.items()} == {n: v for n, (v, _) in options.items()}
    plain = {name: default for name, (_, default) in told.items() if default.startswith("`")}
    assert plain == {name: f"`{options[name][1]}`" for name in plain}
    assert len(plain) >= 5


def test_the_settings_of_postgresql_are_those_that_it_is_started_with() -> None:
    told: dict[str, str] = {}
    for names, value, _ in rows(ROOT / "docs" / "databases" / "postgres.md", 3):
        told |= dict.fromkeys(re.findall(r"`(\w+)`", names), value)
    assert {name: told.get(name) for name in SETTINGS if name != "scram_iterations"} == {
        name: value for name, value in SETTINGS.items() if name != "scram_iterations"
    }


# --- the pages themselves ---------------------------------------------------------------------------------------------


def test_readme_is_short_and_begins_with_the_two_commands() -> None:
    assert len(PAGES[README].splitlines()) <= 110
    first = next(text for path, language, text in BLOCKS if path == README)
    assert [shlex.split(line, comments=True) for line in first.splitlines()] == [
        ["make", "quickstart"],
        ["make", "test"],
    ]


def test_every_page_can_be_reached_from_readme() -> None:
    reached, new = set(), {README}
    while new:
        reached |= new
        new = {page for path in new for page, _ in links(path) if page.suffix == ".md" and page in PAGES} - reached
    assert reached == set(PAGES)


def links(path: Path) -> list[tuple[Path, str]]:
    """Return the files that a page's relative links lead to, with their anchors."""
    found = re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", PROSE[path])
    return [((path.parent / name).resolve() if name else path, anchor) for name, anchor in found]


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", PROSE[path], re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_lead_somewhere() -> None:
    found = [(path.name, page, anchor) for path in PAGES for page, anchor in links(path)]
    assert [one for one in found if not one[1].exists() or (one[2] and one[2] not in anchors(one[1]))] == []
    assert len(found) > 50


def test_files_that_are_named_are_there() -> None:
    form = re.compile(r"(?:scenarios|locustfiles|notebooks|tests|tsbench|docs|\.github|\.ci)/[\w./-]*")
    named = {span for _, span in SPANS if form.fullmatch(span)}
    inside = [name for name in named if not (ROOT / name).exists() and not (ROOT / "tsbench" / name).exists()]
    assert inside == []
    assert len(named) > 15


def test_a_page_that_other_files_name_is_there() -> None:
    files = [*(ROOT / "tsbench").rglob("*.py"), *(ROOT / "scenarios").rglob("*.toml"), ROOT / "CHANGELOG.md"]
    named = {name for path in files for name in re.findall(r"docs/[\w/-]+\.md", path.read_text(encoding="utf-8"))}
    assert [name for name in sorted(named) if ROOT / name not in PAGES] == []
    assert named
