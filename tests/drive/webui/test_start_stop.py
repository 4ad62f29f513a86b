"""START and STOP of the web UI, over HTTP: refusals, progress, and the report after the checks."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.drive.webui.browser import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.drive.webui.served import Served
    from tests.warm import WarmLocust
    from tsbench.targets.postgres.server import PostgresServer

LARGE = {"scale": "400", "load_window": "24h"}
"""First data that takes longer to store than anybody would wait."""


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("scale", "abc", "--scale: must be a whole number (given: 'abc')"),
        ("scale", "0", "--scale: must be at least 1"),
        ("seed", "", "--seed: must be a whole number"),
        ("user_count", "x", "--users: must be a whole number"),
        ("user_count", "1000000000", "--users: must be at most 1000000"),
        ("load_window", "a while", "--load-window: 'a while' is not a duration"),
        ("load_window", "30m", "--load-window: query 'single-groupby-1-1-1' covers 1 h"),
        ("load_window", "30m", "(SingleWriter.max_cpu_of_one_host asks it)"),
        ("warmup", "-1s", "--warmup: '-1s' is not a duration"),
        ("warmup", "steady", "--warmup: 'steady' is for scenarios, whose number of users is constant; give a duration"),
        ("schema", "<b>", "--schema <b>: sqlite has wal, clustered"),
        ("endpoint", "foo://x", "endpoint: foo://x was not given at the start; the form takes what the command line"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_at_start_and_the_form_says_why(
    one: Served, field: str, value: str, reason: str
) -> None:
    said = one.refusal(**{field: value})
    assert reason in said
    assert "\n" not in said
    assert one.live()["stage"] == "none"
    assert one.get("/stats/requests").json()["state"] == "ready"  # its page shows the form
    assert reason in one.log()
    assert "Traceback" not in one.log()


@pytest.mark.slow
def test_the_form_offers_the_use_cases_of_the_start_and_takes_no_other(
    served: Callable[..., Served], tmp_path: Path
) -> None:
    fields = '[{ name = "pump", fields.temp = { walk = 1 } }]'
    pumps = f'about = "pumps"\ntags.pump = {{ number = "p-{{:02}}" }}\nmeasurement = {fields}\n'
    (tmp_path / "pumps.toml").write_text(pumps)
    locust = served("--use-case", "pumps.toml", "--use-case", "devops")
    page = locust.get("/").text
    assert all(name in page for name in ("pumps.toml", "devops", "as the user classes say"))
    for stranger in ("iot", "/etc/passwd", "../pumps.toml"):
        assert f"use_case: {stranger} was not given at the start" in locust.refusal(use_case=stranger)
    asked = "'single-groupby-1-1-1'"
    assert asked in locust.refusal(use_case="pumps.toml")  # which the data cannot be asked
    locust.start(2, use_case="devops", scale="4", load_window="2h")
    wait_until(lambda: locust.rows("writes"), "writes")
    locust.post("/stop")
    wait_until(lambda: locust.get("/tsbench/report").status == 200, "the report")
    (spec,) = tmp_path.glob("results/*/*/spec.json")
    assert json.loads(spec.read_text())["world"]["use_case"] == "devops"


def shares_of(locust: Served) -> list[float]:
    """Wait until two different shares of the first data have been shown; return those seen."""
    seen: list[float] = []

    def moved() -> bool:
        progress = locust.live()["progress"]
        if progress is not None and progress["step"] == "storing the first data" and progress["share"]:
            seen.append(progress["share"])
        return len({*seen}) >= 2

    wait_until(moved, "the progress of the first data")
    return seen


def reasons_until_ready(locust: Served) -> list[str]:
    """Wait until the report is ready; return why there was none in between."""
    said: list[str] = []

    def ready() -> bool:
        answer = locust.get("/tsbench/report")
        if answer.status == 409:
            said.append(answer.text)
            assert answer.headers["Refresh"] == ("2" if "checks" in answer.text else None)
        return answer.status == 200

    wait_until(ready, "the report")
    return said


@pytest.mark.slow
@pytest.mark.postgres
def test_stop_ends_the_storing_of_first_data_in_any_test_and_the_report_waits_for_the_checks(
    served: Callable[..., Served], postgres_server: PostgresServer, tmp_path: Path
) -> None:
    locust = served(target="postgres")
    for number in (1, 2):  # before its second test Locust's runner is in another state than before its first
        locust.start(4, **LARGE)
        shares = shares_of(locust)
        assert shares == sorted(shares)
        assert shares[-1] < 0.95
        assert locust.get("/stats/requests").json()["state"] == "spawning"
        assert locust.refusal() == "a test is being prepared; stop it first"
        assert locust.post("/stop").json()["success"]
        wait_until(lambda: not psutil.Process(locust.child.pid).children(recursive=True), "the server to end")
        assert locust.live()["stage"] == "ended"
        assert "stopped before it began" in locust.get("/tsbench/report").text
        stopped = [json.loads(path.read_text()) for path in tmp_path.glob("results/*/*/status.json")]
        assert [status["state"] for status in stopped] == ["interrupted"] * number
        assert not [*tmp_path.glob("results/*/*/server")]
        if number == 1:
            began = time.monotonic()
            locust.start(4, scale="10", load_window="2h", run_time="3s")
            wait_until(lambda: locust.live()["stage"] == "running", "users")
            loaded_s = time.monotonic() - began
            assert any("checks are running" in text for text in reasons_until_ready(locust))
            assert time.monotonic() - began > loaded_s + 2.5  # storing the first data took nothing of it
            for path in tmp_path.glob("results/*/*/status.json"):
                if json.loads(path.read_text())["state"] == "complete":
                    path.unlink()  # leave those of the stopped ones
    assert "Traceback" not in locust.log()
    assert "All users spawned" in locust.log()


@pytest.mark.nightly
def test_stop_ends_the_storing_of_first_data_with_workers_too(served: Callable[..., Served], tmp_path: Path) -> None:
    locust = served("--processes", "2")
    wait_until(lambda: locust.get("/worker-count").json()["worker_count"] == 2, "two workers")
    locust.start(4, **LARGE)
    shares_of(locust)
    assert locust.post("/stop").json()["success"]
    assert locust.get("/stats/requests").json()["state"] == "ready"
    (status,) = tmp_path.glob("results/*/*/status.json")
    assert json.loads(status.read_text())["state"] == "interrupted"
    locust.start(4, scale="10", load_window="2h")
    wait_until(lambda: locust.rows("writes"), "writes")
    locust.post("/stop")
    wait_until(lambda: locust.get("/tsbench/report").status == 200, "the report")
    assert "Traceback" not in locust.log()


NO_STANDALONE = """
from locust import task
from tsbench.drive import TimeSeriesUser


class Writer(TimeSeriesUser):
    target = "null"

    @task
    def write_one_point(self):
        self.write(1)
"""


@pytest.mark.parametrize("words", [(), ("--headless", "-u", "2", "-t", "2s")], ids=["web UI", "headless"])
def test_a_locustfile_without_standalone_is_one_line(
    warm_locust: WarmLocust, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "mine.py").write_text(NO_STANDALONE)
    done = warm_locust.run(tmp_path, "-f", "mine.py", *words)
    said = done.stdout + done.stderr
    assert done.code == 2, said
    (line,) = (line for line in said.splitlines() if "tsbench" in line)
    assert "mine.py must call standalone()" in line
    assert "Traceback" not in said
