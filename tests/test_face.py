"""The public face: each name of `import tsbench` is called twice, and the import itself loads nothing heavy."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import tsbench
from tests.cli.support import TINY
from tests.report.synthetic import Shape, make_results
from tsbench.errors import UserMistake
from tsbench.report.results import PLOTS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("sets")
    small = {"seconds": 4, "warmup": 1, "rate": 150}
    make_results(place / "one", [Shape(cell="a", delayed=0.3, **small), Shape(cell="b", loop="closed", **small)])  # type: ignore[arg-type]
    make_results(place / "two", [Shape(cell="a", validity="invalid", reason="wrong", doubted="answers", **small)])  # type: ignore[arg-type]
    return place


def test_importing_it_loads_neither_gevent_nor_pandas_nor_matplotlib() -> None:
    code = "import sys, tsbench; print(sorted({'gevent', 'locust', 'numpy', 'pandas', 'matplotlib'} & {*sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert {*dir(tsbench)} >= {"read_results", "run_scenario", "world"}
    with pytest.raises(AttributeError, match="no attribute 'load'"):
        tsbench.load  # noqa: B018


@pytest.mark.parametrize("_", [1, 2])
def test_frames_are_over_several_sets_with_validity_and_intervals_beside_the_figures(sets: Path, _: int) -> None:
    found = tsbench.read_results(str(sets / "*"))
    for name in ("runs", "ops", "seconds", "histograms"):
        frame = getattr(found, name)
        assert list(frame.columns[:4]) == ["set", "cell", "validity", "stands"]
        assert {*zip(frame["set"], frame["cell"], strict=True)} == {("one", "a"), ("one", "b"), ("two", "a")}
        assert {*frame.loc[frame["set"] == "two", "validity"]} == {"invalid"}
        assert not frame.loc[frame["set"] == "two", "stands"].any()
    delayed, write = (frame.to_dict("records")[0] for frame in (found.runs, found.ops))
    assert 0.6 < delayed["write_max_least_ns"] / delayed["write_max_ns"] < 0.8
    assert (write["op"], write["ended"]) == ("write", write["ok"] + 3)
    assert write["response_p99_least_ns"] < write["response_p99_ns"]
    assert list(found.claims.columns) == ["set", "claim", "published", "reproduced_if", "measured", "verdict", "reason"]


@pytest.mark.parametrize("name", PLOTS)
def test_plots_are_axes(sets: Path, name: str) -> None:
    found = tsbench.read_results(sets / "one", sets / "two")
    for axes in (found.plot(name), found.plot(name)):
        assert axes
        assert all(one.get_figure() is not None for one in axes)


def test_what_is_no_result_set_or_plot_is_refused(sets: Path) -> None:
    with pytest.raises(UserMistake, match="nothing is no directory"):
        tsbench.read_results(sets / "nothing")
    with pytest.raises(TypeError, match=r"read_results\(\*paths\)"):
        tsbench.read_results([sets / "one"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'pie' is no plot; there are latency"):
        tsbench.read_results(sets / "one").plot("pie")


@pytest.mark.parametrize("_", [1, 2])
def test_a_world_has_the_keys_of_a_scenario(_: int) -> None:
    world = tsbench.world("cpu-only", scale=3, interval="10s")
    assert (len(world.keys()), world.spec.interval_ns) == (3, 10 * 10**9)
    with pytest.raises(ValueError, match="scale"):
        tsbench.world("cpu-only", scale=0)


@pytest.mark.slow
def test_a_scenario_runs_twice_and_its_results_are_read(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    for number in range(2):
        ran = tsbench.run_scenario(
            tsbench.RunRequest(tmp_path / "tiny.toml", out=tmp_path / str(number), reports=False)
        )
        assert [summary.cell for summary in ran.summaries] == list(tsbench.read_results(ran.results).runs["cell"])
