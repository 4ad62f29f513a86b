"""Live figures equal the files' figures, however the processes' updates are divided and ordered."""

from __future__ import annotations

import json
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.results.made import limit
from tsbench.drive.webui import live_figures
from tsbench.drive.webui.live_figures import Figures, Updates, supported_percentiles
from tsbench.drive.webui.tabs import host_rows, latency_rows
from tsbench.measure.hist import Histogram, Interval, SparseHistogram, write_interval, write_log_head
from tsbench.measure.merge import PERCENTS, merge, observation
from tsbench.measure.recorder import Recorder
from tsbench.model import Outcome

if TYPE_CHECKING:
    from pathlib import Path

S = 1_000_000_000
MS = 1_000_000


def through_the_wire(news: Updates) -> Updates:
    return Updates.unpacked(json.loads(json.dumps(news.packed())))


@examples(25)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(100, 103), st.integers(1, 10**10)), min_size=1, max_size=60))
def test_the_merged_news_of_several_processes_are_one_histogram_of_all(ops: list[tuple[int, int, int]]) -> None:
    figures = Figures()
    figures.begin("test")
    boxes = [Updates("test", f"worker-{n}") for n in range(3)]
    for process, second, took_ns in ops:
        boxes[process].saw("write-1|response", second, SparseHistogram.recorded([took_ns]))
        if took_ns % 2:
            figures.take(through_the_wire(boxes[process].take()))
    for box in boxes:
        figures.take(through_the_wire(box.take()))
    ((op, kind, count, percentiles),) = figures.latency()
    expected = supported_percentiles(Histogram(np.array([took_ns for _, _, took_ns in ops])))
    assert (op, kind, count, percentiles) == ("write-1", "response", len(ops), expected)
    for row in figures.since(0)["seconds"]:
        of_second = [took_ns for _, second, took_ns in ops if second == row["second"]]
        assert row["response"] == supported_percentiles(Histogram(of_second))


def test_what_is_shown_after_a_run_is_what_its_files_say(tmp_path: Path) -> None:
    for place in ("latency", "process"):
        (tmp_path / place).mkdir()
    figures = Figures()
    figures.begin("test")
    figures.window.start_s = 101
    recorders = [Recorder(tmp_path, f"worker-{n}", start_ns=100 * S) for n in range(2)]
    boxes = [Updates("test", f"worker-{n}") for n in range(2)]
    for number in range(400):
        recorder, box = recorders[number % 2], boxes[number % 2]
        recorder.observer = box
        failed = number % 40 == 0
        due_ns = 100 * S + number * 10 * MS
        recorder.op(
            "write-10",
            due_ns=due_ns,
            end_ns=due_ns + (number % 7 + 1) * MS,
            service_ns=MS,
            points=0 if failed else 10,
            outcome=Outcome.FAILED if failed else Outcome.OK,
            cause="timeout" if failed else "",
        )
        if number % 100 == 99:
            recorder.flush()
            figures.take(through_the_wire(box.take()))
    for recorder, box in zip(recorders, boxes, strict=True):
        recorder.close()
        figures.take(box.take())
    assert_shown(figures, tmp_path, end_s=200)
    figures.end(103)  # what the results leave out is not shown any more, either
    assert_shown(figures, tmp_path, end_s=103)


def assert_shown(figures: Figures, place: Path, end_s: int) -> None:
    truth = merge(place, start_s=101, end_s=end_s).totals["write-10"]
    shown = {kind: (count, values) for _, kind, count, values in figures.latency()}
    assert shown["response"] == (len(truth.response), supported_percentiles(truth.response))
    assert shown["service"] == (len(truth.service), supported_percentiles(truth.service))
    ((op, tally, _),) = figures.writes()
    assert op == "write-10"
    assert (tally.done, tally.failed, tally.points) == (truth.done, truth.failed, truth.points)
    assert tally.causes == truth.causes == {"timeout": 7 if end_s == 200 else 5}


def test_a_process_is_judged_now_by_the_figures_by_which_the_report_judges_it(tmp_path: Path) -> None:
    (tmp_path / "process").mkdir()
    draw = np.random.default_rng(3)
    figures, box = Figures(), Updates("test", "local")
    figures.begin("test")
    with (
        (tmp_path / "process/local.self.hlog").open("w") as log,
        (tmp_path / "process/local.cpu.jsonl").open("w") as cpu,
    ):
        write_log_head(log, start_s=100)
        for second in range(100, 112):
            for tag in ("lag", "wait"):
                times = SparseHistogram.recorded(draw.integers(0, 10**8, 50))
                write_interval(log, Interval(tag, second, 1.0, times))
                box.saw(tag, second, times)
            used_ns = int(draw.integers(0, S))
            cpu.write(json.dumps({"second": second, "cpu_ns": used_ns, "wall_ns": S}) + "\n")
            box.used(second, used_ns, S)
            box.saw("write-1|response", second, SparseHistogram.recorded([MS]))
    figures.take(through_the_wire(box.take()))
    (own,) = figures._observations()
    truth = observation(tmp_path, "local", start_s=101, end_s=111)
    assert own.evidence == truth.evidence
    assert figures.itself() == (truth.lag.percentiles_ns(PERCENTS.values()), truth.evidence.hub_cpu_share)


def test_a_percentile_of_fewer_ops_than_it_needs_is_not_shown() -> None:
    for count, known in ((1, 1), (2, 2), (10, 3), (99, 3), (100, 4), (999, 4), (1000, 5)):
        values = supported_percentiles(Histogram(np.full(count, MS)))
        assert sum(value is not None for value in values) == known, count
        assert values[list(PERCENTS).index("max")] is not None


