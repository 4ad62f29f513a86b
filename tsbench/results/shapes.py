"""The shape of the JSON files that reports read: which parts are objects, lists, numbers and texts.

A file may lack any part and have others. A part of another kind means that the file was damaged or edited.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Literal, TypeAlias

from tsbench.results.limits import LARGEST, LIMITS

Shape: TypeAlias = "Literal['number', 'text', 'flag', 'any'] | dict[str, Shape] | list[Shape]"
"""The key `*` stands for all other keys."""

_COUNTS: Shape = {"*": "number"}
_OP: Shape = {
    "kind": "text",
    "causes": _COUNTS,
    **{f"{time}_{what}": _COUNTS for time in ("response", "service") for what in ("ns", "undelayed_ns")},
    **{f"{time}_at_least": ["text"] for time in ("response", "service")},
    "*": "number",
}
_FACTS: Shape = {"mode": "text", "*": "number"}
_FIRST: Shape = {"kind": "text", "difference": "text", "row": "any"}
_PLACE: Shape = dict.fromkeys(("measurement", "series", "time", "stored", "expected"), "text")
_RISE: Shape = {**dict.fromkeys(("counter", "panel", "label", "unit", "kind"), "text"), "*": "number"}
_STALL: Shape = {"counters": [_RISE], "*": "number"}
SUMMARY: dict[str, Shape] = {
    **dict.fromkeys(("cell", "scenario", "question", "target", "schema", "loop", "started", "limited_by"), "text"),
    "server_version": "text",
    **dict.fromkeys(("users", "users_least", "processes", "settled_s"), "number"),
    "labels": {"*": "text"},
    "durations_s": _COUNTS,
    "warmup": {"settled": "flag", "*": "number"},
    "validity": {
        "state": "text",
        "reason": "text",
        "checks": {"*": {"state": "text", "reason": "text", "counts": _COUNTS}},
    },
    "gates": [{"gate": "text", "state": "text", "text": "text", "measured": "number", "built_in": "flag"}],
    "measured": {
        "duration_s": "number",
        "window": _COUNTS,
        "ops": {"*": _OP},
        "write": _OP,
        "query": _OP,
    },
    "load": _FACTS,
    "schedule": _COUNTS,
    "caps": _COUNTS,
    "size": {"parts": _COUNTS, "*": "number"},
    "writes": _COUNTS,
    "failures": _COUNTS,
    "steadiness": {"*": {"stalls": [_STALL], "*": "number"}},
    "firsts": {"*": {"outcome": "text", "*": "number"}},
    "answers": {
        "by_kind": _COUNTS,
        "unsupported": {"*": "text"},
        "first_wrong": "any",
        "differences": {"*": {"count": "number", "first": _FIRST}},
        "torn_reads": {"answers": "number", "rows": "number", "first": _FIRST},
        "stored_differences": {"*": {"count": "number", "at_least": "flag", "first": [_PLACE]}},
    },
}
"""summary.json of a run."""
SET_SUMMARY: dict[str, Shape] = {
    "scenario": "text",
    "question": "text",
    "cells": [SUMMARY],
    "claims": [
        {
            **dict.fromkeys(("claim", "published", "reproduced_if", "measured", "verdict", "reason"), "text"),
            "judged": "text",
            "holds": "flag",  # these two before there were verdicts
        }
    ],
    "figures": [dict.fromkeys(("figure", "cell", "published", "measured"), "text")],
    "knee": {"held": "text", "broke": "text", "reason": "text", "judged": "flag"},
}
"""summary.json of a result set."""
FILES: dict[str, dict[str, Shape]] = {
    "summary.json": SUMMARY,
    "status.json": {"state": "text", "error": "text"},
    "spec.json": {"world": {}, "load": {}, "drive": {}, "target": {}},
    "counters.json": {"panels": ["any"]},
    "env.json": {"created": {"endpoint": "text", "found": {"*": "text"}, "made": {"*": "text"}}},
}
"""Other files, by name."""


def misfit(content: Any, shape: Shape, place: str = "") -> str:
    """Return the place of the first part of another kind, and the kind that it should be; "" if all parts fit."""
    if content is None or shape == "any":
        return ""
    if isinstance(shape, str):
        return "" if _is(content, shape) else f"{place} is not a {shape}"
    if isinstance(content, list | Mapping) and len(content) > LIMITS.entries:
        return f"{place or 'the whole'} has {len(content):,} entries, more than {LIMITS.entries:,}"
    if isinstance(shape, list):
        if not isinstance(content, list):
            return f"{place} is not a list"
        found = (misfit(inner, shape[0], f"{place}.{number}") for number, inner in enumerate(content))
    elif not isinstance(content, Mapping):
        return f"{place or 'the whole'} is not an object"
    else:
        found = (
            misfit(inner, shape.get(key, shape.get("*", "any")), f"{place}.{key}".lstrip("."))
            for key, inner in content.items()
        )
    return next(filter(None, found), "")


def _is(content: Any, kind: str) -> bool:
    if kind == "flag":
        return isinstance(content, bool)
    if kind == "text":
        return isinstance(content, str)
    return isinstance(content, int | float) and not isinstance(content, bool) and abs(content) < LARGEST


def is_deeper(content: Any, most: int) -> bool:
    """Return True if objects and lists are more than `most` within each other."""
    return len(list(islice(layers(content), most + 1))) > most


def layers(content: Any) -> Iterator[list[Any]]:
    """Yield the objects and lists of each depth, from the whole to the innermost."""
    layer = [content] if isinstance(content, dict | list) else []
    while layer:
        yield layer
        inner = (value.values() if isinstance(value, dict) else value for value in layer)
        layer = [one for values in inner for one in values if isinstance(one, dict | list)]
