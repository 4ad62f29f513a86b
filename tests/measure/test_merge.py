from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.measure.test_recorder import T0, S, recorder
from tsbench.measure.hist import Histogram, Interval, write_interval, write_log_head
from tsbench.measure.merge import OpTotals, evidence, merge
from tsbench.model import Outcome
from tsbench.results.rundir import OPS_COLUMNS

if TYPE_CHECKING:
    from pathlib import Path

START_S, END_S = T0 // S + 2, T0 // S + 8
"""Two seconds of warm-up, six measured, and some after."""


@dataclass(frozen=True)
class Did:
    process: int
    op: str
    due_ns: int
    response_ns: int
    service_ns: int
    points: int
    outcome: Outcome

    @property
    def cause(self) -> str:
        return {Outcome.OK: "", Outcome.FAILED: "busy", Outcome.UNKNOWN: "timeout"}[self.outcome]


OPS = st.lists(
    st.builds(
        Did,
        process=st.integers(0, 2),
        op=st.sampled_from(["write-1", "write|odd", "last point"]),
        due_ns=st.integers(T0, T0 + 10 * S),
        response_ns=st.integers(0, 4 * S),
        service_ns=st.integers(0, 2 * S),
        points=st.integers(0, 500),
        outcome=st.sampled_from(Outcome),
    ),
    max_size=80,
)


def record(place: Path, ops: list[Did], flush_every: int) -> None:
    recorders = [recorder(place, f"p{i}") for i in range(3)]
    for number, did in enumerate(ops):
        recorders[did.process].op(
            did.op,
            due_ns=did.due_ns,
            end_ns=did.due_ns + did.response_ns,
            service_ns=did.service_ns,
            points=did.points,
            outcome=did.outcome,
            cause=did.cause,
        )
        if number % flush_every == 0:
            recorders[number % 3].flush()
    for each in recorders:
        each.close()


def measured(time_ns: int) -> bool:
    return START_S <= time_ns // S < END_S


def expected(ops: list[Did], op: str) -> OpTotals:
    """The totals by the plainest way."""
    due = [did for did in ops if did.op == op and measured(did.due_ns)]
    ended = [did for did in ops if did.op == op and measured(did.due_ns + did.response_ns)]
    return OpTotals(
        Histogram([did.response_ns for did in due]),
        Histogram([did.service_ns for did in due]),
        len(ended),
        sum(did.outcome is Outcome.FAILED for did in ended),
        sum(did.outcome is Outcome.UNKNOWN for did in ended),
        sum(did.points for did in ended),
        Counter(did.cause for did in ended if did.cause),
    )


@examples(25)
@given(OPS, st.integers(1, 20))
def test_ops_of_several_processes_and_flushes_merge_to_what_one_pass_gives(
    tmp_path_factory: pytest.TempPathFactory, ops: list[Did], flush_every: int
) -> None:
    place = tmp_path_factory.mktemp("merge")
    record(place, ops, flush_every)
    merged = merge(place, start_s=START_S, end_s=END_S)
    assert merged.recorded == merged.counted == len(ops)
    for op in {did.op for did in ops}:
        want, got = expected(ops, op), merged.totals.get(op, OpTotals())
        assert np.array_equal(got.response.counts, want.response.counts)
        assert np.array_equal(got.service.counts, want.service.counts)
        for name in ("done", "failed", "unknown", "points", "causes"):
            assert getattr(got, name) == getattr(want, name), name
    frame = merged.per_second
    assert tuple(frame.columns) == tuple(OPS_COLUMNS)
    assert frame["count"].sum() == frame["done"].sum() == len(ops)
    assert frame["points"].sum() == sum(did.points for did in ops)
    for row in frame.iter_rows(named=True):
        at = [d for d in ops if d.op == row["op"] and d.due_ns // S == row["second"] + START_S]
        assert row["response_p99_ns"] == Histogram([d.response_ns for d in at]).percentile_ns(99)
        assert row["count"] == len(at)


def many(count: int = 300) -> list[Did]:
    return [
        Did(i % 3, "write-1", T0 + i * S // 30, 5_000_000 + i * 1_000, 4_000_000, 10, Outcome.OK) for i in range(count)
    ]


def test_a_last_line_cut_off_by_a_kill_costs_that_line_only(tmp_path: Path) -> None:
    record(tmp_path, many(), 40)
    whole = merge(tmp_path, start_s=START_S, end_s=END_S)
    for path, cut in ((tmp_path / "latency" / "p1.hlog", 30), (tmp_path / "process" / "p1.ops.jsonl", 5)):
        path.write_bytes(path.read_bytes()[:-cut])
    merged = merge(tmp_path, start_s=START_S, end_s=END_S)
    assert 0 < whole.counted - merged.counted <= 10
    assert merged.recorded == whole.recorded, "the last line was of service times"
    assert len(merged.totals["write-1"].response) == 180


def test_counts_disagree_when_a_process_lost_ops(tmp_path: Path) -> None:
    record(tmp_path, many(), 40)
    path = tmp_path / "latency" / "p2.hlog"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-2]))
    merged = merge(tmp_path, start_s=START_S, end_s=END_S)
    assert merged.recorded < merged.counted


