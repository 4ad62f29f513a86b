"""Searches end where a doubling gains little, whatever the noise, a failed step or the shape of the curve."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.support import TINY
from tsbench.errors import UserMistake
from tsbench.report.answer import answer_of
from tsbench.report.cells import ResultSet
from tsbench.results.summary import SetSummary
from tsbench.scenario.file_keys import SearchPart
from tsbench.study.campaign import planned, run_scenario
from tsbench.study.request import RunRequest
from tsbench.study.search import End, GridPoint, compared, most_runs, walk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SEARCH = SearchPart.model_validate(
    {
        "axes": [
            {"key": "load.batch", "first": 100, "most": 51_200},
            {"key": "load.workers", "first": 1, "most": 8},
        ]
    }
)
AXES = """
[search]
axes = [{ key = "load.batch", first = 100, most = 400 }, { key = "load.workers", first = 1, most = 2 }]
"""


def rising(place: GridPoint) -> float:
    """A rate with a cost per batch and per point: a doubling gains 5 % or less from 1,900 to 3,800 points on."""
    batch, workers = place
    return 1e6 * min(workers, 2) / (1 + 100 / batch)


def ended(rate: Callable[[GridPoint, int], float], most: int = 3) -> tuple[End, dict[GridPoint, list[float]]]:
    """Walk over a curve that gives each run its figure, and return the end and all runs."""
    runs: dict[GridPoint, list[float]] = {}
    for _ in range(most_runs(SEARCH, 1, most) + 1):
        found = walk(SEARCH, most, runs)
        if isinstance(found, End):
            return found, runs
        runs.setdefault(found, []).append(rate(found, len(runs.get(found, ()))))
    raise AssertionError("it takes more runs than it promises")


def test_without_noise_each_key_is_raised_as_long_as_a_doubling_gains_more_than_5_percent() -> None:
    end, runs = ended(lambda place, _: rising(place), most=1)
    assert end.place == (1_600, 2)
    assert rising((3_200, 1)) / rising((1_600, 1)) < 1.05 < rising((1_600, 1)) / rising((800, 1))
    assert end.reasons == ("batch=3200 gains +3 %", "workers=4 gains +0 %")
    assert sum(map(len, runs.values())) == 6 + 2


def test_a_flat_curve_ends_at_once_and_a_rising_one_at_its_limits() -> None:
    assert ended(lambda *_: 5.0)[0].place == (100, 1)
    end, runs = ended(lambda place, _: float(math.prod(place)))
    assert end.place == (51_200, 8)
    assert end.reasons == ("batch was raised to its limit of 51,200", "workers was raised to its limit of 8")
    assert {len(of) for of in runs.values()} == {2}, "what is clear is run twice"
    assert ended(lambda place, _: 1e6 / place[0])[0].place == (100, 1), "it falls"


@pytest.mark.parametrize("noise", [0.02, 0.05])
@pytest.mark.slow
def test_noise_moves_the_end_by_no_more_than_a_doubling(noise: float) -> None:
    near, loss = 0, []
    for seed in range(200):
        chance = np.random.default_rng(seed)
        end, _ = ended(lambda place, _: rising(place) * math.exp(chance.normal(0, noise)), most=5)  # noqa: B023 - called at once
        near += all(0.5 <= found / wanted <= 2 for found, wanted in zip(end.place, (1_600, 2), strict=True))
        loss.append(1 - rising(end.place) / rising((51_200, 2)))
    assert near >= (190 if noise < 0.05 else 170)
    assert np.median(loss) < 0.12


def test_a_flat_curve_with_noise_is_seldom_raised_far() -> None:
    places = []
    for seed in range(200):
        chance = np.random.default_rng(seed)
        places.append(ended(lambda *_: math.exp(chance.normal(0, 0.05)), most=5)[0].place)  # noqa: B023
    assert sum(batch <= 200 and workers <= 2 for batch, workers in places) >= 180


def test_a_step_that_fails_is_run_again_and_ends_the_raising_only_if_it_always_fails() -> None:
    end, runs = ended(lambda place, number: math.nan if place[0] == 400 and number == 0 else rising(place))
    assert end.place == (1_600, 2)
    assert math.isnan(runs[400, 1][0])
    end, runs = ended(lambda place, _: math.nan if place[0] >= 400 else rising(place))
    assert end.place == (200, 2)
    assert end.reasons[0] == "batch=400 could not be compared"
    assert len(runs[400, 1]) == 3
    end, runs = ended(lambda *_: math.nan)
    assert end.place == (100, 1)
    assert sum(map(len, runs.values())) <= most_runs(SEARCH, 1, 3)


@given(st.lists(st.one_of(st.just(math.nan), st.floats(0, 1e9)), min_size=1, max_size=8), st.integers(1, 6))
def test_whatever_the_figures_are_it_ends_within_the_runs_that_it_promises(figures: list[float], most: int) -> None:
    turns = itertools.cycle(figures)
    end, runs = ended(lambda *_: next(turns), most)
    assert max(map(len, runs.values())) <= most
    assert walk(SEARCH, most, runs) == end


@given(st.lists(st.floats(1, 10), min_size=1, max_size=6), st.lists(st.floats(1, 10), min_size=1, max_size=6))
def test_a_comparison_asks_for_the_side_with_fewer_runs(here: list[float], there: list[float]) -> None:
    found = compared(here, there, 0.05, 6)
    if isinstance(found, int):
        assert len((here, there)[found]) == min(len(here), len(there)) < 6


# --- in a campaign ----------------------------------------------------------------------------------------------------


def scenario(place: Path, *, lines: str = "", tables: str = AXES) -> Path:
    path = place / "search.toml"
    path.write_text(f"{lines}\n{TINY}{tables}", encoding="utf-8")
    return path


@pytest.mark.nightly
def test_a_campaign_runs_the_steps_goes_on_after_ctrl_c_and_names_its_end(tmp_path: Path) -> None:
    from tsbench.run.phases import Quiet

    begun: list[str] = []

    def progress(title: str, _left_s: float | None) -> Quiet:
        begun.append(title)
        if len(begun) == 4:
            raise KeyboardInterrupt
        return Quiet()

    axes = AXES.replace("most = 400", "most = 200")
    path = scenario(tmp_path, lines="repeat = 2", tables=axes + '\n[matrix]\n"world.scale" = [5, 6]\n')
    request = RunRequest(path, out=tmp_path / "sets", reports=False)
    with pytest.raises(KeyboardInterrupt):
        run_scenario(request, progress_of=progress)
    (results,) = tmp_path.glob("sets/*")
    ran = run_scenario(replace(request, resume=results), progress_of=progress)
    assert begun[0].startswith("[1/12 at most] scale=5-batch=100-workers=1-round=1")
    assert len(begun) == len(ran.summaries) + 1 <= 12 + 1, "nothing that was complete is run again"
    ends = SetSummary.read(results).searches
    assert [one.name for one in ends] == ["scale=5", "scale=6"]
    for one in ends:
        assert {len(one.cells), *one.keys} >= {2, "load.batch", "load.workers"}
        assert f"The search {one.name} ended at batch={one.keys['load.batch']}, workers=" in one.sentence
        assert len(one.reasons) == 2
    said = " ".join(answer_of(ResultSet.read(results)))
    assert "load" in said.lower(), "the ends are compared by what was searched"
    assert "batch=" not in said, "and the steps before them are not"
    assert not {"write", "answers"} & {*said.split()}


@pytest.mark.parametrize(
    ("lines", "tables", "says"),
    [
        ("knee = true", AXES, "search: chooses its runs, and loads for each; take knee or [search] out"),
        ("reuse = true", AXES, "take reuse or [search] out"),
        ("", AXES + '[matrix]\n"load.batch" = [1]', "search.axes: load.batch is an axis of [matrix], too"),
        ("", "[search]\naxes = []", "search.axes: "),
        ("", AXES.replace("load.batch", "load.bach"), "load.bach: unknown key; did you mean 'batch'?"),
        ("", AXES.replace("first = 100", "first = 0"), "search.axes"),
        ("", AXES + 'figure = "write:p99"', "search.figure: write:p99 is a time"),
        ("", AXES + "gain = 7", "search.gain"),
        ("", AXES.replace("load.workers", "load.batch"), "a key is raised twice"),
        ("", AXES.replace("most = 400", "most = 900_000"), ""),
    ],
)
def test_a_search_that_cannot_be_is_refused_in_one_line(tmp_path: Path, lines: str, tables: str, says: str) -> None:
    if not says:
        assert len(planned(RunRequest(scenario(tmp_path, tables=tables)))[1]) == 14 * 2 * 3
        return
    with pytest.raises(UserMistake) as error:
        planned(RunRequest(scenario(tmp_path, lines=lines, tables=tables)))
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_single_steps_of_a_search_cannot_be_chosen(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match="a search chooses its steps itself; name the whole search sqlite"):
        planned(RunRequest(scenario(tmp_path), only=["batch=100"]))
