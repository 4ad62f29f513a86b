"""tsbench's own options of a bare `locust -f`: as arguments, in the environment, and in the web UI's start form."""

from __future__ import annotations

from argparse import Action, Namespace
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tsbench.drive.user import TimeSeriesUser
from tsbench.drive.webui import login
from tsbench.errors import UserMistake
from tsbench.run.locust_process import values_of
from tsbench.targets import credentials, registry
from tsbench.text import shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from locust.argument_parser import LocustArgumentParser
    from locust.env import Environment


STARTED, OWN = "a server that tsbench starts", "as the user classes say"
"""The choices of the start form that are no endpoint, and no use case."""


@dataclass(frozen=True, slots=True)
class AtStart:
    """Endpoints and use cases of the start, the only ones that tests may use: a page names no server and no file."""

    endpoints: tuple[str, ...]
    use_cases: tuple[str, ...]


class _Offered(list[str]):
    """Choices of the start form. The parser takes any value: its own refusal would show one that holds a secret."""

    def __contains__(self, _value: object) -> bool:
        return True


class _First(Action):
    """An option that may be given several times: its value is the first one, and the start form offers all of them."""

    def __call__(self, _parser: Any, namespace: Namespace, values: Any, _option: str | None = None) -> None:
        if getattr(namespace, self.dest) == self.default:
            setattr(namespace, self.dest, values)


SCALE, LOAD_WINDOW = 100, "6h"
"""Defaults; a recording has its own."""


def add_options(parser: LocustArgumentParser) -> None:
    """Add the options. None may be a secret: Locust shows options in a page and sends them to workers unencrypted."""
    login.set_defaults(parser)
    group = parser.add_argument_group("tsbench")

    def add(name: str, *, in_form: bool = True, **how: Any) -> None:
        action = group.add_argument(name, **how)  # Locust knows its own keywords only outside groups
        action.include_in_web_ui = in_form
        action.is_secret = action.is_required = action.is_multiple = False

    schemas, first = _schemas()
    kinds: dict[str, Any] = {"choices": schemas} if schemas else {}
    unset = "" if schemas else "; empty: the target's first"
    where = "URL of a server that runs; given several times, all are offered in the start form"
    servers = _Offered([*values_of("--endpoint", "TSBENCH_ENDPOINT"), STARTED])
    cases = _Offered([*values_of("--use-case", "TSBENCH_USE_CASE"), OWN])
    data = "data of `tsbench list use-cases`, or a file; given several times, all are offered in the start form"
    add("--endpoint", env_var="TSBENCH_ENDPOINT", action=_First, default=STARTED, choices=servers, help=where)
    add("--use-case", env_var="TSBENCH_USE_CASE", action=_First, default=OWN, choices=cases, help=data)
    add("--schema", env_var="TSBENCH_SCHEMA", default=first, help=f"layout of the data{unset}", **kinds)
    add("--scale", type=int, env_var="TSBENCH_SCALE", default=SCALE, help="hosts or devices that report")
    add("--seed", type=int, env_var="TSBENCH_SEED", default=1, help="the same seed gives the same data")
    add("--load-window", env_var="TSBENCH_LOAD_WINDOW", default=LOAD_WINDOW, help="stored before: 30m, 6h")
    add("--warmup", env_var="TSBENCH_WARMUP", default="2s", help="not measured at first: 10s")
    gates = "what must hold, for example write:p99<50ms; several separated by commas, or the option again"
    add("--gate", action="append", env_var="TSBENCH_GATES", default=[], help=gates, in_form=False)
    add("--results", env_var="TSBENCH_RESULTS", default="results", help="where results are kept", in_form=False)


def given(environment: Environment) -> Namespace:
    """Return the options that Locust has parsed; none of a Locust that was started by a program."""
    return environment.parsed_options or Namespace()


def at_start(environment: Environment) -> AtStart:
    """Return the endpoints and use cases of the command line and the environment.

    Raises
    ------
    UserMistake
        If one holds a secret; it is removed from the options, which are shown and sent.
    """
    asked = given(environment)
    of_line = *values_of("--endpoint", "TSBENCH_ENDPOINT"), getattr(asked, "endpoint", ""), getattr(asked, "host", "")
    endpoints = tuple(one for one in dict.fromkeys(of_line) if one and one != STARTED)
    cases = *values_of("--use-case", "TSBENCH_USE_CASE"), getattr(asked, "use_case", OWN)
    try:
        for endpoint in endpoints:
            credentials.refuse_secrets(endpoint, "--endpoint")
    except UserMistake:
        asked.endpoint, asked.host, environment.host = "", None, None
        raise
    return AtStart(endpoints, tuple(one for one in dict.fromkeys(cases) if one != OWN))


def use_case_of(asked: Namespace, known: AtStart) -> str:
    """Return the use case of a test with these options, "" for that of its user classes.

    Raises
    ------
    UserMistake
        If it is none of those that were given at the start.
    """
    use_case: str = getattr(asked, "use_case", OWN)
    if use_case != OWN and use_case not in known.use_cases:
        raise UserMistake(f"use_case: {shortened(use_case, 200)} {_NOT_AT_START} --use-case there")
    return "" if use_case == OWN else use_case


def endpoint_of(asked: Namespace, known: AtStart) -> str:
    """Return the endpoint of a test with these options; "" for a server that tsbench starts.

    Raises
    ------
    UserMistake
        If it holds a secret, or is none of those that were given at the start.
    """
    endpoint = (asked.endpoint if asked.endpoint != STARTED else "") or asked.host or ""
    if endpoint and endpoint not in known.endpoints:
        credentials.refuse_secrets(endpoint, "--endpoint")
        shown = shortened(credentials.without_login(endpoint), 200)
        raise UserMistake(f"endpoint: {shown} {_NOT_AT_START} --endpoint there")
    return endpoint


_NOT_AT_START = "was not given at the start; the form takes what the command line names: add"


def _schemas() -> tuple[list[str], str]:
    """Return the schemas of the locustfile's target and its default; empty if the locustfile has several targets."""
    users = [user for user in _subclasses(TimeSeriesUser) if user.target]
    if len({user.target for user in users}) != 1 or users[0].target not in registry.TARGETS:
        return [], ""
    schemas = list(registry.get(users[0].target).schemas)
    return schemas, users[0].schema or schemas[0]


def _subclasses(cls: type[TimeSeriesUser]) -> Iterator[type[TimeSeriesUser]]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)
