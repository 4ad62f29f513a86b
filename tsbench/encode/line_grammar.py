"""The grammar of line protocol: InfluxDB's own, with a time.

`tests/encode/test_line_grammar.py` asks InfluxDB 1.8 and 2.7 which lines they take, and names the differences that are
meant. In names and tags a backslash escapes a comma, an equals sign and a space, and is itself anywhere else.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tsbench.model import Kind
from tsbench.text import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

# Groups are atomic, not possessive: Python up to 3.11.4 takes `(?:,a=b)*+` for matched behind a part of it (gh-106052).
_NAME = rb"(?>(?:\\[,= ]|[^,= \n])+)"
_MEASUREMENT = rb"(?>(?:\\[,= ]|[^, \n])+)"
_TEXT = rb'"(?>(?:\\.|[^"\\\n])*)"'
_FIELD = rb'%b=(?:%b|[^," \n]++)' % (_NAME, _TEXT)
_HEAD = re.compile(rb"(%b)((?>(?:,%b=%b)*))" % (_MEASUREMENT, _NAME, _NAME))
_FIELDS = re.compile(rb"%b(?>(?:,%b)*)" % (_FIELD, _FIELD))
_SPACE = rb" [ \t\0]*+"
_WHOLE = re.compile(
    rb"[ \t\0]*+(%b(?>(?:,%b=%b)*))%b(%b(?>(?:,%b)*))%b(-?\d{1,30}) *+"
    % (_MEASUREMENT, _NAME, _NAME, _SPACE, _FIELD, _FIELD, _SPACE)
)
_PARTS = re.compile(
    rb'[ \t\0]*+((?>(?:\\[,= ]|[^ \n])+))%b((?>(?:%b|\\[,= ]|[^ "\n])+))%b([^ \n]++) *+' % (_SPACE, _TEXT, _SPACE)
)
_ILL_TEXT = re.compile(
    rb'[ \t\0]*+(?>(?:\\[,= ]|[^ \n])+)%b(?>(?:%b,)*)%b="(?>(?:\\.|[^"\\\n])*)(?:"[^, \n]|(\\?\Z))'
    % (_SPACE, _FIELD, _NAME)
)
_PAIR = re.compile(rb",(%b)=(%b)" % (_NAME, _NAME))
_EACH = re.compile(rb"(?:^|,)(%b)=(%b|[^,\" ]++)" % (_NAME, _TEXT))
_TIME = re.compile(rb"-?\d{1,30}")
_FLOAT = re.compile(rb"-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_INTEGER = re.compile(rb"-?\d{1,30}i")
_FLAGS = {
    **dict.fromkeys((b"t", b"T", b"true", b"True", b"TRUE"), 1),
    **dict.fromkeys((b"f", b"F", b"false", b"False", b"FALSE"), 0),
}
_INT64 = range(-(2**63), 2**63)
MOST_TIME_NS = 2**63 - 2
"""The last time that InfluxDB stores; the first one is as far from 1970."""


class NotALine(ValueError):  # noqa: N818 - names what happened
    """Raised for a line that is none; its text says why."""


@dataclass(frozen=True, slots=True)
class ParsedLine:
    """A line's measurement and tags as they stand (`head`), its fields' names and values, and its time in ns."""

    head: bytes
    names: tuple[str, ...]
    values: tuple[bytes, ...]
    time_ns: int

    @property
    def measurement(self) -> str:
        """Name of the measurement."""
        return parsed_head(self.head)[0]


def parse(line: bytes) -> ParsedLine:
    """Return the parts of a line, of which all values are known.

    Raises
    ------
    NotALine
        With what is wrong, in a few words.
    """
    parts = parts_of(line)
    for name, value in zip(parts.names, parts.values, strict=True):
        kind_of(name, value)
    return parts


def parts_of(line: bytes) -> ParsedLine:
    """Return the parts of a line, whose values have not been looked at yet (`kind_of`); otherwise as `parse`."""
    match = _WHOLE.fullmatch(line)
    if match is None:
        raise NotALine(_form(line))
    head, fields, time = match.groups()
    if abs(int(time)) > MOST_TIME_NS:
        raise NotALine("its time is out of range")
    if not line.isascii():
        try:
            line.decode()
        except UnicodeDecodeError:
            raise NotALine("it is not UTF-8") from None
    parsed_head(head)
    raw, values = zip(*_EACH.findall(fields), strict=True)
    names = _field_names(raw)
    return ParsedLine(head, names, values, int(time))


@lru_cache(maxsize=4_096)
def _field_names(raw: tuple[bytes, ...]) -> tuple[str, ...]:
    names = tuple(map(unescaped, raw))
    known: set[str] = set()
    for name in names:
        if name in known:
            raise NotALine(f"it has the field '{name}' twice")
        known.add(name)
    return names


def _form(line: bytes) -> str:
    """Return why a line has not the form of a point."""
    if match := _ILL_TEXT.match(line):
        if match[1] is None:
            return "something stands right behind the second quote of a text"
        return "a text goes on behind the end of its line, which is not read"
    if (match := _PARTS.fullmatch(line)) is None:
        return "it has no time" if _PARTS.fullmatch(line + b" 1") else "it is not `measurement,tags fields time`"
    if not _HEAD.fullmatch(match[1]):
        return "its measurement and tags are not `name,tag=text,...`"
    return "its time is not a number of ns" if _FIELDS.fullmatch(match[2]) else "its fields are not `name=number,...`"


def is_skipped(line: bytes) -> bool:
    """Return whether a line is empty, a comment, or the statement at the beginning of an export of InfluxDB."""
    return not line.strip() or line.lstrip().startswith(b"#") or line.startswith(b"CREATE DATABASE ")


def why_no_line(line: bytes) -> str:
    """Return why a line is not line protocol with a time; "" if it is."""
    try:
        parse(line)
    except NotALine as why:
        return str(why)
    return ""


@lru_cache(maxsize=16_384)
def parsed_head(head: bytes) -> tuple[str, dict[str, str]]:
    """Return the measurement and the tags of a line's first part.

    Raises
    ------
    NotALine
        If a tag has no name, no text, or stands twice.
    """
    match = _HEAD.fullmatch(head)
    if match is None:
        raise NotALine("its measurement and tags are not `name,tag=text,...`")
    name, pairs = match[1], _PAIR.findall(match[2])
    tags = {unescaped(tag): unescaped(text) for tag, text in pairs}
    if len(tags) < len(pairs):
        raise NotALine("it has a tag twice")
    return unescaped(name), tags


def kind_of(name: str, value: bytes) -> Kind:
    """Return the kind of a field's value; raises `NotALine` if it is none."""
    if value[-1:] == b"i":
        if _INTEGER.fullmatch(value) and int(value[:-1]) in _INT64:
            return Kind.INT
    elif _FLOAT.fullmatch(value) and math.isfinite(float(value)):
        return Kind.FLOAT
    elif value in _FLAGS:
        return Kind.BOOL
    elif value[:1] == b'"':
        return Kind.TEXT
    text = shortened(printable(value.decode(errors="replace")), 40)
    if _INTEGER.fullmatch(value) or _FLOAT.fullmatch(value):
        raise NotALine(f"{name} is {text}, which is out of range")
    if re.fullmatch(rb"\d+u", value):
        raise NotALine(f"{name} is {text}, an unsigned integer, which is not read; write {text[:-1]}i")
    raise NotALine(f"{name} is {text}, which is no number")


