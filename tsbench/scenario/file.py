"""Reading a scenario file, and the one line on a file that is no small TOML document, or not of its model."""

from __future__ import annotations

import difflib
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsbench.errors import UserMistake, expect_regular
from tsbench.results.reading import parse_toml
from tsbench.text import CONTROL, printable_line, shortened, suggestion

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pydantic import BaseModel, ValidationError

    Parts = Mapping[str, type[BaseModel]]
    """Models of inner tables by their keys."""

MAX_BYTES = 1_000_000
"""Largest scenario file; the largest shipped one has 5 kB."""
MAX_KEY = 200
"""Most characters of one part of a key."""
_KINDS: dict[str, tuple[set[str], str]] = {
    "scenario": (
        {"question", "op", "drive", "matrix", "target", "world", "load"},
        "`tsbench run {} --dry-run` shows what it would run",
    ),
    "use case": (
        {"about", "tags", "measurement", "recording"},
        "`tsbench init TARGET --use-case {}` writes a scenario with it",
    ),
}
"""Keys by which a file of each kind is known, and a command that takes it."""
_FREE = {"question", "claim", "figure"}
"""Keys whose texts are for readers, and may have line breaks."""
SHIPPED = (Path(__file__).parent.parent / "scenarios", Path(__file__).parent.parent.parent / "scenarios")
"""Directory of the scenarios that tsbench brings: in an installed package, or in a checkout."""


def shipped() -> dict[str, Path]:
    """Return the scenarios that tsbench brings, by name: `quickstart`, `studies/low-end`."""
    directory = next((place for place in SHIPPED if (place / "quickstart.toml").is_file()), SHIPPED[0])
    return {path.relative_to(directory).with_suffix("").as_posix(): path for path in sorted(directory.rglob("*.toml"))}


def scenario_file(path: Path) -> Path:
    """Return the path of a scenario: the one given, or that of the shipped scenario of this name (`quickstart`)."""
    return path if path.suffix or path.exists() else shipped().get(path.as_posix(), path)


