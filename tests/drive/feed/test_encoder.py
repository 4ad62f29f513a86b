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
from tsbench.scenario.parts import Op
from tsbench.scenario.spec import Scenario
from tsbench.scenario.validation import schema_of
from tsbench.targets import registry

if TYPE_CHECKING:
    from tsbench.scenario.spec import RunSpec


def spec_of(target: str = "sqlite", window: str = "30m", use_case: str = "cpu-only") -> RunSpec:
    found = document(op=[{"write": 1}, {"write": 4}], drive={"window": window}, target={"name": target})
    found["world"] |= {"use_case": use_case}
    (spec,) = Scenario(Path("test.toml"), found).expand()
    return spec


def writes_of(spec: RunSpec, *streams: int) -> WriteStreams:
    schema = schema_of(spec, registry.get(spec.target.name)).name
    return WriteStreams.of(EncoderJob.of(spec, spec.world_at(), schema, streams))


def places(burst: Burst) -> list[tuple[int, int, int]]:
    return list(zip(burst.streams, burst.blocks, burst.offsets, strict=True))


@pytest.mark.parametrize("length", [1, 7, 24, 1_000])
def test_frames_are_whole_however_they_are_cut(length: int) -> None:
    bursts = [
        Burst([stream], [1], [2], ["cpu"], ["a"], [("x" * size,)], [1], [size])
        for stream, size in enumerate((0, 5, 900))
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
    assert places(singles) == [(0, 0, row) for row in range(100)]
    assert places(multi) == [(2, 0, 0), (2, 0, 4), (2, 0, 8)]
    assert list(multi.counts) == [4, 4, 4]
    rest = streams.next(1, WriteMode.SINGLE, 1_000)
    assert places(rest) == [(0, 0, row) for row in range(100, 2 * 180)]  # all of stream 0, which is one block
    assert places(streams.next(4, WriteMode.MULTI, 3))[0] == (2, 0, 12)
    assert streams.next(1, WriteMode.SINGLE, 10) == Burst()


@pytest.mark.parametrize("at_once", [8, 2])
def test_each_burst_is_of_another_stream_and_all_points_come_once(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoder, "STREAMS_AT_ONCE", at_once)
    streams, seen = writes_of(spec_of(), 0, 1, 2, 3), []
    while (burst := streams.next(4, WriteMode.MULTI, 10)).data:
        seen.append(places(burst))
    turns = [{stream for stream, _, _ in one} for one in seen[:12]]
    assert all(len(one) == 1 and one != other for one, other in pairwise(turns))
    assert len(set.union(*turns)) == min(at_once, 4)
    every = [place for one in seen for place in one]
    assert len(every) == len({*every})
    for stream in range(4):
        ends = [(block, offset) for of, block, offset in every if of == stream]
        assert ends == sorted(ends)  # in the stream's own order
        assert len(ends) * 4 == 2 * 180


@pytest.mark.parametrize("use_case", ["cpu-only", "devops"])
def test_writes_of_a_replay_come_in_the_order_of_time(use_case: str) -> None:
    spec = spec_of(use_case=use_case).model_copy(update={"op": (Op(write=1),), "block": 64})
    world, schema = spec.world_at(), schema_of(spec, registry.get("sqlite")).name
    job = EncoderJob.of(spec, world, schema, range(world.spec.streams))
    streams, seen = WriteStreams.of(job._replace(by_time=True)), []
    while (burst := streams.next(1, WriteMode.SINGLE, 10)).data:
        seen += places(burst)
    first, last = spec.write_ticks(world)
    own = {
        (stream, block, row): int(time_ns)
        for stream in range(world.spec.streams)
        for block, batch in enumerate(world.batches(stream, points=64, first_tick=first, last_tick=last))
        for row, time_ns in enumerate(batch.time_ns)
    }
    assert len(own) == len(seen) == len({*seen})
    times = [own[place] for place in seen]
    assert times == sorted(times)
    assert len({block for _, block, _ in seen}) > 2


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
