"""A stall appears in the latencies as its callers experienced it."""

from pathlib import Path

import pytest

from tests.cli.support import disturbances
from tests.drive.support import document, run
from tsbench.measure.hist import Histogram
from tsbench.measure.pacing import Arrivals, Stripe
from tsbench.run.lifecycle import run_job
from tsbench.run.phases import Quiet
from tsbench.scenario.spec import Scenario
from tsbench.units import NS_PER_S

pytestmark = pytest.mark.slow

HONEST = Path(__file__).parents[2] / "scenarios" / "honest-latency.toml"
RATE, STALL_S, SECONDS = 200, 2.0, 12


def analytic_p99_s() -> float:
    """Return the p99 of all arrivals: of those due first in the stall, which waited nearly all of it."""
    slowest = 0.01 * RATE * SECONDS
    return STALL_S - slowest / RATE


@pytest.fixture(scope="module")
def stalled(tmp_path_factory):
    (spec,) = Scenario.load(HONEST).expand()
    assert spec.drive.rate == RATE
    assert spec.drive.duration == SECONDS * 10**9
    return run_job(spec, tmp_path_factory.mktemp("honest"), Quiet()).to_json()


def test_the_percentile_of_theory_is_that_of_constant_arrivals_in_a_stall():
    stripe, response_ns = Stripe(Arrivals(RATE, "constant", 1, SECONDS * NS_PER_S)), []
    while (due_ns := stripe.take()) is not None:
        into_ns = due_ns - 5 * NS_PER_S
        waits = 0 <= into_ns < STALL_S * NS_PER_S
        response_ns.append(int(STALL_S * NS_PER_S) - into_ns if waits else NS_PER_S // 1_000)
    assert Histogram(response_ns).percentile_ns(99) / 1e9 == pytest.approx(analytic_p99_s(), rel=0.005)


def test_response_time_shows_the_stall_as_theory_says(stalled):
    p99_s = stalled["measured"]["write"]["response_ns"]["p99"] / 1e9
    assert p99_s > 0.98 * analytic_p99_s()  # on any machine: they did wait
    undelayed_s = stalled["measured"]["write"]["response_undelayed_ns"]["p99"] / 1e9
    assert undelayed_s < 1.05 * analytic_p99_s(), "whatever the client added is known"


def test_it_is_valid_unless_the_load_generator_was_disturbed_which_is_named(stalled):
    validity, limit = stalled["validity"], stalled["limit"]
    states = {name: check["state"] for name, check in validity["checks"].items()}
    assert {state for name, state in states.items() if name != "limit"} == {"valid"}  # there is no answer to check
    assert validity["state"] == "valid" or limit["disturbed"] in validity["reason"]


def test_service_time_does_not_show_it(stalled):
    p90_ns = {time_ns: stalled["measured"]["write"][time_ns]["p90"] for time_ns in ("service_ns", "response_ns")}
    # Twenty ops were in flight in the stall, which is 0.8 % of all; the others that were due in it waited to be sent.
    assert p90_ns["response_ns"] > 0.7e9
    assert p90_ns["service_ns"] < p90_ns["response_ns"] / 2


def test_every_scheduled_arrival_is_accounted_for(stalled):
    schedule = stalled["schedule"]
    assert schedule["scheduled"] == RATE * SECONDS
    assert schedule["scheduled"] == sum(schedule[key] for key in ("done", "late", "dropped", "unfinished"))
    assert stalled["measured"]["write"]["count"] == schedule["done"] + schedule["late"]
    assert stalled["validity"]["checks"]["counts"]["state"] == "valid"


def test_arrivals_that_no_session_came_free_for_are_dropped_not_forgotten(tmp_path):
    # one user, ops of 100 ms, 40 of them due a second: 10 a second can be done, and 2 s of overtime do 20 more
    summary = run(
        tmp_path,
        document(
            drive={"loop": "open", "rate": 40, "users": 1, "wait": "0s", "duration": "3s", "stop_timeout": "2s"},
            op=[{"write": 1}],
            target={"name": "null", "settings": {"service": "100ms"}},
        ),
    )
    schedule = summary["schedule"]
    assert schedule["scheduled"] == 120
    assert schedule["dropped"] > 50
    assert schedule["generator_late"] < schedule["late"]
    assert schedule["scheduled"] == sum(schedule[key] for key in ("done", "late", "dropped", "unfinished"))
    assert summary["limited_by"] == "database" or disturbances(summary)
