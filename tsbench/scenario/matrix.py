"""The document of a scenario as nested tables: overrides, the axes of its matrix, and the names of its cells."""

from __future__ import annotations

import itertools
import math
import re
from typing import TYPE_CHECKING, Any

from tsbench.errors import UserMistake
from tsbench.results.limits import LIMITS
from tsbench.results.reading import TOML_DEPTH, parse_toml
from tsbench.targets import credentials
from tsbench.text import shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


ENDPOINT = "endpoint"
_URL = re.compile(r"[a-z][a-z0-9+.-]{0,30}://[^\s\"']+", re.IGNORECASE)
_COMMENTED = re.compile(r"^\s*#.*endpoint[\"']?\s*=\s*(.*)")
MAX_CELLS = LIMITS.runs
"""Most runs of a matrix: at ten seconds each, three hours."""
MAX_NAME = 100
"""Most characters of a scenario's name, which is in the name of the result set."""
MAX_ID = 200
"""Most characters of a cell's id, which is the name of a directory."""
SHORT = "short=true"
"""Override that applies a file's table `short`."""
CASE = "case"
"""Name of the axis whose values are tables of keys that change together."""


def axes(matrix: object, prefix: str = "") -> Iterator[list[tuple[str, Any]]]:
    """Yield the (key, value) pairs of each axis: `target = [..]`, and `drive.users = [..]` as a dotted key or a table.

    Raises
    ------
    UserMistake
        If the matrix is not a table, or an axis has no value.
    """
    if not isinstance(matrix, dict):
        raise UserMistake("matrix: must be a table of key = [values]")
    for key, values in matrix.items():
        name = f"{prefix}{key}"
        if isinstance(values, dict):
            yield from axes(values, f"{name}.")
        elif isinstance(values, list) and values:
            yield [(name, value) for value in values]
        else:
            raise UserMistake(f"matrix.{name}: must be a list of at least one value")


def combinations(matrix: object) -> Iterator[dict[str, Any]]:
    """Yield the values by key of each cell.

    Raises
    ------
    UserMistake
        As `axes`, and if the matrix has more than `MAX_CELLS` cells.
    """
    axes_of = list(axes(matrix))
    count = math.prod(map(len, axes_of))
    if count > MAX_CELLS:
        text = f"{count:,} combinations are more runs than the {MAX_CELLS:,} that a result set may have"
        raise UserMistake(f"matrix: {text}; take some values out")
    yield from map(dict, itertools.product(*axes_of))


def choose(document: dict[str, Any], key: str, value: Any) -> None:
    """Set an axis's value in the document; a `case` sets several keys that change together.

    Raises
    ------
    ValueError
        If a case has no name, or a key leads through something that is not a table.
    """
    if key != CASE:
        put(document, key, copied(value))  # a case may set a key of it, for its own cell only
        return
    if not isinstance(value, dict) or "name" not in value:
        raise ValueError("each case is a table with a name and the keys that it sets")
    for inner, content in value.items():
        if inner != "name":
            put(document, inner, copied(content))


def override(document: dict[str, Any], text: str) -> None:
    """Apply one `key=value`: a dotted key, and a TOML value or bare text.

    It takes the place of the key's axis; of a key within an axis of tables, it is set in each of them.

    Raises
    ------
    UserMistake
        If `=` is missing, a parent of the key is not a table, or the cases of the matrix set the key.
    """
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise UserMistake(f"--set {shortened(text)}: write --set key=value, for example --set drive.users=20")
    if key.strip().partition(".")[0] in {"claim", "figure"}:
        raise UserMistake(f"--set {shortened(key)}: claims and figures are part of a file; change them there")
    if key.count(".") >= TOML_DEPTH:
        raise UserMistake(f"--set {shortened(key)}: a key has at most {TOML_DEPTH} parts")
    try:
        chosen = parse_toml(f"value = {value}")["value"]
    except ValueError:
        chosen = value
    try:
        _unvary(document, key.strip(), chosen)
        put(document, key.strip(), chosen)
    except ValueError as error:
        raise UserMistake(f"--set {key.strip()}: {error}") from None


def _unvary(document: dict[str, Any], key: str, chosen: Any) -> None:
    """Take the axes of a key out of the matrix; raises ValueError if cases set it."""
    varied = document.get("matrix")
    if not isinstance(varied, dict) or key.partition(".")[0] == "matrix":
        return
    kept: dict[str, list[Any]] = {}
    for name, values in ((pairs[0][0], [value for _, value in pairs]) for pairs in axes(varied)):
        inner = name.removeprefix(f"{key}.")
        if name == key or (inner != name and isinstance(chosen, dict) and value_at(chosen, inner) is not None):
            continue
        tables = [value for value in values if isinstance(value, dict)]
        if key.startswith(f"{name}."):
            for table in tables:
                put(table, key.removeprefix(f"{name}."), chosen)
        if name == CASE and any(f"{one}.".startswith(f"{key}.") for table in tables for one in table):
            raise ValueError("the cases of the matrix set it; change the file, or take cases by --only")
        kept[name] = values
    document["matrix"] = kept
    if not kept:
        del document["matrix"]


