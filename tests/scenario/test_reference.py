from __future__ import annotations

import copy
import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from tests.cli.support import TINY as SMALLEST
from tests.cli.support import Command
from tsbench.scenario import matrix
from tsbench.scenario.file_keys import FileKeys
from tsbench.scenario.reference import json_schema, markdown
from tsbench.scenario.spec import INTERNAL, SCENARIO_KEYS, RunSpec, Scenario
from tsbench.study.claims import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent.parent
SCHEMA = json_schema(TABLES)
VALIDATOR = Draft202012Validator(SCHEMA)


def mistakes(document: dict[str, Any]) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(json.loads(json.dumps(document, default=str)))]


def changed(**keys: Any) -> dict[str, Any]:
    """Return the smallest scenario with dotted keys (`.` as `__`) replaced; None removes one."""
    document = copy.deepcopy(tomllib.loads(SMALLEST))
    for key, value in keys.items():
        *parents, last = key.split("__")
        inner = matrix.value_at(document, ".".join(parents)) if parents else document
        inner[last] = value
        if value is None:
            del inner[last]
    return document


def test_the_schema_is_a_json_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert '"unit"' not in json.dumps(SCHEMA), "a keyword of ours was left in"


@pytest.mark.parametrize("path", sorted((ROOT / "scenarios").rglob("*.toml")), ids=lambda path: path.name)
def test_every_scenario_of_the_project_fits_the_schema(path: Path) -> None:
    assert mistakes(tomllib.loads(path.read_text(encoding="utf-8"))) == []


GOOD: list[dict[str, Any]] = [
    {},
    {"drive__wait": ["1ms", "5ms"]},
    {"drive__wait": ["0s", 0]},
    {"drive__steps": [{"users": 5, "duration": "10s"}]},
    {"world__start": "now-6h"},
    {"server": {"cpu": 0.5, "memory": "512 MB"}},
    {"timeout": {"settle": "1h30m"}},
    {"gates": ["write:p99<50ms"], "knee": True, "name": "x"},
    {"target": None, "matrix": {"target": [{"name": "sqlite"}]}},
    {"matrix": {"drive": {"users": [1, 2]}, "case": [{"name": "a", "drive.users": 3}]}},
    {"load__mode": "multi"},
]
BAD: list[tuple[dict[str, Any], str]] = [
    ({"drive__usrs": 5}, "usrs"),
    ({"drive__duration": 10}, "10"),
    ({"drive__duration": "10 parsecs"}, "10 parsecs"),
    ({"drive__wait": ["1ms"]}, "1ms"),
    ({"drive__wait": 0}, "0"),
    ({"drive__users": 0}, "0"),
    ({"world__use_case": "cpu-onyl"}, "cpu-onyl"),
    ({"world__use_case": None}, "use_case"),
    ({"target": None}, "target"),
    ({"target__name": None}, "name"),
    ({"op": []}, "[]"),
    ({"op": [{"write": 1, "query": "lastpoint"}]}, "lastpoint"),
    ({"op": [{"weight": 1}]}, "weight"),
    ({"server": {"memory": 512}}, "512"),
    ({"load__mode": "single"}, "single"),
    ({"matrix": {"drive.rate": []}}, "[]"),
    ({"matrix": {"case": [{"drive.users": 3}]}}, "name"),
    ({"id": "x"}, "id"),
    ({"claim": [{"text": "x"}]}, "required"),
]


@pytest.mark.parametrize("keys", GOOD, ids=str)
def test_the_schema_takes_what_the_parser_takes(keys: dict[str, Any], tmp_path: Path) -> None:
    document = changed(**keys)
    assert mistakes(document) == []
    Scenario(tmp_path / "x.toml", document).expand()


@pytest.mark.parametrize(("keys", "named"), BAD, ids=str)
def test_the_schema_finds_the_mistake(keys: dict[str, Any], named: str) -> None:
    found = mistakes(changed(**keys))
    assert any(named in message for message in found), found


def properties(model: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for part in (model, *model["$defs"].values()):
        for key, value in part.get("properties", {}).items():
            yield f"{part.get('description', '')[:30]}: {key}", value


def test_every_key_is_described() -> None:
    bare = [
        key for key, value in properties(SCHEMA) if not ({"description", "$ref"} & value.keys() or "items" in value)
    ]
    assert bare == []


def test_the_defaults_are_those_of_the_models_and_written_as_a_file_would() -> None:
    parts = SCHEMA["$defs"]
    assert parts["DrivePart"]["properties"]["duration"]["default"] == "10s"
    assert parts["WorldPart"]["properties"]["start"]["default"] == "2016-01-01T00:00:00Z"
    assert parts["TimeoutPart"]["properties"]["settle"]["default"] == "1h"
    assert "default" not in parts["DrivePart"]["properties"]["rate"]
    document = changed(drive={}, load={}, world={"use_case": "cpu-only"})
    (plain,) = Scenario(Path("x.toml"), document).expand()
    for table, model in (
        ("world", "WorldPart"),
        ("load", "LoadPart"),
        ("drive", "DrivePart"),
        ("timeout", "TimeoutPart"),
    ):
        written = {key: v["default"] for key, v in parts[model]["properties"].items() if "default" in v}
        (spec,) = Scenario(Path("x.toml"), {**document, table: {**document.get(table, {}), **written}}).expand()
        assert getattr(spec, table) == getattr(plain, table)


def test_the_file_has_the_keys_that_the_parser_knows() -> None:
    assert {*FileKeys.model_fields, *TABLES} == SCENARIO_KEYS
    assert set(SCHEMA["properties"]) == {*RunSpec.model_fields, *SCENARIO_KEYS} - INTERNAL


def test_the_page_of_keys_is_what_the_command_prints(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "scenario-keys.md").read_text(encoding="utf-8")
    assert page == markdown(TABLES), "write it again: tsbench schema --markdown > docs/scenario-keys.md"
    command = Command(tmp_path, "tsbench", "schema", "--markdown")
    assert (command.wait(), command.stdout) == (0, page)


def test_the_command_prints_the_schema(tmp_path: Path) -> None:
    command = Command(tmp_path, "tsbench", "schema")
    assert command.wait() == 0, command.stderr
    assert json.loads(command.stdout) == SCHEMA


def test_the_page_names_every_key_with_its_value_and_default() -> None:
    page = markdown(TABLES)
    for row in (
        '| `duration` | duration, whole seconds | `"10s"` | Length of the measured window; above 0. |',
        "| `use_case` | text | required |",
        '| `wait` | duration, or two in a list | `["0s", "0s"]` |',
        "| `memory` | size | |",
        "| `scale` | whole number, 1 to 10,000,000 | `100` |",
        '| `mode` | `multi`, `bulk` | `"bulk"` |',
    ):
        assert row in page
    for key in (key.rpartition(" ")[2] for key, _ in properties(SCHEMA)):
        assert f"| `{key}` |" in page
