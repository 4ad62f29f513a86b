"""Documents of few forms read as columns: the bytes between their values are compared with those of the first one.

To decode millions of documents one by one, and look at the name and type of each value, took twenty times as long.
Format: https://bsonspec.org/spec.html.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tsbench.encode.bson_columns import TAGS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

_FIXED: Mapping[int, str] = {0x01: "<f8", 0x07: "V12", 0x08: "?", 0x09: "<i8", 0x12: "<i8"}
"""Types of values of a fixed size: double, ObjectId, bool, date, int64."""
_DOCUMENT = 0x03
_LENGTH = slice(0, 4)


@dataclass(frozen=True, slots=True)
class DocumentForm:
    """The places of a document's values in its bytes without the tags, and where these are, which may have any length.

    `values` has type and offset by name.
    """

    values: Mapping[str, tuple[np.dtype[Any], int]]
    tags_at: int | None

    @classmethod
    def of(cls, document: bytes) -> DocumentForm | None:
        """Return the form of an encoded document; None if it has a value of any size beside the tags."""
        values: dict[str, tuple[np.dtype[Any], int]] = {}
        at, tags_at, left_out = 4, None, 0
        while kind := document[at]:
            end = document.index(0, at + 1)
            name, at = document[at + 1 : end].decode(), end + 1
            if kind == _DOCUMENT and name == TAGS and tags_at is None:
                tags_at, left_out = at, _length(document, at)
                at += left_out
            elif kind in _FIXED and name not in values:
                values[name] = np.dtype(_FIXED[kind]), at - left_out
                at += values[name][0].itemsize
            else:
                return None
        return cls(values, tags_at)

    def read(self, documents: Sequence[bytes]) -> AlikeDocuments:
        """Return the values of the documents that have this form, the first one's; and the others as they are."""
        tags, rest = [b""] * len(documents), documents
        if (at := self.tags_at) is not None:
            ends = [at + _length(document, at) for document in documents]
            tags = [document[at:end] for document, end in zip(documents, ends, strict=True)]
            rest = [document[:at] + document[end:] for document, end in zip(documents, ends, strict=True)]
        sizes = np.fromiter(map(len, rest), np.int64, len(rest))
        places = np.flatnonzero(sizes == sizes[0])
        table = np.frombuffer(b"".join([rest[i] for i in places.tolist()]), dtype=np.uint8).reshape(len(places), -1)
        same = table == table[0]
        same[:, _LENGTH] = True
        for of, offset in self.values.values():
            same[:, offset : offset + of.itemsize] = True
        is_alike = same.all(axis=1)
        table, chosen = table[is_alike], np.zeros(len(rest), dtype=np.bool_)
        chosen[places[is_alike]] = True
        found = {
            name: np.ascontiguousarray(table[:, offset : offset + of.itemsize]).view(of)[:, 0]
            for name, (of, offset) in self.values.items()
        }
        alike, others = [*compress(documents, chosen)], [*compress(documents, ~chosen)]
        return AlikeDocuments(alike, found, [*compress(tags, chosen)], others)


class AlikeDocuments(NamedTuple):
    """Documents of one form, their values by name, their tags, each as bytes, and the documents of other forms."""

    documents: list[bytes]
    values: dict[str, NDArray[Any]]
    tags: list[bytes]
    others: list[bytes]


def _length(document: bytes, at: int) -> int:
    return int.from_bytes(document[at : at + 4], "little")
