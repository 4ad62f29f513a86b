"""Workers that have the secret and send what no worker sends."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.support import content, only
from tests.drive.cluster.test_encryption import (
    SECRET,
    WITH_SECRET,
    Stranger,
    expect_workers,
    master,
    start,  # noqa: F401 - a fixture
    worker,
)
from tsbench.drive.cluster import messages
from tsbench.drive.webui.live_figures import Figures, Updates
from tsbench.measure.hist import Histogram
from tsbench.results.limits import LIMITS
from tsbench.servers.process import free_port

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.support import Command

NOW = int(time.time())


def these(*values: Any) -> tuple[Any, ...]:
    return values


ENTRY: dict[str, Any] = {
    **dict.fromkeys(("name", "method"), "write"),
    **dict.fromkeys(("last_request_timestamp", "min_response_time"), None),
    **dict.fromkeys(("start_time", "num_requests", "num_none_requests", "num_failures"), 1),
    **dict.fromkeys(("total_response_time", "max_response_time", "total_content_length"), 2.5),
    **{key: {NOW: 1} for key in ("response_times", "num_reqs_per_sec", "num_fail_per_sec")},
}
REPORT: dict[str, Any] = {"stats": [ENTRY], "stats_total": ENTRY, "errors": {}, "user_classes_count": {"Writer": 1}}
UPDATE: dict[str, Any] = {
    "test": "a", "process": "b", "cpu": [[NOW, 1, 1]], "histograms": [["a|service", NOW, Histogram([1]).encode()]],
    "counts": [["a", NOW, {"done": 1, "causes": {"time-out": 1}}]],
}  # fmt: skip
GOOD: list[tuple[Any, Any]] = [
    (messages.PONG, {"time_ns": 1}),
    (messages.READY, {"error": "", "machine": "", "pid": 7}),
    (messages.RATE, {"counts": [[NOW, 5]], "through_s": NOW}),
    ("client_ready", "2.47.0"),
    ("client_ready", -1),
    ("client_stopped", None),
    ("heartbeat", {"state": "running", "current_cpu_usage": 3.5, "current_memory_usage": 10**9}),
    ("spawning_complete", {"user_classes_count": {"Writer": 2}, "user_count": 2}),
    ("stats", REPORT),
    ("stats", {**REPORT, "tsbench": UPDATE}),
    ("a message of a locustfile", [1, "x"]),
]
BAD: list[tuple[Any, Any]] = [
    *((kind, data) for kind in (messages.PONG, messages.READY, messages.RATE) for data in these(None, 5, {}, [], "x")),
    *((messages.PONG, {"time_ns": wrong}) for wrong in these("x", 1.5, True, None, -1, 2**63)),
    *((messages.READY, {"error": "", "machine": "", "pid": wrong}) for wrong in these("x", -1, 0, 2**40)),
    *((messages.READY, {"error": wrong, "machine": "", "pid": 7}) for wrong in these(None, ["x"], {})),
    *((messages.RATE, {"counts": [], "through_s": wrong}) for wrong in these(10**18, -1, 0, float("nan"), NOW + 7_200)),
    *(
        (messages.RATE, {"counts": wrong, "through_s": NOW})
        for wrong in these([[10**18, 1]], [[NOW, -1]], [[NOW]], [5], 5)
    ),
    *(("heartbeat", wrong) for wrong in these(None, {}, {"state": "running", "current_cpu_usage": "x"})),
    ("spawning_complete", {"user_classes_count": {"Writer": "x"}}),
    ("spawning_complete", None),
    ("client_ready", {"a": 1}),
    ("exception", {}),
    *(("stats", wrong) for wrong in these(None, [], {**REPORT, "stats": [{}]}, {**REPORT, "stats_total": 5})),
    ("stats", {**REPORT, "errors": {"a": {"occurrences": "x"}}}),
    ("stats", {**REPORT, "stats": [{**ENTRY, "response_times": {"a": 1}}]}),
    *(("stats", {**REPORT, "tsbench": wrong}) for wrong in these(5, {}, {**UPDATE, "counts": [["a", 10**18, {}]]})),
    ("stats", {**REPORT, "tsbench": {**UPDATE, "histograms": [["a" * 300, NOW, ""]]}}),
    (5, None),
    (["x"], None),
]


@pytest.mark.parametrize(("kind", "data"), GOOD)
def test_a_worker_s_message_has_the_shape_of_its_kind(kind: str, data: Any) -> None:
    messages.check(kind, msgpack.loads(msgpack.dumps(data), strict_map_key=False))


@pytest.mark.parametrize(("kind", "data"), BAD)
def test_a_message_of_another_shape_is_refused_in_one_line(kind: Any, data: Any) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]{10,250}$"):
        messages.check(kind, data)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=3) | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(st.sampled_from([*messages.shapes()]) | ANY, ANY)
def test_whatever_comes_has_the_shape_of_its_kind_or_is_a_value_error(kind: Any, data: Any) -> None:
    with suppress(ValueError):
        messages.check(kind, data)


def test_live_updates_of_more_ops_than_a_run_has_or_that_unpack_to_more_are_refused() -> None:
    figures = Figures()
    figures.begin("a")
    figures.take(Updates.unpacked(UPDATE))
    with pytest.raises(ValueError, match="more than 100 ops"):
        figures.take(Updates("a", "b", counts=[(f"{n}", NOW, {"done": 1}) for n in range(LIMITS.tags + LIMITS.ops)]))
    packed = Histogram(range(1, 3_000_000, 100)).encode()
    with pytest.raises(ValueError, match="not an HdrHistogram V2 text"):
        Updates.unpacked({**UPDATE, "histograms": [["a|service", NOW, packed[:-9]]]})


@pytest.mark.slow
def test_a_master_outlives_each_bad_message_and_runs_with_an_honest_worker(start: Callable[..., Command]) -> None:  # noqa: F811
    port = str(free_port())
    command = start(*master(port, "--expect-workers", "1"), env=WITH_SECRET)
    command.wait_until(lambda: "Waiting for workers" in command.stderr or "storing" in command.stderr)
    strangers = [Stranger(port, SECRET, f"hostile-{number}-".encode()) for number in range(len(BAD) + 2)]
    try:
        for stranger, (kind, data) in zip(strangers, BAD, strict=False):
            stranger.says(kind, data)
        strangers[-1].socket.send(b"\xdd\xff\xff\xff\xff")
        strangers[-2].socket.send_multipart([b"", b"", b""])
        lines = [f"worker hostile-{number}- sent a message that no worker sends (" for number in range(len(strangers))]
        command.wait_until(lambda: all(line in command.stderr for line in lines))
        honest = start(*worker(port), env=WITH_SECRET)
        command.interrupt_once_recorded()
        assert command.wait() in {0, 1}, command.stderr
        assert honest.wait() == 0, honest.stderr
        expect_workers(command, 1)
        assert "Traceback" not in command.stderr
    finally:
        for stranger in strangers:
            stranger.close()


@pytest.mark.slow
def test_a_worker_that_turns_hostile_while_it_measures_is_named_by_the_run(start: Callable[..., Command]) -> None:  # noqa: F811
    port = str(free_port())
    command = start(*master(port, "--expect-workers", "2"), env=WITH_SECRET)
    command.wait_until(lambda: "Waiting for workers" in command.stderr or "storing" in command.stderr)
    hostile = Stranger(port, SECRET, b"hostile-")
    try:
        hostile.says("client_ready", "2.47.0")
        honest = start(*worker(port), env=WITH_SECRET)
        for _ in range(100):
            kind = msgpack.loads(hostile.hears(within_s=30) or b"\x90", strict_map_key=False)[:1]
            if kind == [messages.PING]:
                hostile.says(messages.PONG, {"time_ns": time.time_ns()})
            elif kind == [messages.SHARE]:
                hostile.says(messages.READY, {"error": "", "machine": "", "pid": 1})
            elif kind == [messages.GO]:
                break
        hostile.says(messages.RATE, {"counts": [], "through_s": 10**18})
        command.wait_until(lambda: "worker hostile- sent a message that no worker sends" in command.stderr)
        command.interrupt_once_recorded()
        assert command.wait() == 1, command.stderr
        assert honest.wait() == 0, honest.stderr
        said = content(only(command.place, "results/*/*/summary.json"))["validity"]["checks"]["workers"]["reason"]
        assert "1 of 2 workers ended early" in said
        assert f"a message that no worker sends: {messages.RATE}.through_s" in said
        assert "Traceback" not in command.stderr
    finally:
        hostile.close()
