"""Text of others (users, servers, files) made fit to be shown: without control characters, and not too long."""

from __future__ import annotations

import json
import os
import re
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

_MOST = 60
_WHOLE = 10_000  # characters: of a longer text only both ends are looked at
# C0 but tab and line breaks, DEL and C1 (terminals obey them), marks that reorder text or hide it, lone surrogates, and
# what XML cannot hold.
_UNPRINTABLE = re.compile(
    "[^\t\n\r\x20-\x7e\xa0-\u061b\u061d-\u200a\u200c\u200d\u2010-\u2027\u202f-\u205f\u2070-\ud7ff\ue000-\ufefe\uff00-\ufff8"
    "\ufffc\ufffd\U00010000-\U000dffff]"
)
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
"""Control characters, line breaks and tabs among them."""
MARK = "\N{REPLACEMENT CHARACTER}"


_hidden: dict[str, re.Pattern[str]] = {}
"""Secrets that this process has read, in every form in which a server may repeat them: one list for the process."""
_LEAST_SECRET = 4
"""Characters of the shortest secret that is struck out: shorter ones are part of too many words."""
_WORD = 12
"""Characters below which a secret is struck out only as a whole word: `postgres` is a password, and part of a URL."""


def hide(secret: str) -> None:
    """Remove a secret from all texts from now on, also where it is URL-encoded or within JSON."""
    if len(secret) < _LEAST_SECRET or secret in _hidden:  # each connection reads its secret again
        return
    forms = {secret, quote(secret, safe=""), quote(secret), quote_plus(secret), json.dumps(secret)[1:-1]}
    ends = (r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])") if len(secret) < _WORD else ("", "")
    forms_of = _hidden | {form: re.compile(re.escape(form).join(ends)) for form in forms}
    _hidden.clear()
    _hidden.update(sorted(forms_of.items(), key=lambda item: -len(item[0])))  # one may be part of another


def conceal(text: str) -> str:
    """Return the text without the secrets of this process, which a server may repeat in what it says."""
    for pattern in _hidden.values():
        text = pattern.sub("[secret]", text)
    return text


def concealed(value: Any) -> Any:
    """Return plain data (objects, lists, texts, numbers) without the secrets of this process in its texts."""
    match value:
        case str():
            return conceal(value)
        case dict():
            return {conceal(str(key)): concealed(one) for key, one in value.items()}
        case list() | tuple():
            return type(value)(map(concealed, value))
        case _:
            return value


def printable(text: str) -> str:
    """Return the text with a mark in place of each character that a terminal obeys or that XML cannot hold.

    Tabs and line breaks are kept.
    """
    return _UNPRINTABLE.sub(MARK, text)


def printable_line(text: str) -> str:
    """Return the text as one printable line, with single blanks."""
    return " ".join(printable(text).split())


def shortened(text: str, most: int = _MOST) -> str:
    """Return the text as one printable line of at most `most` characters; the middle of a longer one is left out."""
    text = conceal(text)  # before it is cut
    line = re.sub(
        r"[\t\n\r]", " ", printable(text if len(text) < _WHOLE else text[: _WHOLE // 2] + text[-_WHOLE // 2 :])
    )
    head = most * 2 // 3
    return line if len(line) <= most else f"{line[:head]}\N{HORIZONTAL ELLIPSIS}{line[-(most - head - 1) :]}"


def listed(names: Collection[object], most: int = 10) -> str:
    """Return the first names with commas between them, and the number of the others; a single other one is named."""
    shown = most if len(names) > most + 1 else len(names)
    first = ", ".join(shortened(str(name)) for name in islice(names, shown))
    return first if shown == len(names) else f"{first} and {len(names) - shown:,} others"


def joined(parts: Sequence[str]) -> str:
    """Return parts with commas between them, and the last with `and`."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def suggestion(word: str, known: Collection[str], otherwise: str = "") -> str:
    """Return the known word that is most like a mistyped one, as a question; else all of them, or `otherwise`."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for a mistake

    near = get_close_matches(word, known, 1)
    return f"did you mean '{near[0]}'?" if near else otherwise or f"there are {', '.join(known)}"


def short_path(path: Path) -> str:
    """Return the path relative to the working directory, as a user would type it."""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(str(path)) else str(path)
