from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsbench.measure.hist import Histogram, scan_log
from tsbench.measure.recorder import NOTICEABLE_NS, Recorder
from tsbench.model import Outcome, PartialWrite
from tsbench.net.stamps import READ, STAMPED, STEPPED
from tsbench.results.ledger import LEDGER_DTYPE, LEDGER_RECORD, read_ledgers
from tsbench.results.limits import LIMITS

if TYPE_CHECKING:
    from pathlib import Path


S = 1_000_000_000
T0 = 1_700_000_000 * S


def recorder(place: Path, process: str = "p0", *, start_ns: int = T0) -> Recorder:
    for name in ("latency", "process"):
        (place / name).mkdir(exist_ok=True)
    return Recorder(place, process, start_ns=start_ns)


def counted(place: Path, process: str = "p0") -> list[dict[str, object]]:
    return [json.loads(line) for line in (place / "process" / f"{process}.ops.jsonl").read_text().splitlines()]


def test_an_op_counts_when_it_was_due_and_is_done_when_it_ended(tmp_path: Path) -> None:
    record = recorder(tmp_path)
    record.op("write-1", due_ns=T0 + S - 1, end_ns=T0 + 3 * S, service_ns=5, points=7)
    record.close()
    assert counted(tmp_path) == [
        {"op": "write-1", "second": T0 // S, "count": 1},
        {
            "op": "write-1", "second": T0 // S + 3,
            "done": 1, "failed": 0, "unknown": 0, "partial": 0, "points": 7, "read": 0, "stepped": 0, "causes": {},
        },
    ]  # fmt: skip
    log = {i.tag: (i.start_s, i.decode().max_ns) for i in scan_log(tmp_path / "latency" / "p0.hlog")}
    start, response_ns = log["write-1|response"]
    assert start == T0 // S
    assert abs(response_ns - (2 * S + 1)) < 3_000_000, "three digits"
    assert log["write-1|service"] == (T0 // S, 5)


def test_failed_and_unknown_ops_are_counted_with_their_cause(tmp_path: Path) -> None:
    record = recorder(tmp_path)
    for outcome, cause in ((Outcome.OK, ""), (Outcome.FAILED, "busy"), (Outcome.UNKNOWN, "timeout")) * 2:
        record.op("q", due_ns=T0, end_ns=T0 + 1, service_ns=1, outcome=outcome, cause=cause)
    record.close()
    (done,) = (line for line in counted(tmp_path) if "done" in line)
    assert (done["done"], done["failed"], done["unknown"]) == (6, 2, 2)
    assert done["causes"] == {"busy": 2, "timeout": 2}
    assert record.total == 6


def test_ends_that_were_read_or_across_a_step_of_the_clock_are_counted(tmp_path: Path) -> None:
    record = recorder(tmp_path)
    for source in (STAMPED, STAMPED, STAMPED, READ, READ, STEPPED):
        record.op("q", T0, T0 + 1, 1, source=source)
    record.close()
    (done,) = (line for line in counted(tmp_path) if "done" in line)
    assert (done["done"], done["read"], done["stepped"]) == (6, 2, 1)


def test_delays_by_the_load_process_are_subtracted_where_they_are_noticeable(tmp_path: Path) -> None:
    record = recorder(tmp_path)
    for delayed_ns in (0, NOTICEABLE_NS - 1, NOTICEABLE_NS, 500_000):
        record.op("q", T0, T0 + 1_000_000, 900_000, delayed_ns=delayed_ns)
    record.op("r", due_ns=T0, end_ns=T0 + 1_000_000, service_ns=900_000, delayed_ns=NOTICEABLE_NS - 1)
    record.close()
    log = {i.tag: i.decode().whole().counts for i in scan_log(tmp_path / "latency" / "p0.hlog")}

    def of(*times_ns: int) -> object:
        return Histogram(times_ns).counts.tolist()

    assert log["q|response"].tolist() == of(*[1_000_000] * 4)
    assert log["q|response-undelayed"].tolist() == of(1_000_000, 1_000_000, 1_000_000 - NOTICEABLE_NS, 500_000)
    assert log["q|service"].tolist() == of(*[900_000] * 4)
    assert log["r|response-undelayed"].tolist() == of(1_000_000)


def test_a_record_of_the_ledger_is_packed_as_it_is_read() -> None:
    assert LEDGER_RECORD.size == LEDGER_DTYPE.itemsize
    numbers = (1, 2**40, 3, 4, 5, 6, 2, 2**61, 2**62)
    assert np.frombuffer(LEDGER_RECORD.pack(*numbers), dtype=LEDGER_DTYPE).tolist() == [numbers]


def test_flushing_twice_writes_nothing_twice(tmp_path: Path) -> None:
    record = recorder(tmp_path)
    record.op("q", due_ns=T0, end_ns=T0 + 1, service_ns=1)
    record.wrote(1, 2, 3, 4, Outcome.OK)
    record.flush()
    record.flush()
    record.close()
    assert len(counted(tmp_path)) == 2
    assert len(read_ledgers([tmp_path / "process" / "p0.ledger"])) == 1


def test_a_flush_that_is_ended_in_a_pause_loses_nothing_and_the_next_writes_the_rest_once(tmp_path: Path) -> None:
    record = recorder(tmp_path)
    for number in range(100):
        record.op(f"q{number % 4}", due_ns=T0, end_ns=T0 + 1, service_ns=1)
    pauses = 0

    def ends_in_the_third() -> None:
        nonlocal pauses
        pauses += 1
        record.op("late", due_ns=T0, end_ns=T0 + 1, service_ns=1)
        if pauses == 3:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        record.flush(ends_in_the_third)
    record.close()
    counts = Counter({line["op"]: line["count"] for line in counted(tmp_path) if "count" in line})
    assert counts == {"q0": 25, "q1": 25, "q2": 25, "q3": 25, "late": 3}
    tags = Counter(line.tag for line in scan_log(tmp_path / "latency" / "p0.hlog"))
    assert set(tags.values()) == {1}
    assert len(tags) == 5 * 3


def test_what_was_flushed_is_on_disk_before_the_end(tmp_path: Path) -> None:
    record = recorder(tmp_path)
    record.op("q", due_ns=T0, end_ns=T0 + 1, service_ns=1)
    record.wrote(1, 2, 3, 4, Outcome.OK)
    record.flush()
    assert len(counted(tmp_path)) == 2
    assert len(list(scan_log(tmp_path / "latency" / "p0.hlog"))) == 3
    assert len(read_ledgers([tmp_path / "process" / "p0.ledger"])) == 1
    record.close()


def test_readers_of_the_log_do_not_pass_over_its_first_second(tmp_path: Path) -> None:
    record = recorder(tmp_path, start_ns=T0 + 999_000_000)
    record.op("q", due_ns=T0 + 999_500_000, end_ns=T0 + 999_600_000, service_ns=1)
    record.close()
    from hdrh.histogram import HdrHistogram
    from hdrh.log import HistogramLogReader

    reader = HistogramLogReader(str(tmp_path / "latency" / "p0.hlog"), HdrHistogram(1, 3600 * S, 3))
    first = reader.get_next_interval_histogram()
    assert first is not None
    assert first.get_total_count() == 1


WRITES = st.lists(
    st.tuples(
        st.integers(0, LIMITS.streams),
        st.integers(0, LIMITS.blocks),
        st.integers(0, LIMITS.block_points),
        st.integers(1, LIMITS.block_points),
        st.sampled_from(Outcome),
    ),
    max_size=30,
)


@given(WRITES, st.integers(1, 7))
def test_the_ledger_keeps_every_write(
    tmp_path_factory: pytest.TempPathFactory, writes: list[tuple[int, int, int, int, Outcome]], flush_every: int
) -> None:
    place = tmp_path_factory.mktemp("ledger")
    record = recorder(place)
    for number, write in enumerate(writes):
        record.wrote(*write)
        if number % flush_every == 0:
            record.flush()
    record.close()
    ledger = read_ledgers([place / "process" / "p0.ledger"])
    kept = ["stream", "block", "offset", "points", "outcome"]
    assert [tuple(row) for row in ledger[kept].tolist()] == [tuple(map(int, write)) for write in writes]
    for record_of, fate in (("acknowledged", Outcome.OK), ("refused", Outcome.FAILED)):
        assert ledger[record_of].tolist() == [points * (outcome is fate) for *_, points, outcome in writes]


def test_a_write_refused_in_part_keeps_how_many_points_were_acknowledged_and_refused(tmp_path: Path) -> None:
    record = recorder(tmp_path)
    some = PartialWrite("partial write: dropped=10", acknowledged=4_990, refused=10)
    record.wrote(1, 2, 0, 5_000, Outcome.PARTIAL, some, T0, T0 + 5)
    record.flush()
    record.wrote(1, 1, 0, 5_000, Outcome.OK, None, T0 + 1, T0 + 2)
    none_of_it = PartialWrite("one shard's", acknowledged=0, refused=10)
    record.wrote(1, 2, 5_000, 5_000, Outcome.PARTIAL, none_of_it, T0 + 3, T0 + 4)
    record.close()
    ledger = read_ledgers([tmp_path / "process" / "p0.ledger"])
    assert ledger.tolist() == [
        (1, 2, 0, 5_000, 4_990, 10, 3, T0, T0 + 5),
        (1, 1, 0, 5_000, 5_000, 0, 0, T0 + 1, T0 + 2),
        (1, 2, 5_000, 5_000, 0, 10, 3, T0 + 3, T0 + 4),
    ]


@pytest.mark.parametrize(
    ("refused", "records"),
    [
        ((0,), [(50, 1, 0), (51, 0, 9)]),
        ((9,), [(50, 0, 9), (59, 1, 0)]),
        ((3, 4, 7), [(50, 0, 3), (53, 2, 0), (55, 0, 2), (57, 1, 0), (58, 0, 2)]),
        (tuple(range(10)), [(50, 10, 0)]),
    ],
)
def test_a_write_whose_refused_points_are_known_is_a_record_for_each_run_of_them(
    tmp_path: Path, refused: tuple[int, ...], records: list[tuple[int, int, int]]
) -> None:
    record = recorder(tmp_path)
    error = PartialWrite("E11000", acknowledged=10 - len(refused), refused=len(refused), refused_rows=refused)
    record.wrote(1, 2, 50, 10, Outcome.PARTIAL, error, T0, T0 + 5)
    record.close()
    ledger = read_ledgers([tmp_path / "process" / "p0.ledger"])
    assert set(ledger[["sent_ns", "ended_ns"]].tolist()) == {(T0, T0 + 5)}
    assert ledger[["offset", "refused", "acknowledged"]].tolist() == records
    assert set(ledger["outcome"].tolist()) <= {int(Outcome.OK), int(Outcome.FAILED)}


def test_ledgers_of_several_processes_are_read_together_and_a_cut_record_is_left_out(tmp_path: Path) -> None:
    for process in range(3):
        record = recorder(tmp_path, f"p{process}")
        for block in range(4):
            record.wrote(process, block, 0, 10, Outcome.OK)
        record.close()
    killed = tmp_path / "process" / "p1.ledger"
    killed.write_bytes(killed.read_bytes()[: -LEDGER_DTYPE.itemsize // 2])
    ledger = read_ledgers(sorted((tmp_path / "process").glob("*.ledger")))
    assert np.bincount(ledger["stream"]).tolist() == [4, 3, 4]
    assert len(read_ledgers([])) == 0
