"""Reading a scenario file: one line for whatever is not a small TOML document."""

from __future__ import annotations

import difflib
import re
import tomllib
from typing import TYPE_CHECKING, Any

from tsbench.errors import UserMistake, expect_regular
from tsbench.results.shapes import is_deeper
from tsbench.text import CONTROL, printable_line, shortened

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES = 1_000_000
"""Largest scenario file; the largest shipped one has 5 kB."""
MAX_DEPTH = 20
"""Most tables and lists within each other, and parts of a dotted key; a scenario needs four."""
MAX_KEY = 200
"""Most characters of one part of a key."""
_FREE = {"question", "claim", "figure"}
"""Keys whose texts are for readers, and may have line breaks."""
_NO_KEY = re.compile(r"""[^\w.\-"' \t]""")


def read_document(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the text of a scenario file and its tables.

    Raises
    ------
    UserMistake
        If the file cannot be read, is too large, is not TOML, or nests too deep.
    """
    try:
        expect_regular(path, "choose a scenario file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise UserMistake(f"{path}: is larger than {MAX_BYTES:,} bytes; choose a scenario file")
        text = content.decode()
        return text, parsed(text)
    except FileNotFoundError:
        near = difflib.get_close_matches(path.stem, [p.stem for p in path.parent.glob("*.toml")], 1)
        hint = f"did you mean {path.with_stem(near[0])}?" if near else "see `tsbench list scenarios`"
        raise UserMistake(f"{path}: no such scenario; {hint}") from None
    except OSError as error:
        raise UserMistake(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise UserMistake(f"{path}: not TOML: {printable_line(str(error))}") from None


def odd_text(tables: Any, place: str = "") -> str:
    """Return a message on the first key or text in nested tables and lists that no file may have; "" if all are good.

    Names, endpoints and settings go into paths, command lines and messages, where a control character has no place.
    """
    if isinstance(tables, str):
        return f"{place}: has a control character: '{shortened(tables)}'" if CONTROL.search(tables) else ""
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


def parsed(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text.

    Raises
    ------
    ValueError
        If it is not TOML, nests deeper than `MAX_DEPTH`, or has a number that is too long for Python.
    """
    deep = f"tables, lists or keys within each other are at most {MAX_DEPTH} deep"
    if any(part.count(".") > 3 * MAX_DEPTH for part in _NO_KEY.split(text)):  # the parser takes quadratic time for them
        raise ValueError(deep)
    try:
        document = tomllib.loads(text)
    except RecursionError:
        raise ValueError(deep) from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:
        raise ValueError("a number has more than 4,300 digits") from None
    if is_deeper(document, MAX_DEPTH):
        raise ValueError(deep)
    return document