def test_after_the_checks_the_host_tab_says_what_the_verdict_says() -> None:
    figures = Figures()
    figures.begin("test")
    figures.host.append({"second": 1.0, "cpu_percent": 1.0})
    figures.verdict = "database", limit(hub_lag_p50_ns=2 * MS, hub_lag_p99_ns=30 * MS, hub_cpu_percent=12.0)
    host, client, _ = host_rows(figures, 0)
    assert host["note"] == "the test was limited by: database"
    assert client["note"] == "its event loop ran 2.0 ms late (p50), 30.0 ms (p99), and used 12% of a core"
    figures.begin("another")
    assert figures.verdict is None


def test_a_late_op_changes_its_second_and_only_that_is_sent_again() -> None:
    figures, box = Figures(), Updates("test", "local")
    figures.begin("test")
    for second in (100, 101, 102):
        box.saw("write-1|response", second, SparseHistogram.recorded([MS]))
    figures.take(box.take())
    seen = figures.since(0)["revision"]
    assert figures.since(seen)["seconds"] == []
    box.saw("write-1|response", 100, SparseHistogram.recorded([9 * S]))
    figures.take(box.take())
    (row,) = figures.since(seen)["seconds"]
    assert row["second"] == 100
    assert row["response"][-1] >= 8.9 * S


def test_news_of_another_test_are_passed_over() -> None:
    figures, box = Figures(), Updates("the one before", "local")
    figures.begin("this one")
    box.saw("write-1|response", 100, SparseHistogram.recorded([MS]))
    figures.take(box.take())
    assert list(figures.latency()) == []


def test_a_busy_event_loop_is_what_limits_now() -> None:
    for cpu_ns, expected in ((S // 10, "database"), (S * 95 // 100, "load generator")):
        figures, box = Figures(), Updates("test", "local")
        figures.begin("test")
        for second in range(100, 106):
            box.saw("lag", second, SparseHistogram.recorded([1000] * 200))
            box.saw("write-1|response", second, SparseHistogram.recorded([10 * MS] * 400))
            box.saw("write-1|service", second, SparseHistogram.recorded([10 * MS] * 400))
            box.counted("write-1", second, {"done": 400, "points": 400})
            box.used(second, cpu_ns, S)
        figures.take(box.take())
        assert figures.limit(users=4)[0] == expected
        (((_, _, rate)),) = figures.writes()
        assert rate == 400


def test_ops_that_are_sent_late_are_shown_and_are_what_limits_now() -> None:
    for late_ms, expected in ((0, "database"), (5, "load generator")):
        figures, box = Figures(), Updates("test", "local")
        figures.begin("test")
        for second in range(100, 106):
            box.saw("lag", second, SparseHistogram.recorded([1000] * 200))
            box.saw("write-1|response", second, SparseHistogram.recorded([10 * MS] * 400))
            box.counted("write-1", second, {"done": 400, "points": 400})
            box.used(second, S // 10, S)
            if late_ms:
                box.saw("write-1|lateness", second, SparseHistogram.recorded([late_ms * MS] * 200))
        figures.take(box.take())
        assert figures.limit(users=4)[0] == expected
        late = [row for row in latency_rows(figures, 4) if row["kind"] == "sent late"]
        assert [(row["count"], row["p50"]) for row in late] == [(1_200, 5.0)][: len(late)]
        assert bool(late) == bool(late_ms)


def test_seconds_that_workers_have_not_all_reported_are_not_yet_shown() -> None:
    figures, box = Figures(delay_s=4), Updates("test", "worker-0")
    figures.begin("test")
    for second in range(100, 110):
        box.counted("write-1", second, {"done": 1})
    figures.take(box.take())
    shown = figures.since(0)
    assert (shown["from"], shown["until"]) == (101, 105), "in its first second a test began somewhere"
    assert figures.since(0, ended=True)["until"] == 109, "in its last second it ended somewhere"


def sparse(least_ns: int, count: int) -> SparseHistogram:
    return SparseHistogram.recorded(least_ns + np.arange(count) * least_ns // 1_000)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["op|service", "lag", "causes", "cpu", "processes"])
def test_a_process_that_reports_without_end_makes_the_history_shorter_not_longer(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_figures, "MOST_KEPT", 20_000)
    figures = Figures()
    figures.begin("test")
    tracemalloc.start()
    try:
        for number in range(1_500):
            second = 1_000 + (600 if not number else number % 600)  # the newest first
            news = Updates("test", f"worker-{number % 2 if kind != 'processes' else number % 900}")
            if kind == "causes":
                news.counted("write-1", second, {"done": 1, "causes": {f"{number % 900} {'x' * 900}": 1}})
            elif kind == "cpu":
                for more in range(100):
                    news.used(number * 100 + more, 1, 2)
            else:
                news.saw(kind if kind != "processes" else "wait", second, sparse(10_000 * (1 + number % 50), 200))
            figures.take(news)
            assert figures._kept <= 20_000
            if number == 900:
                before = tracemalloc.get_traced_memory()[0]
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 200_000
    histories: list[dict[Any, Any]] = [figures._seconds, *figures._own.values()]
    assert figures._kept == sum(row.size for history in histories for row in history.values())


def test_a_history_of_usual_length_is_whole() -> None:
    figures = Figures()
    figures.begin("test")
    for second in range(2_000):
        news = Updates("test", "worker-0")
        news.saw("write-1|response", second, sparse(1_000_000, 300))
        news.saw("lag", second, sparse(1_000, 100))
        news.used(second, 1, 2)
        figures.take(news)
    assert len({second for second, _ in figures._seconds}) == live_figures.KEEP_S
    assert len(figures._own["worker-0"]) == len(figures._cpu["worker-0"]) == 3 * live_figures.NOW_S
