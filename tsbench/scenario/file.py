"""Reading a scenario file: one line for whatever is not a small TOML document."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from tsbench.errors import UserMistake, expect_regular
from tsbench.results.reading import parse_toml
from tsbench.text import CONTROL, printable_line, shortened

MAX_BYTES = 1_000_000
"""Largest scenario file; the largest shipped one has 5 kB."""
MAX_KEY = 200
"""Most characters of one part of a key."""
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
        return text, parse_toml(text)
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
