"""Reading of the files of a run directory, which others may have made: all readers open them here and keep to LIMITS.

A file that lies about its size, or that unpacks to far more than its own bytes, is refused before it is unpacked.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import tomllib
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO

from tsbench.errors import UserMistake, missing
from tsbench.results.limits import FREE_BYTES, LARGEST, LAST_S, LIMITS
from tsbench.units import format_size

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa


TABLES = ("polars", "pyarrow")
"""Packages without which a run keeps its figures, and no tables of seconds."""


def keeps_tables() -> bool:
    """Return True if Parquet files can be written and read; the extra `report` installs what that needs."""
    return not missing(TABLES)


# --- files ------------------------------------------------------------------------------------------------------------


def open_file(path: Path, most: int = LIMITS.log_bytes) -> BinaryIO:
    """Open a regular file of at most `most` bytes for reading.

    Raises
    ------
    OSError
        If it is missing, too large, or no file: a link, a pipe, a directory, a device.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:  # a symbolic link; a socket, or a pipe
            raise OSError(error.errno, "it is a link or a socket, not a file") from None
        raise OSError(error.errno, error.strerror) if error.errno != errno.ENOENT else error from None
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_size <= most:
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a file")
    raise OSError(errno.EFBIG, f"it has {format_size(status.st_size)}, more than {format_size(most)}")


def read_bytes(path: Path, most: int = LIMITS.log_bytes) -> bytes:
    """Return the content of a file; raises OSError as `open_file`."""
    with open_file(path, most) as file:
        return file.read(os.fstat(file.fileno()).st_size)  # `most` would be reserved: a small machine has less