def test_a_damaged_line_in_the_middle_is_told(tmp_path: Path) -> None:
    record(tmp_path, many(), 40)
    path = tmp_path / "latency" / "p0.hlog"
    lines = path.read_text().splitlines(keepends=True)
    lines[6] = lines[6][:40] + "\n"
    path.write_text("".join(lines))
    with pytest.raises(ValueError, match=r"p0\.hlog:7: damaged"):
        merge(tmp_path, start_s=START_S, end_s=END_S)


def test_nothing_recorded_is_an_empty_table(tmp_path: Path) -> None:
    record(tmp_path, [], 1)
    merged = merge(tmp_path, start_s=START_S, end_s=END_S)
    assert (merged.totals, len(merged.per_second), merged.recorded, merged.counted) == ({}, 0, 0, 0)
    assert tuple(merged.per_second.columns) == tuple(OPS_COLUMNS)


def test_the_summary_has_rates_over_the_measured_time(tmp_path: Path) -> None:
    record(tmp_path, many(), 40)
    totals = merge(tmp_path, start_s=START_S, end_s=END_S).totals["write-1"]
    summary = totals.summary(END_S - START_S)
    assert (summary["count"], summary["ok"], summary["points"]) == (180, 180, 1_800)
    assert (summary["ops_per_s"], summary["points_per_s"]) == (30.0, 300.0)
    assert summary["service_ns"]["p50"] == Histogram([4_000_000]).max_ns
    assert list(summary["response_ns"]) == ["p50", "p90", "p99", "p99.9", "max", "mean"]


def test_totals_of_ops_add_up() -> None:
    one = OpTotals(Histogram([1, 2]), Histogram([1]), 2, 1, 0, 10, Counter(busy=1))
    one.add(OpTotals(Histogram([3]), Histogram([2]), 1, 0, 1, 5, Counter(busy=1, timeout=1)))
    assert (len(one.response), len(one.service), one.done, one.failed, one.unknown, one.points) == (3, 2, 3, 1, 1, 15)
    assert one.causes == Counter(busy=2, timeout=1)


def test_evidence_is_of_the_measured_seconds_only(tmp_path: Path) -> None:
    (tmp_path / "process").mkdir()
    with (tmp_path / "process" / "p0.self.hlog").open("w") as out:
        write_log_head(out, start_s=START_S)
        for second, lag in ((START_S - 1, 900), (START_S, 100), (END_S - 1, 100), (END_S, 900)):
            write_interval(out, Interval("lag", second, 1.0, Histogram([lag] * 3)))
            write_interval(out, Interval("wait", second, 1.0, Histogram([lag * 2])))
    lines = [
        f'{{"second": {second}, "cpu_ns": {cpu}, "wall_ns": 1000}}\n'
        for second, cpu in ((START_S - 1, 1_000), (START_S, 300), (END_S - 1, 100), (END_S, 1_000))
    ]
    (tmp_path / "process" / "p0.cpu.jsonl").write_text("".join(lines) + '{"second": 1')
    seen, lag_histogram = evidence(tmp_path, "p0", start_s=START_S, end_s=END_S, service_p50_ns=77)
    assert (seen.hub_cpu_share, seen.hub_lag_p50_ns, seen.pool_wait_p50_ns, seen.service_p50_ns) == (0.2, 100, 200, 77)
    assert len(lag_histogram) == 6
