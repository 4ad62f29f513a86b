"""TSBS's files of queries: a stream of Go's gob, read for a database that understands the text of the queries.

Source: the package encoding/gob. Each message has its length before it; one with a negative type defines a struct, one
with a positive type is a value of it, without the fields that are zero or empty.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from tsbench.errors import UserMistake
from tsbench.text import shortened
from tsbench.workload.query_files import AskedText

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tsbench.targets.base import Command
    from tsbench.targets.target import PeerQueries, Target

_NUMBERS, _BYTES = {1, 2, 3}, {5, 6}
"""Gob's types of a field: bool, int, uint; bytes and text."""
_MOST_BYTES = 1 << 22
_MOST_FIELDS = 64
_MOST_LABELS = 50
"""Labels of one file; the figures of a run have an op for each."""


def are_theirs(first: bytes) -> bool:
    """Return True if a file begins with a definition of gob's, as TSBS's files of queries do."""
    return b"\3\1\1" in first[2:6]


def read(path: str, blocks: Iterator[bytes], target: Target) -> Iterator[AskedText]:
    """Return the queries of a file of TSBS's, named by the labels in it, as in the results files of its runner.

    Raises
    ------
    UserMistake
        If the target takes none; while queries are read, if the file is damaged, or its queries are not for the
        target, with the number of the query.
    """
    if target.peer_queries is None:
        from tsbench.targets.registry import TARGETS  # noqa: PLC0415 - which knows all targets

        able = ", ".join(name for name, other in TARGETS.items() if other.peer_queries is not None)
        text = f"{target.name} takes no text of other programs (these do: {able})"
        raise UserMistake(f"'{path}' has queries of TSBS, and {text}; make a file with tsbench queries")
    return _parsed(path, blocks, target, target.peer_queries)


def _parsed(path: str, blocks: Iterator[bytes], target: Target, form: PeerQueries) -> Iterator[AskedText]:
    names: set[str] = set()
    number = 0
    try:
        for struct, fields in structs(blocks):
            name, text = _asked(struct, fields, target, form)
            names.add(name)
            _expect(len(names) <= _MOST_LABELS, f"it has the label number {len(names)}")
            yield AskedText(name, number, text)
            number += 1
    except ValueError as error:
        raise UserMistake(f"'{path}', query {number + 1}: {error}") from None


def _asked(struct: str, fields: Mapping[str, bytes], target: Target, form: PeerQueries) -> tuple[str, str]:
    """Return the label of a query, in the letters of a results file, and its text."""
    is_for_it = struct == form.struct and _text(fields, "Path").startswith(form.path)
    _expect(is_for_it, f"it is not for {target.label}, but of the struct {shortened(struct, 40)}")
    name, text = re.sub(r"[^A-Za-z0-9]+", "_", _text(fields, "HumanLabel"))[:120], _text(fields, form.text)
    _expect(bool(name and text), "it lacks its label or its text")
    return name, text


def _expect(holds: bool, why: str) -> None:
    if not holds:
        raise ValueError(why)


def functions_of(target: Target) -> Sequence[Command]:
    """Return the statements that make the functions which TSBS's texts call; raises UserMistake if it needs none."""
    if target.peer_queries is None or not target.peer_queries.functions:
        raise UserMistake(f"--functions: TSBS's queries need none on {target.name}; leave it out")
    statements: Sequence[Command] = resolve_name(target.peer_queries.functions)
    return statements


def _text(fields: Mapping[str, bytes], name: str) -> str:
    try:
        return fields.get(name, b"").decode()
    except UnicodeDecodeError:
        raise ValueError(f"its {name} is no text") from None


# --- gob --------------------------------------------------------------------------------------------------------------


def structs(blocks: Iterator[bytes]) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Yield the structs of a stream: the name of the type, and by name the fields that are bytes and not empty.

    Raises
    ------
    ValueError
        If the stream is damaged, cut off, or has other types; the text says what is wrong.
    """
    types: dict[int, tuple[str, Sequence[tuple[str, int]]]] = {}
    for content in _messages(blocks):
        body = _Body(content)
        number = body.signed()
        if number < 0:
            _expect(len(types) < _MOST_FIELDS, "it defines too many types")
            types[-number] = body.definition()
        elif number in types:
            name, fields = types[number]
            yield name, body.struct(fields)
        else:
            raise ValueError(f"a value of type {number}, which nothing before it defines")


def _messages(blocks: Iterator[bytes]) -> Iterator[bytes]:
    buffer, place = b"", 0
    while True:
        body, length = _Body(buffer, place), -1
        with suppress(_ShortError):
            length = body.unsigned()
        _expect(length <= _MOST_BYTES, f"a message of {length:,} bytes")
        if 0 <= length <= len(buffer) - body.place:
            place = body.place + length
            yield buffer[body.place : place]
            continue
        block = next(blocks, b"")
        if not block:
            _expect(place == len(buffer), "the file ends within a message: it was cut")
            return
        buffer, place = buffer[place:] + block, 0


class _ShortError(ValueError):
    """The bytes end before the value does."""


@dataclass(slots=True)
class _Body:
    """The bytes of a message, which are read from `place` on."""

    content: bytes
    place: int = 0

    def unsigned(self) -> int:
        first = self.take(1)[0]
        if first < 128:
            return first
        _expect(first >= 248, "a number of more than eight bytes")
        return int.from_bytes(self.take(256 - first), "big")

    def signed(self) -> int:
        number = self.unsigned()
        return ~(number >> 1) if number & 1 else number >> 1

    def take(self, count: int) -> bytes:
        start, self.place = self.place, self.place + count
        if self.place > len(self.content):
            raise _ShortError("a value goes on behind the end of its message")
        return self.content[start : self.place]

    def expect(self, content: bytes) -> None:
        _expect(self.take(len(content)) == content, "a type that is no struct of bytes, texts and numbers")

    def name(self) -> str:
        try:
            return self.take(self.unsigned()).decode("ascii")
        except UnicodeDecodeError:
            raise ValueError("a name that is no name of Go's") from None

    def definition(self) -> tuple[str, Sequence[tuple[str, int]]]:
        self.expect(b"\3\1\1")
        struct = self.name()
        self.expect(b"\1")
        self.signed()
        self.expect(b"\0\1")
        count = self.unsigned()
        _expect(count <= _MOST_FIELDS, f"a type of {count:,} fields")
        fields = []
        for _ in range(count):
            self.expect(b"\1")
            name = self.name()
            self.expect(b"\1")
            kind = self.signed()
            self.expect(b"\0")
            _expect(kind in _NUMBERS | _BYTES, f"the field {name} is neither bytes nor text nor a number")
            fields.append((name, kind))
        self.expect(b"\0\0")
        return struct, fields

    def struct(self, fields: Sequence[tuple[str, int]]) -> dict[str, bytes]:
        values: dict[str, bytes] = {}
        index = -1
        while step := self.unsigned():
            index += step
            _expect(index < len(fields), "a field that its type does not have")
            name, kind = fields[index]
            if kind in _BYTES:
                values[name] = self.take(self.unsigned())
            else:
                self.unsigned()
        return values
