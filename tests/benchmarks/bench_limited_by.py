"""Count how often the verdict "limited by the load generator" is right.

Twenty runs with, and twenty without, a greenlet that burns the load process's CPU, at 1 ms per op.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # the tests' own helpers

from tests.drive.support import document, run
from tsbench.run import locust_process

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMES = 20
BURNING = Path(__file__).parents[1] / "drive" / "burning.py"
LOAD = document(
    drive={"users": 8, "wait": "10ms", "duration": "2s"},
    op=[{"write": 1}],
    target={"name": "null", "settings": {"service": "1ms"}},
)


@contextmanager
def burning(burns: tuple[float, float] | None) -> Iterator[None]:
    """Let load processes burn their CPU for so many seconds, and rest for so many, again and again."""
    calm = locust_process.LOCUSTFILE
    if burns is not None:
        locust_process.LOCUSTFILE = BURNING
        os.environ["BURN_S"], os.environ["REST_S"] = map(str, burns)
    try:
        yield
    finally:
        locust_process.LOCUSTFILE = calm


def done(load: dict[str, Any], burns: tuple[float, float] | None) -> dict[str, Any]:
    """Run a load and return its summary."""
    with tempfile.TemporaryDirectory() as directory, burning(burns):
        return run(Path(directory), load)


def main() -> None:
    for name, burns in (("burning its CPU", (0.008, 0.001)), ("left alone", None)):
        called = sum(done(LOAD, burns)["limited_by"] == "load generator" for _ in range(TIMES))
        wanted = TIMES if burns else 0
        print(f"load process {name}: called the limit {called} of {TIMES} times (wanted: {wanted})", flush=True)


if __name__ == "__main__":
    main()
