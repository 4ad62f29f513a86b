"""Docstrings, comments and messages are plain English, as far as a program can tell.

The rules, for the package and the locustfiles:

- A function's docstring begins with a verb in the imperative mood, from the list VERBS (a new verb is added there).
  Those of properties, classes, modules and constants are noun phrases or sentences.
- The first line of any docstring has none of the phrases in RIDDLES.
- Comments, messages and the rest of docstrings have none of the phrases in METAPHORS. The other riddles are right
  elsewhere: "there is no use case 'x'" is a plain message.
- Text between backticks or double quotation marks is quoted, and may have any phrase.
- A public method has a docstring unless the interface that it implements has one: a protocol or base class of
  the package. Ruff's D102 cannot know protocols, so it is switched off and this file holds that rule.

What the phrases have in common is that a reader must know the code to understand them.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import TYPE_CHECKING

from tests.prose import (
    ROOT,
    Docstring,
    Function,
    comments,
    docstrings,
    messages,
    public_docstrings,
    sample,
    source_files,
)
from tests.source import tree_of

if TYPE_CHECKING:
    from pathlib import Path

VERBS = set(
    """
    abort accept acquire adapt add admit advance aggregate allow annotate append apply ask assert assign attach
    begin bind block build calculate call cancel change check choose clean clear close collect combine compare
    compile compute concatenate configure connect consume convert copy count create cut decide decode decorate
    decrypt delete derive describe detach disable discard discover divide do draw drop enable encode encrypt end
    enqueue ensure enter escape estimate evaluate exchange exclude execute exit expand export extract feed fill filter
    find finish flush follow forget format forward free generate get grow handle hash hold ignore import increment
    initialise insert install interrupt iterate join judge keep kill label launch leave let limit list load locate
    log look make map mark match measure merge move notify open pack pair parse pass plot pop prepare print produce
    promote publish push put quote raise read receive record recover redirect refill reflect refuse regenerate register
    release reload remove render repeat replace reply report request require reserve reset resolve restart restore
    resume return reuse round run sample save schedule search select send serve set settle show shut sign skip sleep
    sort split start stop store strip summarise suppress swap take terminate transfer transpose truncate try turn
    unpack unregister update use validate verify wait warn watch wrap write yield
    """.split()  # noqa: SIM905 - a list would take a line per verb
)

RIDDLES = re.compile(
    r"\b(?:gives?|gave|told|tells?|of it|there|so many|the ones|see to it|see that|without a word|"
    r"what (?:\S+ ){1,6}is\b|is what|what is)\b",
    re.IGNORECASE,
)
"""Not in the first line of a docstring."""
METAPHORS = re.compile(
    r"\b(?:(?:is|are|was|were|be|been) told|tells|sees? to it|seen to it|without a word|the ones behind)",
    re.IGNORECASE,
)
"""Not in a comment, a message or any line of a docstring."""
QUOTED = re.compile(r"``?[^`]*``?|\"[^\"]*\"")


def riddles(summary: str) -> list[str]:
    """The phrases of a docstring's first line that cannot be understood without the code."""
    return [found.group() for found in RIDDLES.finditer(QUOTED.sub("_", summary))]


def metaphors(text: str) -> list[str]:
    """The phrases of any text that cannot be understood without the code."""
    return [found.group().strip() for found in METAPHORS.finditer(QUOTED.sub("_", text))]


def begins_with_a_verb(summary: str) -> bool:
    return re.split(r"[^A-Za-z]", summary, maxsplit=1)[0].lower() in VERBS


@cache
def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def documented() -> list[tuple[str, Docstring]]:
    """Every docstring of the package and the locustfiles, with its file and line."""
    return [(place(path, doc.place), doc) for path in source_files() for doc in docstrings(read(path))]


