"""Go's gob, as TSBS's files of queries are: a stream of structs whose fields are bytes, texts and integers.

The format is that of the package encoding/gob: each message has its length before it; a message with a negative type
defines a struct, one with a positive type is a value of it, without the fields that are zero or empty.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

INT, BYTES, TEXT = 2, 5, 6
"""Numbers of the types that a field may have."""
_NUMBERS = {1, INT, 3}
_FIRST = 64
"""Number of the first type that a program defines itself."""
_MOST_BYTES = 1 << 22
_MOST_FIELDS = 64

Value: TypeAlias = "int | bytes"


def head(name: str, fields: Mapping[str, int]) -> bytes:
    """Return the message that defines a struct: its name, and the types of its fields in their order."""
    parts = [_signed(-_FIRST), b"\3\1\1", _long(name.encode()), b"\1", _signed(_FIRST), b"\0\1", _unsigned(len(fields))]
    for field, kind in fields.items():
        parts += [b"\1", _long(field.encode()), b"\1", _signed(kind), b"\0"]
    return _long(b"".join([*parts, b"\0\0"]))


def message(values: Iterable[Value]) -> bytes:
    """Return a struct of the type that `head` defines; the values are those of its fields in their order."""
    parts, last = [_signed(_FIRST)], -1
    for place, value in enumerate(values):
        if value:
            parts += [_unsigned(place - last), _signed(value) if isinstance(value, int) else _long(value)]
            last = place
    return _long(b"".join([*parts, b"\0"]))


def _unsigned(number: int) -> bytes:
    if number < 128:
        return bytes([number])
    content = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return bytes([256 - len(content)]) + content


def _signed(number: int) -> bytes:
    return _unsigned(~number << 1 | 1 if number < 0 else number << 1)


def _long(content: bytes) -> bytes:
    return _unsigned(len(content)) + content


# --- reading ----------------------------------------------------------------------------------------------------------


def structs(blocks: Iterator[bytes]) -> Iterator[tuple[str, dict[str, Value]]]:
    """Yield each struct of a stream: the name of its type, and its fields by name; zero and empty ones are missing.

    Raises
    ------
    ValueError
        If the stream is damaged, cut off, or has other types; the text says what is wrong.
    """
    known: dict[int, tuple[str, Sequence[tuple[str, int]]]] = {}
    for content in _messages(blocks):
        body = _Body(content)
        number = body.signed()
        if number < 0:
            if len(known) == _MOST_FIELDS:
                raise ValueError("it defines too many types")
            known[-number] = body.definition()
        elif number in known:
            name, fields = known[number]
            yield name, body.struct(fields)
        else:
            raise ValueError(f"a value of type {number}, which nothing before it defines")


def _messages(blocks: Iterator[bytes]) -> Iterator[bytes]:
    buffer, place = b"", 0
    while True:
        body, length = _Body(buffer, place), -1
        with suppress(_ShortError):
            length = body.unsigned()
        if length > _MOST_BYTES:
            raise ValueError(f"a message of {length:,} bytes")
        if 0 <= length <= len(buffer) - body.place:
            place = body.place + length
            yield buffer[body.place : place]
            continue
        block = next(blocks, b"")
        if not block:
            if place < len(buffer):
                raise ValueError("the file ends within a message: it was cut")
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
        first = self._bytes(1)[0]
        if first < 128:
            return first
        if first < 248:
            raise ValueError("a number of more than eight bytes")
        return int.from_bytes(self._bytes(256 - first), "big")

    def signed(self) -> int:
        number = self.unsigned()
        return ~(number >> 1) if number & 1 else number >> 1

    def long(self) -> bytes:
        return self._bytes(self.unsigned())

    def _bytes(self, count: int) -> bytes:
        start, self.place = self.place, self.place + count
        if self.place > len(self.content):
            raise _ShortError("a value goes on behind the end of its message")
        return self.content[start : self.place]

    def _expect(self, content: bytes) -> None:
        if self._bytes(len(content)) != content:
            raise ValueError("a type that is no struct of bytes, texts and numbers")

    def definition(self) -> tuple[str, Sequence[tuple[str, int]]]:
        self._expect(b"\3\1\1")
        name = self._name()
        self._expect(b"\1")
        self.signed()
        self._expect(b"\0\1")
        count = self.unsigned()
        if count > _MOST_FIELDS:
            raise ValueError(f"a type of {count:,} fields")
        fields = []
        for _ in range(count):
            self._expect(b"\1")
            field = self._name()
            self._expect(b"\1")
            kind = self.signed()
            self._expect(b"\0")
            if kind not in {*_NUMBERS, BYTES, TEXT}:
                raise ValueError(f"the field {field} is neither bytes nor text nor a number")
            fields.append((field, kind))
        self._expect(b"\0\0")
        return name, fields

    def _name(self) -> str:
        try:
            return self.long().decode("ascii")
        except UnicodeDecodeError:
            raise ValueError("a name that is no name of Go's") from None

    def struct(self, fields: Sequence[tuple[str, int]]) -> dict[str, Value]:
        found: dict[str, Value] = {}
        place = -1
        while step := self.unsigned():
            place += step
            if place >= len(fields):
                raise ValueError("a field that its type does not have")
            name, kind = fields[place]
            if kind in {BYTES, TEXT}:
                found[name] = self.long()
            else:
                found[name] = self.signed() if kind == INT else self.unsigned()
        return found
