from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tsbench.encode import text_columns
from tsbench.encode.text_columns import Assembled, TextPart, assemble, assembled, texts

TEXTS = st.lists(st.binary(max_size=40), min_size=1, max_size=5)


@st.composite
def written(draw: st.DrawFn) -> tuple[Assembled, list[bytes], bytes]:
    """Rows assembled from columns, the same rows by Python's join, and the pieces of `assemble`.

    The lead of a row, which the row before it writes, has another length in every row.
    """
    count = draw(st.integers(1, 200))  # more than the 64 rows that a block has at least
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    tables = [*draw(st.lists(TEXTS, min_size=1, max_size=4)), draw(TEXTS)]
    *columns, leads = ([table[i] for i in rng.integers(0, len(table), count)] for table in tables)
    ends = [b")" + lead for lead in [*leads[1:], leads[-1]]]
    parts = [*(TextPart(texts(column)) for column in columns), TextPart(texts(ends))]
    lead = TextPart(texts(leads))
    rows = [one + b"".join(row) + b")" for one, row in zip(leads, zip(*columns, strict=True), strict=True)]
    with patch.object(text_columns, "_BLOCK_BYTES", draw(st.sampled_from([1, 10_000]))):
        whole = assembled(parts, count, lead)
        return whole, rows, b"".join(bytes(piece) for piece in assemble(parts, count, lead))


@examples(200)
@given(written())
def test_rows_are_where_their_ends_say_in_one_piece_and_in_blocks(made: tuple[Assembled, list[bytes], bytes]) -> None:
    whole, rows, in_blocks = made
    assert list(whole) == rows
    assert bytes(whole.data) == in_blocks == b"".join(rows)
    assert len(whole) == len(rows)


@examples(100)
@given(written(), st.integers(1, 50), st.integers(1, 300))
def test_pieces_have_all_rows_in_order(made: tuple[Assembled, list[bytes], bytes], most: int, size: int) -> None:
    whole, rows, _ = made
    pieces = list(whole.cut(most))
    assert [list(piece) for piece in pieces] == [rows[i : i + most] for i in range(0, len(rows), most)]
    small = list(whole.cut_by_size(most, size))
    assert [row for piece in small for row in piece] == rows
    assert all(len(piece) <= most and (len(piece.data) <= size or len(piece) == 1) for piece in small)


def test_no_rows_have_no_pieces() -> None:
    none = Assembled(memoryview(b""), np.zeros(0, np.int64))
    assert not [*none, *none.cut(3), *none.cut_by_size(3, 10)]
