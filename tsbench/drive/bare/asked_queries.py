"""The kinds of query that the tasks of a locustfile ask, and whether they write, read from their text before the start.

A scenario lists its ops, a locustfile has Python functions: `self.query("lastpoint")`. A name that is computed is only
known when the task runs, and then counts as a failed op.
"""

from __future__ import annotations

import ast
import inspect
from textwrap import dedent
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator


_BASES = ("builtins", "locust.", "tsbench.drive.user")
"""Modules of the classes from which users inherit."""


def asked_queries(
    users: Iterable[type[Any]], tags: Collection[str] = (), exclude_tags: Collection[str] = ()
) -> dict[str, str]:
    """Return the kinds of query that tasks ask, each with the name of the first task that does.

    Tasks that Locust would leave out for their tags are left out here, too.
    """
    queries: dict[str, str] = {}
    for name, task in (each for user in users for each in _tasks(user, user.__name__)):
        own: set[str] = getattr(task, "locust_tag_set", set())
        if (not tags or own & {*tags}) and not own & {*exclude_tags}:
            for call in _calls(task, "query"):
                given = [*call.args, *(keyword.value for keyword in call.keywords)]
                texts = [each.value for each in given if isinstance(each, ast.Constant)]
                queries |= {text: queries.get(text, name) for text in texts if isinstance(text, str)}
    return queries


def may_write(users: Iterable[type[Any]]) -> bool:
    """Return True if the users' own code calls a method `write`: in tasks, task sets or other methods."""
    for user in users:
        code = [task for _, task in _tasks(user, user.__name__)]
        bases = [base for base in user.__mro__ if not base.__module__.startswith(_BASES)]
        code += [value for base in bases for value in vars(base).values()]  # of a class Locust keeps no text
        if any(True for each in code for _ in _calls(each, "write")):
            return True
    return False


def _tasks(owner: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the task functions of a user class or a task set, and of the task sets in it, by name."""
    for task in dict.fromkeys(getattr(owner, "tasks", None) or []):  # one is there as often as its weight says
        inner = f"{name}.{getattr(task, '__name__', task)}"
        if isinstance(task, type):
            yield from _tasks(task, inner)
        else:
            yield inner, task


def _calls(code: Any, method: str) -> Iterator[ast.Call]:
    """Yield the calls of a method in the text of a function; none if it is no function or its text is not at hand."""
    try:
        tree = ast.parse(dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError):  # made at run time, or a lambda in the middle of a line
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method:
            yield node