def place(path: Path, line: object) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def test_docstrings_begin_with_a_line_that_needs_no_code() -> None:
    assert [(where, doc.summary, wrong) for where, doc in documented() if (wrong := riddles(doc.summary))] == []


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    functions = [(where, doc.summary) for where, doc in documented() if doc.is_function]
    assert len(functions) > 1000
    assert [(where, summary) for where, summary in functions if not begins_with_a_verb(summary)] == [], (
        "begin with a verb, such as Return; if the first word is a verb, add it to VERBS"
    )


def test_comments_and_messages_have_no_metaphors() -> None:
    texts = [(where, doc.text) for where, doc in documented()]
    for path in source_files():
        texts += [(place(path, line), text) for line, text in (*comments(read(path)), *messages(read(path)))]
    assert [(where, text, wrong) for where, text in texts if (wrong := metaphors(text))] == []


# --- which methods need a docstring -----------------------------------------------------------------------------------


def classes() -> dict[str, ast.ClassDef]:
    """The classes of the package and the locustfiles by name."""
    trees = [tree_of(path) for path in source_files()]
    return {node.name: node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def methods(node: ast.ClassDef) -> dict[str, Function]:
    """The public methods and properties of a class."""
    return {inner.name: inner for inner in node.body if isinstance(inner, Function) and not inner.name.startswith("_")}


def bases(node: ast.ClassDef) -> set[str]:
    return {re.split(r"[\[.]", ast.unparse(base))[0] for base in node.bases}


def members(node: ast.ClassDef) -> set[str]:
    """The public methods and attributes of a class, also those that its methods assign to `self`."""
    stored = [inner for inner in ast.walk(node) if isinstance(getattr(inner, "ctx", None), ast.Store)]
    names = {inner.id for inner in stored if isinstance(inner, ast.Name)}
    attributes = {inner.attr for inner in stored if isinstance(inner, ast.Attribute)}
    return {*methods(node), *names, *attributes}


def interfaces(node: ast.ClassDef, known: dict[str, ast.ClassDef]) -> list[ast.ClassDef]:
    """The base classes of the package, theirs too, and the protocols of which the class has every public method."""
    own, found, names = members(node), [], bases(node)
    while names:
        found += [known[name] for name in names if name in known]
        names = {base for name in names if name in known for base in bases(known[name])}
    for base in found:
        own |= members(base)
    protocols = [other for other in known.values() if "Protocol" in bases(other) and other is not node]
    return found + [protocol for protocol in protocols if methods(protocol) and own >= set(methods(protocol))]


def undocumented(known: dict[str, ast.ClassDef]) -> list[str]:
    """Public methods without a docstring that implement no documented method of an interface."""
    found = []
    for name, node in known.items():
        if name.startswith("_"):
            continue
        described = {n for base in interfaces(node, known) for n, m in methods(base).items() if ast.get_docstring(m)}
        overloads = {n for n, m in methods(node).items() if any("overload" in ast.unparse(d) for d in m.decorator_list)}
        setters = {n for n, m in methods(node).items() if any(".setter" in ast.unparse(d) for d in m.decorator_list)}
        wanted = set(methods(node)) - described - overloads - setters
        found += [f"{name}.{method}" for method in sorted(wanted) if not ast.get_docstring(methods(node)[method])]
    return found


def test_public_methods_have_docstrings_unless_an_interface_describes_them() -> None:
    tasks = {
        name
        for path in (ROOT / "locustfiles").glob("*.py")
        for name in re.findall(r"^class (\w+)", read(path), re.MULTILINE)
    }
    assert [name for name in undocumented(classes()) if name.partition(".")[0] not in tasks] == []


def test_a_method_is_described_by_its_protocol_or_base_class_and_by_nothing_else() -> None:
    source = '''
class Shape(Protocol):
    def area(self):
        """Return the area."""
    def name(self): ...
class Square:
    def area(self): ...
    def name(self): ...
    def corners(self): ...
class Line:
    def area(self): ...
class Base:
    def run(self):
        """Run."""
class Middle(Base): ...
class Leaf(Middle):
    def run(self): ...
'''
    known = {node.name: node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)}
    # `name` has no docstring in its protocol; `corners` is in none; `Line` does not have all methods of `Shape`.
    assert undocumented(known) == ["Shape.name", "Square.corners", "Square.name", "Line.area"]


