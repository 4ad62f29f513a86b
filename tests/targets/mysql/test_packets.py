from __future__ import annotations

import pytest

from tsbench.targets.mysql.packets import is_whole

LIMIT = 16_384
EOF, LAST = b"\xfe\x00\x00\x02\x00", b"\xfe\x00\x00\x02\x00\x00\x00"
COLUMN, ROW, NULL = b"\x03def\x00\x00\x00\x011\x00\x00\x0c?\x00", b"\x011\x0212", b"\xfb\xfb"


def answer(*payloads: bytes) -> bytes:
    return b"".join(len(p).to_bytes(3, "little") + bytes([i & 255]) + p for i, p in enumerate(payloads, 1))


WHOLE = {
    "acknowledged": answer(b"\x00\x01\x00\x02\x00\x00\x00"),
    "error": answer(b"\xff\x15\x04#28000no"),
    "rows": answer(b"\x02", COLUMN, COLUMN, EOF, ROW, NULL, EOF),
    "rows of MariaDB": answer(b"\x02\x01", COLUMN, COLUMN, EOF, ROW, NULL, EOF),
    "rows, columns not ended": answer(b"\x02", COLUMN, COLUMN, ROW, NULL, LAST),
    "no rows": answer(b"\x01", COLUMN, EOF, EOF),
    "no rows, columns not ended": answer(b"\x01", COLUMN, LAST),
    "an error among the rows": answer(b"\x01", COLUMN, EOF, ROW, b"\xff\x0d\x04#70100killed"),
}


@pytest.mark.parametrize("name", WHOLE)
def test_an_answer_is_whole_with_its_last_byte_and_not_before(name: str) -> None:
    whole = WHOLE[name]
    assert [size for size in range(len(whole) + 1) if is_whole(whole[:size], LIMIT)] == [len(whole)]


def test_what_may_go_on_or_is_no_answer_is_not_whole() -> None:
    rows = answer(b"\x01", COLUMN, EOF, *[ROW] * 2_000, EOF)
    assert is_whole(rows, len(rows) + 1)
    assert not is_whole(rows, len(rows))  # the rest was not looked at
    assert not is_whole(answer(b"\xfb/proc/self/fd/3"), LIMIT)  # the server waits for a file
    assert not is_whole(b"\x17\x03\x03\x00\x20" + bytes(32), LIMIT)  # TLS
    assert not is_whole(answer(b""), LIMIT)
