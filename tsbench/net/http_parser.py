"""A parser for HTTP/1.x responses that arrive in any pieces; no I/O (RFC 9112, the client's side).

Anything that deviates from the RFC is refused: an answer that is parsed leniently may be parsed wrong, and then a write
counts as acknowledged that was not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

MAX_HEAD_BYTES = 65_536
MAX_BODY_BYTES = 1024**3
_MAX_CHUNK_LINE_BYTES = 4_096

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]"
_FIELD = _TOKEN + rb"+:[^\r\n\0]*\r\n"
_HEAD = re.compile(rb"HTTP/1\.([01]) ([1-5]\d\d)(?: [^\r\n\0]*)?\r\n((?:" + _FIELD + rb")*)\r\n")
_TRAILERS = re.compile(rb"(?:" + _FIELD + rb")*\r\n")
_FRAMING = re.compile(
    rb"^(content-length|transfer-encoding|connection):[ \t]*([^\r\n]*?)[ \t]*\r$", re.IGNORECASE | re.MULTILINE
)
# The most common answer to a write, in one piece: no body, and no header that announces one or closes the connection.
# Headers whose names begin with C or T (except Content-Type) are left to the parser. Possessive quantifiers, which are
# followed by `+`, prevent backtracking; what a value may hold is named, since what it may not takes a third longer.
_VALUE = rb"[\x01-\x09\x0b\x0c\x0e-\xff]*+\r\n"
_PLAIN = re.compile(
    rb"HTTP/1\.1 204(?: " + _VALUE + rb"|\r\n)"
    rb"((?:(?:[!#$%&'*+.^_`|~0-9ABD-SU-Zabd-su-z-]" + _TOKEN + rb"*+|Content-Type):" + _VALUE + rb")*+)\r\n"
)
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n\0]*)?\r\n")


class Malformed(Exception):  # noqa: N818 - what the bytes are
    """Bytes that are not a valid HTTP/1.x response, or an unexpected kind of response."""


class Truncated(ConnectionError):  # noqa: N818 - what the response is
    """The connection ended before the response was complete."""


class Response(NamedTuple):
    """A complete response; a tuple, because one is created per request."""

    status: int
    fields: bytes
    body: bytes
    keep_alive: bool

    def header(self, name: str) -> str | None:
        """Return the first value of a header, None without that header."""
        match = re.search(
            rb"^" + re.escape(name.encode()) + rb":[ \t]*([^\r\n]*?)[ \t]*\r$",
            self.fields,
            re.IGNORECASE | re.MULTILINE,
        )
        return None if match is None else match[1].decode("latin-1")


def parse_plain(data: bytes) -> Response | None:
    """Return the response if `data` is a complete one of the most common kind (204), in half the parser's time."""
    match = _PLAIN.fullmatch(data)
    return None if match is None or len(data) > MAX_HEAD_BYTES else Response(204, match[1], b"", True)


@dataclass(slots=True)
class _Head:
    status: int
    fields: bytes
    keep_alive: bool
    length: int | None  # of the body; None: chunked, or until the connection ends
    chunked: bool = False


