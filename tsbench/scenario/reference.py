"""The reference of scenario files, made from their pydantic models: a JSON Schema for editors, and Markdown."""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tsbench import units
from tsbench.scenario.file_keys import FileKeys
from tsbench.scenario.spec import INTERNAL, PacePart, QueryFilePart, RunSpec
from tsbench.scenario.types import UNIT, Part
from tsbench.scenario.use_case import built_in_cases
from tsbench.targets.registry import TARGETS
from tsbench.workload.queries import QUERIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pydantic import BaseModel


def json_schema(lists: Mapping[str, type[BaseModel]]) -> dict[str, Any]:
    """Return the JSON Schema of a scenario file; `lists` has the models of its tables about a study (`[[claim]]`).

    The schema has no rules on several keys at once, such as: a rate needs an open loop. `tsbench run` checks them.
    """
    document = _document(lists)
    parts = document["$defs"]
    cases = built_in_cases()
    _suggest(parts["WorldPart"]["properties"]["use_case"], cases, pattern=r"\.toml$")
    parts["TargetPart"]["properties"]["name"]["enum"] = sorted(TARGETS)
    own = {kind for case in cases.values() for kind in case.queries}
    _suggest(parts["WorldPart"]["properties"]["form"], {form for case in cases.values() for form in case.forms})
    _suggest(parts["Op"]["properties"]["query"], [*QUERIES, *own])
    needed = {name: parts[model].pop("required") for name, model in _FILLED_BY_A_MATRIX.items()}
    document["if"] = {"not": {"required": ["matrix"]}}
    document["then"] = {
        "required": document.pop("required"),
        "properties": {name: {"required": keys} for name, keys in needed.items()},
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_without(UNIT, document)}


def _suggest(place: dict[str, Any], names: Iterable[str], **other: str) -> None:
    """Let a key have a built-in name, which editors propose, or another text."""
    place["anyOf"] = [{"enum": sorted(names)}, {"type": "string", **other}]
    place.pop("type", None)


_FILLED_BY_A_MATRIX = {"world": "WorldPart", "target": "TargetPart"}
"""Tables with required keys that an axis of the matrix may set instead."""


def markdown(lists: Mapping[str, type[BaseModel]]) -> str:
    """Return the reference of all keys as a Markdown page; `lists` is as in `json_schema`."""
    document = _document(lists)
    parts = document["$defs"]
    lines = [_HEAD, "## Top level", "", *_table(document)]
    for key, value in document["properties"].items():
        name = _part_of(value)
        if name in parts:
            lines += _section(f"[[{key}]]" if value.get("type") == "array" else f"[{key}]", parts[name])
    for name, key in _INNER.items():
        lines += _section(f"[[{key}]]", parts[name])
    return "\n".join(lines) + "\n"


_INNER = {"Step": "drive.steps", "SearchAxis": "search.axes", "KnownPart": "query.known"}
"""Lists of tables within tables, by their models."""
_HEAD = """\
# Keys of a scenario file

This page is the output of `tsbench schema --markdown`. [Scenarios](scenarios.md) explains how the keys work together.

- *duration*: text such as `"10s"`, `"250ms"` or `"1h30m"`; units are ns, us, ms, s, m (or min), h, d and w.
- *size*: text such as `"512 MB"` or `"64MiB"`.
- *time*: ISO 8601 such as `"2016-01-01T00:00:00Z"`, `"now"` or `"now-6h"`.
- A duration or size without a unit is refused, except the duration 0.
"""


def _document(lists: Mapping[str, type[BaseModel]]) -> dict[str, Any]:
    """Return pydantic's schema in the form of a file: with the file's keys, texts with units, and without null."""
    document = RunSpec.model_json_schema()
    models: list[type[BaseModel]] = [FileKeys, *lists.values()]
    for model in models:
        schema = model.model_json_schema()
        document["$defs"] |= {**schema.pop("$defs", {}), model.__name__: schema}
    for model in _below(Part):
        _describe(document if model is RunSpec else document["$defs"].get(model.__name__, {}), model)
    whole = document["$defs"].pop(FileKeys.__name__)
    tables = {
        key: {"type": "array", "items": {"$ref": f"#/$defs/{model.__name__}"}, "default": []}
        for key, model in lists.items()
    }
    properties = {**whole["properties"], **document["properties"], **tables}
    document["properties"] = {name: value for name, value in properties.items() if name not in INTERNAL}
    for internal in (QueryFilePart, PacePart):
        del document["$defs"][internal.__name__]
    document["properties"]["op"] = {**document["properties"]["op"], "minItems": 1}
    document["required"] = [name for name in document["required"] if name not in INTERNAL] + ["op"]
    del document["properties"]["op"]["default"]
    document["description"] = "A scenario of tsbench: one question."
    tidied: dict[str, Any] = _tidied(document)
    return tidied


