"""Options of a MongoDB endpoint that are tsbench's own; read without the driver."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from tsbench.errors import UserMistake
from tsbench.text import shortened

if TYPE_CHECKING:
    from collections.abc import Mapping

_CHOICES = {"ordered": ("true", "false"), "granularity": ("seconds", "minutes", "hours")}
_SECONDS_TEXT = re.compile(r"[0-9]{1,10}")
_SECONDS = ("bucketMaxSpanSeconds", "expireAfterSeconds")
OURS = frozenset({*_CHOICES, *_SECONDS})
"""All others are MongoDB's."""


def check(shown: str, given: Mapping[str, str]) -> None:
    """Verify the options of tsbench's own, and that writes are acknowledged; `shown` names the endpoint in errors.

    Raises
    ------
    tsbench.errors.UserMistake
        One line that names the option.
    """
    if given.get("w") == "0":
        raise UserMistake(f"{shown}: w=0: writes that are not acknowledged cannot be accounted for; take it out")
    for name, allowed in _CHOICES.items():
        if given.get(name, allowed[0]) not in allowed:
            raise UserMistake(f"{shown}: {name}={shortened(given[name])}: there are {', '.join(allowed)}")
    for name in _SECONDS:
        text = given.get(name, "1")
        if not (_SECONDS_TEXT.fullmatch(text) and 1 <= int(text) <= 2**31 - 1):
            raise UserMistake(f"{shown}: {name}={shortened(text)} is not a whole number of seconds from 1 on")
    if "granularity" in given and "bucketMaxSpanSeconds" in given:
        raise UserMistake(f"{shown}: granularity and bucketMaxSpanSeconds exclude each other; take one out")


def local(port: int, options: Mapping[str, str]) -> str:
    """Return the endpoint of a server on this machine."""
    query = f"?{urlencode(options, quote_via=quote)}" if options else ""
    return f"mongodb://127.0.0.1:{port}/tsbench{query}"