def taken_short(document: dict[str, Any]) -> dict[str, Any]:
    """Take the table `short` out of a document and return it; empty without one.

    Raises
    ------
    UserMistake
        If it is not a table, or its `only` not a list of texts.
    """
    short = document.pop("short", {})
    if not isinstance(short, dict):
        raise UserMistake(f"short: must be a table of the keys that --set {SHORT} changes")
    only = short.get("only", [])
    if not isinstance(only, list) or not all(isinstance(one, str) for one in only):
        raise UserMistake("short.only: must be a list of patterns of cells")
    return short


def shorten(document: dict[str, Any], short: Mapping[str, Any], path: Path) -> None:
    """Change what the table `short` says, for a quick look at a scenario.

    Raises
    ------
    UserMistake
        If the table is empty, or a key leads through something that is not a table.
    """
    if not short:
        raise UserMistake(f"--set {SHORT}: {path} has no [short]; change its keys one by one, as in docs/scenarios.md")
    for key, value in short.items():
        if key != "only":
            try:
                put(document, key, copied(value))
            except ValueError as error:
                raise UserMistake(f"{path}: short.{key}: {error}") from None


def refuse_secrets(override: str) -> None:
    """Refuse a `key=value` with a secret in an endpoint, before any output repeats it.

    Raises
    ------
    UserMistake
        If the endpoint has a secret.
    """
    key, _, value = override.partition("=")
    if credentials.holds_secret(key) or "://" in key:
        credentials.refuse_secrets(override, "--set")
    if key.strip().endswith(ENDPOINT) or "://" in value:
        credentials.refuse_secrets(value, f"--set {key.strip()}")


def refuse_secrets_in_file(document: Mapping[str, Any], text: str, path: Path) -> None:
    """Refuse a scenario file with a secret in any endpoint, also in comments and other cells.

    Raises
    ------
    UserMistake
        If an endpoint has a secret; the text names its key, or the line of a comment.
    """
    for key, value in _texts(document):
        if key.endswith(ENDPOINT) or "://" in value:
            credentials.refuse_secrets(value, f"{path}: {key}")
    for number, line in enumerate(text.splitlines(), 1):
        for url in [*_URL.findall(line), *_COMMENTED.findall(line)]:
            credentials.refuse_secrets(url, f"{path}: line {number}")


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text in nested tables and lists, with its dotted key."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(inner, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, key)


def put(document: dict[str, Any], key: str, value: Any) -> None:
    """Set the value of a dotted key; a table is merged with an existing one.

    Raises
    ------
    ValueError
        If the key leads through something that is not a table.
    """
    *parents, last = key.split(".")
    for parent in parents:
        inner = document.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise ValueError(f"'{parent}' is not a table; set it whole, or change it in the file")  # noqa: TRY004 - the user's
        document = inner
    if isinstance(value, dict) and isinstance(document.get(last), dict):
        value = {**document[last], **value}
    document[last] = value


def value_at(document: Mapping[str, Any], key: str) -> Any:
    """Return the value of a dotted key, None if it is missing."""
    value: Any = document
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def copied(value: Any) -> Any:
    """Return a copy of nested tables and lists."""
    if isinstance(value, dict):
        return {key: copied(inner) for key, inner in value.items()}
    return [copied(inner) for inner in value] if isinstance(value, list) else value


def labels_of(chosen: Mapping[str, Any], target: object) -> dict[str, str]:
    """Return the values that distinguish a cell from others; also its target if that has a schema."""
    labels = {key: _label(value) for key, value in chosen.items()}
    if "target.schema" not in labels and isinstance(target, dict) and target.get("schema"):
        labels.setdefault("target", f"{target.get('name', '')}-{target['schema']}")
    return labels


def slug_of(labels: Mapping[str, str], target: object) -> str:
    """Return the id of a cell, usable as a directory's name."""
    named = {key: value for key, value in labels.items() if key != "target.name" or "target" not in labels}
    return "-".join(_slug(key, value) for key, value in named.items()) or _slug("target", _label(target))


def file_name(text: str) -> str:
    """Return the text with only those characters that are safe in file names."""
    return re.sub(r"[^A-Za-z0-9_.=]+", "-", text).strip("-.")


def _label(value: Any) -> str:
    if isinstance(value, dict):
        return "-".join(str(value[key]) for key in ("name", "schema") if value.get(key)) or "cell"
    return str(value)


def _slug(key: str, value: str) -> str:
    return file_name(value if key in {"target", "target.name", CASE} else f"{key.rsplit('.', 1)[-1]}={value}") or "cell"
