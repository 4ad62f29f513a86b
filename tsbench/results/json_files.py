"""JSON files of a run: parsed within LIMITS and typed by models; any mismatch is one line with file and key."""

from __future__ import annotations

import json
import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainValidator,
    StrictBool,
    StrictStr,
    TypeAdapter,
    ValidationError,
)

from tsbench.errors import UserMistake
from tsbench.results.limits import LARGEST, LIMITS
from tsbench.results.reading import damaged, layers, open_file, read_bytes
from tsbench.text import MARK, printable

if TYPE_CHECKING:
    from pathlib import Path

V = TypeVar("V")
T = TypeVar("T")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST


def _number(value: Any) -> Any:
    if _is_number(value):
        return value
    raise ValueError("is not a number")


def _few(value: Any) -> Any:
    if isinstance(value, dict | list | tuple) and len(value) > LIMITS.entries:
        raise ValueError(f"has {len(value):,} entries, more than {LIMITS.entries:,}")
    return value


def are_counts(value: Any) -> bool:
    """Return True for an object of numbers by name, no more than reports can show."""
    return isinstance(value, dict) and len(value) <= LIMITS.entries and all(map(_is_number, value.values()))


Number = Annotated[float, PlainValidator(_number)]
"""A number of any kind, as it was written; neither infinite nor NaN."""
Count = Annotated[int, PlainValidator(_number)]
Text = StrictStr
Flag = StrictBool
Named = Annotated[dict[str, V], BeforeValidator(_few)]
"""Values by name, no more than reports can show."""
Several = Annotated[tuple[V, ...], BeforeValidator(_few)]
"""Values in a row, no more than reports can show."""

STRICT = ConfigDict(extra="forbid", defer_build=True)  # when it is first used; most processes use few of them


class Part(BaseModel):
    """A part of a JSON file; a key that it does not know is a mistake, since the same version wrote it."""

    model_config = ConfigDict(**STRICT, frozen=True, populate_by_name=True)


def parsed(model: type[T], content: Any) -> T:
    """Return the parsed content of a JSON file as a model, or as a dataclass.

    Raises
    ------
    ValueError
        One line that names the first key that does not fit.
    """
    try:
        return _adapter(model).validate_python(_few(content))  # type: ignore[no-any-return,arg-type] # a type is hashable
    except ValidationError as error:
        mistakes = error.errors(include_url=False, include_context=False, include_input=False)
        first = min(mistakes, key=lambda one: one["type"] == "missing")  # what is there and wrong says more
        place = ".".join(map(str, first["loc"]))[-100:] or "the whole"
        says = _SAYS.get(first["type"], first["msg"].removeprefix("Value error, "))
        raise ValueError(f"{place} {says}") from None


@lru_cache
def _adapter(model: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(model)


_SAYS = {
    "string_type": "is not a text",
    "bool_type": "is not a flag",
    "tuple_type": "is not a list",
    "dict_type": "is not an object",
    "model_type": "is not an object",
    "model_attributes_type": "is not an object",
    "dataclass_type": "is not an object",
    "missing": "is missing",
    "extra_forbidden": "is not a key of this version",
    "unexpected_keyword_argument": "is not a key of this version",
    "literal_error": "is another word",
}


# --- reading ----------------------------------------------------------------------------------------------------------


def read_json(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file, which is kept: callers must not change it.

    Raises
    ------
    UserMistake
        If the file is missing or damaged; the text names it.
    """
    try:
        with open_file(path, LIMITS.json_bytes) as file:
            status = os.fstat(file.fileno())
            return _parsed(path, (status.st_ino, status.st_size, status.st_mtime_ns))
    except FileNotFoundError:
        raise UserMistake(f"{path} is missing; choose a result set of tsbench") from None
    except OSError as error:
        raise damaged(path, error) from None


@lru_cache(maxsize=2)
def _parsed(path: Path, _state: tuple[int, int, int]) -> dict[str, Any]:
    """Return the content of a file in that state; the set's summary is read six times for a report."""
    is_of_set = path.name == "summary.json" and not (path.parent / "spec.json").exists()
    try:
        content = parse_json(read_bytes(path, LIMITS.json_bytes), of_set=is_of_set)
    except ValueError as error:
        raise damaged(path, error) from None
    if not isinstance(content, dict):
        raise damaged(path, "not an object")
    return content


def read_part(path: Path, model: type[T]) -> T:
    """Return the content of a JSON file as a model, or as a dataclass.

    Raises
    ------
    UserMistake
        If the file is missing or damaged; the text names it and its first key that does not fit.
    """
    try:
        return parsed(model, read_json(path))
    except ValueError as error:
        raise damaged(path, error) from None


def parse_json(data: bytes, *, of_set: bool = False) -> Any:
    """Return the content of a JSON text without characters that a terminal obeys; one `of_set` may be longer.

    Raises
    ------
    ValueError
        If it is none, or beyond the limits.
    """
    share = 1 if of_set else LIMITS.json_of_set
    for name, count, most in (
        ("bytes", len(data), LIMITS.json_bytes),
        ("objects", data.count(b"{"), LIMITS.json_objects),
        ("values", sum(map(data.count, (b",", b"[", b"{"))), LIMITS.json_values),
        ("backslashes", data.count(b"\\"), LIMITS.json_escapes),
    ):
        if count > most // share:
            raise ValueError(f"it has {count:,} {name}, more than {most // share:,}")
    try:
        content = json.loads(_printable(data.decode()), parse_int=_whole)
    except RecursionError:
        raise ValueError("it nests too deep") from None
    _expect_sound(content)
    return content


_ESCAPE = re.compile(r"\\(?:u(d[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|[0-9a-f]{4})|.)", re.IGNORECASE)


def _printable(text: str) -> str:
    r"""Return a JSON text without characters that a terminal obeys, as they are or as `\u001b`."""

    def seen(match: re.Match[str]) -> str:
        number = match[1] or ""
        kept = len(number) != 4 or chr(int(number, 16)) in "\t\n\r" or printable(chr(int(number, 16))) != MARK
        return match[0] if kept else MARK

    return _ESCAPE.sub(seen, printable(text))


def _whole(digits: str) -> int:
    if len(digits) > LIMITS.json_digits:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _expect_sound(content: Any) -> None:
    """Raise ValueError if objects and lists are too deep within each other, or a key is too long."""
    for depth, layer in enumerate(layers(content), 1):
        if depth > LIMITS.json_depth:
            raise ValueError("it nests too deep")
        if any(len(key) > LIMITS.json_key for one in layer if isinstance(one, dict) for key in one):
            raise ValueError(f"a key has more than {LIMITS.json_key:,} characters")
