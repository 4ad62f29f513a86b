"""Ends of a bare Locust run, of any kind: a status, a summary of the measurement, a true last line and exit code."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.cli.support import PATIENCE_S, Command, content, disturbances, failed_gates, nothing_left
from tsbench.results.summary import Summary
from tsbench.servers.process import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tsbench.targets.postgres.server import PostgresServer

pytestmark = pytest.mark.every_user

LOCUSTFILES = Path(__file__).parents[2] / "locustfiles"
SMALL = ("--scale", "4", "--load-window", "2h", "--warmup", "0s", "--only-summary")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    with nothing_left():
        yield tmp_path


class Bare:
    """A bare headless Locust, and its results."""

    def __init__(self, place: Path, *words: str, target: str = "sqlite", **env: str | None) -> None:
        port = str(free_port())
        small = [*SMALL, "--master-bind-port", port]
        small += ["--master-port", port] if "--master" not in words else []
        file = str(LOCUSTFILES / f"{target}.py")
        self.place = place
        env.setdefault(
            "TSBENCH_CLUSTER_SECRET", "0123456789abcdef0123456789abcdef"
        )  # without --processes there is none to inherit
        self.command = Command(place, "locust", "-f", file, "--headless", *small, *words, env=env)

    @property
    def said(self) -> str:
        return self.command.stderr

    def until(self, text: str) -> None:
        self.command.wait_until(lambda: text in self.said)

    def until_measured(self) -> None:
        self.command.until_recorded()

    def stop_soon(self) -> None:
        """Let the run go on for a second, then end its measuring as Ctrl-C does; the checks follow."""
        time.sleep(1.0)
        self.command.signal(signal.SIGINT)

    def workers(self) -> list[psutil.Process]:
        """The forked load processes."""
        children = psutil.Process(self.command.process.pid).children()
        return [child for child in children if child.cmdline() == psutil.Process(self.command.process.pid).cmdline()]

    def ended(self) -> tuple[int, dict[str, Any], dict[str, Any]]:
        """Return its exit code, its status, its summary; verify that its last line has the result."""
        code = self.command.wait()
        assert "Traceback" not in self.said, self.said
        (status,) = self.place.rglob("status.json")
        (summary,) = status.parent.glob("summary.json")
        assert not (status.parent / "server").exists(), "the server's data is still there"
        assert "result: " in self.said.strip().splitlines()[-1], self.said
        assert self.said.count("/tsbench: result: ") == 1, "said once"
        return code, content(status), content(summary)


@pytest.mark.nightly
def test_users_begin_as_they_are_spawned_even_if_the_ramp_outlasts_the_run(place: Path) -> None:
    run = Bare(place, "-u", "600", "-r", "1", "-t", "600s", "--warmup", "1s")
    run.until_measured()
    run.stop_soon()
    code, status, summary = run.ended()
    assert status["state"] == "complete"
    assert summary["measured"]["ops"]["write-1"]["count"] > 0
    assert code == (0 if Summary.model_validate(summary).passed else 1)


SLOW = """
import time
from locust import events
from locust.runners import WorkerRunner

@events.test_start.add_listener
def slow(environment, **_):
    if isinstance(environment.runner, WorkerRunner):
        time.sleep(5)
