"""A database that `tsbench run --keep` leaves, and campaigns that go on with it by `--loaded`."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.cli.support import POSTGRES, TINY, Command, complaint, content, only, says, started
from tests.scenario.test_own_words import SQLITE_FIRST
from tsbench.cli.main import main
from tsbench.run.keeping import FILE

if TYPE_CHECKING:
    from pathlib import Path


def kept_by(place: Path, *words: str) -> tuple[Path, dict[str, Any]]:
    """Run the tiny scenario with --keep; return the result set and its record."""
    command = started(place, "--keep", *words)
    command.ended_well()
    record = only(place, f"results/*/{FILE}")
    says(command.stdout, "kept: ", "--loaded results/", "tsbench cleanup results/")
    return record.parent, content(record)


def going_on(place: Path, kept: Path, *words: str, out: str = "later") -> Command:
    command = started(place, "--loaded", str(kept), "--out", out, *words)
    command.wait()
    return command


def refused(place: Path, kept: Path, *words: str) -> str:
    """The line with which going on is refused, before anything runs."""
    command = going_on(place, kept, *words)
    assert command.process.returncode == 2, command.stderr
    assert not (place / "later").exists()
    return complaint(command.stderr)


def done(place: Path, *words: str) -> str:
    """Run tsbench, which must end well, and return what it printed."""
    command = Command(place, "tsbench", *words)
    command.ended_well()
    return command.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", SQLITE_FIRST)
def test_what_load_stored_serves_runs_queries_and_validation_in_turn(place: Path, name: str) -> None:
    (place / "tiny.toml").write_text(TINY)
    done(place, "load", name, "--scenario", "tiny.toml", "--keep")
    kept = only(place, f"results/*/{FILE}").parent
    asked = ("--type", "lastpoint", "--type", "raw-one", "--count", "20", "--out", "asked.jsonl")
    done(place, "queries", "--loaded", str(kept), *asked)
    stored = [content(kept / FILE)["stored"]]
    for out in ("first", "second"):
        done(place, "run", "tiny.toml", "--loaded", str(kept), "--set", f"target.name={name}", "--out", out)
        summary = content(only(place, f"{out}/*/{name}/summary.json"))
        assert (summary["load"], summary["reused"]["loaded_by"]) == (None, f"load-{name}")
        assert summary["writes"]["stored"] == summary["writes"]["acknowledged"] > stored[-1]
        stored.append(summary["writes"]["stored"])
        done(place, "query", name, "asked.jsonl", "--loaded", str(kept))
        says(done(place, "validate", name, "asked.jsonl", "--loaded", str(kept)), "20 of 20 answers are right")
    assert content(kept / FILE)["stored"] == stored[-1]
    done(place, "cleanup", str(kept))
    assert not [*kept.glob("*.server"), *kept.glob(FILE)]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--scenario", "tiny.toml", "--scale", "7"), "--scale belongs to --use-case; the scenario says it"),
        (("--scenario", "tiny.toml", "--use-case", "iot"), "give one of FILE"),
        (("--scenario", "tiny.toml", "--keep", "--limit", "7"), "--keep starts a server for a whole world"),
        (("--use-case", "iot", "--only", "x"), "--only belongs to --scenario"),
        (("--scenario", "tiny.toml", "--set", "load.windw=1h"), "windw"),
        (("--scenario", "tiny.toml", "--only", "x"), "x"),
    ],
)
def test_options_of_another_source_are_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    what: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(TINY)
    more = () if "--keep" in words else ("--endpoint", "sqlite:///x.db")
    assert main(["load", "sqlite", *words, *more]) == 2
    says(complaint(capsys.readouterr().err), what)


def change(record: dict[str, Any], statement: str) -> None:
    with closing(sqlite3.connect(record["endpoint"].removeprefix("sqlite://"))) as one, one:
        assert one.execute(statement).rowcount == 1


@pytest.mark.slow
@pytest.mark.nightly
def test_other_data_a_changed_value_and_a_deleted_row_are_named_and_the_file_goes_with_cleanup(place: Path) -> None:
    kept, record = kept_by(place)
    scale = refused(place, kept, "--set", "world.scale=6")
    says(scale, "world.scale is 6, and it was loaded with 5; take them by --set world.scale=5, or load by tsbench load")
    says(
        refused(place, kept, "--set", "load.window=20m"), "load.window is 20m, and it was loaded with 10m; take them by"
    )
    says(refused(place, kept, "--set", "op=[{write=7}]"), "writes of 7 points do not divide its blocks of ")
    says(refused(place, kept, *POSTGRES), "target.name is postgres, and it was loaded with sqlite")
    change(record, "UPDATE cpu SET usage_user = usage_user + 1 WHERE rowid = (SELECT max(rowid) FROM cpu)")
    says(refused(place, kept), "not as sqlite left them: stored rows: 1 x wrong value; first ", "usage_user=")
    change(record, "UPDATE cpu SET usage_user = usage_user - 1 WHERE rowid = (SELECT max(rowid) FROM cpu)")
    change(record, "DELETE FROM cpu WHERE rowid = (SELECT max(rowid) FROM cpu)")
    stored = record["stored"]
    line = refused(place, kept)
    says(
        line, f"{stored - 1:,} points are stored, and {stored:,} were; stored rows: 1 x missing row; first missing row"
    )

    resumed = started(place, "--resume", str(kept))
    assert resumed.wait() == 2
    says(complaint(resumed.stderr), "keeps a database; end it with tsbench cleanup")
    assert Command(place, "tsbench", "cleanup", str(kept)).wait() == 0
    assert not [*kept.glob("*.server")]
    says(refused(place, kept), "keeps no database", "--keep")


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.postgres
def test_a_server_stays_for_several_campaigns_which_go_on_with_what_those_before_wrote(place: Path) -> None:
    kept, record = kept_by(place, *POSTGRES)
    for out in ("second", "third"):
        later = going_on(place, kept, *POSTGRES, "--set", "name=another", "--set", "load.batch=100", out=out)
        later.ended_well(f"{out}/*/*/summary.json")
        after = content(kept / FILE)
        assert (after["spoiled"], after["stored"] > record["stored"]) == ("", True)
        found = content(only(place, f"{out}/*/postgres/summary.json"))
        assert (found["load"], found["reused"]["points"]) == (None, record["stored"])
        assert found["writes"]["stored"] == after["stored"]
        record = after
    ended = Command(place, "tsbench", "cleanup", str(kept))
    assert ended.wait() == 0, ended.stderr
    says(ended.stdout, "ended the database of results/", "removed its data")
    assert not [*kept.glob("*.server"), *kept.glob(FILE)]


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.postgres
def test_a_campaign_that_is_killed_leaves_data_that_nobody_goes_on_with(place: Path) -> None:
    kept, _ = kept_by(place, *POSTGRES)
    broken = started(place, "--loaded", str(kept), "--out", "broken", *POSTGRES, "--set", "drive.duration=60s")
    broken.wait_until(lambda: any(place.glob("broken/*/*.partial/process/*.ops.jsonl")))
    broken.signal(signal.SIGKILL)
    broken.wait()
    says(refused(place, kept, *POSTGRES), "postgres did not end well, and what it wrote is not known", "cleanup")
    assert Command(place, "tsbench", "cleanup", str(kept)).wait() == 0


@pytest.mark.nightly
@pytest.mark.postgres
@pytest.mark.parametrize("who", ["server", "keeper"])
def test_a_server_or_a_keeper_that_was_killed_leaves_no_process_and_is_named(place: Path, who: str) -> None:
    kept, record = kept_by(place, *POSTGRES)
    keeper = psutil.Process(record["keeper"]["pid"])
    (server,) = keeper.children()
    (server if who == "server" else keeper).kill()
    psutil.wait_procs([keeper, server], timeout=30)
    says(refused(place, kept, *POSTGRES), "its server has ended", "tsbench cleanup", "--keep")
    assert Command(place, "tsbench", "cleanup", str(kept)).wait() == 0
    assert not [*kept.glob("*.server")]


@pytest.mark.nightly
@pytest.mark.postgres
def test_ctrl_c_in_a_run_that_was_to_keep_its_database_keeps_none(place: Path) -> None:
    command = started(place, "--keep", *POSTGRES, "--set", "drive.duration=60s")
    command.until_measured()
    command.signal(signal.SIGINT)
    assert command.wait() == 130, command.stderr
    says(complaint(command.stderr), "interrupted", "--keep", "--resume results/")
    assert not [*place.glob(f"results/*/{FILE}"), *place.glob("results/*/*.server")]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--set", "target.name=null", "--set", "op=[{write=1}]"), "null keeps no data"),
        (("--cleanup",), "leave --cleanup or it out"),
        (("--set", "target.cold=true"), "target.cold restarts the server"),
    ],
)
@pytest.mark.slow
def test_what_cannot_be_kept_is_refused_before_anything_starts(place: Path, words: tuple[str, ...], what: str) -> None:
    command = started(place, "--keep", *words)
    assert command.wait() == 2, command.stderr
    says(complaint(command.stderr), what)
    assert not (place / "results").exists()
