"""Expressions compute what Python would, and nothing else can be written in them."""

from __future__ import annotations

import math
import pickle
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsbench.workload.expressions import Expression

COLUMNS = {"a": np.array([1.0, -2.5, 3.0]), "b": np.array([4.0, 0.5, -6.0])}
PLAIN = {"abs": abs, "max": max, "min": min, "floor": math.floor, "ceil": math.ceil, "sin": math.sin, "cos": math.cos}


def expressions() -> st.SearchStrategy[str]:
    leaves = st.sampled_from(["a", "b", "2", "0.25", "-a"])

    def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        two = st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda part: f"({part[0]} {part[1]} {part[2]})")
        called = st.tuples(st.sampled_from(["abs", "floor", "sin"]), inner).map(lambda part: f"{part[0]}({part[1]})")
        pair = st.tuples(st.sampled_from(["max", "min"]), inner, inner).map(lambda p: f"{p[0]}({p[1]}, {p[2]})")
        return two | called | pair

    return st.recursive(leaves, grown, max_leaves=8)


@given(expressions())
def test_an_expression_is_what_python_makes_of_it_row_by_row(text: str) -> None:
    expression = Expression(text, COLUMNS)
    result = np.broadcast_to(expression(COLUMNS), 3)
    assert (np.broadcast_to(pickle.loads(pickle.dumps(expression))(COLUMNS), 3) == result).all()
    assert expression.uses == {*re.findall(r"\b[ab]\b", text)}
    for i in range(3):
        row = {name: float(column[i]) for name, column in COLUMNS.items()}
        assert result[i] == pytest.approx(eval(text, {"__builtins__": {}}, {**PLAIN, **row}), rel=1e-12, abs=1e-9)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a.real", "'a.real' cannot be used"),
        ("__import__('os')", "cannot be used"),
        ("a if b else 1", "cannot be used"),
        ("[a for a in b]", "cannot be used"),
        ("a ** 9", "cannot be used"),
        ("(lambda: a)()", "cannot be used"),
        ("max(a)", "max() takes 2 arguments, not 1"),
        ("abs(a, b)", "abs() takes 1 argument, not 2"),
        ("max(a, b=1)", "cannot be used"),
        ("True", "cannot be used"),
        ("'a'", "cannot be used"),
        ("c + 1", "there is no field 'c'"),
        ("a +", "is no expression"),
        ("", "is no expression"),
        ("a\0", "is no expression"),
        ("(" * 900, "is no expression"),
        ("a+" * 600, "has 1,200 characters"),
    ],
)
def test_anything_else_is_refused_in_one_line(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)) as caught:
        Expression(text, COLUMNS)
    assert "\n" not in str(caught.value)
