"""Endpoints that cannot be used, and connections that cannot be opened, are one line with the cause and the cure."""

from __future__ import annotations

import os
import resource
from contextlib import ExitStack
from pathlib import Path

import pytest

from tsbench.errors import Unreachable, UserMistake, too_many_files
from tsbench.targets import registry
from tsbench.targets.endpoint import open_or_name


@pytest.mark.parametrize(
    ("target", "url", "said"),
    [
        ("influxdb1", "http://127.0.0.1:1/influx/bench", "the path /influx before the database is not sent on"),
        ("influxdb2", "http://127.0.0.1:1/influx/?org=a&bucket=b", "the path /influx is not sent on"),
        ("victoriametrics", "http://127.0.0.1:1/a/b/tsbench", "the path /a/b before the database is not sent on"),
    ],
)
def test_a_path_before_the_database_is_refused_with_the_reason(target: str, url: str, said: str) -> None:
    with pytest.raises(UserMistake, match="give the server's own host and port") as raised:
        registry.get(target).parse(url)
    assert said in str(raised.value)


def test_where_no_connection_can_be_opened_for_lack_of_files_the_limit_is_named() -> None:
    def fails(_limit_s: float) -> int:
        raise Unreachable("connection is bad: no error details available; is the server running there?")

    def opened() -> str:
        with pytest.raises(Unreachable) as raised:
            open_or_name(fails, 1.0, None, set(), "db.example")
        return str(raised.value)

    assert "is the server running there?" in opened()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    with ExitStack() as held:
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 8, hard))
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        try:
            while True:
                held.callback(os.close, os.dup(0))
        except OSError:
            said = opened()
    assert said.startswith("cannot connect to db.example: this process may have only ")
    assert said.endswith("allow more with: ulimit -n 4096")
    assert too_many_files(said) == "", "said once"
