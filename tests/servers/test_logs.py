from __future__ import annotations

import pytest

from tsbench.errors import advise
from tsbench.servers.logs import telling_line

UNRECOGNIZED = 'FATAL:  unrecognized configuration parameter "x"'
PANIC = 'PANIC:  could not write to file "pg_wal/xlogtemp.3": No space left on device'


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"ready\n{PANIC}\nall processes terminated\nshut down\n\n", PANIC),
        ("ready\n  out of memory \n\n", "out of memory"),
        (PANIC + "\nline" * 300, "line"),
        ("ready\n0 [ERROR] unknown variable 'x=1'\n0 [ERROR] Aborting\n", "0 [ERROR] unknown variable 'x=1'"),
        ("0 [ERROR] Aborting", "0 [ERROR] Aborting"),
        (f"{UNRECOGNIZED}\nHINT:  look it up", UNRECOGNIZED),
        (f'{UNRECOGNIZED}\nFATAL:  configuration file "x" contains errors\n', UNRECOGNIZED),
        ("12:00 LOG:  listening\n12:01 ERROR:  no such table\nLOG:  shut down", "LOG:  shut down"),
        ("FATAL:  terminating connection due to administrator command\nLOG:  shut down", "LOG:  shut down"),
        ("run: parse config: no such key\nsee influxd --help", "run: parse config: no such key"),
        ("x lvl=info msg=a\nx lvl=error msg=b\nx lvl=info msg=end", "x lvl=error msg=b"),
        ("Error: unknown flag: --x\nSee 'influxd -h' for help", "Error: unknown flag: --x"),
        ("ferretdb: error: unknown flag --x\nusage", "ferretdb: error: unknown flag --x"),
        ("\n\n", ""),
    ],
)
def test_the_telling_line_is_one_about_a_full_disk_else_the_last_error_else_the_last(text: str, line: str) -> None:
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