@dataclass(slots=True, eq=False)
class ResponseParser:
    """A parser for one response: call `feed` until it returns the response, `end` when the connection ends.

    If bytes follow the response, the connection must not be used again (`keep_alive` is False).
    """

    _buffer: bytearray = field(default_factory=bytearray)
    _head: _Head | None = None
    _body: list[bytes] = field(default_factory=list)
    _size: int = 0
    _left: int | None = None  # of the current chunk
    _trailing: bool = False

    def feed(self, data: bytes) -> Response | None:
        """Parse the next bytes; return the response when it is complete.

        Raises
        ------
        Malformed
            If the bytes are not a valid response.
        """
        head = self._head
        if head is None:
            self._buffer += data
            head = self._read_head()
            if head is None:
                return None
            data = bytes(self._buffer)
            self._buffer.clear()
        if head.chunked:
            self._buffer += data
            return self._read_chunks(head)
        self._body.append(data)
        self._size += len(data)
        if head.length is None:
            if self._size > MAX_BODY_BYTES:
                raise Malformed("the body is too long")
            return None
        if self._size < head.length:
            return None
        body = b"".join(self._body) if len(self._body) > 1 else data
        exact = self._size == head.length
        return Response(
            head.status, head.fields, body if exact else body[: head.length], keep_alive=head.keep_alive and exact
        )

    def end(self) -> Response:
        """Return the response when the connection has ended, which completes a response without a length.

        Raises
        ------
        Truncated
            If the response is not complete.
        """
        head = self._head
        if head is None:
            raise Truncated("the server closed it within the head" if self._buffer else "the server closed it")
        if head.chunked or head.length is not None:
            raise Truncated("the server closed it within the body")
        return Response(head.status, head.fields, b"".join(self._body), keep_alive=False)

    def _read_head(self) -> _Head | None:
        """Return the head of the final response once it has arrived; interim responses (1xx) are skipped."""
        while True:
            stop = self._buffer.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES)
            if stop < 0:
                if len(self._buffer) >= MAX_HEAD_BYTES:
                    raise Malformed("the head is too long")
                if not b"HTTP/1.".startswith(self._buffer[:7]):
                    raise Malformed(f"it begins with {bytes(self._buffer[:20])!r}")
                return None
            if self._buffer.find(0, 0, stop) >= 0:  # of a request that is quoted; RFC 9110, 5.5 allows a blank instead
                self._buffer[:stop] = self._buffer[:stop].replace(b"\0", b" ")
            match = _HEAD.match(self._buffer)
            if match is None or match.end() != stop + 4:
                raise Malformed(f"its head begins with {bytes(self._buffer[:40])!r}")
            head = _framing(match)
            del match  # it references the buffer, which could not be shortened otherwise
            del self._buffer[: stop + 4]
            if head.status >= 200:
                self._head = head
                return head
            if head.status == 101:
                raise Malformed("it switches to another protocol, which was not requested")

    def _read_chunks(self, head: _Head) -> Response | None:
        while not self._trailing:
            if self._left is None:
                self._left = self._line()
                if self._left is None:
                    return None
                if self._left == 0:
                    self._trailing = True
                    break
            wanted = self._left + 2
            if len(self._buffer) < wanted:
                self._move_part(self._left)
                return None
            if self._buffer[wanted - 2 : wanted] != b"\r\n":
                raise Malformed("a chunk is longer than its size line says")
            self._body.append(bytes(self._buffer[: wanted - 2]))
            del self._buffer[:wanted]
            self._left = None
        return self._read_trailers(head)

    def _line(self) -> int | None:
        """Return the size in the next chunk's first line; None if the line is not complete."""
        stop = self._buffer.find(b"\n", 0, _MAX_CHUNK_LINE_BYTES)
        if stop < 0:
            if len(self._buffer) >= _MAX_CHUNK_LINE_BYTES:
                raise Malformed("a chunk's first line is too long")
            return None
        line = bytes(self._buffer[: stop + 1])
        match = _CHUNK.fullmatch(line)
        if match is None:
            raise Malformed(f"a chunk begins with {line[:20]!r}")
        del self._buffer[: stop + 1]
        size = int(match[1], 16)
        self._size += size
        if self._size > MAX_BODY_BYTES:
            raise Malformed("the body is too long")
        return size

    def _move_part(self, left: int) -> None:
        """Move the available part of a chunk's data out of the buffer, so that a long chunk is not copied twice."""
        part = min(len(self._buffer), left)
        self._body.append(bytes(self._buffer[:part]))
        del self._buffer[:part]
        self._left = left - part

    def _read_trailers(self, head: _Head) -> Response | None:
        if self._buffer.startswith(b"\r\n"):
            stop = -2
        else:
            stop = self._buffer.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES)
            if stop < 0:
                if len(self._buffer) >= MAX_HEAD_BYTES:
                    raise Malformed("the trailers are too long")
                return None
        if _TRAILERS.fullmatch(bytes(self._buffer[: stop + 4])) is None:
            raise Malformed("its trailers are not valid headers")
        exact = len(self._buffer) == stop + 4
        return Response(head.status, head.fields, b"".join(self._body), keep_alive=head.keep_alive and exact)


def _framing(match: re.Match[bytes]) -> _Head:
    minor, status, fields = match[1], int(match[2]), bytes(match[3])
    lengths: set[bytes] = set()
    codings: list[bytes] = []
    options: set[bytes] = set()
    for name, value in _FRAMING.findall(fields):
        match name.lower():
            case b"content-length":
                lengths.add(value)
            case b"transfer-encoding":
                codings.append(value.lower())
            case _:
                options.update(option.strip() for option in value.lower().split(b","))
    persistent = b"close" not in options and (minor == b"1" or b"keep-alive" in options)
    if status < 200 or status in {204, 304}:
        if codings or (lengths - {b"0"} and status != 304):
            raise Malformed(f"a body with status {status}")
        return _Head(status, fields, persistent, 0)
    if codings:
        if codings != [b"chunked"] or lengths or minor == b"0":
            raise Malformed(f"transfer-encoding {b', '.join(codings)!r}, lengths {len(lengths)}, version 1.{minor!r}")
        return _Head(status, fields, persistent, None, chunked=True)
    if not lengths:
        return _Head(status, fields, keep_alive=False, length=None)
    (length, *others) = lengths
    if others or not length.isdigit() or len(length) > 15 or int(length) > MAX_BODY_BYTES:
        raise Malformed(f"content-length {b', '.join(sorted(lengths))[:40]!r}")
    return _Head(status, fields, persistent, int(length))
