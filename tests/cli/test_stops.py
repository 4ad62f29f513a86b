"""Runs that end early print one line, leave nothing running and lose nothing."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.support import (
    POSTGRES,
    PROGRAMS,
    Command,
    complaint,
    content,
    only,
    says,
    started,
)
from tsbench.cli import start
from tsbench.cli.main import main

if TYPE_CHECKING:
    from tsbench.targets.postgres.server import PostgresServer

pytestmark = pytest.mark.every_user

REPOSITORY = Path(__file__).parent.parent.parent


def measured_ops(summary: Path) -> dict[str, int]:
    return {name: op["count"] for name, op in content(summary)["measured"]["ops"].items()}


@pytest.mark.slow
def test_ctrl_c_while_measuring_keeps_what_was_measured_and_the_line_that_goes_on_completes_it(place: Path) -> None:
    command = started(place, "--set", "drive.duration=8s", "--report")
    command.until_measured()
    command.signal(signal.SIGINT)
    assert command.wait() == 130, command.stderr
    line = complaint(command.stderr)
    says(line, "interrupted", "continue with: tsbench run tiny.toml", "--set=drive.duration=8s", "--resume results/")
    partial = only(place, "results/*/sqlite.partial")
    assert content(partial / "status.json")["state"] == "interrupted"
    assert content(partial / "summary.json")["validity"]["state"] == "inconclusive"
    assert measured_ops(partial / "summary.json")["write-1"] > 0
    report = partial.parent / "report.html"
    assert report.exists()
    assert "sqlite does not count (interrupted" in command.stdout  # the table so far
    assert f"report: {report.relative_to(place)}" in command.stdout

    program, *words = shlex.split(line.partition("continue with: ")[2])
    resumed = Command(place, program, *words)
    resumed.ended_well()
    assert content(only(place, "results/*/sqlite/status.json"))["state"] == "complete"
    assert len(content(only(place, "results/*/summary.json"))["cells"]) == 1
    assert not partial.exists()


WHEN_IMPORTING = """
import os, sys
from tsbench.cli import start

class SignalAgain:
    def find_spec(self, name, *_):
        if name == "tsbench.report.console":
            os.kill(os.getpid(), {number})

