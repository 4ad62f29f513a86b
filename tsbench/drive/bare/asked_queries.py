"""The kinds of query that the tasks of a locustfile ask, and whether they write, found in their code before the start.

A scenario lists its ops, a locustfile has Python functions: `self.query("lastpoint")`. Their bytecode shows the name if
it stands there as text. A name that is computed is only known when the task runs, and then counts as a failed op.
"""

from __future__ import annotations

import dis
from itertools import pairwise
from types import CodeType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator


_BASES = ("locust.", "tsbench.drive.user")
"""Modules of the classes from which users inherit."""


def asked_queries(
    users: Iterable[type[Any]], tags: Collection[str] = (), exclude_tags: Collection[str] = ()
) -> dict[str, str]:
    """Return the kinds of query that tasks ask, each with the name of the first task that does.

    Tasks that Locust would leave out for their tags are left out here, too.
    """
    found: dict[str, str] = {}
    for user in users:
        for name, task in _tasks(user, user.__name__):
            own: set[str] = getattr(task, "locust_tag_set", set())
            if (tags and not own & {*tags}) or own & {*exclude_tags}:
                continue
            for kind in _queries_in(task.__code__):
                found.setdefault(kind, name)
    return found


def may_write(users: Iterable[type[Any]]) -> bool:
    """Return True if a method called `write` is named in the users' own code: in tasks, task sets or other methods."""
    for user in users:
        functions = [task for _, task in _tasks(user, user.__name__)]
        own = [one for one in user.__mro__ if not one.__module__.startswith(_BASES)]
        functions += [value for one in own for value in vars(one).values()]
        codes = (code for function in functions if hasattr(function, "__code__") for code in _codes(function.__code__))
        if any("write" in code.co_names for code in codes):
            return True
    return False


def _tasks(owner: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the task functions of a user class or a task set, and of the task sets in it, by name."""
    tasks = getattr(owner, "tasks", None) or []
    for task in dict.fromkeys(tasks):  # a task is in the list as often as its weight says
        inner = f"{name}.{getattr(task, '__name__', task)}"
        if isinstance(task, type):
            yield from _tasks(task, inner)
        elif hasattr(task, "__code__"):
            yield inner, task


def _queries_in(code: CodeType) -> Iterator[str]:
    """Yield the texts that are passed to a method called `query`, in a function and those inside it."""
    for each in _codes(code):
        for method, text in pairwise(dis.get_instructions(each)):
            called = method.opname in {"LOAD_ATTR", "LOAD_METHOD"} and method.argval == "query"
            if called and text.opname == "LOAD_CONST" and isinstance(text.argval, str):
                yield text.argval


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function and of those inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
