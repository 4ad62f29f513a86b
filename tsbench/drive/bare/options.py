"""tsbench's own options of a bare `locust -f`: as arguments, in the environment, and in the web UI's start form."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from tsbench.drive.user import TimeSeriesUser
from tsbench.drive.webui import login
from tsbench.errors import UserMistake
from tsbench.targets import credentials, registry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from locust.argument_parser import LocustArgumentParser
    from locust.env import Environment


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
    where = "URL; empty: start one"
    add("--endpoint", env_var="TSBENCH_ENDPOINT", default="", help=where)
    add("--schema", env_var="TSBENCH_SCHEMA", default=first, help=f"layout of the data{unset}", **kinds)
    add("--scale", type=int, env_var="TSBENCH_SCALE", default=100, help="hosts or devices that report")
    add("--seed", type=int, env_var="TSBENCH_SEED", default=1, help="the same seed gives the same data")
    add("--load-window", env_var="TSBENCH_LOAD_WINDOW", default="6h", help="stored before: 30m, 6h")
    add("--warmup", env_var="TSBENCH_WARMUP", default="2s", help="not measured at first: 10s")
    gates = "what must hold, for example write:p99<50ms; several separated by commas, or the option again"
    add("--gate", action="append", env_var="TSBENCH_GATES", default=[], help=gates, in_form=False)
    add("--results", env_var="TSBENCH_RESULTS", default="results", help="where results are kept", in_form=False)


def given(environment: Environment) -> Namespace:
    """Return the options that Locust has parsed; none of a Locust that was started by a program."""
    return environment.parsed_options or Namespace()


def endpoint_at_start(environment: Environment) -> str:
    """Return the endpoint at the process's start, and restrict the environment's secrets to it.

    Raises
    ------
    UserMistake
        If it holds a secret.
    """
    endpoint = _endpoint(environment)
    credentials.entitle(endpoint)
    return endpoint


def endpoint_of(environment: Environment) -> str:
    """Return the endpoint in the command line, the environment or the start form; "" without one.

    Raises
    ------
    UserMistake
        If it holds a secret, or is another server than the one at the start, to which the secrets belong.
    """
    endpoint = _endpoint(environment)
    credentials.check_foreign(endpoint, "endpoint")
    return endpoint


def endpoint_in_form(asked: Namespace) -> str:
    """Return the endpoint in the fields of the start form, which are not yet the options of a test.

    Raises
    ------
    UserMistake
        As `endpoint_of`.
    """
    endpoint: str = asked.endpoint or asked.host or ""
    credentials.refuse_secrets(endpoint, "--endpoint")
    credentials.check_foreign(endpoint, "endpoint")
    return endpoint


def _endpoint(environment: Environment) -> str:
    """Return --endpoint or Locust's --host; one with a secret is removed from the options, which are shown and sent."""
    options = given(environment)
    endpoint = options.endpoint or options.host or ""
    try:
        credentials.refuse_secrets(endpoint, "--endpoint")
    except UserMistake:
        options.endpoint, options.host, environment.host = "", None, None
        raise
    return endpoint


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
