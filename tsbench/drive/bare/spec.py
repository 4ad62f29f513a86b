"""The specification of a bare Locust run: from Locust's options, the web UI's start form, and the user classes.

Mistakes are named by option (`--load-window`), not by the key that a scenario has for the same (`load.window`).
"""

from __future__ import annotations

import re
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from tsbench.check.own_texts import expect_gold
from tsbench.drive.bare import options
from tsbench.drive.bare.asked_queries import asked_queries
from tsbench.drive.user import TimeSeriesUser
from tsbench.errors import UserMistake
from tsbench.scenario.spec import RunSpec, explained, loaded_share
from tsbench.scenario.types import STEADY
from tsbench.scenario.use_case import expect_fit, is_recorded, resolved
from tsbench.scenario.validation import check_spec
from tsbench.targets import registry
from tsbench.text import shortened
from tsbench.workload import queries

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from locust.env import Environment

    from tsbench.drive.bare.options import AtStart
    from tsbench.targets.target import Target

PLACE = "options"
OPTIONS = {
    "world.scale": "--scale",
    "world.seed": "--seed",
    "world.use_case": "--use-case, or use_case of the user class",
    "load.window": "--load-window",
    "drive.warmup": "--warmup",
    "drive.users": "--users",
    "drive.processes": "--processes",
    "target.name": "target of the user class",
    "target.schema": "--schema",
    "target.endpoint": "--endpoint",
    "gates": "--gate",
    "block": "block_points of the user class",
}
"""What bare Locust has in place of a scenario's keys."""
_KEYS = re.compile(rf"\b({'|'.join(map(re.escape, OPTIONS))})\b(?!-)")
NUMBERS = {"scale": int, "seed": int, "user_count": int}
"""Fields of the start form that are numbers; `user_count` is Locust's name for --users."""


def spec_of(
    environment: Environment, given: Namespace, known: AtStart, picked: Collection[str] | None = None
) -> RunSpec:
    """Return the specification of a run with these options, whose endpoint and use case were `known` at the start.

    `picked` are the names of the user classes that --class-picker will use, if not the current ones.

    Raises
    ------
    UserMistake
        If an option cannot be used, or the tasks' queries do not fit the data: one line that names the option.
    """
    endpoint, use_case = options.endpoint_of(given, known), options.use_case_of(given, known)
    classes = [c for c in _user_classes(environment, picked) if issubclass(c, TimeSeriesUser)]
    names = {c.target for c in classes}
    if len(names) != 1:
        raise UserMistake(f"the user classes must have one target, not {', '.join(sorted(names)) or 'none'}")
    target = registry.get(classes[0].target)
    schema = given.schema or classes[0].schema or next(iter(target.schemas))
    if schema not in target.schemas:
        raise UserMistake(f"--schema {shortened(schema)}: {target.name} has {', '.join(target.schemas)}")
    if given.warmup == STEADY:
        text = "'steady' is for scenarios, whose number of users is constant; give a duration such as 30s"
        raise UserMistake(f"--warmup: {text}")
    if not endpoint and not target.startable:
        raise UserMistake(f"tsbench cannot start {target.name}; give --endpoint URL or set TSBENCH_ENDPOINT")
    try:
        spec = RunSpec.model_validate(_document(given, classes[0], target, schema, endpoint, use_case))
        check_spec(spec, PLACE)
        expect_gold(spec)
        _expect_answerable(spec, environment, classes)
    except ValidationError as error:
        raise UserMistake(_with_options(explained(error))) from None
    except (UserMistake, ValueError) as error:
        raise UserMistake(_with_options(str(error))) from None
    return spec


def _user_classes(environment: Environment, picked: Collection[str] | None) -> Iterable[type[Any]]:
    known: Mapping[str, Any] = environment.available_user_classes or {}
    return [known[name] for name in picked if name in known] if picked else environment.user_classes


def _document(
    given: Namespace, user: type[TimeSeriesUser], target: Target, schema: str, endpoint: str, use_case: str
) -> object:
    users = given.num_users
    return {
        "id": f"{target.name}-{schema}",
        "scenario": "locust",
        "question": "A test from Locust",
        **(_data_of(given, use_case, Path()) if use_case else _data_of(given, user.use_case, _home_of(user))),
        "drive": {"users": 1 if users is None else users, "warmup": given.warmup},
        "block": user.block_points,
        "resolution_ns": target.resolution_ns,
        "gates": [gate.strip() for text in given.gate for gate in text.split(",") if gate.strip()],
        "target": {"name": target.name, "schema": schema, "endpoint": endpoint or None},
    }


def _data_of(given: Namespace, use_case: str, place: Path) -> dict[str, Any]:
    """Return [world] and [load] about a use case, a file of which is looked for in `place`.

    A recording has its own scale, and 80 % of its points are loaded.
    """
    world = {"use_case": use_case, "seed": given.seed}
    if not is_recorded(use_case, place):
        return {"world": resolved({**world, "scale": given.scale}, place), "load": {"window": given.load_window}}
    scale = {} if given.scale == options.SCALE else {"scale": given.scale}
    load = {"share": 0.8} if given.load_window == options.LOAD_WINDOW else {"window": given.load_window}
    data = {"world": resolved({**world, **scale}, place), "load": load}
    return {**data, "load": loaded_share(data)}


def _home_of(user: type[TimeSeriesUser]) -> Path:
    """Return the directory of the locustfile that has a user class, beside which its use-case file is looked for."""
    return Path(getattr(sys.modules.get(user.__module__), "__file__", None) or ".").parent


def _expect_answerable(spec: RunSpec, environment: Environment, users: Sequence[type[TimeSeriesUser]]) -> None:
    """Verify that the data of a run is enough for the queries in the users' tasks."""
    world = spec.world_at()
    loaded = spec.loaded(world)
    for kind, task in asked_queries(users, environment.tags or (), environment.exclude_tags or ()).items():
        try:
            expect_fit(kind, world, loaded)
        except queries.Misfit as misfit:
            raise UserMistake(f"{misfit.key or task}: {misfit}{f' ({task} asks it)' if misfit.key else ''}") from None


def _with_options(text: str) -> str:
    """Return a message with Locust's options in place of a scenario's keys."""
    return _KEYS.sub(lambda key: OPTIONS[key[1]], text.removeprefix(f"{PLACE}: "))


# --- the start form ---------------------------------------------------------------------------------------------------


def with_form(given: Namespace, form: Mapping[str, str]) -> Namespace:
    """Return the options as they are with the fields of a start form.

    Raises
    ------
    UserMistake
        If a field is not the number that it must be.
    """
    values: dict[str, object] = {key: value for key, value in form.items() if hasattr(given, key)}
    for field, number in NUMBERS.items():
        if field not in form:
            continue
        option = "--users" if field == "user_count" else f"--{field}"
        try:
            values["num_users" if field == "user_count" else field] = number(form[field])
        except ValueError:
            text = f"must be a whole number (given: '{shortened(form[field])}')"
            raise UserMistake(f"{option}: {text}") from None
    return Namespace(**{**vars(given), **values})
