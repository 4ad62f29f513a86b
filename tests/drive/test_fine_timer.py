"""Greenlets sleep until the moment that they asked for, in any order, and killed ones wake nobody."""

from __future__ import annotations

import sys
from time import perf_counter_ns

import gevent
import psutil
import pytest
from gevent.event import Event

from tsbench.drive.fine_timer import FineTimer
from tsbench.units import NS_PER_S

MS = NS_PER_S // 1_000


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no timerfd")
def test_it_ends_nearer_to_the_moment_than_gevents_timers_which_count_whole_milliseconds() -> None:
    timer = FineTimer()
    ours: list[int] = []
    theirs: list[int] = []
    give_up = perf_counter_ns() + 60 * NS_PER_S
    # The best of each: a busy machine wakes any sleeper late, most of the time.
    while len(ours) < 30 or (min(ours) >= min(theirs) / 2 and perf_counter_ns() < give_up):
        moment = perf_counter_ns() + 2_300_000
        timer.sleep_until_ns(moment)
        ours.append(perf_counter_ns() - moment)
        moment = perf_counter_ns() + 2_300_000
        gevent.sleep(0.0023)
        theirs.append(perf_counter_ns() - moment)
    timer.close()
    assert min(ours) >= 0
    assert min(ours) < min(theirs) / 2


def test_sleepers_wake_in_the_order_of_their_moments_none_early() -> None:
    timer, woken = FineTimer(), []
    start = perf_counter_ns() + 20 * MS

    def sleeper(after_ms: int) -> None:
        timer.sleep_until_ns(start + after_ms * MS)
        woken.append((after_ms, perf_counter_ns() >= start + after_ms * MS))

    gevent.joinall([gevent.spawn(sleeper, after_ms) for after_ms in (30, 10, 20, 0, 10, 40)], timeout=60)
    timer.close()
    assert woken == [(after_ms, True) for after_ms in (0, 10, 10, 20, 30, 40)]


def test_a_moment_that_has_passed_is_not_waited_for() -> None:
    timer, ran = FineTimer(), Event()
    gevent.spawn(ran.set)
    assert not timer.sleep_until_ns(perf_counter_ns())
    assert not ran.is_set()
    assert timer.sleep_until_ns(perf_counter_ns() + MS)
    assert ran.is_set()
    timer.close()


def test_who_sleeps_again_while_others_are_woken_keeps_nobody_from_running() -> None:
    timer, rounds = FineTimer(), 0

    def restless() -> None:
        nonlocal rounds
        while rounds < 1_000_000:
            rounds += 1
            timer.sleep_until_ns(perf_counter_ns() + 5_000)

    sleepers = [gevent.spawn(restless) for _ in range(3)]
    gevent.sleep(0.02)
    gevent.killall(sleepers)
    timer.sleep_until_ns(perf_counter_ns() + MS)
    timer.close()
    assert 0 < rounds < 1_000_000


def test_a_killed_sleeper_is_forgotten_and_the_others_wake() -> None:
    timer, woken = FineTimer(), []

    def sleeper(after_ms: int) -> None:
        timer.sleep_until_ns(perf_counter_ns() + after_ms * MS)
        woken.append(after_ms)

    first, second = gevent.spawn(sleeper, 20), gevent.spawn(sleeper, 40)
    gevent.sleep(0)
    first.kill()
    second.join(60)
    timer.close()
    assert woken == [40]


def test_closing_wakes_who_sleeps_and_leaves_no_descriptor() -> None:
    before = psutil.Process().num_fds()
    timer = FineTimer()
    sleeper = gevent.spawn(timer.sleep_until_ns, perf_counter_ns() + 3_600 * NS_PER_S)
    gevent.sleep(0)
    timer.close()
    timer.close()
    sleeper.join(60)
    assert sleeper.dead or sys.platform != "linux"
    assert psutil.Process().num_fds() == before