# --- the search itself ------------------------------------------------------------------------------------------------

PUZZLING = (
    "What a Locust that was not started by `tsbench run` leaves to processes of their own, and what of it is kept.",
    "Is told where a run is.",
    "Stop it without a word.",
    "See to it that a kind of query makes sense.",
    "The measuring begins: `summary` tells what was counted from here on apart.",
    "Several streams' numbers next to each other, the same ones as each of them gives alone.",
    "Whatever is there.",
    "Return why so many load processes cannot drive a target.",
    "What a use case's table is.",
    "Let the ones behind pass.",
    "Take the rows of some whole ticks; give those whose turn has come.",
)
PLAIN = (
    "Helper processes for bare `locust -f`: initial load, host sampling and checks run outside its event loop.",
    "Receives progress updates from a run (phase, amount done).",
    "Stop the server and delete its data; keep its log in the run directory.",
    "Write a summary of a failed or interrupted run from whatever it measured.",
    'Stop sampling and write the samples. Return an error message, or "" on success.',
    "Kill the helper process; its samples are lost.",
    "Record the cgroup counters at the start of the measured window.",
    "Return an error message for a sar file that does not overlap the runs in time.",
    "Start sampling; the first row is the difference to this moment.",
    "Return True if the idle connection is open and has no unread data.",
    "Draws for several streams at once; each stream gets the numbers it would get alone.",
    "Return the text after `there is`, and what users call the database.",
    'Return the answer, or "there is none".',
    "Return the therefore, given the weather and an altogether forgiven user.",
)


def test_the_search_finds_puzzling_lines_and_passes_plain_ones() -> None:
    assert [summary for summary in PUZZLING if not riddles(summary)] == []
    assert [(summary, found) for summary in PLAIN if (found := riddles(summary) + metaphors(summary))] == []


def test_a_verb_in_the_imperative_is_told_from_other_words() -> None:
    imperative = ["Return the percentile in ns.", "Write the samples."]
    others = ["Whether it runs.", "The rows that are still held.", "How many points are stored.", "`$1`.", "Nothing."]
    others += ["That the file and the runs are of different times.", "Not known.", "Returns the rows."]
    assert [summary for summary in imperative + others if begins_with_a_verb(summary)] == imperative


SOURCE = '''
"""A module."""
LIMIT = 3
"""How many."""
class Place:
    """A place."""
    size: int = 1
    """Bytes."""
    @property
    def name(self):
        """Name."""
    def go(self):
        """Go."""
        raise ValueError(f"the server is told {self.name}")  # it is told so
def _hidden():
    """Hidden."""
'''


def test_all_kinds_of_docstring_are_found_and_a_property_is_no_function() -> None:
    found: list[Docstring] = docstrings(SOURCE)
    assert [(doc.name, doc.summary) for doc in found] == [
        ("", "A module."),
        ("LIMIT", "How many."),
        ("Place", "A place."),
        ("Place.size", "Bytes."),
        ("Place.name", "Name."),
        ("Place.go", "Go."),
        ("_hidden", "Hidden."),
    ]
    assert [doc.name for doc in found if doc.is_function] == ["Place.go", "_hidden"]
    assert [doc.name for doc in found if not doc.is_public] == ["_hidden"]


def test_metaphors_are_found_in_comments_and_messages() -> None:
    assert [metaphors(text) for _, text in (*comments(SOURCE), *messages(SOURCE))] == [["is told"], ["is told"]]
    assert metaphors("results could not tell them apart; there are 3, and so it is") == []


def test_the_sample_of_docstrings_depends_on_the_seed_alone() -> None:
    assert len(public_docstrings()) > 500
    assert sample(7, 30) == sample(7, 30) != sample(8, 30)
    assert all(doc.is_public for doc in sample(7, 30))
