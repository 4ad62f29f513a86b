"""Several scenarios by one command: one directory, one page that begins with their findings."""

from __future__ import annotations

import json
import re
import signal
from typing import TYPE_CHECKING

import pytest

from tests.cli.support import TINY, Command, complaint, content, nothing_left, only, says

if TYPE_CHECKING:
    from pathlib import Path

CLAIM = """
[[claim]]
text = "points take room"
kind = "value"
figure = "bytes/point"
cell = "{target}"
published = 100
band = [0, 100_000]
"""


def written(place: Path, name: str, target: str = "sqlite", more: str = "") -> str:
    """Write a scenario with a finding, and return its file's name."""
    text = TINY.replace('name = "sqlite"', f'name = "{target}"') + more + CLAIM.format(target=target)
    (place / f"{name}.toml").write_text(text, encoding="utf-8")
    return f"{name}.toml"


def run(place: Path, *words: str) -> tuple[int, Command]:
    command = Command(place, "tsbench", "run", *words)
    return command.wait(), command


@pytest.mark.nightly
@pytest.mark.slow
def test_a_page_begins_with_the_findings_of_all_and_leads_to_their_reports(tmp_path: Path) -> None:
    files = [written(tmp_path, "one"), written(tmp_path, "two", "duckdb")]
    code, command = run(tmp_path, *files, "--json", "all.json", "--gate", "failures<=100%")
    assert code in {0, 1}, command.stderr  # 1 where the machine is busy
    place = only(tmp_path, "results/*-2-scenarios")
    names = [path.name for path in sorted(place.glob("*-*"))]
    assert [name[16:] for name in names] == ["one", "two"]
    page = (place / "report.html").read_text(encoding="utf-8")
    assert re.search(r"<h1>\d of 2 published findings reproduced", page)
    assert page.index("points take room") < page.index("Answers")
    for name in names:
        assert f'href="{name}/report.html"' in page
        assert (place / name / "report.html").exists()
    assert len(json.loads((tmp_path / "all.json").read_text())) == 2
    assert "--- 2 of 2: two" in command.stdout
    assert f"report: {place.relative_to(tmp_path)}/report.html" in command.stdout
    for path in [place, *(place / name for name in names)]:
        (path / "report.html").unlink()
    again = Command(tmp_path, "tsbench", "report", str(place.relative_to(tmp_path)))
    assert again.wait() == 0, again.stderr
    assert (place / "report.html").read_text(encoding="utf-8") == page
    assert all((place / name / "report.html").exists() for name in names)


@pytest.mark.nightly
def test_a_scenario_that_cannot_run_is_named_and_the_others_run(tmp_path: Path) -> None:
    files = [
        written(tmp_path, "away", "postgres", 'endpoint = "postgresql://me@127.0.0.1:1/tsbench"\n'),
        written(tmp_path, "here"),
    ]
    code, command = run(tmp_path, *files)
    assert code == 2
    assert "tsbench: away: cannot connect to postgresql://me@127.0.0.1:1/tsbench" in command.stderr
    place = only(tmp_path, "results/*-2-scenarios")
    page = (place / "report.html").read_text(encoding="utf-8")
    assert "away was not run: cannot connect to" in page
    assert "of 1 published findings" in page
    (place / "report.html").unlink()
    again = Command(tmp_path, "tsbench", "report", str(place))
    assert again.wait() == 0, again.stderr
    assert (place / "report.html").read_text(encoding="utf-8") == page


@pytest.mark.nightly
def test_ctrl_c_says_how_all_go_on_and_they_do(tmp_path: Path) -> None:
    files = [written(tmp_path, "one"), written(tmp_path, "two", "duckdb")]
    with nothing_left():
        command = Command(tmp_path, "tsbench", "run", *files, "--no-report")
        command.wait_until(lambda: "duckdb: measure" in command.stderr)
        command.signal(signal.SIGINT)
        assert command.wait() == 130
    place = only(tmp_path, "results/*-2-scenarios").relative_to(tmp_path)
    last = command.stderr.splitlines()[-1]  # a busy machine may have made the first one inconclusive
    says(last, f"continue with: tsbench run one.toml two.toml --no-report --resume {place}")
    first = only(tmp_path, f"{place}/*-one/summary.json").stat().st_mtime_ns
    code, again = run(tmp_path, *files, "--resume", str(place))
    assert code in {0, 1}, again.stderr
    assert len([*(tmp_path / place).glob("*-*")]) == 2
    assert content(only(tmp_path, f"{place}/*-two/summary.json"))["cells"][0]["cell"] == "duckdb"
    assert only(tmp_path, f"{place}/*-one/summary.json").stat().st_mtime_ns >= first


@pytest.mark.slow
def test_mistakes_are_found_before_anything_runs(tmp_path: Path) -> None:
    one, broken = written(tmp_path, "one"), tmp_path / "broken.toml"
    broken.write_text("question = 3\n", encoding="utf-8")
    for words, said in [
        ((one, "broken.toml"), "broken.toml: "),
        ((one, one), "a scenario is given twice"),
        ((one, "broken.toml", "--keep"), "--keep is about one scenario, and 2 are given"),
        ((one, written(tmp_path, "two"), "--resume", "."), "--resume .: is no series"),
    ]:
        code, command = run(tmp_path, *words)
        assert code == 2
        says(complaint(command.stderr), said)
    assert not (tmp_path / "results").exists()


def test_a_plan_names_each_scenario(tmp_path: Path) -> None:
    code, command = run(tmp_path, written(tmp_path, "one"), written(tmp_path, "two", "duckdb"), "--dry-run")
    assert code == 0
    assert [line for line in command.stdout.splitlines() if line.startswith("---")] == ["--- one", "--- two"]
