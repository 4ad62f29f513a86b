"""Whether the process that asks was the limit: its CPU time and how late its threads run, measured and judged."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

import pytest

from tsbench.measure.bottleneck import threads_bound
from tsbench.model import Rows
from tsbench.results.rundir import RunDir
from tsbench.run.asking import How, _Asking
from tsbench.workload.query_files import AskedText

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize(("cpu_share", "is_limit"), [(0.0, False), (0.84, False), (0.85, True), (1.0, True)])
def test_a_process_that_uses_its_core_was_the_limit(cpu_share: float, is_limit: bool) -> None:
    said = threads_bound(cpu_share, 0.0052)
    assert said.startswith("the load generator was the limit (") is is_limit
    if is_limit:
        assert f"used {cpu_share:.0%} of a core" in said
        assert "waited 5.2 ms" in said


class Session:
    """A session whose queries take a millisecond, spent by `pause`."""

    arrival = None

    def __init__(self, pause: Callable[[], None]) -> None:
        self._pause = pause

    def ask(self, text: str) -> Rows:
        self._pause()
        return Rows(("text",), [(text,)])

    def close(self) -> None:
        pass


def busy() -> None:
    until_s = time.thread_time() + 1e-3
    while time.thread_time() < until_s:
        pass


@pytest.mark.parametrize(("pause", "is_busy"), [(busy, True), (lambda: time.sleep(1e-3), False)])
def test_the_cpu_time_of_the_asking_threads_is_measured(
    pause: Callable[[], None], is_busy: bool, tmp_path: Path
) -> None:
    texts = (AskedText("kind", number, "text") for number in range(300))
    asking = _Asking(texts, cast("Any", None), RunDir.create(tmp_path, "run"), How(), lambda _: None, lambda _: None)
    asking.run([cast("Any", Session(pause)) for _ in range(2)])
    assert asking.done == 300
    assert (asking.cpu_s >= 0.3) is is_busy
