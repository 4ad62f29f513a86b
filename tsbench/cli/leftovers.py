"""What runs leave on servers of the user: which objects, or their removal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsbench.cli.output import fail, say
from tsbench.run.campaign import short
from tsbench.run.cleanup import clean_up, described, leftovers

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tsbench.run.cleanup import Cleaned


def leave(results: Path, *, clean: bool) -> int:
    """Print which objects the runs have left on servers of the user, or remove them; return the exit code."""
    if not any(results.glob("*/spec.json")):
        return 0
    if clean:
        return show_cleaned(clean_up(results))
    for left in leftovers(results):
        names = described(left.made) or "what it had begun to create"
        say(f"left on {left.spec.target.endpoint}: {names}; remove it with: tsbench cleanup {short(results)}")
    return 0


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
