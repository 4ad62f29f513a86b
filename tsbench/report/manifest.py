"""Comparison of several runs' manifests: common entries once, different ones per run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tsbench.report.metrics import MISSING
from tsbench.units import format_duration, format_exact_duration, format_size, format_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


DURATIONS = {
    *("world.interval", "load.window", "load.duration", "drive.wait", "drive.late_after", "drive.warmup"),
    *("drive.warmup_limit", "drive.duration", "drive.window", "drive.stop_timeout", "drive.timeout"),
    *("drive.steps.duration", "timeout.connect", "timeout.create", "timeout.load", "timeout.settle", "timeout.check"),
    *("event.at", "event.length", "query.bucket", "query.window"),
}
"""Keys of a specification whose numbers are durations in ns; the scenario wrote them with units."""
DESCRIBED = re.compile(r"world\.described\..*\.(bucket|window|stays|lifetime)")
"""Those of use-case files, some below names of fields."""
TIMES, SIZES = {"world.start"}, {"server.memory"}
"""Keys of a specification whose numbers are ns since 1970, and bytes."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Entries of manifests; `common` and `differing` are keyed by an entry's path (`server.settings.fsync`).

    `differing` holds one text per run, in their order; `silent` are the positions of runs without a manifest.
    """

    common: dict[str, str]
    differing: dict[str, list[str]]
    silent: tuple[int, ...] = ()


def flatten(content: object, path: str = "") -> dict[str, str]:
    """Return nested objects as texts by dotted path; lists of plain values in one line."""
    if isinstance(content, dict):
        entries: dict[str, str] = {}
        for key, value in content.items():
            entries |= flatten(value, f"{path}.{key}" if path else str(key))
        return entries
    if isinstance(content, list | tuple) and any(isinstance(entry, dict | list) for entry in content):
        return flatten({str(number): entry for number, entry in enumerate(content)}, path)
    if isinstance(content, list | tuple):
        return {path: ", ".join(_text(entry, path) for entry in content)}
    return {path: _text(content, path)}


def _text(value: object, path: str) -> str:
    """Return a value in the unit in which a scenario has it, by its key."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return _number(value, re.sub(r"\.\d+(?=\.)", "", path))
        except (OverflowError, ValueError, OSError):  # a time that no calendar has, in a damaged set
            return str(value)
    if value is None:
        return MISSING
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _number(value: float, key: str) -> str:
    if key in DURATIONS or DESCRIBED.fullmatch(key):
        return format_exact_duration(int(value))
    if key in TIMES:
        return format_time(int(value))
    if key in SIZES or key.endswith("_bytes"):
        return format_size(value)
    return format_duration(value) if key.endswith("_ns") else str(value)


def compared(contents: Sequence[Mapping[str, object]]) -> Manifest:
    """Return the common and the different entries of manifests; a run without a manifest is not compared."""
    flat = [flatten(dict(content)) for content in contents]
    present = [entries for entries in flat if entries]
    keys = list(dict.fromkeys(key for entries in present for key in entries))
    common = {key: present[0].get(key, MISSING) for key in keys if len({e.get(key, MISSING) for e in present}) == 1}
    differing = {key: [entries.get(key, MISSING) for entries in flat] for key in keys if key not in common}
    return Manifest(common, differing, tuple(place for place, entries in enumerate(flat) if not entries))
