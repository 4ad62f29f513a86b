"""Encode a batch as updates of hourly documents in BSON: one update per series and hour, which sets its points.

    {q: {_id: {key, hour}}, u: {$setOnInsert: {tags}, $set: {"points.<ms of hour>": {time, fields}, ...}}, upsert: true}

The first point that comes makes the document. As everywhere in `bson_columns`, there is no Python step per point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tsbench.encode import bson_columns
from tsbench.encode.bson_columns import TAGS
from tsbench.encode.text_columns import NO_ROWS, Assembled, TextPart, Texts, assembled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tsbench.model import Batch

HOUR_MS = 3_600_000
KEY, HOUR, POINTS = "key", "hour", "points"
"""Names in the documents: the first two in their _id."""
_DIGITS = 7  # of the ms of an hour, so that all names have the same length
_DOCUMENT, _DATE = b"\x03", b"\x09"
_POINT = _DOCUMENT + f"{POINTS}.".encode()
_UPDATE_END = b"\0\0\x08upsert\0\x01\0"  # of $set, of u, and of the update


@dataclass(frozen=True, slots=True, eq=False)
class HourUpdates:
    """Updates, and the points of each: update i has the batch's rows `rows[bounds[i]:bounds[i + 1]]`."""

    documents: Assembled
    rows: NDArray[np.int64]
    bounds: NDArray[np.int64]


def hours(batch: Batch, *, apart: bool = False) -> HourUpdates:
    """Return one update per series and hour, or with `apart` per point.

    Of several points of a series at the same time in one update, only the last is sent, since it replaces the others.
    Errors as in `bson_columns.times_ms`.
    """
    ms = bson_columns.times_ms(batch.time_ns)
    count = len(batch)
    if not count:
        return HourUpdates(NO_ROWS, np.zeros(0, np.int64), np.zeros(1, np.int64))
    order = np.arange(count) if apart else np.lexsort((ms, batch.series))
    series, ms = batch.series[order], ms[order]
    begins, is_last = np.ones((2, count), np.bool_)
    if not apart:
        same_series = series[1:] == series[:-1]
        begins[1:] = ~(same_series & (ms[1:] // HOUR_MS == ms[:-1] // HOUR_MS))
        is_last[:-1] = ~(same_series & (ms[1:] == ms[:-1]))
    update_of = np.cumsum(begins) - 1
    points = _points(batch, order[is_last], ms[is_last])
    sizes = np.bincount(update_of[is_last]) * points.dtype.itemsize
    heads = _heads(batch, series[begins], ms[begins] // HOUR_MS * HOUR_MS, sizes)
    numbers = update_of[is_last]
    firsts = np.diff(numbers, prepend=-1) > 0
    # Every update's end stands before the next one's head: the last part of a row should have one length (`assembled`).
    parts = [TextPart(heads, np.where(firsts, numbers, len(sizes))), TextPart(bson_columns.fixed(points))]
    data = bytes(assembled(parts, len(numbers)).data)[len(_UPDATE_END) :] + _UPDATE_END
    ends = np.cumsum(heads.lengths[:-1] + sizes, dtype=np.int64)
    return HourUpdates(Assembled(memoryview(data), ends), order, np.append(np.flatnonzero(begins), count))


def _points(batch: Batch, order: NDArray[np.int64], ms: NDArray[np.int64]) -> NDArray[np.void]:
    """Return every point as an element of `$set`."""
    rest = bson_columns.rows(batch)[order]
    digits = np.zeros((len(ms), _DIGITS + 1), np.uint8)  # a zero byte ends the name
    digits[:, :_DIGITS] = (ms % HOUR_MS)[:, None] // 10 ** np.arange(_DIGITS - 1, -1, -1) % 10 + ord("0")
    return _table(len(ms), _POINT, digits.view(np.int64).ravel(), _i4(4 + rest.dtype.itemsize), rest)


def _heads(batch: Batch, series: NDArray[np.int32], hour_ms: NDArray[np.int64], points: NDArray[np.int64]) -> Texts:
    """Return the end of an update and the beginning of the next one, up to its points, and at last an empty text.

    `points` are the sizes of the updates' points.
    """
    count, m = len(series), batch.measurement
    set_size = 4 + points + 1
    if m.key is None:
        key_size: Any = 0
        key, tags = [], []
        tags_size: Any = 0
    else:
        keys, elements = bson_columns.text_elements(KEY, batch.tags[m.key]), bson_columns.tag_elements(batch)
        key, key_size = [TextPart(keys, series)], keys.lengths[series]
        inner = 4 + elements.lengths[series]
        outer = 4 + len(_named(TAGS)) + inner + 1
        tags_size = len(_named("$setOnInsert")) + outer
        tags = [
            _part(count, _named("$setOnInsert"), _i4(outer), _named(TAGS), _i4(inner)),
            TextPart(elements, series),
            _part(count, b"\0"),
        ]
    id_size = 4 + key_size + len(_DATE) + len(HOUR) + 1 + 8 + 1
    query_size = 4 + len(_named("_id")) + id_size + 1
    change_size = 4 + tags_size + len(_named("$set")) + set_size + 1
    size = 4 + len(_named("q")) + query_size + len(_named("u")) + change_size + len(_UPDATE_END) - 2
    parts = [
        _part(count, _UPDATE_END, _i4(size), _named("q"), _i4(query_size), _named("_id"), _i4(id_size)),
        *key,
        _part(count, _DATE + HOUR.encode() + b"\0", hour_ms, b"\0\0", _named("u"), _i4(change_size)),
        *tags,
        _part(count, _named("$set"), _i4(set_size)),
    ]
    lengths = sum(np.broadcast_to(part.block(slice(0, count))[1], count) for part in parts)
    return _texts(bytes(assembled(parts, count).data), np.asarray(lengths, np.int64))


def _texts(joined: bytes, lengths: NDArray[np.int64]) -> Texts:
    """Return texts that stand one after the other as a table, and an empty one behind them."""
    width = int(lengths.max())
    window: NDArray[np.void] = np.ndarray((len(joined) + 1,), f"V{width}", joined + bytes(width), strides=(1,))
    return Texts(window[np.append(0, np.cumsum(lengths))], np.append(lengths, 0))


def _named(name: str) -> bytes:
    """Return the beginning of an element that is a document."""
    return _DOCUMENT + name.encode() + b"\0"


def _i4(numbers: Any) -> NDArray[np.int32]:
    return np.asarray(numbers, "<i4")


def _part(count: int, *columns: bytes | NDArray[Any]) -> TextPart:
    return TextPart(bson_columns.fixed(_table(count, *columns)))


def _table(count: int, *columns: bytes | NDArray[Any]) -> NDArray[np.void]:
    """Return rows of fixed width: constants, and columns with an entry for every row (or one for all)."""
    types = [f"V{len(c)}" if isinstance(c, bytes) else c.dtype for c in columns]
    table = np.zeros(count, np.dtype([(f"c{i}", each) for i, each in enumerate(types)]))
    for i, column in enumerate(columns):
        table[f"c{i}"] = np.void(column) if isinstance(column, bytes) else column
    return table