def read_document(path: Path, what: str = "scenario") -> tuple[str, dict[str, Any]]:
    """Return the text of a scenario file, or another one that is a `what`, and its tables.

    Raises
    ------
    UserMistake
        If the file cannot be read, is too large, is not TOML, nests too deep, or is of the other kind.
    """
    try:
        expect_regular(path, f"choose a {what} file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise UserMistake(f"{path}: is larger than {MAX_BYTES:,} bytes; choose a {what} file")
        text = content.decode()
        document = parse_toml(text)
    except FileNotFoundError:
        near = difflib.get_close_matches(path.stem, [p.stem for p in path.parent.glob("*.toml")], 1)
        hint = f"did you mean {path.with_stem(near[0])}?" if near else f"see `tsbench list {what.replace(' ', '-')}s`"
        raise UserMistake(f"{path}: no such {what}; {hint}") from None
    except OSError as error:
        raise UserMistake(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise UserMistake(f"{path}: not TOML: {printable_line(str(error))}") from None
    for other, (keys, cure) in _KINDS.items():
        if other != what and keys & document.keys() and not _KINDS[what][0] & document.keys():
            raise UserMistake(f"{path}: is a {other}, and a {what} is wanted; {cure.format(path)}")
    return text, document


@contextmanager
def naming(place: str, mistake: type[Exception] = UserMistake) -> Iterator[None]:
    """Begin the message of a mistake in a `with` block with its place: a file or scenario, a key, or both."""
    try:
        yield
    except mistake as error:
        raise UserMistake(f"{place}{error}") from None


_MAY_HAVE_LINES = re.compile(r"query\.(?:text\.\w+|gold)")
_LINE_ENDS = str.maketrans("", "", "\r\n\t")


def odd_text(tables: Any, place: str = "") -> str:
    """Return a message on the first key or text in nested tables and lists that no file may have; "" if all are good.

    Names, endpoints and settings go into paths, command lines and messages, where a control character has no place.
    """
    if isinstance(tables, str):
        lines = tables.translate(_LINE_ENDS) if _MAY_HAVE_LINES.fullmatch(place) else tables
        return f"{place}: has a control character: '{shortened(tables)}'" if CONTROL.search(lines) else ""
    if isinstance(tables, list):
        return next(filter(None, (odd_text(one, place) for one in tables)), "")
    if not isinstance(tables, dict):
        return ""
    for key, value in tables.items():
        if len(key) > MAX_KEY or CONTROL.search(key):
            return f"{shortened(key)}: is no key: one has at most {MAX_KEY} characters, and no control characters"
        if place or key not in _FREE:
            odd = odd_text(value, f"{place}.{key}" if place else key)
            if odd:
                return odd
    return ""


# --- what is not of the model -----------------------------------------------------------------------------------------


_CURES = {
    "target": "; add [target] with the name of one (`tsbench list targets`)",
    "target.name": "; `tsbench list targets` shows all",
    "world": "; add [world] with use_case = 'cpu-only', for example",
    "world.use_case": "; `tsbench list use-cases` shows all",
}
_NAMES = {"target": "name", "world": "use_case"}
"""Keys of tables that people write as the text of their main key."""
_NO_KEYS = {
    "schema_",
    "float",
    "constrained-float",
    "str",
    "constrained-str",
    "int",
    "tuple[str, ...]",
    "dict[str,tuple[str, ...]]",
}
"""Parts of pydantic's places that no file has: a field with an alias, the alternatives of a type."""
_WANTED = {  # by pydantic's type of error
    "model_type": "a table of key = value",
    "dict_type": "a table of key = value",
    "tuple_type": "a list",
    "too_long": "a list of at most {max_length} values",
    "too_short": "a list of at least {min_length} value",
    "string_type": "text in quotes",
    "string_too_short": "a text of at least {min_length} letter",
    "string_too_long": "a text of at most {max_length} letters",
    "int_type": "a whole number",
    "int_parsing_size": "a whole number of at most 4,300 digits",
    "finite_number": "a finite number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "greater_than": "above {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
}


def explain(
    error: ValidationError,
    model: type[BaseModel],
    parts: Parts,
    *,
    hidden: Collection[str] = (),
    more: Sequence[str] = (),
    within: str = "",
) -> str:
    """Return a one-line message on the first error of a validation; keys as for `known_keys`.

    `within` is the key of the table that was validated, if it is not the whole file.
    """
    first, *others = error.errors()
    if isinstance(first.get("input"), str):  # of the alternatives of a type, what is wrong with a text
        others = [one for one in others if one["loc"][:-1] == first["loc"][:-1] and one["loc"][-1] in _NO_KEYS]
        first = next((one for one in others if one["type"].startswith("string_")), first)
    place = ".".join(str(part) for part in (*([within] if within else []), *first["loc"]) if part not in _NO_KEYS)
    kind = first["type"]
    if kind == "extra_forbidden":
        known = known_keys(first["loc"][:-1], model, parts, hidden=hidden, more=more)
        hint = suggestion(str(first["loc"][-1]), known, f"known are {', '.join(known)}")
        return f"{place}: unknown key; {hint}"
    if kind == "missing":
        return f"{place}: is missing{_CURES.get(place, '')}"
    message = first["msg"].removeprefix("Value error, ").replace("Input should", "must", 1)
    given = first.get("input")
    types = str | int | float | list | dict if kind in _WANTED else str | int | float
    shown = f" (given: {_given(given)})" if isinstance(given, types) else ""
    if kind in {"model_type", "dict_type"} and isinstance(given, str) and place in _NAMES:
        return f'{place}: must be a table; write {{ {_NAMES[place]} = "{shortened(given)}" }}'
    if shown and _given(given).strip("'") in message:
        shown = ""
    if kind in _WANTED:
        message = f"must be {_WANTED[kind].format(**first.get('ctx', {}))}"
    return f"{place}: {message}{shown}" if place else message


def _given(value: str | float | list[Any] | dict[str, Any]) -> str:
    """Return a value as a TOML file has it, shortened; of lists and tables, which of them it is."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a table"
    if isinstance(value, str):
        return f"'{shortened(value)}'"
    try:
        return "true" if value is True else "false" if value is False else shortened(str(value))
    except ValueError:  # Python writes no integer of more than 4,300 digits
        return "a number of more than 4,300 digits"


def known_keys(
    place: Sequence[str | int], model: type[BaseModel], parts: Parts, *, hidden: Collection[str], more: Sequence[str]
) -> list[str]:
    """Return the keys that a table may have, but for those of the model that are not for users (`hidden`).

    The top level may have `more` than the model.
    """
    inner = model
    for part in place:
        if isinstance(part, str) and part in inner.model_fields:
            inner = parts.get(part, inner)
    names = [field.alias or name for name, field in inner.model_fields.items()]
    return [name for name in [*names, *more] if name not in hidden] if inner is model else names
