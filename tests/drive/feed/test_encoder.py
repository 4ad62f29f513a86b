"""The messages between a load process and its encoder, and the writes that the encoder cuts from streams."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.drive.support import document
from tsbench.drive.feed import encoder
from tsbench.drive.feed.encoder import Burst, EncoderJob, Inbox, WriteStreams, framed
from tsbench.model import WriteMode
from tsbench.scenario.spec import Scenario
from tsbench.scenario.validation import schema_of
from tsbench.targets import registry

if TYPE_CHECKING:
    from tsbench.scenario.spec import RunSpec


def spec_of(target: str = "sqlite", window: str = "30m") -> RunSpec:
    found = document(op=[{"write": 1}, {"write": 4}], drive={"window": window}, target={"name": target})
    (spec,) = Scenario(Path("test.toml"), found).expand()
    return spec


def writes_of(spec: RunSpec, *streams: int) -> WriteStreams:
    schema = schema_of(spec, registry.get(spec.target.name)).name
    return WriteStreams.of(EncoderJob.of(spec, spec.world_at(), schema, streams))


@pytest.mark.parametrize("length", [1, 7, 24, 1_000])
def test_frames_are_whole_however_they_are_cut(length: int) -> None:
    bursts = [
        Burst(stream, 1, 2, "cpu", ["a"], [("x" * size,)], [1], [size]) for stream, size in enumerate((0, 5, 900))
    ]
    sent = b"".join(framed(burst, number, 10 * number) for number, burst in enumerate(bursts))
    inbox = Inbox()
    frames = [frame for start in range(0, len(sent), length) for frame in inbox.add(sent[start : start + length])]
    assert [frame.message for frame in frames] == bursts
    assert [(frame.writes, frame.encode_ns) for frame in frames] == [(0, 0), (1, 10), (2, 20)]


def test_a_view_of_encoded_bytes_arrives_as_bytes() -> None:
    (frame,) = Inbox().add(framed(Burst(data=[memoryview(b"cpu x=1 2\n")])))
    assert frame.message.data == [b"cpu x=1 2\n"]


def test_streams_take_turns_and_a_block_is_cut_in_one_way() -> None:
    streams = writes_of(spec_of(), 0, 2)
    singles = streams.next(1, WriteMode.SINGLE, 100)
    multi = streams.next(4, WriteMode.MULTI, 3)
    assert (singles.stream, singles.block, singles.offset, len(singles.data)) == (0, 0, 0, 100)
    assert (multi.stream, multi.block, multi.offset, list(multi.counts)) == (2, 0, 0, [4, 4, 4])
    rest = streams.next(1, WriteMode.SINGLE, 1_000)
    assert (rest.stream, rest.block, rest.offset) == (0, 0, 100)
    assert 100 + len(rest.data) == 2 * 180  # all of stream 0, which is one block
    assert streams.next(4, WriteMode.MULTI, 3).offset == 12
    assert streams.next(1, WriteMode.SINGLE, 10) == Burst()


@pytest.mark.parametrize("at_once", [8, 2])
def test_each_burst_is_of_another_stream_and_all_points_come_once(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoder, "STREAMS_AT_ONCE", at_once)
    streams, seen = writes_of(spec_of(), 0, 1, 2, 3), []
    while (burst := streams.next(4, WriteMode.MULTI, 10)).data:
        seen.append(burst)
    assert all(one.stream != other.stream for one, other in pairwise(seen[:12]))
    assert len({one.stream for one in seen[:12]}) == min(at_once, 4)
    places = [(one.stream, one.block, one.offset + 4 * i) for one in seen for i in range(len(one.data))]
    assert len(places) == len({*places}) == sum(len(one.data) for one in seen)
    for stream in range(4):
        ends = [(block, offset) for of, block, offset in places if of == stream]
        assert ends == sorted(ends)  # in the stream's own order
        assert len(ends) * 4 == 2 * 180


def test_a_burst_ends_at_a_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder, "BURST_BYTES", 500)
    burst = writes_of(spec_of(), 0).next(1, WriteMode.SINGLE, 100)
    assert sum(burst.sizes[:-1]) < 500 <= sum(burst.sizes)


def test_the_encoder_makes_what_the_schema_makes() -> None:
    spec = spec_of("influxdb1")
    streams = writes_of(spec, 1)
    world = spec.world_at()
    batch = next(world.batches(1, points=spec.block_points, first_tick=world.ticks(spec.load.window), last_tick=240))
    schema = schema_of(spec, registry.get("influxdb1"))
    expected = list(schema.encode_each(batch, 1, WriteMode.SINGLE))
    burst = streams.next(1, WriteMode.SINGLE, len(batch))
    assert list(burst.data) == [payload.data for payload in expected]
    assert list(burst.sizes) == [payload.nbytes for payload in expected]
