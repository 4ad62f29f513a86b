"""Progress: a bar with figures in a terminal; in a pipe a line per phase, and every few seconds of a long one."""

from __future__ import annotations

import io

from rich.console import Console

from tsbench.cli.progress import EVERY_S, CellProgress
from tsbench.measure.live import Now

NOW = Now(ops_per_s=3_120.4, points_per_s=9_500.0, failed=2, p99_ns={"write": 12_000_000, "query": 30_000_000})
SAID = "3,120 ops/s, 9,500 points/s; p99 write 12.0 ms, query 30.0 ms; 2 failed"


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def shown(*, terminal: bool, left_s: float | None = None) -> tuple[CellProgress, Clock, Console]:
    console, clock = Console(file=io.StringIO(), width=80, force_terminal=terminal), Clock()
    return CellProgress(console, "[1/2] a", left_s, clock=clock), clock, console


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_pipe_gets_a_line_per_phase_and_the_figures_every_few_seconds():
    progress, clock, console = shown(terminal=False)
    with progress:
        progress.phase("load", 1_000_000)
        for _ in range(10):
            clock.now_s += EVERY_S / 5
            progress.advance(50_000)
        progress.phase("measure", 20)
        for _ in range(10):
            clock.now_s += 1
            progress.advance(1)
            progress.show(lambda: NOW)
        progress.phase("check")
    assert text_of(console).splitlines() == [
        "[1/2] a: load",
        "[1/2] a: load: 250,000 of 1,000,000 points, 50,000/s, about 15 s left",
        "[1/2] a: load: 500,000 of 1,000,000 points, 50,000/s, about 10 s left",
        "[1/2] a: measure",
        f"[1/2] a: measure: 5 of 20 s; {SAID}",
        f"[1/2] a: measure: 10 of 20 s; {SAID}",
        "[1/2] a: check",
    ]


def test_a_load_to_which_nothing_answers_says_for_how_long():
    progress, clock, console = shown(terminal=False)
    with progress:
        progress.phase("load", 100)
        progress.advance(50)
        for _ in range(11):
            clock.now_s += 1
            progress.advance(0)
        progress.advance(25)
        clock.now_s += 4
        progress.advance(25)
    assert text_of(console).splitlines() == [
        "[1/2] a: load",
        "[1/2] a: load: 50 of 100 points, 10/s, about 5 s left; has waited 5 s for the server to answer",
        "[1/2] a: load: 50 of 100 points, 5.0/s, about 10 s left; has waited 10 s for the server to answer",
        "[1/2] a: load: 100 of 100 points, 6.7/s, about 1 s left",
    ]


def test_the_queries_of_the_checks_are_counted_from_when_their_number_is_known():
    progress, clock, console = shown(terminal=False)
    with progress:
        progress.phase("check")
        clock.now_s += 60
        progress.expect(40)
        for _ in range(7):
            clock.now_s += 2
            progress.advance(1)
    assert text_of(console).splitlines() == [
        "[1/2] a: check",
        "[1/2] a: check: 1 of 40 queries, 0.5/s, about 78 s left",
        "[1/2] a: check: 4 of 40 queries, 0.5/s, about 72 s left",
        "[1/2] a: check: 7 of 40 queries, 0.5/s, about 66 s left",
    ]


def test_a_line_after_the_window_says_what_is_waited_for_and_does_not_repeat_its_end():
    progress, clock, console = shown(terminal=False)
    with progress:
        progress.phase("measure", 10)
        for _ in range(16):
            clock.now_s += 1
            progress.advance(1)
    assert [line.partition("measure")[2] for line in text_of(console).splitlines()] == [
        *("", ": 5 of 10 s; no figures yet", ": 10 of 10 s; no figures yet"),
        ": 10 s are over, waited 5 s for the load processes to end",
    ]


def test_a_terminal_shows_the_figures_below_the_bar_of_the_measuring_only():
    progress, _, console = shown(terminal=True)
    with progress:
        progress.phase("measure", 20)
        progress.advance(3)
        progress.show(lambda: NOW)
        progress._bars.refresh()
        during = text_of(console)
        progress.phase("check")
        progress._bars.refresh()
    assert "3 of 20 s" in during
    assert SAID in during
    assert SAID not in text_of(console)[len(during) + 1 :].rpartition("check")[2]


def test_a_damaged_file_ends_no_run():
    progress, clock, console = shown(terminal=False)

    def damaged() -> Now:
        raise ValueError("p0.ops.jsonl:1: damaged line")

    with progress:
        progress.phase("measure", 20)
        progress.show(damaged)
        clock.now_s += EVERY_S
        progress.advance(5)
    assert text_of(console).endswith("measure: 5 of 20 s; no figures yet\n")


def test_the_time_that_is_left_of_all_runs_is_counted_down_and_not_said_once_it_is_over():
    progress, clock, console = shown(terminal=False, left_s=12)
    with progress:
        progress.phase("start")
        progress.phase("measure", 20)
        for _ in range(15):
            clock.now_s += 1
            progress.advance(1)
    assert [line.partition(" a: ")[::2] for line in text_of(console).splitlines()] == [
        ("[1/2, about 12 s left]", "start"),
        ("[1/2, about 12 s left]", "measure"),
        ("[1/2, about 7 s left]", "measure: 5 of 20 s; no figures yet"),
        ("[1/2, about 2 s left]", "measure: 10 of 20 s; no figures yet"),
        ("[1/2]", "measure: 15 of 20 s; no figures yet"),
    ]


def test_a_terminal_counts_it_down_too():
    progress, clock, _ = shown(terminal=True, left_s=40)
    with progress:
        progress.phase("measure", 20)
        clock.now_s += 10
        progress.advance(10)
        (task,) = progress._bars.tasks
        assert task.description == "[1/2, about 30 s left] a: measure"
