from __future__ import annotations

import pytest

from tsbench.errors import UserMistake
from tsbench.targets.registry import SERVERS, TARGETS, get


def test_a_mistyped_target_is_answered_with_the_nearest() -> None:
    with pytest.raises(UserMistake, match="did you mean 'postgres'"):
        get("postgresql")
    with pytest.raises(UserMistake, match=f"there are {', '.join(TARGETS)}"):
        get("xyz")


def test_targets_are_found_under_their_own_names() -> None:
    assert {name: target.name for name, target in TARGETS.items()} == {name: name for name in TARGETS}
    for target in TARGETS.values():
        assert {name: schema.name for name, schema in target.schemas.items()} == {n: n for n in target.schemas}


def test_every_local_server_is_a_targets() -> None:
    assert set(SERVERS) <= set(TARGETS)
