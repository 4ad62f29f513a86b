"""The data is the same, whichever process writes it."""

import hashlib
import sqlite3

import pytest

from tests.drive.support import document, run


def digest_after_a_run(directory, processes):
    """SHA-256 of all stored rows, sorted, after `processes` processes wrote exactly ten minutes of data."""
    database = directory / "data.db"
    summary = run(
        directory,
        document(
            drive={"processes": processes, "users": 4, "window": "10m", "duration": "600s", "wait": "0s"},
            op=[{"write": 1}, {"write": 4}],
            target={"name": "sqlite", "endpoint": f"sqlite://{database}"},
        ),
    )
    assert summary["validity"]["checks"]["writes"]["state"] == "valid", summary["validity"]
    with sqlite3.connect(database) as connection:
        rows = connection.execute("SELECT * FROM cpu ORDER BY time, tags_id").fetchall()
    assert len(rows) == 2 * 8 * 60
    return hashlib.sha256(repr(rows).encode()).hexdigest()


@pytest.mark.slow
def test_one_two_and_four_processes_write_the_same_points(tmp_path):
    digests = set()
    for processes in (1, 2, 4):
        directory = tmp_path / str(processes)
        directory.mkdir()
        digests.add(digest_after_a_run(directory, processes))
    assert len(digests) == 1
