"""One-line messages for scenario files that do not match their model: the key, the mistake, the cure."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pydantic import BaseModel, ValidationError

    Parts = Mapping[str, type[BaseModel]]
    """Models of inner tables by their keys."""

_CURES = {
    "target": "; add [target] with the name of one (`tsbench list targets`)",
    "target.name": "; `tsbench list targets` shows all",
    "world": "; add [world] with use_case = 'cpu-only', for example",
    "world.use_case": "; `tsbench list use-cases` shows all",
}
_WANTED = {  # by pydantic's type of error
    "model_type": "a table of key = value",
    "dict_type": "a table of key = value",
    "tuple_type": "a list",
    "string_type": "text in quotes",
    "int_type": "a whole number",
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


def explain(error: ValidationError, model: type[BaseModel], parts: Parts, *, hidden: Collection[str]) -> str:
    """Return a one-line message on the first error of a validation; `hidden` keys of the model are not for users."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"] if part != "schema_")
    kind = first["type"]
    if kind == "extra_forbidden":
        known = known_keys(first["loc"][:-1], model, parts, hidden=hidden)
        near = difflib.get_close_matches(str(first["loc"][-1]), known, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(known)}"
        return f"{place}: unknown key; {hint}"
    if kind == "missing":
        return f"{place}: is missing{_CURES.get(place, '')}"
    message = first["msg"].removeprefix("Value error, ").replace("Input should", "must", 1)
    given = first.get("input")
    shown = f" (given: {given!r})" if isinstance(given, str | int | float | bool) and str(given) not in message else ""
    if kind in _WANTED:
        message = f"must be {_WANTED[kind].format(**first.get('ctx', {}))}"
    return f"{place}: {message}{shown}" if place else message


def known_keys(
    place: Sequence[str | int], model: type[BaseModel], parts: Parts, *, hidden: Collection[str]
) -> list[str]:
    """Return the keys that a table may have; at a scenario's top level also those that concern all cells."""
    inner = model
    for part in place:
        if isinstance(part, str) and part in inner.model_fields:
            inner = parts.get(part, inner)
    names = [field.alias or name for name, field in inner.model_fields.items()]
    return [name for name in [*names, "matrix", "name"] if name not in hidden] if inner is model else names
