"""The end of the bulk load, for every cause."""

from __future__ import annotations

import json
import signal
import threading
import time
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.cli.support import TINY
from tsbench.errors import Broken, Unreachable, UserMistake
from tsbench.model import OpError, Outcome, WriteMode
from tsbench.run.bulk_load import bulk_load
from tsbench.scenario.use_case import built_in_spec
from tsbench.study.campaign import planned, run_scenario
from tsbench.study.request import RunRequest
from tsbench.targets.null import TARGET, NullSchema, NullSession
from tsbench.targets.target import Target
from tsbench.workload.world import World

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tsbench.net.tcp import NewWaiter
    from tsbench.targets.base import Payload, Schema

ENDPOINT = "null://?service=20ms"
NULL: dict[str, Any] = {one.name: getattr(TARGET, one.name) for one in fields(TARGET)}


@dataclass(frozen=True)
class Watched(Target):
    """Sessions that record whether they were closed in the middle of a write."""

    refused: int = 1_000_000
    sessions: list[WatchedSession] = field(default_factory=list)

    def connect(
        self,
        endpoint: str,
        schema: Schema,
        *,
        timeout_s: float = 30.0,
        connect_timeout_s: float | None = None,
        waiter: NewWaiter | None = None,
    ) -> WatchedSession:
        if len(self.sessions) == self.refused:
            raise OpError(Outcome.FAILED, "refused", "too many connections")
        self.sessions.append(
            WatchedSession(cast("NullSession", super().connect(endpoint, schema, timeout_s=timeout_s)))
        )
        return self.sessions[-1]


class WatchedSession(NullSession):
    def __init__(self, session: NullSession) -> None:
        super().__init__(session._behaviour)
        self.writing = threading.Lock()
        self.closed: list[bool] = []

    def write(self, payload: Payload) -> int:
        with self.writing:
            return super().write(payload)

    def close(self) -> None:
        self.closed.append(self.writing.locked())


def load(target: Target, progress: Callable[[int], None] = lambda _points: None) -> int:
    world = World(built_in_spec("cpu-only", 8, 1, 1_451_606_400 * 10**9, 10**10, streams=4))
    done = bulk_load(
        world,
        target,
        NullSchema(),
        ENDPOINT,
        last_tick=world.ticks(3_600 * 10**9),
        workers=4,
        batch=100,
        mode=WriteMode.BULK,
        progress=progress,
    )
    return done.points


def test_every_session_is_closed_once_after_its_last_write() -> None:
    target = Watched(**NULL)
    assert load(target) == 8 * 360
    assert [session.closed for session in target.sessions] == [[False]] * 4


def test_ctrl_c_closes_no_session_in_the_middle_of_a_write() -> None:
    target = Watched(**NULL)
    sent: list[int] = []

    def stop(points: int) -> None:
        sent.append(points)
        if len(sent) == 4:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    before = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        load(target, stop)
    assert time.monotonic() - before < 60
    assert [session.closed for session in target.sessions] == [[False]] * 4
    assert sum(sent) < 8 * 360


def test_a_session_that_cannot_be_had_closes_those_before_it() -> None:
    target = Watched(**NULL, refused=2)
    with pytest.raises(OpError, match="too many connections"):
        load(target)
    assert [session.closed for session in target.sessions] == [[False]] * 2


def test_a_server_that_has_gone_before_the_load_is_no_mistake_of_the_users() -> None:
    class Gone(Target):
        def connect(self, *_words: object, **_more: object) -> NullSession:
            raise Unreachable("cannot connect to it; is the server running there?")

    with pytest.raises(Broken, match="the bulk load failed: cannot connect to it"):
        load(Gone(**NULL))


def test_a_failed_write_stops_all_workers_and_is_one_line() -> None:
    target = Watched(**NULL)

    def fail(_points: int) -> None:
        raise OpError(Outcome.UNKNOWN, "timeout", "no answer within 30 s")

    with pytest.raises(Broken, match="the bulk load failed: timeout: no answer within 30 s"):
        load(target, fail)
    assert [session.closed for session in target.sessions] == [[False]] * 4


@pytest.mark.slow
def test_a_load_with_a_time_limit_ends_at_one_tick_of_all_streams_and_measurements(tmp_path: Path) -> None:
    path = tmp_path / "timed.toml"
    text = TINY.replace('"cpu-only"\nscale = 5', '"devops"\nscale = 20\nstreams = 4\ninterval = "1s"')
    text = text.replace('window = "10m"', 'window = "24h"\nduration = "1s"\nbatch = 70\nworkers = 3')
    path.write_text(text.replace('[[op]]\nquery = "raw-one"', ""), encoding="utf-8")
    (summary,) = run_scenario(RunRequest(path, out=tmp_path / "sets", reports=False)).summaries
    assert summary.load is not None
    assert 1 <= summary.load.duration_s < 20
    assert summary.load.points % (20 * 9) == 0, "whole ticks"
    assert summary.load.points < 24 * 3_600 * 20 * 9
    assert {name: summary.validity.checks[name].state for name in ("writes", "answers")} == {
        "writes": "valid",
        "answers": "valid",
    }
    (run,) = (tmp_path / "sets").glob("*/sqlite")
    window_ns = json.loads((run / "spec.json").read_text())["load"]["window"]
    assert window_ns / 1e9 * 20 * 9 == summary.load.points
    (again,) = run_scenario(RunRequest(path, out=tmp_path / "sets", resume=run.parent, reports=False)).summaries
    assert again == summary


def test_a_time_limit_of_a_load_that_has_queries_or_disorder_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "timed.toml"
    path.write_text(TINY, encoding="utf-8")
    for changes, says in (
        ((), "queries need to know"),
        (("world.late=0.1", "op=[{write=1}]"), "points that come late"),
    ):
        with pytest.raises(UserMistake, match=rf"load\.duration: {says}"):
            planned(RunRequest(path, overrides=["load.duration=5s", *changes]))
