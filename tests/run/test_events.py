"""Events: what a scenario may say, the figures around them, and runs whose server is killed and started again."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pytest

from tests.skips import skip_if_not_installed
from tsbench.errors import UserMistake
from tsbench.measure.hist import Histogram
from tsbench.results.process import Done
from tsbench.run.events import around
from tsbench.scenario.spec import Scenario
from tsbench.scenario.validation import check_spec

if TYPE_CHECKING:
    from collections.abc import Sequence


SCENARIO = """
question = "What does a killed server cost?"
check = {{ failures = 0.5, answers = 20 }}
[world]
use_case = "cpu-only"
scale = 10
[load]
window = "1h"
[drive]
users = 2
wait = ["20ms", "40ms"]
stop_timeout = "3s"
warmup = "1s"
duration = "{duration}"
[target]
name = "{target}"
[[op]]
write = 10
{events}
"""


def event(at: str, do: str, length: str = "") -> str:
    return f'[[event]]\nat = "{at}"\ndo = "{do}"\n' + (f'length = "{length}"\n' if length else "")


def written(
    place: Path, *events: str, target: str = "postgres", duration: str = "12s", replaced: tuple[str, str] = ("", "")
) -> Path:
    path = place / "events.toml"
    text = SCENARIO.format(target=target, duration=duration, events="\n".join(events))
    path.write_text(text.replace(*replaced), encoding="utf-8")
    return path


def change(at: str, key: str, number: float) -> str:
    return f'[[event]]\nat = "{at}"\n{key} = {number}\n'


CLOSED = 'wait = ["20ms", "40ms"]'


# --- what a scenario may say


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([event("2s", "kill")], "kill leaves the server away, which checks need; add a restart after it"),
        ([event("2s", "kill"), event("3s", "stop")], "stop at 3s: the server is away by then; restart it before"),
        ([event("2s", "kill"), event("12s", "restart")], "restart at 12s: ends after the measured window"),
        ([event("3s", "restart"), event("2s", "restart")], "restart at 2s: begins before the one above has ended"),
        ([event("2s", "pause", "4s"), event("5s", "restart")], "restart at 5s: begins before the one above has ended"),
        ([event("2s", "pause", "10s")], "pause at 2s: ends after the measured window"),
        ([event("2s", "pause")], "a pause needs a length, and nothing else has one"),
        ([event("2s", "restart", "1s")], "a pause needs a length, and nothing else has one"),
        ([event("2s", "explode")], "'kill', 'stop', 'restart' or 'pause'"),
        (['[[event]]\nat = "2s"'], "needs one of do = 'restart'"),
        ([event("2s", "restart") + "users = 4"], "needs one of do = 'restart'"),
        ([change("2s", "users", 0)], "users"),
        ([change("2s", "rate", 100)], "rate = 100 at 2s: a rate belongs to loop = 'open'; set that, or give users"),
        ([change("12s", "users", 4)], "users = 4 at 12s: ends after the measured window"),
        ([event("2s", "kill"), change("3s", "users", 4)], "users = 4 at 3s: the server is away by then; restart it"),
        ([event("soon", "restart")], "event"),
        (['[[event]]\ndo = "restart"'], "at"),
    ],
)
def test_events_that_cannot_be_carried_out_are_refused_in_one_line(
    tmp_path: Path, events: Sequence[str], why: str
) -> None:
    with pytest.raises(UserMistake, match=why) as caught:
        Scenario.load(written(tmp_path, *events)).expand()
    assert "event" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("drive", "why"),
    [
        ('loop = "open"\nrate = 50', "the load of an open loop is its rate; give rate"),
        (f'{CLOSED}\nsteps = [{{ users = 2, duration = "2s" }}]', "drive.steps set the users; take steps or this out"),
        (f"{CLOSED}\nprocesses = 2", "1 users cannot be spread over 2 processes"),
    ],
)
def test_users_change_only_where_they_are_the_load(tmp_path: Path, drive: str, why: str) -> None:
    with pytest.raises(UserMistake, match=why):
        Scenario.load(written(tmp_path, change("2s", "users", 1), replaced=(CLOSED, drive))).expand()


def test_any_target_may_have_a_load_that_changes(tmp_path: Path) -> None:
    (cell,) = Scenario.load(written(tmp_path, change("2s", "users", 1), target="sqlite")).expand()
    check_spec(cell, "x.toml")


@pytest.mark.parametrize(
    ("target", "override", "why"),
    [
        ("sqlite", (), "event: sqlite has no server, so it cannot restart it"),
        ("null", (), "event: null has no server"),
        ("postgres", ("target.endpoint=postgresql://me@h/db",), "event: tsbench does not start the server"),
    ],
)
def test_a_server_that_is_not_ours_has_no_events(
    tmp_path: Path, target: str, override: Sequence[str], why: str
) -> None:
    path = written(tmp_path, event("2s", "restart"), target=target)
    (cell,) = Scenario.load(path, overrides=override).expand()
    with pytest.raises(UserMistake, match=why):
        check_spec(cell, "x.toml")


# --- the figures around them


def history(rates: Sequence[int], bad: Sequence[int] = ()) -> np.ndarray[Any, Any]:
    return np.array([[rate, bad[i] if i < len(bad) else 0] for i, rate in enumerate(rates)], dtype=np.int64)


def test_a_rate_that_comes_back_has_figures_before_during_and_after() -> None:
    counts = history([100] * 5 + [20, 0, 0, 50, 95, 100, 100, 100], [0] * 5 + [7, 9])
    latency = {s: Histogram([1_000_000 if s < 5 or s > 8 else 9_000_000] * 25) for s in range(13)}
    (found,) = around([Done("kill", 5.2, 5.3), Done("restart", 7.0, 8.4)], counts, latency)
    assert (found.did, found.at_s) == ("kill and restart", 5.2)
    assert found.away_s == pytest.approx(3.2)
    assert found.recovered_s == pytest.approx(9 - 5.2)
    assert found.before is not None
    assert found.during is not None
    assert found.after is not None
    assert (found.before.from_s, found.before.to_s, found.before.ops_per_s, found.before.failed) == (0, 5, 100, 0)
    assert (found.during.from_s, found.during.to_s, found.during.failed) == (5, 9, 16)
    assert found.during.ops_per_s == pytest.approx(70 / 4)
    assert (found.after.from_s, found.after.to_s) == (9, 13)
    for span, p99_ns in ((found.before, 1_000_000), (found.during, 9_000_000), (found.after, 1_000_000)):
        assert span.p99_ns == pytest.approx(p99_ns, rel=0.01)
    assert "the rate was back after 3.8" in found.sentence.replace("\u00a0", " ")


def test_a_span_of_too_few_ops_has_no_p99() -> None:
    latency = {s: Histogram([1_000_000] * 33) for s in range(8)}
    (found,) = around([Done("restart", 3.1, 3.9)], history([33] * 3 + [0] + [33] * 4), latency)
    assert found.before is not None
    assert found.after is not None
    assert found.before.p99_ns is None
    assert found.after.p99_ns == pytest.approx(1_000_000, rel=0.01)


@pytest.mark.parametrize(
    ("rates", "recovered"),
    [
        ([100] * 3 + [0] + [100] * 3, True),
        ([100] * 3 + [0] + [100] * 2, False),  # two seconds may be chance
        ([100] * 3 + [0] + [89] * 5, False),
        ([100] * 3 + [0] + [91] * 5, True),
        ([0] * 3 + [0] + [100] * 5, False),  # there was no rate to come back to
        ([100] * 3 + [0, 100, 100, 0, 100, 100, 0], False),
    ],
)
def test_a_rate_is_back_only_if_it_stays(rates: Sequence[int], *, recovered: bool) -> None:
    (found,) = around([Done("restart", 3.1, 3.9)], history(rates), {})
    assert (found.recovered_s is not None) is recovered
    assert (found.after is not None) is recovered
    assert ("did not come back" in found.sentence) is not recovered


def test_each_of_two_events_has_the_seconds_up_to_the_next() -> None:
    counts = history([100] * 4 + [0] + [100] * 5 + [0] + [100] * 4)
    first, second = around([Done("pause", 4.0, 4.1), Done("go on", 4.9, 5.0), Done("restart", 10.0, 11.0)], counts, {})
    assert (first.did, second.did) == ("pause and go on", "restart")
    assert first.after is not None
    assert second.before is not None
    assert (first.after.to_s, second.before.from_s, second.before.to_s) == (10, 5, 10)
    assert (first.recovered_s, second.recovered_s) == (1.0, 1.0)


def test_an_event_in_the_first_second_has_nothing_before_it() -> None:
    (found,) = around([Done("restart", 0.2, 1.0)], history([5, 5, 5, 5]), {})
    assert (found.before, found.recovered_s) == (None, None)


def test_a_change_of_the_load_has_figures_before_and_after_and_no_recovery() -> None:
    counts = history([100] * 4 + [300] * 4 + [0] + [300] * 4)
    (first, second) = around([Done("users = 6", 4.0, 4.6, changes_load=True), Done("restart", 8.1, 8.9)], counts, {})
    assert (first.away_s, first.recovered_s, first.during is not None) == (None, None, True)
    assert first.before is not None
    assert first.after is not None
    assert (first.before.to_s, first.before.ops_per_s) == (4, 100)
    assert (first.after.from_s, first.after.to_s, first.after.ops_per_s) == (5, 8, 300)
    assert first.sentence.startswith("users = 6 at 4.0")
    assert "back" not in first.sentence
    assert first.row[1:3] == ("", "")
    assert second.before is not None
    assert second.before.from_s == 5
    assert second.recovered_s == pytest.approx(9 - 8.1)


# --- whole runs


def command(path: Path) -> list[str]:
    tsbench = Path(sys.executable).with_name("tsbench")
    return [str(tsbench), "run", str(path), "--out", str(path.parent / "results"), "--no-report"]


def run(path: Path) -> tuple[int, str, dict[str, Any]]:
    """Return exit code, output and summary of a run's only cell."""
    done = subprocess.run(command(path), capture_output=True, text=True, timeout=180, check=False)
    skip_if_not_installed(done.stderr)
    (summary,) = path.parent.glob("results/*/*/summary.json")
    return done.returncode, done.stdout + done.stderr, json.loads(summary.read_text(encoding="utf-8"))


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_users_that_are_added_and_taken_away_do_their_share(tmp_path: Path, processes: int) -> None:
    events = (change("3s", "users", 8), change("7s", "users", 2))
    where = (CLOSED, f'wait = "100ms"\nprocesses = {processes}')
    code, said, summary = run(written(tmp_path, *events, target="sqlite", replaced=where))
    assert code == 0, said
    first, second = summary["events"]
    assert (first["did"], second["did"]) == ("users = 8", "users = 2")
    assert 3 <= first["at_s"] < 3.5
    assert (summary["users"], summary["users_least"]) == (8, 2)
    rates = [span["ops_per_s"] for span in (first["before"], first["after"], second["after"])]
    assert 3 < rates[1] / rates[0] < 5
    assert 3 < rates[1] / rates[2] < 5
    assert rates[2] < 21  # two users with rests of 100 ms: the other six went at once
    assert summary["steadiness"] == {}
    assert "users = 8 at 3." in said


