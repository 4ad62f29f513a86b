"""What README tells people to type works: scenarios are checked, commands go through the parsers that they are for."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.main import get_command

from tests.cli.support import Command, content, only
from tests.servers.test_paths import AWKWARD
from tsbench.cli.main import app
from tsbench.results.summary import Summary
from tsbench.scenario.spec import Scenario
from tsbench.scenario.validation import check_spec
from tsbench.targets import registry
from tsbench.targets.credentials import refuse_secrets

if TYPE_CHECKING:
    from tsbench.targets.postgres.server import PostgresServer

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
FENCED = re.compile(r"^```(\w*)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
BLOCKS = FENCED.findall(README)
PROSE = FENCED.sub("", README)
OURS = {".venv/bin/tsbench", ".venv/bin/locust", "tsbench", "locust", "make", ".ci/servers"}
OTHERS = {"sudo", "python3", ".venv/bin/pip", "export", "systemd-run", "/usr/lib/sysstat/sadc"}
"""Programs of others, whose arguments are theirs."""
PLACEHOLDERS = {"my.toml", "s.toml", "..."}


def commands() -> list[list[str]]:
    """The commands of README: its indented lines, and what stands between backticks and begins as one."""
    lines = [line[4:] for line in PROSE.replace("\\\n", " ").splitlines() if line.startswith("    ")]
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^    .*$", "", PROSE, flags=re.MULTILINE))
    found = [shlex.split(line, comments=True) for line in lines]
    found += [words for span in spans if (words := _split(span))[0] in OURS and len(words) > 1]
    unique = {shlex.join(words): words for words in found}
    return [*unique.values()]


def _split(span: str) -> list[str]:
    try:
        return shlex.split(span) or [""]
    except ValueError:  # a single quote in something else
        return [""]


COMMANDS = commands()


def of(*programs: str) -> list[Any]:
    """The arguments of the commands that start one of these programs, each as a parameter of a test."""
    return [pytest.param(words[1:], id=shlex.join(words)) for words in COMMANDS if Path(words[0]).name in programs]


def test_every_command_is_one_of_a_known_program() -> None:
    assert {words[0] for words in COMMANDS} - OURS - OTHERS == set(), "a command that no test here looks at"
    assert len(COMMANDS) > 20
    assert {language for language, _ in BLOCKS} <= {"toml"}, "a block that no test here looks at"


@pytest.mark.parametrize("words", of("tsbench"))
def test_the_commands_of_tsbench_are_understood(words: list[str]) -> None:
    command = get_command(app)
    with command.make_context("tsbench", [*words]) as context:
        name, inner, rest = command.resolve_command(context, words)  # type: ignore[attr-defined]
        if not rest and name in {"run", "report", "web"}:
            return  # named in the text, not to be typed
        with inner.make_context(name, rest, parent=context) as parsed:
            given = parsed.params
    if name == "run":
        check_scenario(str(given["scenario"]), given)
    if name == "web":
        assert (ROOT / "locustfiles" / f"{given['target']}.py").exists()


def check_scenario(path: str, given: dict[str, Any]) -> None:
    """A scenario that is named is there, and what is said about it fits it."""
    if path in PLACEHOLDERS:
        return
    cells = Scenario.load(ROOT / path, overrides=given["override"] or []).expand()
    ids = [cell.id for cell in cells]
    assert all(any(wanted in name for name in ids) for wanted in given["only"] or [])


PARSE = """
import json, sys
from locust import argument_parser
from locust.util.load_locustfile import load_locustfile
words = json.loads(sys.argv[1])
classes, _ = load_locustfile(words[words.index("-f") + 1])
parsed = argument_parser.parse_options(words)
print(json.dumps({"asked": parsed.user_classes, "there": sorted(classes)}))
"""


def locust_commands() -> list[Any]:
    """Those of Locust, and of `tsbench web` what goes to it."""
    found = [parameter for parameter in of("locust") if len(parameter.values[0]) > 1]  # `locust -f` is a name only
    web = [words for words in COMMANDS if words[:2] == ["tsbench", "web"] and len(words) > 3]
    return found + [pytest.param(["-f", f"locustfiles/{w[2]}.py", *w[3:]], id=shlex.join(w)) for w in web]


@pytest.mark.parametrize("words", locust_commands())
def test_the_commands_of_locust_are_understood_with_the_locustfile_that_they_name(words: list[str]) -> None:
    command = [sys.executable, "-c", PARSE, json.dumps(words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found["asked"]) <= set(found["there"])


@pytest.mark.parametrize("words", of("make"))
def test_the_targets_of_make_are_there(words: list[str]) -> None:
    done = subprocess.run(["make", "--dry-run", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", of("servers"))
def test_the_servers_that_can_be_had_are_those_that_the_script_knows(words: list[str]) -> None:
    script = (ROOT / ".ci" / "servers").read_text(encoding="utf-8")
    for name in words:
        assert f"get_{re.sub('[.-]', '_', name)}()" in script


def test_endpoints_and_schemas_of_the_table_are_those_of_the_targets() -> None:
    rows = [row for row in PROSE.splitlines() if row.startswith("|") and row.count("|") == 4]
    seen = {}
    for row in rows:
        _, named, started = (re.findall(r"`([^`]+)`", cell) for cell in row.strip("|").split("|"))
        if not named or named[0] not in registry.TARGETS:
            continue
        target = registry.get(named[0])
        assert set(named[1:]) <= set(target.schemas)
        seen[named[0]] = [_split(span)[1] for span in started if span.startswith("--endpoint")]
    assert seen.keys() == registry.TARGETS.keys() - {"memory"}
    for endpoint in (endpoint for found in seen.values() for endpoint in found):
        refuse_secrets(endpoint, "README")
    assert sum(map(len, seen.values())) >= 4


def test_files_that_are_named_are_there() -> None:
    named = re.findall(r"`((?:scenarios|locustfiles|notebooks|tests|tsbench|\.github|\.ci)/[\w./-]*)`", README)
    named += re.findall(r"\]\((?!http)([^)]+)\)", README)
    assert [name for name in named if not (ROOT / name).exists()] == []
    assert len(named) > 10


@pytest.mark.parametrize("block", [text for language, text in BLOCKS if language == "toml"])
def test_the_scenarios_are_good_ones(block: str, tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text(block, encoding="utf-8")
    cells = Scenario.load(path).expand()
    for cell in cells:
        check_spec(cell, "README")
    assert len(cells) == _cells(tomllib.loads(block))


def _cells(document: dict[str, Any]) -> int:
    count = 1
    for values in document.get("matrix", {}).values():
        count *= len(values)
    return count


@pytest.mark.postgres
def test_the_example_runs_as_it_stands_but_shorter_and_its_results_may_lie_anywhere(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    (block,) = (text for language, text in BLOCKS if "[matrix]" in text)
    (tmp_path / "my.toml").write_text(block, encoding="utf-8")
    words = ["run", "my.toml", "--only", "postgres-btree-rate=500", "--out", AWKWARD]
    for change in ("world.scale=8", "drive.duration=3s", "drive.warmup=1s"):
        words += ["--set", change]
    command = Command(tmp_path, "tsbench", *words)
    code = command.wait()
    run = only(tmp_path, "*/*-my/postgres-btree-rate=500")
    assert run.parent.parent.name == AWKWARD
    summary = content(run / "summary.json")
    checks = summary["validity"]["checks"]
    assert {checks[name]["state"] for name in ("answers", "writes", "counts", "ops")} == {"valid"}, command.stderr
    assert code == (0 if Summary.from_json(summary).passed else 1)  # `limit` may be false where others use the machine
    assert f"report: {AWKWARD}/" in command.stdout.replace("\n", "")
