"""What runs leave on servers of the user: which objects, or their removal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsbench.cli.output import fail, say
from tsbench.run.cleanup import Cleaned, clean_up, left_lines

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def leave(results: Path, *, clean: bool) -> int:
    """Print which objects the runs have left on servers of the user, or remove them; return the exit code."""
    lines = left_lines(results)
    return show_cleaned(clean_up(results) if clean and lines else map(Cleaned, lines))


def show_cleaned(places: Iterable[Cleaned]) -> int:
    """Print what was removed from each place, or why not; return the exit code."""
    code = 0
    for place in places:
        if place.code:
            fail(place.text, place.code)
        else:
            say(place.text)
        code = max(code, place.code)
    return code
