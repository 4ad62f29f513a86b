"""`tsbench doctor` learns from the targets what they need."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from typing import TYPE_CHECKING
from zipfile import ZipFile

from rich.console import Console

from tests.cli.support import says
from tsbench.cli.main import main
from tsbench.cli.setup import machine_table
from tsbench.targets import duckdb
from tsbench.targets.registry import TARGETS
from tsbench.targets.target import Requirement

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from rich.table import Table


def rows(table: Table) -> dict[str, str]:
    """Each line of the table as printed, by its part."""
    printed = StringIO()
    Console(width=200, file=printed).print(table)
    lines = printed.getvalue().splitlines()[1:]
    return {line.split("  ")[0].strip(): line for line in lines if line.strip()}


def test_there_is_a_row_for_all_that_a_target_needs() -> None:
    parts = {requirement.part for target in TARGETS.values() for requirement in target.requirements}
    assert parts >= {"DuckDB", "SQLite", "embedded PostgreSQL", "MySQL (mysql)"}
    table, _ = machine_table()
    assert parts <= rows(table).keys()


def test_what_a_target_lacks_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = replace(
        duckdb.TARGET,
        requirements=(
            Requirement("Quick", "pip install 'quick[all]'", modules=("no_such_module",), is_optional=False),
        ),
    )
    monkeypatch.setattr(duckdb, "TARGET", lacking)
    table, good = machine_table()
    assert not good
    assert "pip install 'quick[all]'" in rows(table)["Quick"]
    assert " no " in rows(table)["Quick"]
    assert "DuckDB" not in rows(table)


def test_a_server_that_a_few_targets_start_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Requirement(
        "Slow (slow)", "run .ci/servers slow, or give --endpoint", programs=("python3", "no-such-server")
    )
    monkeypatch.setattr(duckdb, "TARGET", replace(duckdb.TARGET, requirements=(server,)))
    table, good = machine_table()
    assert good
    assert "run .ci/servers slow" in rows(table)["Slow (slow)"]
    assert Requirement("x", "", programs=("python3",)).is_met


def test_a_requirement_is_looked_for_and_not_imported() -> None:
    assert Requirement("x", "", modules=("json",)).is_met
    assert not Requirement("x", "", modules=("no_such_module",)).is_met


def test_no_word_is_cut_in_a_pipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    why = f"needs the right to create control groups (/sys/fs/cgroup/{'x' * 40}: Permission denied); run it as root"
    monkeypatch.setattr("tsbench.servers.cgroup.missing", lambda: why)
    main(["doctor"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].rstrip().endswith("cure, where something is missing")
    assert any(line.rstrip().endswith(why) for line in lines)


def test_a_bundle_has_what_a_report_of_a_bug_needs_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "results" / "20261120-101500-my" / "sqlite"
    run.mkdir(parents=True)
    (tmp_path / "token").write_text("of-the-file-5678\n")
    (run / "locust.log").write_text("login with hunter2-hunter2 and of-the-file-5678 failed\n")
    (run / "ops.parquet").write_bytes(b"points")
    monkeypatch.setenv("TSBENCH_PASSWORD", "hunter2-hunter2")
    monkeypatch.setenv("TSBENCH_TOKEN_FILE", str(tmp_path / "token"))
    to = tmp_path / "bundle.zip"
    main(["doctor", str(run.parent), "--bundle", str(to)])
    with ZipFile(to) as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    assert set(texts) == {"doctor.txt", "versions.txt", "variables.txt", "results/sqlite/locust.log"}
    assert texts["results/sqlite/locust.log"] == "login with [secret] and [secret] failed\n"
    assert "numpy==" in texts["versions.txt"]
    assert "TSBENCH_PASSWORD" in texts["variables.txt"]
    assert not [name for name, text in texts.items() if "hunter2" in text or "of-the-file" in text]
    capsys.readouterr()
    for words, why in (
        (["doctor", "--bundle", str(to)], "is there already"),
        (["doctor", str(run.parent)], "say where to"),
        (["doctor", str(tmp_path / "none"), "--bundle", str(tmp_path / "b.zip")], "is no directory"),
    ):
        assert main(words) == 2
        says(capsys.readouterr().err, why)