sys.meta_path.insert(0, SignalAgain())
sys.exit(start())
"""


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_second_signal_takes_no_line_away(place: Path, number: signal.Signals) -> None:
    script = WHEN_IMPORTING.format(number=int(number))
    command = started(place, "--set", "drive.duration=8s", program=("python", "-c", script))
    command.until_phase("load")
    command.signal(signal.SIGINT)
    assert command.wait() == 130, command.stderr
    says(complaint(command.stderr), "interrupted", "continue with: tsbench run tiny.toml")


@pytest.mark.slow
def test_an_unreachable_server_is_named_with_its_url(place: Path) -> None:
    command = started(place, "--endpoint", "postgresql://me@127.0.0.1:9/bench", *POSTGRES)
    assert command.wait() == 2
    says(complaint(command.stderr), "cannot connect to postgresql://me@127.0.0.1:9/bench", "is the server running")
    partial = only(place, "results/*/postgres.partial")
    assert content(partial / "status.json")["state"] == "failed"


@pytest.mark.postgres
def test_a_wrong_password_is_answered_with_where_to_set_it(place: Path, postgres_server: PostgresServer) -> None:
    endpoint = postgres_server.endpoint.partition("?")[0]
    env = {"TSBENCH_PASSWORD": "wr0ng", "PGPASSFILE": None, "PGPASSWORD": None}
    command = started(place, "--endpoint", endpoint, *POSTGRES, env=env)
    assert command.wait() == 2
    line = complaint(command.stderr)
    says(line, endpoint, "password authentication failed", "set TSBENCH_PASSWORD")
    assert "wr0ng" not in line


def test_results_that_cannot_be_written_are_noticed_before_anything_starts(place: Path) -> None:
    command = started(place, "--out", "tiny.toml/results")  # a path below a file stops root too
    assert command.wait() == 2
    says(complaint(command.stderr), "cannot write to tiny.toml/results", "Not a directory", "--out")
    assert ": start" not in command.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_generating_onto_a_full_disk_says_that_the_file_is_incomplete(place: Path) -> None:
    command = Command(place, "tsbench", "generate", "--out", "/dev/full", "--scale", "5")
    assert command.wait() == 1, command.stderr
    says(complaint(command.stderr), "/dev/full", "incomplete", "the disk is full")


def test_a_reader_that_goes_away_is_no_reason_for_a_traceback(place: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        words = [str(PROGRAMS / "tsbench"), "list", "queries"]
        done = subprocess.run(words, stdout=closed, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.slow
def test_a_bare_locustfile_without_its_server_ends_with_one_line(place: Path) -> None:
    file = str(REPOSITORY / "locustfiles" / "postgres.py")
    url = "postgresql://me@127.0.0.1:9/bench"
    command = Command(place, "locust", "-f", file, "--headless", "-u", "1", "-t", "1s", "--endpoint", url)
    assert command.wait() == 2
    assert "Traceback" not in command.stderr
    (line,) = (line for line in command.stderr.splitlines() if "/ERROR/tsbench: " in line)
    says(line, f"cannot connect to {url}", "is the server running")
    assert content(only(place, "results/*/*.partial/status.json"))["state"] == "failed"


def bytes_of(path: Path) -> int:
    """The size of a file; 0 for a journal that has gone since it was listed."""
    with suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


@pytest.mark.slow
def test_ctrl_c_while_a_bare_locustfile_stores_its_first_data_leaves_nothing_running(place: Path) -> None:
    file = str(REPOSITORY / "locustfiles" / "sqlite.py")
    words = ["--headless", "-u", "1", "-t", "1s", "--load-window", "600d", "--scale", "1000"]
    command = Command(place, "locust", "-f", file, *words)
    stored = "results/*/*.partial/server/**/*"
    command.wait_until(lambda: sum(map(bytes_of, place.glob(stored))) > 1_000_000)
    command.signal(signal.SIGINT)
    assert command.wait() == 130, command.stderr
    assert "Traceback" not in command.stderr
    says(command.stderr, "interrupted before the test began")
    assert content(only(place, "results/*/*.partial/status.json"))["state"] == "interrupted"
    assert not list(place.glob(stored))


def test_ctrl_c_while_generating_leaves_no_file(place: Path) -> None:
    command = Command(place, "tsbench", "generate", "--out", "points", "--scale", "10000")
    command.wait_until(lambda: list(place.glob("points*")))
    command.signal(signal.SIGINT)
    assert command.wait() == 130, command.stderr
    assert "Traceback" not in command.stderr
    assert not list(place.glob("points*"))


@pytest.mark.parametrize("place", ["tsbench.scenario.spec.Scenario.load", "typer.core.TyperGroup.parse_args"])
def test_ctrl_c_before_a_command_has_begun_its_work_is_answered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(place, interrupted)
    assert main(["run", "tiny.toml"]) == 130
    assert complaint(capsys.readouterr().err) == "tsbench: interrupted"


DEAF = """
import sys, time
from tsbench import cli
from tsbench.cli import listing

class Deaf:
    def __del__(self):
        raise KeyboardInterrupt

def table():
    Deaf()
    time.sleep(30)

listing.TABLES["targets"] = table
sys.argv = ["tsbench", "list", "targets"]
sys.exit(cli.start())
"""


def test_ctrl_c_where_python_ignores_exceptions_is_not_lost() -> None:
    # In a process of its own: where another test has imported Locust, gevent's timers do not run while this one sleeps.
    done = subprocess.run([sys.executable, "-c", DEAF], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 130
    assert complaint(done.stderr) == "tsbench: interrupted"


def test_ctrl_c_while_the_command_line_is_imported_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupting:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "tsbench.cli.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "tsbench.cli.main")
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    before = signal.getsignal(signal.SIGINT)
    try:
        assert start() == 130
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert complaint(capsys.readouterr().err) == "tsbench: interrupted"


AGAIN = """
import os, signal, sys
from tsbench import cli
from tsbench.cli import main
from tsbench.study import campaign

def interrupted(*_, **__):
    raise KeyboardInterrupt

def fail_and_again(*arguments):
    code = fail(*arguments)
    os.kill(os.getpid(), signal.SIGINT)
    return code

campaign.campaign, fail, main.fail = interrupted, main.fail, fail_and_again
sys.argv = ["tsbench", "run", "tiny.toml"]
sys.exit(cli.start())
"""


def test_a_second_ctrl_c_after_the_last_line_adds_no_other(place: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", AGAIN], cwd=place, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 130
    says(complaint(done.stderr), "interrupted; what was measured is kept")
