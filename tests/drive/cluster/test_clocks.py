from hypothesis import given
from hypothesis import strategies as st

from tsbench.drive.cluster.clocks import Ping, Timebase, offset_ns
from tsbench.measure.epoch import epoch_ns

SECOND = 10**9


@given(
    skew=st.integers(-3_600 * SECOND, 3_600 * SECOND),
    ways=st.lists(st.tuples(st.integers(0, SECOND), st.integers(0, SECOND)), min_size=1, max_size=8),
)
def test_an_offset_is_wrong_by_half_of_the_quickest_round_trip_at_most(skew, ways):
    pings = [Ping(1_000 * SECOND, 1_000 * SECOND + there + skew, 1_000 * SECOND + there + back) for there, back in ways]
    error = abs(offset_ns(pings) - skew)
    assert error <= min(there + back for there, back in ways) / 2 + 1


def test_a_corrected_clock_gives_the_leaders_time():
    before_ns, now_ns, after_ns = epoch_ns(), Timebase(offset_ns=5 * SECOND).now_ns(), epoch_ns()
    assert before_ns <= now_ns + 5 * SECOND <= after_ns


def test_without_any_answer_the_clock_is_taken_to_be_right():
    assert offset_ns([]) == 0
