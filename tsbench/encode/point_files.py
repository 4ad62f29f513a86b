"""Files of points to load: plain or compressed, of standard input or a pipe, in line protocol.

Lines are handed out unchanged and in their order. The error for a malformed line has its number; all lines before it
are stored first.
"""

from __future__ import annotations

import fcntl
import os
import select
import stat
import sys
import threading
import zlib
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tsbench.encode.line_grammar import NotALine, is_skipped, parse, why_no_line
from tsbench.errors import Broken, UserMistake, require
from tsbench.text import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import FileIO

    from tsbench.encode.line_grammar import ParsedLine

_BLOCK = 1 << 20
_PIPE_BYTES = 1 << 20
"""Size to make a pipe: through the usual 64 KiB, generating lines into another program takes twice as long."""
_MAX_LINE = 1 << 20
_ZSTD_PIECE = 256
"""Bytes of zstd to decompress at once, of which each four may be 128 KiB; the library has no limit of its own."""


def enlarge(descriptor: int) -> None:
    """Make a pipe as large as the kernel allows, up to 1 MiB; anything else is left as it is."""
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        return
    sizes = [_PIPE_BYTES]
    with suppress(OSError, ValueError):
        sizes.append(int(Path("/proc/sys/fs/pipe-max-size").read_text(encoding="ascii")))
    for size in sizes:
        with suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, size)
            return


@contextmanager
def opened(path: str) -> Iterator[Iterator[bytes]]:
    """Open a file of points (`-`: standard input) and yield its bytes in blocks; .gz and .zst are decompressed.

    Raises
    ------
    UserMistake
        If the file cannot be opened, or the package that decompresses it is not installed.
    Broken
        While reading, if the compressed file ends in its middle or is damaged.
    """
    stopped = threading.Event()
    if path == "-" and sys.stdin is None:
        raise UserMistake("cannot read standard input: it is closed")
    try:
        raw = open(sys.stdin.fileno() if path == "-" else path, "rb", 0, closefd=path != "-")  # noqa: SIM115
    except OSError as error:
        raise UserMistake(f"cannot read '{path}': {error.strerror}") from None
    with raw:
        if path != "-" and not (Path(path).is_file() or Path(path).is_fifo()):
            raise UserMistake(f"cannot read '{path}': it is neither a file nor a pipe")
        enlarge(raw.fileno())
        try:
            yield _decompressed(partial(_read, raw, stopped), "standard input" if path == "-" else f"'{path}'")
        finally:
            stopped.set()


def expect_points(path: str) -> int | None:
    """Verify by the first bytes of a file, before any server is touched, that it is not in a format that is not read.

    Returns the number that is the time of its first point. Of pipes and standard input nothing is read here: None, as
    where there is no point among the first bytes.

    Raises
    ------
    UserMistake
        One line with the format and the cure.
    Broken
        If a compressed file is damaged or has no end.
    """
    if not Path(path).is_file():
        return None
    with opened(path) as blocks:
        head = next(blocks, b"")
    line = head.partition(b"\n")[0]
    formats = {
        "a Parquet file": head.startswith(b"PAR1"),
        "a JSON file": head.lstrip()[:1] in {b"{", b"["},
        "a CSV file": b"=" not in line and _is_separated(line),  # lines of points have `=`
    }
    if line.startswith(b"tags,") and b"=" not in line:
        cure = "write it as line protocol (docs/coming-from-tsbs.md)"
        raise UserMistake(f"'{path}' is in a format of TSBS's that is not read; {cure}")
    for name, is_it in formats.items():
        if is_it:
            cure = "write it as line protocol first (measurement,tag=text field=1 1451606400000000000)"
            raise UserMistake(f"'{path}' is {name}, which is not read yet; {cure}")
    return _first_time(head)


def _first_time(head: bytes) -> int | None:
    for line in head.split(b"\n")[:-1]:
        with suppress(NotALine):
            return parse(line.rstrip(b"\r")).time_ns
    return None


def _is_separated(line: bytes) -> bool:
    """Return True for a line of text in columns; a byte-order mark before it is Excel's."""
    try:
        text = line.decode("utf-8-sig").rstrip("\r")
    except UnicodeDecodeError:
        return False
    return any(mark in text for mark in ",;\t") and text.replace("\t", " ").isprintable()


def _read(raw: FileIO, stopped: threading.Event) -> bytes:
    """Return the next bytes, none at the end or once `stopped`: the writer of a pipe may never write again."""
    while not stopped.is_set():
        if select.select([raw.fileno()], [], [], 0.2)[0]:
            return raw.read(_BLOCK) or b""
    return b""


def _decompressed(read: Callable[[], bytes], name: str) -> Iterator[bytes]:
    """Yield the decompressed bytes, in blocks of a bounded size; the first ones say how the file is compressed."""
    first = read()
    reader: Callable[[Callable[[], bytes], bytes], Iterator[bytes]] | None = None
    if first.startswith(b"\x1f\x8b"):
        reader = _gunzipped
    elif first.startswith(b"\x28\xb5\x2f\xfd") or (first[1:4] == b"\x2a\x4d\x18" and first[0] >> 4 == 5):
        require("zstandard", "zstd")
        reader = _unzstd
    if reader is None:
        while first:
            yield first
            first = read()
        return
    try:
        yield from reader(read, first)
    except EOFError:
        raise Broken(f"{name} was cut: its compressed data has no end; what came before is stored") from None
    except Exception as error:  # noqa: BLE001 - of either library
        raise Broken(f"{name} is damaged: {error}") from None