def value_of(name: str, value: bytes) -> float | bool | str:
    """Return a field's value; raises `NotALine` if it is none."""
    kind = kind_of(name, value)
    if kind is Kind.TEXT:
        return re.sub(r'\\(["\\])', r"\1", value[1:-1].decode())
    if kind is Kind.BOOL:
        return bool(_FLAGS[value])
    return int(value[:-1]) if kind is Kind.INT else float(value)


def numbers_of(values: Sequence[bytes], kind: Kind) -> NDArray[Any] | None:
    """Return the numbers of values of one kind but texts, 0 and 1 of booleans; None if one is of another."""
    if kind is Kind.BOOL:
        flags = [_FLAGS.get(value) for value in values]
        return None if None in flags else np.array(flags, dtype=np.int64)
    if not _ALL[kind].fullmatch(b" ".join([*values, b""])):
        return None
    if kind is Kind.FLOAT:
        floats = np.array([*map(float, values)])
        return floats if np.isfinite(floats).all() else None
    try:
        return np.array([int(value[:-1]) for value in values], dtype=np.int64)
    except OverflowError:
        return None


_ALL = {kind: re.compile(b"(?>(?:%b )*)" % one.pattern) for kind, one in ((Kind.FLOAT, _FLOAT), (Kind.INT, _INTEGER))}


def is_number(text: bytes) -> bool:
    """Return whether a text is a number of line protocol, in the form of either kind."""
    return bool(_FLOAT.fullmatch(text) or _INTEGER.fullmatch(text))


def is_time(text: bytes) -> bool:
    """Return whether a text is a time of line protocol; it may be out of range."""
    return bool(_TIME.fullmatch(text))


@lru_cache(maxsize=4_096)
def unescaped(text: bytes) -> str:
    """Return a name or a tag without the escapes of line protocol."""
    plain = text.decode(errors="replace")
    return re.sub(r"\\([ ,=])", r"\1", plain) if "\\" in plain else plain
