"""Sessions that are closed while another thread uses them, as Locust closes those of users whom it takes away."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from tsbench.model import OpError
from tsbench.targets.base import Statement
from tsbench.targets.registry import get

if TYPE_CHECKING:
    from pathlib import Path

ENDLESS = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 1000000000000) SELECT max(n) FROM c"


@pytest.mark.parametrize("name", ["sqlite", "duckdb"])
def test_a_session_that_is_closed_in_the_middle_of_an_op_ends_the_op_and_then_closes(name: str, tmp_path: Path) -> None:
    target = get(name)
    session = target.connect(f"{name}:///{tmp_path}/data", next(iter(target.schemas.values())), timeout_s=60)
    errors: list[OpError] = []

    def ask() -> None:
        try:
            session.query(Statement(ENDLESS), ("n",))
        except OpError as error:
            errors.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    time.sleep(0.3)
    assert thread.is_alive()
    session.close()
    thread.join(20)
    assert not thread.is_alive()
    assert [error.cause for error in errors] == ["timeout"]
    with pytest.raises(OpError):
        session.query(Statement("SELECT 1"), ("n",))
