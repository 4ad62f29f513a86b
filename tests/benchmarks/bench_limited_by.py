"""Verify the verdict "limited by the load generator": twenty runs with and without such a limit, at 1 ms per op.

Eight users with think time ask a target that answers after 1 ms of sleep, once beside a greenlet that burns the load
process's CPU and once without. Prints how often the verdict was right.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # the tests' own helpers

from tests.drive.support import document, run
from tsbench.run import locust_process

TIMES = 20
BURNING = Path(__file__).parents[1] / "drive" / "burning.py"
LOAD = document(
    drive={"users": 8, "wait": "10ms", "duration": "2s"},
    op=[{"write": 1}],
    target={"name": "null", "settings": {"service": "1ms"}},
)


def main() -> None:
    calm = locust_process.LOCUSTFILE
    for name, locustfile in (("burning its CPU", BURNING), ("left alone", calm)):
        locust_process.LOCUSTFILE = locustfile
        called = 0
        for _ in range(TIMES):
            with tempfile.TemporaryDirectory() as directory:
                called += run(Path(directory), LOAD)["limited_by"] == "load generator"
        wanted = TIMES if locustfile is BURNING else 0
        print(f"load process {name}: called the limit {called} of {TIMES} times (wanted: {wanted})", flush=True)


if __name__ == "__main__":
    main()
