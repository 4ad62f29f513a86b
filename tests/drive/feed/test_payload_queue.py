"""Encoded writes are ready before they are needed, in bounded memory, and every point is written once."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gevent
import pytest

from tests.drive.support import document
from tsbench.drive.feed import payload_queue
from tsbench.drive.feed.encoder import EncoderJob
from tsbench.drive.feed.payload_queue import PayloadQueue
from tsbench.errors import Broken, UserMistake
from tsbench.model import WriteMode
from tsbench.scenario.spec import Scenario
from tsbench.targets import registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tsbench.scenario.spec import RunSpec

SINGLE, MULTI = (1, WriteMode.SINGLE), (4, WriteMode.MULTI)


def spec_of(**tables: Any) -> RunSpec:
    (spec,) = Scenario(Path("test.toml"), document(**tables)).expand()
    return spec


def job_of(spec: RunSpec) -> EncoderJob:
    world = spec.world_at()
    return EncoderJob.of(spec, world, next(iter(registry.get(spec.target.name).schemas)), range(world.spec.streams))


@pytest.fixture
def queue_of() -> Iterator[Callable[..., PayloadQueue]]:
    """Make queues of all streams, closed at the end; an encoder that fails raises here."""
    made: list[PayloadQueue] = []

    def make(spec: RunSpec, *kinds: tuple[int, WriteMode]) -> PayloadQueue:
        def fail(reason: str) -> None:
            raise AssertionError(reason)

        made.append(PayloadQueue(job_of(spec), fail))
        if kinds:
            made[-1].prepare(kinds)
        return made[-1]

    yield make
    for queue in made:
        queue.close()


def test_every_point_of_a_window_is_handed_out_once_in_writes_of_all_kinds(queue_of) -> None:
    spec = spec_of(op=[{"write": 1}, {"write": 4}], drive={"window": "30m"})
    queue = queue_of(spec, SINGLE, MULTI)
    rows: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    kinds = [SINGLE, MULTI, SINGLE]
    while kinds and not queue.exhausted:
        for kind in list(kinds):
            write = queue.take(*kind) or queue.wait_for(*kind)
            if write is None:
                kinds.remove(kind)
                continue
            assert 1 <= write.payload.points <= kind[0]
            rows[write.stream, write.block] += range(write.offset, write.offset + write.payload.points)
    assert queue.exhausted
    assert sum(map(len, rows.values())) == 8 * 180
    assert all(sorted(found) == list(range(len(found))) for found in rows.values())
    assert {stream for stream, _ in rows} == {0, 1, 2, 3}
    assert queue.encode_ns > 0


def ready_bytes(queue: PayloadQueue) -> int:
    """Return the encoded bytes of the bursts that are not unpacked yet."""
    return sum(len(frame.content) for kind in queue._kinds.values() for frame in kind.bursts)


def test_what_is_ready_is_bounded_in_bytes(queue_of, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_queue, "READY_BYTES", 2**20)
    kind = (2_000, WriteMode.MULTI)
    queue = queue_of(spec_of(op=[{"write": 2_000}]), kind)
    seen = [ready_bytes(queue)]
    for _ in range(40):
        assert queue.take(*kind) or queue.wait_for(*kind)
        gevent.sleep(0.01)
        seen.append(ready_bytes(queue))
    assert 2**18 < max(seen) <= 2**20  # sixteen writes would take 2.4 MB


def test_a_write_that_is_larger_than_the_bound_is_encoded_all_the_same(queue_of, monkeypatch) -> None:
    monkeypatch.setattr(payload_queue, "READY_BYTES", 1_000)
    kind = (2_000, WriteMode.MULTI)
    queue = queue_of(spec_of(op=[{"write": 2_000}]), kind)
    for _ in range(5):
        write = queue.take(*kind) or queue.wait_for(*kind)
        assert write.payload.points == 2_000


def test_a_kind_that_nobody_announced_is_encoded_when_it_is_first_taken(queue_of) -> None:
    queue = queue_of(spec_of(op=[{"write": 1}]))
    assert queue.take(*MULTI) is None
    write = queue.wait_for(*MULTI)
    assert write is not None
    assert (write.block, write.offset, write.payload.points) == (0, 0, 4)


def test_a_size_that_does_not_divide_the_blocks_is_named(queue_of) -> None:
    queue = queue_of(spec_of(op=[{"write": 1}]))
    with pytest.raises(UserMistake, match="writes of 7 points do not fit blocks of 4096"):
        queue.take(7, WriteMode.MULTI)


def test_the_encoder_of_writes_that_were_not_announced_is_started_once_with_the_first() -> None:
    reasons: list[str] = []
    queue = PayloadQueue(job_of(spec_of()), reasons.append)
    assert queue._encoder is None
    taking = [
        gevent.spawn(lambda kind=kind: queue.take(*kind) or queue.wait_for(*kind)) for kind in (SINGLE, MULTI) * 2
    ]
    gevent.joinall(taking, timeout=60)
    writes = [greenlet.value for greenlet in taking]
    assert [write.payload.points for write in writes] == [1, 4, 1, 4]
    places = {(write.stream, write.block, write.offset + n) for write in writes for n in range(write.payload.points)}
    assert len(places) == 10
    queue.close()
    assert reasons == []


def test_an_encoder_that_cannot_begin_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = job_of(spec_of(op=[{"write": 1}]))._replace(target="nowhere")
    queue = PayloadQueue(broken, pytest.fail)
    with pytest.raises(Broken, match=r"writes cannot be encoded: UserMistake: .*'nowhere'"):
        queue.prepare([SINGLE])
    queue.close()


def test_the_end_of_an_encoder_is_seen_before_the_event_loop_turns() -> None:
    """In a process that is patched as Locust's are: gevent's `os.close` closes nothing before the event loop turns."""
    code = """
from gevent.monkey import get_original, patch_all
patch_all()
import signal
from tsbench.servers.children import Child, program
encoder = Child(program("tsbench.drive.feed.encoder"), talk=True)
encoder.send_signal(signal.SIGKILL)
readable, _, _ = get_original("select", "select")([encoder.incoming], [], [], 10)
print(len(readable), encoder.ended(within_s=10))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout == "1 killed by SIGKILL\n"
