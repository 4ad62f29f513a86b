"""Cells that differ only in how they are driven share one load; what harms the data between two of them is found."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.cli.support import TINY
from tsbench.errors import UserMistake
from tsbench.results.reading import read_table
from tsbench.results.rundir import COUNTER_COLUMNS
from tsbench.run.phases import Quiet
from tsbench.run.standing import load_key
from tsbench.study.campaign import Ran, planned, run_scenario
from tsbench.study.request import RunRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tsbench.results.figures import Reused
    from tsbench.results.summary import Summary

LOADED = 5 * 60  # points: five hosts, ten minutes at 10 s


def scenario(place: Path, users: int, *, lines: str = "", tables: str = "") -> Path:
    path = place / "reuse.toml"
    axis = f'[matrix]\n"drive.users" = {[*range(2, 2 + users)]}\n'
    path.write_text(f"reuse = true\n{lines}\n{TINY}{tables}\n{axis}", encoding="utf-8")
    return path


def run(path: Path, between: Callable[[int], object] = lambda _number: None, **given: Any) -> Ran:
    """Run the scenario and return its cells in the order in which they ran; `between` is called before each of them."""
    begun: list[str] = []

    @contextmanager
    def progress(title: str, _left_s: float | None) -> Iterator[Quiet]:
        begun.append(title.rpartition(" ")[2])
        between(len(begun))
        yield Quiet()

    return run_scenario(RunRequest(path, out=path.parent / "sets", reports=False, **given), progress_of=progress)


def reused(summary: Summary) -> Reused:
    assert summary.reused is not None
    return summary.reused


def database(place: Path) -> sqlite3.Connection:
    (path,) = place.glob("sets/*/*.server/tsbench.db")
    return sqlite3.connect(path)


@pytest.mark.slow
def test_a_row_that_another_hand_deletes_or_changes_is_found_and_the_next_cell_loads_again(tmp_path: Path) -> None:
    def harm(number: int) -> None:
        statement = {
            3: "DELETE FROM cpu WHERE rowid = (SELECT max(rowid) FROM cpu)",
            5: "UPDATE cpu SET usage_user = usage_user + 1 WHERE rowid = (SELECT max(rowid) FROM cpu)",
        }.get(number)
        if statement is not None:
            with closing(database(tmp_path)) as one, one:
                assert one.execute(statement).rowcount == 1

    ran = run(scenario(tmp_path, 6), harm)
    first, second, third, fourth, fifth, sixth = ran.summaries
    assert (first.load is not None, reused(first).points, reused(first).wrote) == (True, LOADED, ())
    for before, summary in ((first, second), (fourth, fifth)):
        assert before.writes is not None
        assert before.writes.stored > LOADED
        assert (summary.load, reused(summary).points) == (None, before.writes.stored)
        assert (reused(summary).loaded_by, reused(summary).wrote) == (before.cell, (before.cell,))
    assert second.validity.state != "invalid"

    assert second.writes is not None
    rows = f"{second.writes.stored - 1:,} points are stored, but when {second.cell} had ended there were"
    assert rows in third.validity.reason
    assert "somebody else changed the data" in third.validity.reason
    assert fourth.load is not None
    assert (reused(fourth).points, reused(fourth).wrote) == (LOADED, ())

    assert (fifth.validity.state, fifth.validity.checks["answers"].state) == ("invalid", "invalid")
    assert (sixth.load is not None, reused(sixth).points) == (True, LOADED)
    assert sixth.validity.state != "invalid"
    assert not [*tmp_path.glob("sets/*/*.server")]
    assert [one["cell"] for one in json.loads((ran.results / "summary.json").read_text())["cells"]] == [
        f"users={number}" for number in range(2, 8)
    ]


@pytest.mark.nightly
@pytest.mark.slow
def test_after_ctrl_c_nothing_stands_and_the_resumed_campaign_loads_again(tmp_path: Path) -> None:
    def interrupt(number: int) -> None:
        if number == 2:
            raise KeyboardInterrupt

    path = scenario(tmp_path, 3)
    with pytest.raises(KeyboardInterrupt):
        run(path, interrupt)
    (results,) = tmp_path.glob("sets/*")
    assert not [*results.glob("*.server")]
    (results / "users=9.server/server").mkdir(parents=True)  # as a tsbench leaves it that is killed
    complete, second, third = run(path, resume=results).summaries
    assert (complete.load is not None, reused(complete).wrote) == (True, ())
    assert (second.load is not None, reused(second).points, reused(second).wrote) == (True, LOADED, ())
    assert (third.load, reused(third).wrote) == (None, (second.cell,))
    assert not [*results.glob("*.server")]


@pytest.mark.nightly
@pytest.mark.postgres
def test_a_server_stores_a_load_with_disorder_once_and_that_of_a_killed_server_again(tmp_path: Path) -> None:
    def kill(number: int) -> None:
        if number == 4:
            (directory,) = tmp_path.glob("sets/*/*.server")
            process = psutil.Process(int((directory / "server/data/postmaster.pid").read_text().split()[0]))
            process.kill()
            for _ in range(1_000):  # waiting for it would take its exit status from whom it belongs to
                if process.status() == psutil.STATUS_ZOMBIE:
                    return
                time.sleep(0.01)

    disorder = ("late=0.1", "out_of_order=0.1", "duplicate=0.05", "missing=0.05")
    changes = ["target.name=postgres", "load.window=4h", *(f"world.{one}" for one in disorder)]
    ran = run(scenario(tmp_path, 5), kill, overrides=changes)
    assert "the server died during the run (killed by SIGKILL)" in ran.summaries[3].death
    for summary in [*ran.summaries[:3], ran.summaries[4]]:
        assert {name: summary.validity.checks[name].state for name in ("writes", "answers")} == {
            "writes": "valid",
            "answers": "valid",
        }
    assert [summary.load is not None for summary in ran.summaries] == [True, False, False, False, True]
    third = ran.summaries[2]
    rows = read_table(ran.results / third.cell / "counters.parquet", COUNTER_COLUMNS).to_pylist()
    inserted = min(row["value"] for row in rows if row["name"] == "database.tup_inserted")  # since the server's start
    assert reused(third).points > 6_000
    assert reused(third).points <= inserted < 1.5 * reused(third).points  # its own tables have some rows, too


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        ("cold = true", "target.cold restarts the server"),
        ("[[event]]\nat = '0.2s'\ndo = 'pause'\nlength = '0.1s'", r"an \[\[event\]\] \(pause\)"),
        ("[server]\ncpu = 1.0", r"the caps of \[server\]"),
    ],
)
def test_a_cell_that_needs_data_of_its_own_is_refused_in_one_line(tmp_path: Path, tables: str, says: str) -> None:
    with pytest.raises(UserMistake, match=rf"reuse\.toml: reuse: users=2: {says}.*; take one of the two out"):
        planned(RunRequest(scenario(tmp_path, 2, tables=tables)))


def test_the_end_of_the_writes_a_gate_on_the_load_and_a_word_for_true_are_refused(tmp_path: Path) -> None:
    path = scenario(tmp_path, 2)
    for given, says in (
        ({"overrides": ["drive.window=1h"]}, "drive.window ends the writes"),
        ({"gates": ["load:points/s>5"]}, "the gate load:points/s>5 is about the load"),
        ({"overrides": ["reuse='yes'"]}, "reuse: must be true or false"),
    ):
        with pytest.raises(UserMistake, match=says):
            planned(RunRequest(path, **given))  # type: ignore[arg-type]


def test_cells_with_one_load_are_next_to_each_other_in_a_drawn_order_and_share_a_size_of_blocks(tmp_path: Path) -> None:
    path = scenario(tmp_path, 4)
    path.write_text(
        path.read_text()
        + 'case = [{name = "a", op = [{write = 3}]}, {name = "b", op = [{write = 7}]}]\n"world.scale" = [5, 6]\n'
    )
    asked, cells = planned(RunRequest(path))
    scales = [cell.world.scale for cell in cells]
    assert scales in ([5] * 8 + [6] * 8, [6] * 8 + [5] * 8)
    assert {cell.block_points % 21 for cell in cells} == {0}
    assert [cell.id for cell in cells[:8]] != [cell.id for cell in asked.expand() if cell.world.scale == 5]
    assert planned(RunRequest(path))[1] == cells

    path.write_text("knee = true\n" + path.read_text())
    kept = [cell.id for cell in planned(RunRequest(path))[1] if cell.world.scale == 5]
    assert kept == [cell.id for cell in planned(RunRequest(path))[0].expand() if cell.world.scale == 5]


def test_a_start_of_now_is_the_same_for_cells_with_one_load(tmp_path: Path) -> None:
    path = scenario(tmp_path, 3)
    cells = planned(RunRequest(path, overrides=["world.start=now-1h"]))[1]
    assert len({load_key(cell) for cell in cells}) == 1


def test_each_round_of_repeats_loads_for_itself(tmp_path: Path) -> None:
    cells = planned(RunRequest(scenario(tmp_path, 3), repeat=2))[1]
    assert [cell.id[-1] for cell in cells] == ["1"] * 3 + ["2"] * 3
    assert len({load_key(cell) for cell in cells[:3]}) == len({load_key(cell) for cell in cells[3:]}) == 1
    assert load_key(cells[0]) != load_key(cells[3])
