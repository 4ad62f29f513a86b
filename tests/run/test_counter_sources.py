"""Sessions for a server's counters are opened only if the target has counters and allows another process."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tsbench.errors import UserMistake
from tsbench.run.trial import server_counters
from tsbench.targets import postgres, sqlite
from tsbench.targets.postgres.schemas import BTREE
from tsbench.targets.sqlite.schemas import WAL
from tsbench.targets.target import Access

NOWHERE = "postgresql://me@127.0.0.1:1/none"


def test_a_target_without_counters_is_not_connected_to() -> None:
    target = replace(sqlite.TARGET, has_counters=False)
    assert server_counters(target, "sqlite:///no/such/directory/x.db", WAL) == []


def test_a_target_that_one_process_at_a_time_may_open_is_left_to_the_load_process() -> None:
    with pytest.raises(UserMistake):
        server_counters(postgres.TARGET, NOWHERE, BTREE)
    assert server_counters(replace(postgres.TARGET, access=Access.ONE_PROCESS), NOWHERE, BTREE) == []
