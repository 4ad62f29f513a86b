"""The prose of the code, for `test_prose.py` and for reading: `python -m tests.prose` prints 30 public docstrings.

The sample is for a maintainer who wants to know whether the docstrings can be understood without the code.
"""

from __future__ import annotations

import argparse
import ast
import io
import random
import textwrap
import tokenize
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tests.source import parsed

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Documented: TypeAlias = ast.Module | ast.ClassDef | Function


@dataclass(frozen=True, slots=True)
class Docstring:
    """The docstring of a module, class or function, or the text below an assignment; `name` is dotted."""

    place: str
    name: str
    text: str
    node: ast.AST = field(compare=False)

    @property
    def summary(self) -> str:
        """First line, which states what the caller gets."""
        return self.text.strip().partition("\n")[0]

    @property
    def is_function(self) -> bool:
        """True for functions and methods, not for properties, whose docstrings are noun phrases."""
        return isinstance(self.node, Function) and not any(
            "property" in ast.unparse(d) for d in self.node.decorator_list
        )

    @property
    def heading(self) -> str:
        """Name and, of a function, parameters and type of the result: what `help` shows above a docstring."""
        if not isinstance(self.node, Function):
            return self.name
        result = f" -> {ast.unparse(self.node.returns)}" if self.node.returns and self.is_function else ""
        return f"{self.name}({ast.unparse(self.node.args)}){result}" if self.is_function else self.name

    @property
    def is_public(self) -> bool:
        """True if no part of the name begins with an underscore."""
        return not any(part.startswith("_") for part in self.name.split("."))


def source_files() -> list[Path]:
    """Return the files of the package, without the tests in it, and the locustfiles."""
    package = [path for path in (ROOT / "tsbench").rglob("*.py") if path.parent.name != "testing"]
    return sorted([*package, *(ROOT / "locustfiles").glob("*.py")])


def docstrings(source: str, module: str = "") -> list[Docstring]:
    """Return the docstrings of a module's source, in order, also those of attributes and constants."""
    return list(_docstrings(parsed(source), module))


def _docstrings(node: Documented, name: str) -> Iterator[Docstring]:
    if text := ast.get_docstring(node):
        yield Docstring(f"{node.body[0].lineno}", name, text, node)
    previous: ast.AST | None = None
    for inner in node.body:
        if isinstance(inner, ast.ClassDef | Function):
            yield from _docstrings(inner, f"{name}.{inner.name}".lstrip("."))
        elif isinstance(previous, ast.Assign | ast.AnnAssign) and isinstance(inner, ast.Expr):
            target = previous.target if isinstance(previous, ast.AnnAssign) else previous.targets[0]
            if isinstance(inner.value, ast.Constant) and isinstance(inner.value.value, str):
                yield Docstring(
                    f"{inner.lineno}", f"{name}.{ast.unparse(target)}".lstrip("."), inner.value.value, inner
                )
        previous = inner


def comments(source: str) -> list[tuple[int, str]]:
    """Return (line, text) of every comment."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]


def messages(source: str) -> list[tuple[int, str]]:
    """Return (line, text) of every string that is not a docstring; of f-strings the constant parts, joined by `{}`."""
    tree = parsed(source)
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            found.append((node.lineno, text))
    texts = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return sorted([*found, *((node.lineno, str(node.value)) for node in texts if id(node) not in skipped)])


@cache
def public_docstrings() -> tuple[Docstring, ...]:
    """Return the public docstrings of the package's modules, classes, functions and constants."""
    found: list[Docstring] = []
    for path in sorted((ROOT / "tsbench").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        docs = docstrings(path.read_text(encoding="utf-8"), module)
        found += [replace(doc, place=f"{path.relative_to(ROOT)}:{doc.place}") for doc in docs if doc.is_public]
    return tuple(found)


def sample(seed: int, count: int) -> list[Docstring]:
    """Return `count` public docstrings; the seed determines which ones."""
    return random.Random(seed).sample(public_docstrings(), count)


def functions(seed: int, count: int) -> list[tuple[str, str]]:
    """Return so many functions of the package, each with its place, by a seed."""
    every = []
    for path in sorted((ROOT / "tsbench").rglob("*.py")):
        place, source = path.relative_to(ROOT), path.read_text(encoding="utf-8")
        nodes = [node for node in ast.walk(parsed(source)) if isinstance(node, ast.FunctionDef)]
        every += [(f"{place}:{n.lineno}", ast.get_source_segment(source, n, padded=True) or "") for n in nodes]
    return random.Random(seed).sample(every, count)


def main() -> None:
    """Print a sample of public docstrings, or of whole functions."""
    parser = argparse.ArgumentParser(prog="python -m tests.prose", description=main.__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--functions", type=int, default=0)
    arguments = parser.parse_args()
    for place, text in functions(arguments.seed, arguments.functions):
        print(f"{place}\n{text}\n")
    if arguments.functions:
        return
    for doc in sample(arguments.seed, arguments.count):
        print(f"{doc.heading}\n  {doc.place}\n{textwrap.indent(doc.text.strip(), '    ')}\n")


if __name__ == "__main__":
    main()