def _gunzipped(read: Callable[[], bytes], data: bytes) -> Iterator[bytes]:
    """Yield the contents of one or several gzip members; zeros behind the last one are padding."""
    while data:
        reader = zlib.decompressobj(31)
        while not reader.eof:
            if block := reader.decompress(data, _BLOCK):
                yield block
            data = reader.unconsumed_tail or (b"" if reader.eof else read())
            if not data and not reader.eof:
                raise EOFError
        data = reader.unused_data.lstrip(b"\0")
        while not data and (more := read()):
            data = more.lstrip(b"\0")


def _unzstd(read: Callable[[], bytes], data: bytes) -> Iterator[bytes]:
    """Yield the contents of one or several frames; those to skip hold nothing."""
    import zstandard  # noqa: PLC0415 - an extra

    reader, pieces, size = zstandard.ZstdDecompressor().decompressobj(), list[bytes](), 0
    while data:
        for start in range(0, len(data), _ZSTD_PIECE):
            rest = data[start : start + _ZSTD_PIECE]
            while rest:
                if reader.eof:
                    reader = zstandard.ZstdDecompressor().decompressobj()
                pieces.append(reader.decompress(rest))
                size += len(pieces[-1])
                rest = reader.unused_data if reader.eof else b""
            if size >= _BLOCK:
                yield b"".join(pieces)
                pieces, size = [], 0
        data = read()
    if pieces:
        yield b"".join(pieces)
    if not reader.eof:
        raise EOFError


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """Some whole lines, each with its line feed, and the number of the first one (from 1) in the file."""

    data: bytes
    count: int
    first: int

    def split(self) -> list[bytes]:
        """Return the lines without line feeds."""
        return self.data[:-1].split(b"\n")

    def until(self, index: int) -> Lines:
        """Return the first `index` lines."""
        return Lines(b"".join(line + b"\n" for line in self.split()[:index]), index, self.first)


def read_lines(blocks: Iterator[bytes], count: int, limit: int | None = None) -> Iterator[Lines]:
    """Yield lines, `count` at a time, of at most `limit` in all; the rest is not read.

    Lines may end as those of Windows do, and the last one without a line feed if its time is as long as the one before.

    Raises
    ------
    Broken
        After the last whole line, if another one follows that ends in its middle: the file was cut, or is no text.
    """
    first, known, last = 1, 0, b""
    pending: list[bytes] = []
    failure: Exception | None = None
    while True:
        try:
            block = next(blocks)
        except StopIteration:
            break
        except Exception as error:  # noqa: BLE001 - raised after the last whole line
            failure = error
            break
        feeds = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == 10)
        start = done = 0
        while known + len(feeds) - done >= (wanted := min(count, limit - first + 1) if limit is not None else count):
            if not wanted:
                return
            done += wanted - known
            end = int(feeds[done - 1]) + 1
            yield (lines := _lines(b"".join([*pending, block[start:end]]), wanted, first))
            pending, known, start, first, last = [], 0, end, first + wanted, lines.data[-200:]
        pending.append(block[start:])
        known += len(feeds) - done
        if not known and sum(map(len, pending)) > _MAX_LINE:
            raise Broken(f"line {first:,} is longer than {_MAX_LINE:,} bytes: this is no file of points")
    rest = b"".join(pending)
    end = rest.rfind(b"\n") + 1
    if failure is None and _is_whole(rest[end:], (last + rest[:end])[-200:]):
        rest += b"\n"
        end, known = len(rest), known + 1
    if end:
        yield _lines(rest[:end], known, first)
    if failure is not None:
        raise failure
    if rest[end:].strip():
        number = first + known
        text = f"line {number:,}, the last one, has no line feed, so that the file may have been cut in it"
        raise Broken(f"{text}; it is not stored, all before it is; if it is whole, add the line feed")


def _lines(data: bytes, count: int, first: int) -> Lines:
    return Lines(data.replace(b"\r\n", b"\n") if b"\r" in data else data, count, first)


def _is_whole(line: bytes, before: bytes) -> bool:
    """Return whether a last line without a line feed is a point with a time as long as that of the one before it."""
    line = line.rstrip(b"\r")
    time = before.rstrip().rpartition(b" ")[2]
    return not why_no_line(line) and len(line.rpartition(b" ")[2]) == len(time)


# --- lines that are none ----------------------------------------------------------------------------------------------


def refused_line(lines: Lines, index: int, why: str) -> Broken:
    """Return the error for line `index` of some lines."""
    text = shortened(printable(lines.split()[index].decode(errors="replace")), 80)
    where = f"line {lines.first + index:,} is refused"
    return Broken(f"{where}: {why}: '{text}'; all lines before it are stored")


def good_part(lines: Lines) -> tuple[Lines, list[ParsedLine], Broken | None]:
    """Return the lines before the first malformed one, without those to skip, their parts, and the error."""
    kept: list[bytes] = []
    parsed: list[ParsedLine] = []
    failure: Broken | None = None
    for index, line in enumerate(lines.split()):
        if is_skipped(line):
            continue
        try:
            parsed.append(parse(line))
        except NotALine as why:
            failure = refused_line(lines, index, str(why))
            break
        kept.append(line)
    return Lines(b"".join(line + b"\n" for line in kept), len(kept), lines.first), parsed, failure