"""


@pytest.mark.nightly
def test_the_run_time_begins_with_the_first_user_however_long_the_workers_take_to_spawn_one(place: Path) -> None:
    slow = place / "slow.py"
    slow.write_text((LOCUSTFILES / "sqlite.py").read_text() + SLOW)
    run = Bare(place, "-u", "4", "-r", "4", "-t", "2s", "--processes", "2", target=str(slow.with_suffix("")))
    code, _, summary = run.ended()
    assert summary["measured"]["ops"]["write-1"]["count"] > 0, run.said
    assert "No run time limit" not in run.said
    (clock,) = place.rglob("clock.json")
    times = content(clock)
    assert 1.5 < times["stopped_s"] - times["go_s"] < 30, times
    assert code == (0 if Summary.model_validate(summary).passed else 1)


@pytest.mark.slow
@pytest.mark.nightly
def test_a_bare_run_says_what_it_leaves_at_its_endpoint(place: Path) -> None:
    endpoint = f"sqlite://{place / 'own.db'}"
    run = Bare(place, "-u", "1", "-r", "1", "-t", "2s", "--endpoint", endpoint)
    run.ended()
    (line,) = (line for line in run.said.splitlines() if f"left on {endpoint}: tables " in line)
    assert f"file {place / 'own.db'}; remove it with: tsbench cleanup results/" in line


@pytest.mark.slow
@pytest.mark.nightly
def test_a_run_that_ends_in_its_warm_up_has_measured_nothing_and_says_so(place: Path) -> None:
    code, status, summary = Bare(place, "-u", "2", "-r", "2", "-t", "2s", "--warmup", "30s").ended()
    assert (code, status["state"], summary["validity"]["state"]) == (1, "complete", "inconclusive")
    assert re.search(r"no op ended in the measured window: the test ended \d+\.\d s before the warm-up was over",
                     summary["validity"]["reason"])  # fmt: skip


@pytest.mark.slow
@pytest.mark.nightly
def test_a_lost_worker_is_named(place: Path) -> None:
    run = Bare(place, "-u", "4", "-r", "4", "-t", "600s", "--processes", "2")
    run.until_measured()
    run.workers()[0].kill()
    run.stop_soon()
    code, status, summary = run.ended()
    assert (code, status["state"], summary["validity"]["state"]) == (1, "complete", "invalid")
    assert "1 of 2 workers ended early: worker-" in summary["validity"]["checks"]["workers"]["reason"]
    assert summary["processes"] == 2
    assert summary["measured"]["ops"]["write-1"]["count"] > 10


@pytest.mark.nightly
@pytest.mark.parametrize("limit_s", [60, 6_000])
def test_a_run_that_lost_all_workers_ends_by_itself_and_is_summarised(place: Path, limit_s: int) -> None:
    run = Bare(place, "-u", "4", "-r", "4", "-t", f"{limit_s}s", "--processes", "2", "--stop-timeout", "1")
    run.until_measured()
    for worker in run.workers():
        worker.kill()
    code, status, summary = run.ended()
    assert (code, status["state"], summary["validity"]["state"]) == (1, "complete", "invalid")
    assert "2 of 2 workers ended early" in summary["validity"]["checks"]["workers"]["reason"]
    assert summary["measured"]["ops"]["write-1"]["count"] > 10


@pytest.mark.slow
def test_a_port_that_is_taken_is_one_line_and_ends_the_workers_too(place: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        run = Bare(place, "-u", "2", "-t", "2s", "--processes", "2", "--master-bind-port", port, "--master-port", port)
        assert run.command.wait() == 2, run.said
    assert "Traceback" not in run.said, run.said
    (line,) = (line for line in run.said.splitlines() if "ERROR/tsbench" in line)
    assert f"cannot listen on port {port}" in line
    assert "--master-bind-port" in line


@pytest.mark.slow
@pytest.mark.nightly
def test_a_killed_master_takes_its_workers_with_it(place: Path) -> None:
    run = Bare(place, "-u", "4", "-r", "4", "-t", "600s", "--processes", "2")
    run.until_measured()
    run.command.signal(signal.SIGKILL)
    assert run.command.wait() == -signal.SIGKILL  # `place` finds what is left


@pytest.mark.slow
@pytest.mark.nightly
def test_a_killed_locust_leaves_a_status_and_no_data(place: Path) -> None:
    run = Bare(place, "-u", "4", "-r", "4", "-t", "600s")
    run.until_measured()
    run.command.signal(signal.SIGKILL)
    assert run.command.wait() == -signal.SIGKILL
    give_up = time.monotonic() + PATIENCE_S
    while not (left := [*place.rglob("status.json")]):
        assert time.monotonic() < give_up, "the helper process has not ended the run"
        time.sleep(0.1)
    assert content(left[0])["state"] == "interrupted"
    assert content(left[0].with_name("summary.json"))["validity"]["state"] == "inconclusive"
    assert not [*place.rglob("server")], "the server's data is still there"


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.nightly
def test_a_killed_helper_process_is_named_and_what_was_measured_is_kept(
    place: Path, postgres_server: PostgresServer
) -> None:
    run = Bare(place, "-u", "4", "-r", "4", "-t", "600s", target="postgres")
    run.until_measured()
    (helper,) = (p for p in run.command.family() if "bare.helper" in " ".join(p.cmdline()))
    helper.kill()
    run.stop_soon()
    code, status, summary = run.ended()
    assert (code, status["state"], summary["validity"]["state"]) == (1, "failed", "inconclusive")
    assert "the helper process has ended (killed by SIGKILL)" in summary["validity"]["reason"]
    assert summary["measured"]["ops"]["write-1"]["count"] > 10


@pytest.mark.slow
@pytest.mark.nightly
def test_workers_that_never_come_end_the_run_in_time(place: Path) -> None:
    run = Bare(place, "-u", "2", "-t", "2s", "--master", "--expect-workers-max-wait", "2")
    code, status = run.command.wait(), content(next(place.rglob("status.json")))
    assert (code, status["state"]) == (1, "failed")
    assert "only 0 of 1 workers connected within 2 s; --expect-workers-max-wait" in run.said
    assert "Traceback" not in run.said


@pytest.mark.slow
def test_ctrl_c_while_waiting_for_workers_is_no_traceback(place: Path) -> None:
    run = Bare(place, "-u", "2", "-t", "2s", "--master")
    run.until("waiting for workers: 0 of 1")
    run.command.signal(signal.SIGINT)
    assert run.command.wait() == 130
    assert "Traceback" not in run.said
    assert content(next(place.rglob("status.json")))["state"] == "interrupted"
    assert content(next(place.rglob("summary.json")))["validity"]["state"] == "inconclusive"


@pytest.mark.slow
@pytest.mark.nightly
def test_a_worker_whose_master_was_killed_ends_at_once_and_not_with_0(place: Path) -> None:
    port, env = str(free_port()), {"TSBENCH_CLUSTER_SECRET": "0123456789abcdef0123456789abcdef"}
    master = Bare(place, "-u", "4", "-r", "4", "-t", "600s", "--master", "--master-bind-port", port)
    (place / "worker").mkdir()
    file = ("locust", "-f", str(LOCUSTFILES / "sqlite.py"))
    worker = Command(place / "worker", *file, "--worker", "--master-port", port, env=env)
    master.until_measured()
    assert any("encoder" in " ".join(p.cmdline()) for p in worker.family())  # `place` finds it if it is left
    master.command.signal(signal.SIGKILL)
    assert master.command.wait() == -signal.SIGKILL
    assert worker.wait() == 1, worker.stderr  # Locust itself looks for its master for 60 s, and says something else
    assert "tsbench: the master of this worker has ended" in worker.stderr
    assert "Traceback" not in worker.stderr


@pytest.mark.slow
@pytest.mark.postgres
def test_a_killed_server_is_named(place: Path, postgres_server: PostgresServer) -> None:
    run = Bare(place, "-u", "4", "-r", "4", "-t", "600s", target="postgres")
    run.until_measured()
    run.command.child("postgres").kill()
    run.stop_soon()
    code, status, summary = run.ended()
    disturbances(summary)  # else valid
    assert (code, status["state"]) == (1, "server died")
    assert failed_gates(summary)["server deaths<=0"].startswith("the server died during the run")
    assert "gate server deaths<=0 failed: the server died" in run.said
    assert summary["measured"]["ops"]["write-1"]["count"] > 10
    assert next(place.rglob("server.log")).stat().st_size


@pytest.mark.slow
def test_ctrl_c_ends_the_measuring_and_the_checks_follow(place: Path) -> None:
    run = Bare(place, "-u", "4", "-r", "4")
    run.until_measured()
    run.command.signal(signal.SIGINT)
    code, status, summary = run.ended()
    assert status["state"] == "complete"
    assert code == (0 if Summary.model_validate(summary).passed else 1)
    assert summary["answers"]["checked"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.nightly
def test_ctrl_c_while_checking_keeps_what_was_measured(place: Path, number: signal.Signals) -> None:
    run = Bare(place, "-u", "4", "-r", "4", "-t", "600s", "--scale", "20", "--load-window", "96h")
    run.until_measured()
    run.stop_soon()
    run.until("checking answers and writes")
    run.command.signal(number)
    code, status, summary = run.ended()
    assert (code, status["state"], summary["validity"]["state"]) == (130, "interrupted", "inconclusive")
    assert "interrupted by the user while answers and writes were checked" in summary["validity"]["reason"]
    assert summary["measured"]["ops"]["write-1"]["count"] > 10
    assert "answers" not in summary["validity"]["checks"]


@pytest.mark.nightly
def test_data_that_one_process_at_a_time_may_open_is_loaded_driven_and_checked_in_turn(place: Path) -> None:
    run = Bare(place, "-u", "2", "-r", "2", "-t", "600s", target="duck")
    run.until_measured()
    run.stop_soon()
    code, status, summary = run.ended()
    assert (code, status["state"]) == (1 if disturbances(summary) else 0, "complete")
    assert summary["answers"]["checked"] > 0


@pytest.mark.nightly
@pytest.mark.parametrize("words", [("--processes", "2"), ("--master",)], ids=" ".join)
def test_several_load_processes_are_refused_where_one_may_open_the_data(place: Path, words: tuple[str, ...]) -> None:
    run = Bare(place, "-u", "2", "-t", "3s", *words, target="duck")
    assert run.command.wait() == 2, run.said
    assert "Traceback" not in run.said, run.said
    assert run.said.count("duckdb lets one process at a time open its data; use one load process") == 1, run.said
    assert not [*place.rglob("spec.json")]


def test_options_that_cannot_work_are_named_before_anything_is_written(place: Path) -> None:
    run = Bare(place, "-u", "2", "-t", "3s", "--load-window", "0s")
    assert run.command.wait() == 2
    assert "--load-window: must be above 0" in run.said
    assert "Traceback" not in run.said
    assert not [*place.rglob("spec.json")]


@pytest.mark.root
@pytest.mark.slow
def test_a_full_disk_while_measuring_ends_the_run_with_1(place: Path) -> None:
    small = place / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(small)], check=False)
    if mounted.returncode:
        pytest.skip("this root may not mount a file system")
    try:
        run = Bare(place, "-u", "4", "-r", "4", "-t", "600s", "--results", str(small / "results"))
        run.until_measured()
        filler = os.open(small / "filler", os.O_WRONLY | os.O_CREAT)
        try:
            while os.write(filler, bytes(4096)):
                pass
        except OSError:
            pass
        finally:
            os.close(filler)
        code = run.command.wait()
        assert code == 1, run.said
        assert "Traceback" not in run.said, run.said
        assert "cannot write" in run.said
        assert content(next(small.rglob("status.json")))["state"] == "failed"
        assert content(next(small.rglob("summary.json")))["validity"]["state"] == "inconclusive"
        assert "result: inconclusive: " in run.said.strip().splitlines()[-1]
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.slow
def test_more_workers_than_series_are_refused_in_one_line_with_the_cure(place: Path) -> None:
    run = Bare(place, "-u", "4", "-r", "4", "-t", "2s", "--processes", "4", "--scale", "2")
    assert run.command.wait() == 2
    (line,) = [line for line in run.said.splitlines() if "/ERROR/" in line]
    assert "4 workers cannot share 2 streams of series; use 2 workers at most, or raise world.streams" in line
