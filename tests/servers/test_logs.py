from __future__ import annotations

import pytest

from tsbench.errors import advise
from tsbench.servers.logs import telling_line

PANIC = 'PANIC:  could not write to file "pg_wal/xlogtemp.3": No space left on device'


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"ready\n{PANIC}\nall processes terminated\nshut down\n\n", PANIC),
        ("ready\n  out of memory \n\n", "out of memory"),
        (PANIC + "\nline" * 300, "line"),
        ("ready\n0 [ERROR] unknown variable 'x=1'\n0 [ERROR] Aborting\n", "0 [ERROR] unknown variable 'x=1'"),
        ("0 [ERROR] Aborting", "0 [ERROR] Aborting"),
        ("\n\n", ""),
    ],
    ids=["full disk", "last", "long ago", "last but one", "nothing but the end", "empty"],
)
def test_a_full_disk_is_found_among_the_last_lines_and_otherwise_the_last_one_counts(text: str, line: str) -> None:
    assert telling_line(text) == line


def test_a_message_about_a_full_disk_gets_its_cure_once() -> None:
    advised = advise("initdb failed: No space left on device")
    cure = "free some room or choose another place with --out"
    assert advised == f"disk full: initdb failed: No space left on device; {cure}"
    assert advise(advised) == advised
    text = "disk full: SQLite: database or disk is full"
    assert advise(text, "/data") == f"no space left on /data: {text}; {cure}"
    assert advise(text, "http://db:8086/x") == f"no space left on http://db:8086/x: {text}; free some room"
    assert advise("the password is wrong") == "the password is wrong"
