from __future__ import annotations

import json
import tracemalloc
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.measure.test_recorder import T0, S, recorder
from tsbench.measure.hist import Histogram, Interval, SparseHistogram, write_interval, write_log_head
from tsbench.measure.merge import OpTotals, merge, observation
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
        causes = {Outcome.FAILED: "busy", Outcome.UNKNOWN: "timeout", Outcome.PARTIAL: "partial write"}
        return causes.get(self.outcome, "")


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
        response=Histogram([did.response_ns for did in due]),
        service=Histogram([did.service_ns for did in due]),
        done=len(ended),
        failed=sum(did.outcome is Outcome.FAILED for did in ended),
        unknown=sum(did.outcome is Outcome.UNKNOWN for did in ended),
        points=sum(did.points for did in ended),
        causes=Counter(did.cause for did in ended if did.cause),
        partial=sum(did.outcome is Outcome.PARTIAL for did in ended),
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
        for name in ("done", "failed", "unknown", "partial", "points", "causes"):
            assert getattr(got, name) == getattr(want, name), name
    frame = merged.per_second
    assert frame is not None
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
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-4]))
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


@pytest.mark.parametrize("seconds", [-START_S + 100, 9 * 86_400])
def test_a_second_far_from_the_others_is_damage_and_takes_no_memory(tmp_path: Path, seconds: int) -> None:
    record(tmp_path, many(), 40)
    path = tmp_path / "process" / "p1.ops.jsonl"
    first, *rest = path.read_text().splitlines(keepends=True)
    found = json.loads(first)
    path.write_text("".join([json.dumps(found | {"second": found["second"] + seconds}) + "\n", *rest]))
    with pytest.raises(ValueError, match="the load processes have recorded 1 ops in"):
        merge(tmp_path, start_s=START_S, end_s=END_S)


def test_a_line_without_a_second_is_damage(tmp_path: Path) -> None:
    record(tmp_path, many(), 40)
    (tmp_path / "process" / "p1.ops.jsonl").write_text('{"op": "write-1", "done": 1}\n')
    with pytest.raises(ValueError, match=r"p1\.ops\.jsonl:1: damaged line"):
        merge(tmp_path, start_s=START_S, end_s=END_S)


def test_nothing_recorded_is_an_empty_table(tmp_path: Path) -> None:
    record(tmp_path, [], 1)
    merged = merge(tmp_path, start_s=START_S, end_s=END_S)
    assert merged.per_second is not None
    assert (merged.totals, len(merged.per_second), merged.recorded, merged.counted) == ({}, 0, 0, 0)
    assert tuple(merged.per_second.columns) == tuple(OPS_COLUMNS)


def test_the_summary_has_rates_over_the_measured_time(tmp_path: Path) -> None:
    record(tmp_path, many(), 40)
    totals = merge(tmp_path, start_s=START_S, end_s=END_S).totals["write-1"]
    summary = totals.figures(END_S - START_S)
    assert (summary.count, summary.ok, summary.points) == (180, 180, 1_800)
    assert (summary.ops_per_s, summary.points_per_s) == (30.0, 300.0)
    assert summary.service_ns["p50"] == Histogram([4_000_000]).max_ns
    assert list(summary.response_ns) == ["p50", "p90", "p99", "p99.9", "max", "mean"]


def test_totals_of_ops_add_up() -> None:
    one = OpTotals(
        Histogram([1, 2]), Histogram([1]), done=2, failed=1, points=10, causes=Counter(busy=1), unsent=Histogram([7])
    )
    other = OpTotals(Histogram([3]), Histogram([2]), done=1, unknown=1, points=5, causes=Counter(busy=1, timeout=1))
    one.add(other)
    assert len(one.unsent) == 1
    assert (len(one.response), len(one.service), one.done, one.failed, one.unknown, one.points) == (3, 2, 3, 1, 1, 15)
    assert one.causes == Counter(busy=2, timeout=1)


def test_a_write_refused_in_part_is_neither_ok_nor_failed_and_its_acknowledged_points_count(tmp_path: Path) -> None:
    record(tmp_path, [*many(), Did(0, "write-1", T0 + 3 * S, 1, 1, 4_990, Outcome.PARTIAL)], 40)
    summary = merge(tmp_path, start_s=START_S, end_s=END_S).totals["write-1"].figures(END_S - START_S)
    assert {key: getattr(summary, key) for key in ("ok", "failed", "unknown", "partial", "points")} == {
        "ok": 180,
        "failed": 0,
        "unknown": 0,
        "partial": 1,
        "points": 1_800 + 4_990,
    }
    assert summary.causes == {"partial write": 1}


