"""Expressions of use-case files, such as `rpm * 0.12 + temp`: parsed, checked, and never evaluated by Python itself."""

from __future__ import annotations

import ast
import operator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tsbench.text import suggestion

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tsbench.workload.random_numbers import Floats

_Function: TypeAlias = "Callable[[Mapping[str, Floats]], Any]"

_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "abs": (1, np.abs), "ceil": (1, np.ceil), "cos": (1, np.cos), "exp": (1, np.exp), "floor": (1, np.floor),
    "log": (1, np.log), "max": (2, np.maximum), "min": (2, np.minimum), "round": (1, np.rint), "sin": (1, np.sin),
    "sqrt": (1, np.sqrt),
}  # fmt: skip
"""Functions with their numbers of arguments."""
_MOST_LETTERS = 1_000


class Expression:
    """A function of named columns, of equal shape, that returns a column of that shape, or a number.

    It uses the names `uses` of those that are known, and goes to another process as its text.

    Raises
    ------
    ValueError
        If the text has anything but numbers, known names, + - * / and the functions above.
    """

    __slots__ = ("_compute", "_text", "uses")

    def __init__(self, text: str, known: Collection[str]) -> None:
        names: set[str] = set()
        self._text, self._compute = text, _compiled(_tree(text), known, names)
        self.uses = frozenset(names)

    def __call__(self, columns: Mapping[str, Floats]) -> Any:
        return self._compute(columns)

    def __reduce__(self) -> tuple[type[Expression], tuple[str, frozenset[str]]]:
        return Expression, (self._text, self.uses)


def _tree(text: str) -> ast.AST:
    if len(text) > _MOST_LETTERS:
        raise ValueError(f"has {len(text):,} characters, more than {_MOST_LETTERS:,}")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError, ValueError):
        raise ValueError(f"'{text}' is no expression; write for example rpm * 0.12 + temp") from None


def _compiled(node: ast.AST, known: Collection[str], names: set[str]) -> _Function:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return lambda _: float(number)
        case ast.Name(id=name):
            if name not in known:
                raise ValueError(f"there is no field '{name}'; {suggestion(name, known)}")
            names.add(name)
            return operator.itemgetter(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            negated = _compiled(operand, known, names)
            return lambda columns: -negated(columns)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            combine, first, second = _OPERATORS[type(op)], _compiled(left, known, names), _compiled(right, known, names)
            return lambda columns: combine(first(columns), second(columns))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            count, function = FUNCTIONS[name]
            if len(args) != count:
                raise ValueError(f"{name}() takes {count} argument{'s' * (count > 1)}, not {len(args)}")
            parts = [_compiled(argument, known, names) for argument in args]
            return lambda columns: function(*(part(columns) for part in parts))
    raise ValueError(f"'{ast.unparse(node)}' cannot be used: there are + - * / and {', '.join(FUNCTIONS)}")