@pytest.mark.slow
def test_a_rate_that_changes_is_kept_and_its_arrivals_add_up(tmp_path: Path) -> None:
    events = (change("2s", "rate", 200), change("4s", "rate", 25.5))
    where = (CLOSED, 'loop = "open"\nrate = 50\narrivals = "constant"')
    code, said, summary = run(written(tmp_path, *events, target="sqlite", replaced=where, duration="8s"))
    assert code == 0, said
    assert [one["at_s"] for one in summary["events"]] == [2.0, 4.0]
    assert [one["did"] for one in summary["events"]] == ["rate = 200", "rate = 25.5"]
    assert summary["schedule"]["scheduled"] == pytest.approx(2 * 50 + 2 * 200 + 4 * 25.5, abs=3)


@pytest.mark.slow
@pytest.mark.postgres
def test_a_postgres_that_is_killed_and_starts_again_has_all_that_it_acknowledged(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    events = (event("3s", "kill"), event("4s", "restart"))
    _, said, summary = run(written(tmp_path, *events))
    (found,) = summary["events"]
    assert found["did"] == "kill and restart"
    assert 3 <= found["at_s"] < 4
    assert 1 <= found["away_s"] < 30
    assert found["during"]["failed"] > 0
    assert summary["writes"]["lost"] == 0
    assert summary["writes"]["acknowledged"] > 0
    assert "server deaths<=0" not in [gate["gate"] for gate in summary["gates"] if gate["state"] == "fail"]
    assert "kill and restart at 3." in said


@pytest.mark.nightly
@pytest.mark.victoria
def test_a_victoriametrics_that_is_killed_has_lost_what_it_had_not_flushed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    events = (event("3s", "kill"), event("4s", "restart"), event("8s", "pause", "1s"))
    code, _, summary = run(written(tmp_path, *events, target="victoriametrics"))
    assert code == 1
    assert summary["validity"]["state"] == "invalid"
    assert summary["writes"]["lost"] > 0
    assert [one["did"] for one in summary["events"]] == ["kill and restart", "pause and go on"]
    assert 0.9 < summary["events"][1]["away_s"] < 10


def begun(path: Path) -> subprocess.Popen[str]:
    """Start a run, and wait until the first of its events was carried out."""
    child = subprocess.Popen(command(path), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    due = time.monotonic() + 90
    while not list(path.parent.glob("results/*/*/process/events.json")):
        assert child.poll() is None
        assert time.monotonic() < due
        time.sleep(0.02)
    return child


def _with_name(place: Path) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(str(place) in word for word in process.info["cmdline"] or ())
    ]


@pytest.mark.nightly
@pytest.mark.postgres
@pytest.mark.parametrize("do", ["kill", "pause"])
def test_ctrl_c_while_the_server_is_away_leaves_nothing_behind(tmp_path: Path, do: str) -> None:
    tmp_path.chmod(0o755)
    events = (event("1s", "pause", "15s"),) if do == "pause" else (event("1s", "kill"), event("16s", "restart"))
    path = written(tmp_path, *events, duration="20s", replaced=('stop_timeout = "3s"', ""))
    child = begun(path)
    child.send_signal(signal.SIGINT)
    began = time.monotonic()
    said = child.communicate(timeout=60)[0]
    assert child.returncode == 130, said
    assert time.monotonic() - began < 15, "ops that a pause holds up can end, so that nobody waits for their limit"
    assert _with_name(tmp_path) == []
    assert not list(tmp_path.glob("results/*/*/server"))


@pytest.mark.nightly
@pytest.mark.postgres
def test_a_server_that_does_not_come_back_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    child = begun(written(tmp_path, event("2s", "stop"), event("3s", "restart")))
    (environment,) = tmp_path.glob("results/*/*/env.json")
    (data,) = re.findall(r'"data_directory": "(.*?)"', environment.read_text(encoding="utf-8"))
    control = Path(data, "global", "pg_control")
    control.unlink()
    said = child.communicate(timeout=120)[0]
    assert child.returncode == 1, said
    assert "event restart at 3 s: the server did not come back" in said or "pg_control" in said
    assert _with_name(tmp_path) == []