def test_evidence_is_of_the_measured_seconds_only(tmp_path: Path) -> None:
    (tmp_path / "process").mkdir()
    with (tmp_path / "process" / "p0.self.hlog").open("w") as out:
        write_log_head(out, start_s=START_S)
        for second, lag in ((START_S - 1, 900), (START_S, 100), (END_S - 1, 100), (END_S, 900)):
            write_interval(out, Interval("lag", second, 1.0, SparseHistogram.recorded([lag] * 3)))
            write_interval(out, Interval("wait", second, 1.0, SparseHistogram.recorded([lag * 2])))
    lines = [
        f'{{"second": {second}, "cpu_ns": {cpu}, "wall_ns": 1000}}\n'
        for second, cpu in ((START_S - 1, 1_000), (START_S, 300), (END_S - 1, 100), (END_S, 1_000))
    ]
    (tmp_path / "process" / "p0.cpu.jsonl").write_text("".join(lines) + '{"second": 1')
    seen = observation(tmp_path, "p0", start_s=START_S, end_s=END_S)
    evidence = seen.evidence
    assert (evidence.hub_cpu_share, evidence.hub_lag_p50_ns, evidence.pool_wait_p50_ns) == (0.2, 100, 200)
    assert len(seen.lag) == 6


def peak_mb(place: Path, seconds: int) -> float:
    """The peak of what merging a run of that length allocates: three ops, two processes."""
    for process in ("p0", "p1"):
        each = recorder(place, process)
        for second in range(seconds):
            for op in ("write-1", "lastpoint", "high-cpu"):
                for part in range(5):
                    due_ns = T0 + second * S + part * S // 5
                    each.op(op, due_ns, due_ns + 1_000_000 * (part + 1), 900_000, points=1)
        each.close()
    tracemalloc.start()
    merged = merge(place, start_s=START_S, end_s=T0 // S + seconds)
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    assert merged.recorded == merged.counted == seconds * 3 * 5 * 2
    return peak


@pytest.mark.slow
def test_memory_hardly_grows_with_the_length_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "short").mkdir()
    (tmp_path / "long").mkdir()
    short, long = peak_mb(tmp_path / "short", 20), peak_mb(tmp_path / "long", 120)
    assert long - short < 15, f"{short:.1f} MB for 20 s, {long:.1f} MB for 120"


def test_arrivals_that_were_never_sent_count_with_the_time_they_had_waited(tmp_path: Path) -> None:
    each = recorder(tmp_path, "p0")
    due_ns = T0 + 3 * S
    for number in range(80):
        each.op("write-1" if number % 4 else "lastpoint", due_ns, due_ns + 2_000_000, 1_000_000)
    each.unsent([due_ns] * 20, due_ns + 3 * S)
    each.unsent([T0], due_ns)  # in the warm-up
    each.close()
    merged = merge(tmp_path, start_s=START_S, end_s=END_S)
    assert merged.recorded == merged.counted == 80
    assert {op: len(totals.unsent) for op, totals in merged.totals.items()} == {"write-1": 15, "lastpoint": 5}
    summary = merged.totals["write-1"].figures(END_S - START_S)
    assert (summary.count, summary.unsent) == (60, 15)
    assert summary.response_ns["p50"] == Histogram([2_000_000]).max_ns
    assert summary.response_ns["p90"] == summary.response_ns["max"] == Histogram([3 * S]).max_ns
    assert summary.response_at_least == ("p90", "p99", "p99.9", "max", "mean")
    assert summary.service_ns["max"] == Histogram([1_000_000]).max_ns


def test_a_percentile_is_exact_if_no_unsent_arrival_could_move_it(tmp_path: Path) -> None:
    totals = OpTotals(Histogram([5 * S] * 99 + [9 * S]), unsent=Histogram([1 * S]))
    summary = totals.figures(1.0)
    assert summary.response_ns["p50"] == Histogram([5 * S]).max_ns
    assert summary.response_at_least == ("p99", "p99.9", "max", "mean"), "p99 is the 100th of 101: 5 s or 9 s"
