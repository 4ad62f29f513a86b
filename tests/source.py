"""The syntax trees of source files, parsed once in a process: several tests look at all of them."""

from __future__ import annotations

import ast
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@cache
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


@cache
def tree_of(path: Path) -> ast.Module:
    return parsed(path.read_text(encoding="utf-8"))
