"""What users of a checkout can see of it, as text files that `diff -r` compares: `python -m tests.inventory OUT`.

A change of structure must lose nothing. The command looks from outside, by the programs of the checkout's own
environment and the files that they write, so that it lists another commit too:
`python -m tests.inventory OUT --checkout DIR`. inventory.md has the differences of the great tidying, with reasons.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COMMANDS = ("", "run", "generate", "cleanup", "report", "web", "list", "schema", "doctor", "init", "servers")
LISTS = ("targets", "use-cases", "queries", "scenarios")
SMALL = ("load.window=9h", "load.batch=1000", "drive.duration=4s", "drive.users=4")
"""Keys of the quickstart's scenario, changed so that its four runs take a minute."""
CELLS_OF = """\
import json, sys
from pathlib import Path
from tsbench.scenario.spec import Scenario
for path in sorted(Path("scenarios").rglob("*.toml")):
    for cell in Scenario.load(path).expand():
        print(path, json.dumps(cell.model_dump(mode="json"), sort_keys=True))
"""
FAULTS_OF = """\
from tests.faults.__main__ import ALL
for name, faults in ALL:
    for fault in faults:
        print(name, "|", fault.name, "|", getattr(fault, "code", None), "|", getattr(fault, "says", None))
"""
TEXT_CALLS = ("UserMistake", "OpError", "Unsupported", "require", "ValueError", "NotReady", "fail", "InvalidRun")


class Checkout:
    """A checkout whose environment `.venv` is ready."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def output(self, program: str, *arguments: str) -> str:
        """Return the standard output of a program of the environment, started in the checkout."""
        env = {**os.environ, "COLUMNS": "160", "TERM": "dumb", "NO_COLOR": "1"}
        asked = [str(self.root / ".venv/bin" / program), *arguments]
        done = subprocess.run(asked, cwd=self.root, env=env, capture_output=True, text=True, timeout=300, check=False)
        return done.stdout + (f"(exit code {done.returncode}) {done.stderr}" if done.returncode else "")


class Page(HTMLParser):
    """Headings, table heads and first cells of rows of an HTML page, without figures."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._tag = ""
        self._cells = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notice where a text begins."""
        self._cells = 0 if tag == "tr" else self._cells + (tag in {"td", "th"})
        if tag in {"h1", "h2", "h3", "summary", "th", "td"}:
            self._tag = tag if tag != "td" or self._cells == 1 else ""
            self.lines.append(f"{self._tag}: ") if self._tag else None

    def handle_endtag(self, tag: str) -> None:
        """Notice where it ends."""
        self._tag = "" if tag == self._tag else self._tag

    def handle_data(self, data: str) -> None:
        """Keep the text of the place, whose digits are a run's."""
        if self._tag:
            self.lines[-1] += re.sub(r"\d+", "0", " ".join(data.split()))


def helps(checkout: Checkout) -> str:
    """Return the help texts of all commands, and of a bare Locust with a locustfile of ours."""
    texts = [checkout.output("tsbench", *filter(None, (command,)), "--help") for command in COMMANDS]
    return "\n".join([*texts, checkout.output("locust", "-f", "locustfiles/sqlite.py", "--help")])


def lists(checkout: Checkout) -> str:
    """Return what `tsbench list` lists."""
    return "\n".join(checkout.output("tsbench", "list", what) for what in LISTS)


def keys(checkout: Checkout) -> str:
    """Return the scenarios' schema."""
    return json.dumps(json.loads(checkout.output("tsbench", "schema")), indent=1, sort_keys=True)


def cells(checkout: Checkout) -> str:
    """Return the runs of each shipped scenario, with all that they are told."""
    return checkout.output("python", "-c", CELLS_OF)


def compiled(checkout: Checkout) -> str:
    """Return DDL and compiled queries of each layout, as a test of the checkout holds them."""
    files = sorted((checkout.root / "tests/targets/snapshots").glob("*.txt"))
    return "\n".join(f"=== {path.name}\n{path.read_text()}" for path in files)


def claims(checkout: Checkout) -> str:
    """Return the claims and published figures of the shipped studies."""
    files = sorted((checkout.root / "scenarios").rglob("*.toml"))
    return "\n".join(f"=== {path.relative_to(checkout.root)}\n{path.read_text()}" for path in files)


def faults(checkout: Checkout) -> str:
    """Return each fault of `make faults` with the exit code and the words that are expected."""
    return checkout.output("python", "-c", FAULTS_OF)


def messages(checkout: Checkout) -> str:
    """Return the texts of all errors, with {} for values, sorted."""
    found = set()
    for path in (checkout.root / "tsbench").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in TEXT_CALLS:
                found |= {text for argument in node.args for text in _texts(argument)}
    return "\n".join(sorted(found))


def _texts(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.JoinedStr):
            yield "".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in part.values)
        elif isinstance(part, ast.Constant) and isinstance(part.value, str) and " " in part.value:
            yield part.value


def reports(checkout: Checkout) -> str:
    """Return rows and columns of all that a small real set of runs leaves, without figures."""
    lines: list[str] = []
    with TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        asked = [option for change in SMALL for option in ("--set", change)]
        asked += ["--gate", "write:p99<10s", "--out", f"{place}/results"]
        left = ["--markdown", f"{place}/r.md", "--junit", f"{place}/r.xml"]
        said = checkout.output("tsbench", "run", "scenarios/quickstart.toml", *asked, *left)
        lines += ["=== terminal", _without_figures(said, place)]
        for path in sorted(p for p in Path(place).rglob("*") if p.is_file()):
            name = re.sub(r"\d+", "0", str(path.relative_to(place)))
            lines += [f"=== {name}", *_shape_of(path, place)]
    return "\n".join(lines)


def _shape_of(path: Path, place: str) -> Iterator[str]:
    if path.suffix == ".parquet":
        yield from (f"{field.name}: {field.type}" for field in pq.read_schema(path))
    elif path.suffix == ".json":
        yield from sorted(set(_paths(json.loads(path.read_text()))))
    elif path.suffix == ".html":
        page = Page()
        page.feed(path.read_text())
        yield from (line for line in page.lines if line.partition(": ")[2])
    elif path.suffix in {".md", ".xml", ".toml"}:
        yield _without_figures(path.read_text(), place)


def _paths(node: Any, above: str = "") -> Iterator[str]:
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from _paths(value, f"{above}.{re.sub(r'[0-9]+', '0', key)}")
    elif isinstance(node, list) and node:
        for value in node:
            yield from _paths(value, f"{above}[]")
    else:
        yield above


def _without_figures(text: str, place: str) -> str:
    return re.sub(r"[ \u2500-]{2,}", " ", re.sub(r"\d+(?:[.,]\d+)*", "0", text.replace(place, "DIR")))


SECTIONS: dict[str, Callable[[Checkout], str]] = {
    "help": helps,
    "lists": lists,
    "scenario-keys": keys,
    "cells": cells,
    "compiled": compiled,
    "claims": claims,
    "faults": faults,
    "messages": messages,
    "report": reports,
}


def main() -> None:
    """Write a text file for each section into the directory that is named."""
    parser = argparse.ArgumentParser(prog="python -m tests.inventory", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--checkout", type=Path, default=Path(__file__).parent.parent)
    parser.add_argument("--only", choices=SECTIONS, action="append")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    for name in asked.only or SECTIONS:
        text = SECTIONS[name](Checkout(asked.checkout.resolve()))
        (asked.out / f"{name}.txt").write_text(text.rstrip() + "\n")
        print(f"{name}: {text.count(chr(10)) + 1} lines", flush=True)


if __name__ == "__main__":
    main()