def read_lines(path: Path, most: int = LIMITS.line_bytes, *, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the text of each whole line of a file from an offset on; the text includes the line's end.

    A last line without an end is left out: it is still being written, or a kill cut it off.

    Raises
    ------
    ValueError
        If a line is too long.
    OSError
        As `open_file`.
    """
    offset = start
    with open_file(path) as file:
        file.seek(start)
        while line := file.readline(most + 1):
            if len(line) > most:
                raise ValueError(f"{path}: damaged: it has a line of more than {format_size(most)}")
            if line.endswith(b"\n"):
                yield offset, line
            offset += len(line)


class Room:
    """Bytes that the lines of a log may still unpack to: a few times the log's own size."""

    def __init__(self, log_bytes: int) -> None:
        self._left = FREE_BYTES + LIMITS.log_ratio * log_bytes

    @classmethod
    def of(cls, path: Path) -> Room:
        """Return the room that the lines of a log have."""
        return cls(path.lstat().st_size)

    def take(self, nbytes: int) -> None:
        """Use some of the bytes; raises ValueError if fewer are left."""
        self._left -= nbytes
        if self._left < 0:
            raise ValueError(f"the log's lines unpack to more than {LIMITS.log_ratio} times its size")


def files_of(directory: Path, pattern: str) -> list[Path]:
    """Return the files `pattern` in a directory of a run, by name; none if the directory is a link."""
    return [] if directory.is_symlink() else sorted(directory.glob(pattern))


def damaged(path: Path, why: object) -> UserMistake:
    """Return the error that names a damaged file."""
    text = why.strerror if isinstance(why, OSError) and why.strerror else str(why)
    return UserMistake(f"{path} is damaged ({' '.join(text.split())[:200]}); run the cell again with --resume")


# --- TOML -------------------------------------------------------------------------------------------------------------


TOML_DEPTH = 20
"""Most tables and lists within each other, and parts of a dotted key; a scenario needs four."""
_NO_KEY = re.compile(r"""[^\w.\-"' \t]""")


def layers(content: Any) -> Iterator[list[Any]]:
    """Yield the objects and lists of each depth, from the whole to the innermost."""
    layer = [content] if isinstance(content, dict | list) else []
    while layer:
        yield layer
        inner = (value.values() if isinstance(value, dict) else value for value in layer)
        layer = [one for values in inner for one in values if isinstance(one, dict | list)]


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text.

    Raises
    ------
    ValueError
        If it is not TOML, nests deeper than TOML_DEPTH, or has a number that is too long for Python.
    """
    deep = f"tables, lists or keys within each other are at most {TOML_DEPTH} deep"
    if any(
        part.count(".") > 3 * TOML_DEPTH for part in _NO_KEY.split(text)
    ):  # the parser takes quadratic time for them
        raise ValueError(deep)
    try:
        document = tomllib.loads(text)
    except RecursionError:
        raise ValueError(deep) from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:
        raise ValueError("a number has more than 4,300 digits") from None
    if len(list(islice(layers(document), TOML_DEPTH + 1))) > TOML_DEPTH:
        raise ValueError(deep)
    return document


# --- Parquet ----------------------------------------------------------------------------------------------------------


def read_table(path: Path, columns: Mapping[str, str], added: Collection[str] = ()) -> pa.Table:
    """Return the rows of a Parquet file with these columns and types; columns of `added` that it lacks are 0.

    Raises
    ------
    UserMistake
        If it is damaged, or beyond the limits; the text names it.
    """
    import pyarrow as pa  # noqa: PLC0415 - load workers do without

    try:
        return _table(read_bytes(path, LIMITS.table_bytes), columns, added)
    except MemoryError:
        raise UserMistake(f"{path} cannot be read: this machine has too little free memory for it") from None
    except (pa.ArrowException, ValueError, TypeError, LookupError, OSError, ArithmeticError) as error:
        raise damaged(path, error) from None


_PHYSICAL = {
    "int64": {"INT32", "INT64", "DOUBLE"},
    "double": {"INT32", "INT64", "FLOAT", "DOUBLE"},
    "string": {"BYTE_ARRAY"},
}


def _table(data: bytes, columns: Mapping[str, str], added: Collection[str]) -> pa.Table:
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import parquet  # noqa: PLC0415

    footer = int.from_bytes(data[-8:-4], "little")
    if footer > min(LIMITS.footer_bytes, len(data)):
        raise ValueError(f"its directory has {format_size(footer)}")
    texts = [name for name, kind in columns.items() if kind == "string"]
    file = parquet.ParquetFile(pa.BufferReader(data), read_dictionary=texts, pre_buffer=False)
    leaves = {file.schema.column(place).path: place for place in range(len(file.schema))}
    present = [name for name in columns if name in leaves or name not in added]
    for name in present:
        leaf = file.schema.column(leaves[name]) if name in leaves else None
        if leaf is None or leaf.max_repetition_level or leaf.physical_type not in _PHYSICAL[columns[name]]:
            raise ValueError(f"it has no column {name} of {columns[name]}")
    _expect_small(data, file.metadata, [leaves[name] for name in present])
    table = file.read(columns=present, use_threads=False, use_pandas_metadata=False)
    for name in texts:
        names = {text for chunk in table[name].chunks for text in chunk.dictionary.to_pylist()}
        if table[name].null_count or any(len(text) > LIMITS.name for text in names):
            raise ValueError(f"the column {name} has a text of more than {LIMITS.name} characters, or none in a row")
    kinds = {"int64": pa.int64(), "double": pa.float64(), "string": pa.string()}
    whole = [
        table[name].cast(kinds[columns[name]]) if name in present else pa.array([0] * len(table)) for name in columns
    ]
    table = pa.table(whole, names=list(columns))
    _expect_numbers(table, columns)
    return table


def _expect_small(data: bytes, metadata: Any, places: list[int]) -> None:
    """Raise ValueError if columns would unpack to more than such a file may; nothing is unpacked for it."""
    values = metadata.num_rows * len(places)
    most = max(LIMITS.table_values, LIMITS.table_values_per_byte * len(data))
    if values > most:
        raise ValueError(f"{metadata.num_rows:,} rows in {format_size(len(data))}, more than {most // len(places):,}")
    nbytes = 0
    for group in range(metadata.num_row_groups):
        for place in places:
            column = metadata.row_group(group).column(place)
            if column.num_values > metadata.num_rows:
                raise ValueError("a column has more values than rows")
            offsets = [column.data_page_offset, column.dictionary_page_offset if column.has_dictionary_page else None]
            start = min(offset for offset in offsets if offset)
            nbytes += _unpacked_bytes(data, start, start + column.total_compressed_size)
    if nbytes > FREE_BYTES + LIMITS.value_bytes * values:
        raise ValueError(f"it unpacks to {format_size(nbytes)} for {values:,} values")


def _unpacked_bytes(data: bytes, at: int, end: int) -> int:
    """Return what the pages of a column unpack to, as their own headers have it: the file's directory may lie."""
    if not 0 <= at <= end <= len(data):
        raise ValueError("a column lies outside of the file")
    total = 0
    while at < end:
        numbers, at = _struct(data, at)
        unpacked, packed = numbers.get(2, -1), numbers.get(3, -1)
        if unpacked < 0 or packed < 0 or at + packed > end:
            raise ValueError("a page of a column has no size")
        total, at = total + unpacked, at + packed
    return total


_STRUCT, _BOOLEANS, _DOUBLE, _BINARY = 12, {1, 2}, 7, 8


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value, at, shift = value | (byte & 0x7F) << shift, at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError("a page of a column has a damaged header")


def _struct(data: bytes, at: int, depth: int = 0) -> tuple[dict[int, int], int]:
    """Return the numbers of a struct in Thrift's compact protocol by field, and the place behind it."""
    numbers: dict[int, int] = {}
    field = 0
    if depth > 8:
        raise ValueError("a page of a column has a damaged header")
    while head := data[at]:
        at, kind = at + 1, head & 0x0F
        if head >> 4:
            field += head >> 4
        else:
            zigzag, at = _varint(data, at)
            field = (zigzag >> 1) ^ -(zigzag & 1)
        if kind in _BOOLEANS:
            continue
        if kind == _STRUCT:
            _, at = _struct(data, at, depth + 1)
        elif kind == _DOUBLE:
            at += 8
        elif kind in {3, 4, 5, 6, _BINARY}:
            value, at = _varint(data, at)
            at += value if kind == _BINARY else 0
            numbers[field] = (value >> 1) ^ -(value & 1)
        else:  # a list, a set or a map, which no header of a page has
            raise ValueError("a page of a column has a damaged header")
    return numbers, at + 1


def _expect_numbers(table: pa.Table, columns: Mapping[str, str]) -> None:
    """Raise ValueError for numbers that no run has: seconds without end, times before the beginning."""
    from pyarrow import compute  # noqa: PLC0415

    for name in (name for name, kind in columns.items() if kind != "string" and len(table)):
        ends = compute.min_max(table[name]).as_py()
        least, most = ends["min"], ends["max"]
        if least is not None and not -LARGEST < least <= most < LARGEST:
            raise ValueError(f"the column {name} has a number beyond 2**63")
        if name != "second":
            continue
        if table[name].null_count or compute.any(compute.is_nan(table[name].cast("float64"))).as_py():
            raise ValueError("a row has no second")
        if max(-least, most) > LAST_S or most - least > LIMITS.span_s:
            raise ValueError(f"its seconds are {least:g} to {most:g}; results have {LIMITS.span_s:,} at most")