def _below(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Yield all models that extend one."""
    for one in model.__subclasses__():
        yield one
        yield from _below(one)


def _describe(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Add the docstrings of a model's fields to its schema."""
    for name, about in _docstrings(model).items():
        key = model.model_fields[name].alias or name
        if key in schema.get("properties", ()):
            schema["properties"][key]["description"] = about


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Return the texts below the fields of a model, from its source: pydantic would read it whenever it is imported."""
    texts = _docstrings(base) if (base := model.__base__) is not None and issubclass(base, Part) else {}
    definition = ast.parse(textwrap.dedent(inspect.getsource(model))).body[0]
    assert isinstance(definition, ast.ClassDef)  # noqa: S101 - as all sources of classes are
    for one, behind in pairwise(definition.body):
        match one, behind:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                texts[name] = inspect.cleandoc(text)
    return texts


_NULL = {"type": "null"}
_BOUNDS = {"ge": "minimum", "le": "maximum"}  # pydantic does not translate these after a custom validator


def _tidied(node: Any) -> Any:
    if isinstance(node, list):
        return [_tidied(inner) for inner in node]
    if not isinstance(node, dict):
        return node
    tidy = {_BOUNDS.get(key, key): _tidied(value) for key, value in node.items() if key != "title"}
    if _NULL in tidy.get("anyOf", ()):  # TOML has none
        options = [option for option in tidy.pop("anyOf") if option != _NULL]
        tidy |= options[0] if len(options) == 1 else {"anyOf": options}
    if "default" in tidy:
        default = _as_written(tidy.pop("default"), tidy.get(UNIT))
        tidy |= {} if default is None or isinstance(default, dict) else {"default": default}
    return tidy


def _as_written(value: Any, unit: str | None) -> Any:
    """Return a default as a file would have it, with durations and times as text."""
    if unit in {"duration", "seconds", "warmup"} and isinstance(value, int):
        return units.format_exact_duration(value)
    if unit == "time" and isinstance(value, int):
        return units.format_time(value)
    return [units.format_exact_duration(part) for part in value] if unit == "wait" else value


def _without(key: str, node: Any) -> Any:
    if isinstance(node, dict):
        return {name: _without(key, value) for name, value in node.items() if name != key}
    return [_without(key, inner) for inner in node] if isinstance(node, list) else node


# --- Markdown ---------------------------------------------------------------------------------------------------------


def _section(title: str, part: Mapping[str, Any]) -> Iterator[str]:
    about = re.sub(r"^\[+[\w.]+\]+: ", "", part["description"].partition("\n")[0])
    yield from ("", f"## `{title}`", "", about[:1].upper() + about[1:], "", *_table(part))


def _table(part: Mapping[str, Any]) -> Iterator[str]:
    yield "| key | value | default | meaning |"
    yield "|---|---|---|---|"
    for key, value in part["properties"].items():
        default = f"`{json.dumps(value['default'], ensure_ascii=False)}`" if "default" in value else ""
        if key in part.get("required", ()):
            default = "required"
        about = value.get("description", "") if not _part_of(value) else f"See {_link(key, value)}."
        yield f"| `{key}` | {_value_text(value)} | {default} | {' '.join(about.split())} |".replace("  ", " ")


def _part_of(value: Mapping[str, Any]) -> str:
    """Return the name of the model of a key's table or list of tables, "" if the value is no table."""
    reference = value.get("$ref") or value.get("items", {}).get("$ref", "")
    name = reference.rpartition("/")[2]
    return "" if name == "WriteMode" else name


def _link(key: str, value: Mapping[str, Any]) -> str:
    if value.get("type") != "array":
        return f"[`[{key}]`](#{key})"
    name = _INNER.get(_part_of(value), key)
    return f"[`[[{name}]]`](#{name.replace('.', '')})"


_UNIT_TEXTS = {
    "duration": "duration",
    "seconds": "duration, whole seconds",
    "warmup": "duration, whole seconds, or `steady`",
    "size": "size",
    "time": "time",
    "wait": "duration, or two in a list",
}


def _value_text(value: Mapping[str, Any]) -> str:
    if UNIT in value:
        return _UNIT_TEXTS[value[UNIT]]
    if "enum" in value or value.get("$ref", "").endswith("/WriteMode"):
        return ", ".join(f"`{choice}`" for choice in value.get("enum", ("single", "multi", "bulk")))
    if _part_of(value):
        return "list of tables" if value.get("type") == "array" else "table"
    if "anyOf" in value:
        return " or ".join(_value_text(option) for option in value["anyOf"])
    names = {"string": "text", "integer": "whole number", "number": "number", "boolean": "`true` or `false`"}
    if value["type"] == "array":
        return f"list of {_value_text(value['items'])}s"
    return names.get(value["type"], "table") + _range_text(value)


def _range_text(value: Mapping[str, Any]) -> str:
    least, most = value.get("minimum"), value.get("maximum")
    if least is not None and most is not None:
        return f", {least:,} to {most:,}"
    if least is not None:
        return f", at least {least:,}"
    return f", above {value['exclusiveMinimum']}" if "exclusiveMinimum" in value else ""
