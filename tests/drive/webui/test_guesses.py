"""Wrong passwords are slowed down: of one source, of many, and not those of the owner."""

from __future__ import annotations

import pytest

from tsbench.drive.webui.login import FORGOTTEN_S, LONGEST_S, SOURCES, Guesses


class Clock:
    s = 1000.0

    def __call__(self) -> float:
        return self.s


def guesses_in(seconds: int, sources: list[str]) -> int:
    """Return how many wrong passwords are looked at when each source tries ten times a second."""
    clock = Clock()
    guesses, seen = Guesses(clock), 0
    for _ in range(seconds * 10):
        for source in sources:
            if not guesses.wait_s(source):
                guesses.wrong(source)
                seen += 1
        clock.s += 0.1
    return seen


@pytest.mark.slow
def test_one_source_may_mistype_and_then_gets_two_guesses_a_minute() -> None:
    assert 100 < guesses_in(3600, ["10.0.0.1"]) < 135
    one_network = [f"2001:db8::{n:x}" for n in range(1, 100)]
    assert guesses_in(600, one_network) < 40, "the addresses of one customer are one source"


@pytest.mark.nightly
def test_many_sources_together_get_one_guess_a_second() -> None:
    assert 600 <= guesses_in(600, [f"10.0.{n // 250}.{n % 250}" for n in range(300)]) <= 640


def test_the_owner_waits_for_nobody_elses_guesses_once_he_was_in_and_half_a_minute_at_most_for_his_own() -> None:
    clock = Clock()
    guesses = Guesses(clock)
    guesses.right("192.0.2.1")
    for number in range(100_000):
        guesses.wrong(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert guesses.wait_s("192.0.2.1") == 0
    assert guesses.wait_s("192.0.2.2") > 0
    assert len(guesses._wrong) <= SOURCES
    for _ in range(1000):
        guesses.wrong("192.0.2.1")
    assert guesses.wait_s("192.0.2.1") == LONGEST_S
    clock.s += LONGEST_S
    assert guesses.wait_s("192.0.2.1") == 0
    guesses.right("192.0.2.1")
    guesses.wrong("192.0.2.1")
    assert guesses.wait_s("192.0.2.1") == 0


def test_what_is_long_ago_is_forgotten() -> None:
    clock = Clock()
    guesses = Guesses(clock)
    for _ in range(50):
        guesses.wrong("10.0.0.1")
    clock.s += FORGOTTEN_S + 1
    guesses.wrong("10.0.0.1")
    assert guesses.wait_s("10.0.0.1") == 0
