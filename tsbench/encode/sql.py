"""Convert a batch to the parameters of SQL statements: one `tolist` per column, one `zip` per batch.

A *multi-row INSERT* here is one statement `INSERT ... VALUES (...), (...)` with every value a bound parameter, as ORMs
and other loaders send it. Databases limit the parameters of a statement (PostgreSQL 65,535, SQLite 32,766), which 13
columns reach at 5,041 and 2,520 rows. Larger batches are sent in the most similar way that is still one request:
PostgreSQL one `INSERT ... SELECT FROM unnest(arrays)`, SQLite several full statements in one transaction.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from tsbench.encode.number_text import label_codes
from tsbench.model import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tsbench.model import Batch, Codes, Field

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Inexact(ValueError):  # noqa: N818 - names what is wrong with the value
    """A value that the wire format cannot store exactly."""


def columns(batch: Batch, times: Sequence[Any], *, extra_json: bool) -> list[Sequence[Any]]:
    """Return the batch's columns as lists: times as passed, series (if the measurement has tags), fields, own tags.

    A field that a point lacks is None. With `extra_json` the last column is the own tags' JSON text per row, None where
    the measurement has none.
    """
    result: list[Sequence[Any]] = [times]
    if batch.measurement.tags:
        result.append(batch.series.tolist())
    result += [_values(batch.fields[field.name], field) for field in batch.measurement.fields]
    if extra_json:
        texts = own_tags_json(batch)
        result.append([texts[i] for i in batch.series.tolist()] if texts else [None] * len(batch))
    return result


def _values(column: NDArray[Any], field: Field) -> Sequence[Any]:
    if field.labels:
        labels = (*field.labels, None)
        return [labels[code] for code in label_codes(column, len(field.labels)).tolist()]
    values: list[Any] = column.tolist()
    if field.nullable and field.kind is Kind.INT:
        return [None if value != value else int(value) for value in values]  # noqa: PLR0124 - NaN
    if field.nullable and np.isnan(column).any():
        return [None if value != value else value for value in values]  # noqa: PLR0124 - NaN
    return values


def rows(of_columns: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Transpose columns into one tuple per row."""
    return list(zip(*of_columns, strict=True))


def writes(of_columns: Sequence[Sequence[Any]], points: int) -> Iterator[tuple[list[tuple[Any, ...]], int]]:
    """Yield every `points` rows and the bytes of their parameters in binary form; the last may be fewer.

    A number or time counts 8 bytes, a text its length.
    """
    of_rows, of_texts = rows(of_columns), [column for column in of_columns if _is_text(column)]
    numbers = 8 * (len(of_columns) - len(of_texts))
    for start in range(0, len(of_rows), points):
        chosen = of_rows[start : start + points]
        nbytes = numbers * len(chosen)
        for column in of_texts:
            nbytes += sum(len(text) for text in column[start : start + points] if text)
        yield chosen, nbytes


def flat(of_rows: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return the values of all rows one after the other, in the order of a multi-row VALUES list."""
    return tuple(chain.from_iterable(of_rows))


def values(width: int, height: int, mark: Callable[[int], str]) -> str:
    """Return the text of a VALUES list; `mark(n)` returns the n-th placeholder, counted from 1."""
    numbers = iter(range(1, width * height + 1))
    return ", ".join(f"({', '.join(mark(next(numbers)) for _ in range(width))})" for _ in range(height))


def chunks(of_rows: Sequence[tuple[Any, ...]], limit: int) -> Iterator[Sequence[tuple[Any, ...]]]:
    """Yield the rows in pieces of at most `limit` parameters."""
    height = max(1, limit // len(of_rows[0])) if of_rows else 1
    for start in range(0, len(of_rows), height):
        yield of_rows[start : start + height]


def ceil_datetime(time_ns: int) -> datetime:
    """Return the first whole microsecond that is not before `time_ns`.

    Rounding both ends of a window upwards keeps [start, end) exact for points on whole microseconds: t >= start_ns
    holds just when t >= ceil(start_ns), and t < end_ns just when t < ceil(end_ns).
    """
    return EPOCH + timedelta(microseconds=-(-time_ns // 1_000))


def own_tags_json(batch: Batch) -> tuple[str, ...]:
    """Return JSON text of the measurement's own tags for every series of the world; empty if it has none.

    The peers store these tags with every row, as JSON. The texts depend on the world only, so they are kept from one
    batch to the next: making them again costs more than the rest of the encoding.
    """
    if not batch.measurement.own_tags:
        return ()
    return _cached_json(batch.tags, batch.measurement.own_tags)


def tag_rows(tags: Mapping[str, Codes], first: int = 0, *, key_may_lack: bool = False) -> list[tuple[Any, ...]]:
    """Return one row per series: its number, from `first` on, then its tags; one that it lacks ("") is None.

    The key, which is the first tag, is an empty text instead of None unless it `key_may_lack`, as in files of points.
    """
    lists: list[list[Any]] = [codes.tolist() for codes in tags.values()] or [[]]
    for number, texts in enumerate(lists):
        if number or key_may_lack:
            lists[number] = [text or None for text in texts]
    return list(zip(range(first, first + len(lists[0])), *lists, strict=True)) if tags else []


def columns_of(rows: Sequence[tuple[Any, ...]]) -> Iterator[tuple[list[Any], ...]]:
    """Yield the columns of 100,000 rows each."""
    for start in range(0, len(rows), _PIECE_ROWS):
        yield tuple(map(list, zip(*rows[start : start + _PIECE_ROWS], strict=True)))


_PIECE_ROWS = 100_000
_Key = tuple[int, tuple[str, ...]]
_cache: OrderedDict[_Key, tuple[Mapping[str, Codes], tuple[str, ...]]] = OrderedDict()


def _cached_json(tags: Mapping[str, Codes], names: tuple[str, ...]) -> tuple[str, ...]:
    # Codes and mappings do not hash, so the key is the identity; the entry holds the mapping, so it cannot be reused.
    key = (id(tags), names)
    entry = _cache.get(key)
    if entry is None or entry[0] is not tags:
        entry = _cache[key] = (tags, json_texts(tags, names))
        while len(_cache) > 64:
            _cache.popitem(last=False)
    return entry[1]


def json_texts(tags: Mapping[str, Codes], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return one JSON object with these tags for every series of the world."""
    per_series = zip(*(tags[name].tolist() for name in names), strict=True)
    return tuple(json.dumps(dict(zip(names, row, strict=True)), separators=(",", ":")) for row in per_series)


def _is_text(column: Sequence[Any]) -> bool:
    return isinstance(next((value for value in column if value is not None), None), str)
