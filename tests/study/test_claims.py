from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.support import Command
from tests.results.made import limit, measured, op_figures, size
from tsbench.errors import UserMistake
from tsbench.results.json_files import read_json
from tsbench.results.summary import GateResult, Summary, Validity
from tsbench.study.claims import Claim, Figure, Study
from tsbench.study.verdicts import evaluate, shown_figures

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

RUNGS = {"c25": 25, "c50": 50, "c60": 60, "c75": 75}


def summary(
    points_per_s: float = 100.0,
    *,
    state: Any = "valid",
    gate: Any = "pass",
    p50_ms: float = 10.0,
    failed: int = 0,
    version: str = "InfluxDB 1.6.7",
    undelayed_ms: float | None = None,
) -> Summary:
    """Return a summary of a thousand writes; of an open loop if the client delayed them."""
    p50_ns, undelayed_ns = p50_ms * 1e6, (p50_ms if undelayed_ms is None else undelayed_ms) * 1e6
    write = op_figures(
        kind="write",
        count=1000,
        ok=1000 - failed,
        unknown=failed,
        points_per_s=points_per_s,
        ops_per_s=points_per_s,
        service_ns={"p50": p50_ns},
        response_ns={"p50": p50_ns},
        response_undelayed_ns={"p50": undelayed_ns},
    )
    return Summary(
        cell="a",
        validity=Validity(state),
        gates=(GateResult("points/s>1", points_per_s, gate, ""),),
        loop="closed" if undelayed_ms is None else "open",
        server_version=version,
        measured=measured(write),
        size=size(30.0),
    )


def ratio(**more: Any) -> Claim:
    return Claim(**{"text": "t", "figure": "points/s", "cell": "a", "over": "b", "published": 4.0, **more})


def breaks(**more: Any) -> Claim:
    known = {"text": "t", "kind": "break", "gate": "write:failures<=0.1%", "rungs": RUNGS, "published": [60, 75]}
    return Claim(**{**known, **more})


def growth(**more: Any) -> Claim:
    return Claim(**{"text": "t", "kind": "growth", "figure": "points/s", "rungs": RUNGS, "published": 2.0, **more})


def once(summaries: Mapping[str, Summary]) -> dict[str, list[Summary]]:
    """Return cells that were not repeated."""
    return {cell: [run] for cell, run in summaries.items()}


def verdict(claim: Claim, **summaries: Summary) -> tuple[str, str]:
    (row,) = evaluate([claim], once(summaries))
    return row.verdict, row.reason


@pytest.mark.parametrize(
    ("a", "state"),
    [
        (400, "reproduced"),
        (210, "reproduced"),
        (190, "not reproduced"),
        (90, "not reproduced"),
        (1700, "not reproduced"),
    ],
)
def test_a_ratio_is_reproduced_from_the_square_root_to_the_square_of_what_was_published(a: float, state: str):
    assert verdict(ratio(), a=summary(a), b=summary(100)) == (state, "")


def test_a_ratio_below_one_says_who_is_smaller():
    smaller = ratio(published=0.25)
    assert verdict(smaller, a=summary(30), b=summary(100))[0] == "reproduced"
    assert verdict(smaller, a=summary(110), b=summary(100))[0] == "not reproduced"
    (row,) = evaluate([smaller], once({"a": summary(30), "b": summary(100)}))
    assert (row.published, row.reproduced_if, row.measured) == (
        "0.25 times",
        "0.0625 to 0.5 times",
        "0.3 times",
    )


def test_a_ratio_of_two_figures_takes_each_from_its_own_run():
    both = ratio(figure="write:p50", over_figure="write:service:p50", published=2.0)
    assert verdict(both, a=summary(p50_ms=20), b=summary(p50_ms=10)) == ("reproduced", "")
    rates = ratio(figure="points/s", over_figure="bytes/point", published=4.0)
    assert evaluate([rates], once({"a": summary(120), "b": summary(500)}))[0].measured == "4 times"
    with pytest.raises(ValueError, match="over_figure: a time has no ratio to a figure that is none"):
        ratio(figure="write:p50", over_figure="bytes/point")
    with pytest.raises(ValueError, match="over_figure: is not a key of a 'growth'"):
        growth(over_figure="ops/s")


def test_a_run_that_the_study_has_not_is_shown_without_a_published_figure():
    figure = Figure(figure="write:p50", published={"a": "10ms", "b": ""})
    rows = shown_figures([figure], once({"a": summary(), "b": summary(p50_ms=20)}))
    assert [(row.published, row.measured) for row in rows] == [("10.0 ms", "10.0 ms"), ("", "20.0 ms")]


def test_a_band_replaces_the_default():
    same = ratio(published=1.0, band=[0.5, 1.2])
    assert verdict(same, a=summary(110), b=summary(100))[0] == "reproduced"
    assert verdict(same, a=summary(130), b=summary(100))[0] == "not reproduced"


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (None, "b: was not run"),
        (summary(100, state="invalid"), "b: the run is invalid"),
        (summary(100, state="inconclusive"), "b: the run is inconclusive"),
        (summary(0), "there is no ratio to 0"),
    ],
)
def test_a_ratio_to_a_run_that_says_nothing_is_not_judged(other: Summary | None, reason: str):
    assert verdict(ratio(), a=summary(400), **({"b": other} if other else {})) == ("not judged", reason)


@pytest.mark.parametrize(
    ("undelayed_ms", "state", "found"),
    [
        (30, "reproduced", "3 to 4 times"),
        (15, "not judged", "1.5 to 4 times"),
        (None, "reproduced", "4 times"),
    ],
)
def test_a_latency_that_the_load_generator_delayed_is_judged_by_all_that_it_can_be(
    undelayed_ms: float | None, state: str, found: str
):
    slower = ratio(figure="write:p50")
    (row,) = evaluate([slower], once({"a": summary(p50_ms=40, undelayed_ms=undelayed_ms), "b": summary()}))
    why = "a: write:p50 is only known to be 15.0 ms to 40.0 ms" if state == "not judged" else ""
    assert (row.verdict, row.measured, row.reason) == (state, found, why)
    faster = ratio(figure="write:p50", published=20.0, band=[8, 40])
    assert verdict(faster, a=summary(p50_ms=40, undelayed_ms=undelayed_ms), b=summary()) == ("not reproduced", "")


def held_back(points_per_s: float, in_time_per_s: float | None, **more: Any) -> Summary:
    """Return a run whose load generator was the limit, and the rate that its users would have had without it."""
    changes = {"loop": "closed", "limited_by": "load generator", "limit": limit(in_time_per_s=in_time_per_s)}
    return summary(points_per_s, **more).model_copy(update=changes)


def test_a_rate_that_the_load_generator_held_back_is_judged_by_all_that_it_can_be():
    fast = summary(100)
    assert verdict(ratio(), a=held_back(300, 600), b=fast) == ("reproduced", "")
    assert verdict(ratio(), a=held_back(110, 150), b=fast) == ("not reproduced", "")
    (row,) = evaluate([ratio()], once({"a": held_back(150, 600), "b": fast}))
    assert (row.verdict, row.measured) == ("not judged", "1.5 to 6 times")
    assert row.reason == "a: points/s is only known to be 150 points/s to 600 points/s"
    assert verdict(ratio(), a=held_back(300, None), b=fast) == ("not judged", "a: the load generator was the limit")
    slower = ratio(figure="write:service:p50")
    assert verdict(slower, a=held_back(300, 600, p50_ms=40), b=fast)[0] == "reproduced"


def test_a_growth_is_judged_by_all_that_its_slope_can_be():
    runs = {cell: summary(4.0 * load) for cell, load in RUNGS.items()}
    (row,) = evaluate([growth()], once(runs))
    assert (row.verdict, row.measured) == ("reproduced", "2 times per doubling")
    (row,) = evaluate([growth()], once({**runs, "c75": held_back(300, 330)}))
    assert (row.verdict, row.measured) == ("reproduced", "2 to 2.09 times per doubling")
    (row,) = evaluate([growth()], once({**runs, "c75": held_back(300, 30_000)}))
    assert row.verdict == "not judged"


def test_a_run_whose_gate_failed_is_judged():
    assert verdict(ratio(), a=summary(400, gate="fail"), b=summary(100))[0] == "reproduced"


def test_a_value_is_reproduced_from_half_to_double():
    size = Claim(text="t", kind="value", figure="bytes/point", cell="a", published=20.0)
    assert verdict(size, a=summary())[0] == "reproduced"
    assert verdict(Claim(**{**size.model_dump(), "published": 14.0}), a=summary())[0] == "not reproduced"


def ramp(c25: Any = 0, c50: Any = 0, c60: Any = 0, c75: Any = 0) -> dict[str, Summary]:
    """Return runs with that many failed writes; None is a run that is not valid."""
    rungs = {"c25": c25, "c50": c50, "c60": c60, "c75": c75}
    return {cell: summary(failed=n) if n is not None else summary(state="inconclusive") for cell, n in rungs.items()}


@pytest.mark.parametrize(
    ("runs", "state"),
    [
        (ramp(c60=3, c75=90), "reproduced"),
        (ramp(c75=90), "reproduced"),
        (ramp(), "not reproduced"),
        (ramp(c50=9, c60=0, c75=90), "not reproduced"),
        (ramp(c25=9), "not reproduced"),
        (ramp(c60=None, c75=90), "reproduced"),  # it broke at 60 or at 75: both are in the range
        (ramp(c50=None, c75=90), "not judged"),  # it may have broken at 50
        (ramp(c75=None), "not judged"),
        (ramp(c25=None, c50=9), "not reproduced"),  # too early either way
    ],
)
def test_a_break_is_the_first_rung_that_misses_the_gate(runs: dict[str, Summary], state: str):
    found, reason = verdict(breaks(), **runs)
    assert found == state
    assert reason.startswith("it is not known at which load it broke (c") == (state == "not judged")


def test_a_break_shows_the_last_calm_rung_and_the_broken_one():
    (row,) = evaluate([breaks()], once(ramp(c60=3)))
    assert row.measured == "c50: 0 %; c60: 0.3 %"
    assert row.reproduced_if == "write:failures<=0.1% is first missed at 60 to 75"


def test_a_ramp_that_nothing_broke_is_reproduced_where_nothing_breaks():
    never = breaks(published="never")
    assert verdict(never, **ramp())[0] == "reproduced"
    assert verdict(never, **ramp(c75=9))[0] == "not reproduced"
    assert verdict(never, **ramp(c60=None))[0] == "not judged"


def test_a_growth_is_the_factor_per_doubled_load():
    runs = {cell: summary(100.0 * load) for cell, load in RUNGS.items()}
    assert verdict(growth(), **runs)[0] == "reproduced"
    (row,) = evaluate([growth()], once(runs))
    assert row.measured == "2 times per doubling"
    flat = {cell: summary(5000.0) for cell in RUNGS}
    assert verdict(growth(), **flat)[0] == "not reproduced"
    assert verdict(growth(), **{**runs, "c60": summary(1, state="invalid")}) == (
        "not judged",
        "c60: the run is invalid",
    )


def test_a_claim_about_another_product_is_not_judged():
    about = ratio(product="MongoDB")
    ferret, mongo = summary(400, version="FerretDB 2.7.0"), summary(100, version="MongoDB 8.0.4")
    assert verdict(about, a=ferret, b=mongo) == ("not judged", "not MongoDB, but FerretDB 2.7.0")
    assert verdict(about, a=summary(400, version="mongodb 8"), b=mongo)[0] == "reproduced"
    assert verdict(about, a=summary(400, version=""), b=mongo)[1] == "not MongoDB, but a server of unknown version"
    both, other = ratio(product="InfluxDB or MongoDB"), summary(400, version="InfluxDB 1.8.10")
    assert verdict(both, a=other, b=mongo)[0] == "reproduced"
    assert verdict(both, a=other, b=ferret)[1] == "not InfluxDB or MongoDB, but FerretDB 2.7.0"


def test_figures_are_shown_beside_the_measured_ones_without_a_verdict():
    figure = Figure(figure="write:service:p50", published={"a": "9ms", "b": "7ms"})
    assert [row.model_dump() for row in shown_figures([figure], once({"a": summary()}))] == [
        {"figure": "write:service:p50", "cell": "a", "published": "9.00 ms", "measured": "10.0 ms"},
        {"figure": "write:service:p50", "cell": "b", "published": "7.00 ms", "measured": "not run"},
    ]


TWO = "rungs = { a = 1, b = 2 }"


@pytest.mark.parametrize(
    ("table", "lines", "word"),
    [
        ("claim", 'cell = "a"\nover = "b"\nfigure = "p51st"\npublished = 2', "figure"),
        ("claim", 'figur = "points/s"\npublished = 2', "figur"),
        ("claim", 'cell = "a"\nfigure = "points/s"\npublished = 2', "over: is missing"),
        ("claim", 'cell = "a"\nover = "b"\nfigure = "points/s"\npublished = 1.1', "band: is missing"),
        ("claim", 'cell = "a"\nover = "b"\nfigure = "points/s"\npublished = 0', "above 0"),
        ("claim", 'cell = "a"\nover = "b"\nfigure = "points/s"\npublished = 2\nband = [2, 1]', "lowest"),
        ("claim", 'kind = "value"\ncell = "a"\nfigure = "write:p50"\npublished = 2', "hardware"),
        ("claim", f'kind = "break"\n{TWO}\ngate = "write:failures<=0%"\npublished = 2', "published"),
        ("claim", f'kind = "break"\n{TWO}\ngate = "write:failures<=0%"\npublished = [1, 2]', "first rung"),
        ("claim", f'kind = "break"\n{TWO}\ngate = "write:failures<=0%"\npublished = [3, 4]', "no rung"),
        ("claim", f'kind = "break"\n{TWO}\ngate = "write:failures"\npublished = [2, 2]', "not a gate"),
        ("claim", 'kind = "growth"\nrungs = { a = 2, b = 1 }\nfigure = "points/s"\npublished = 2', "rising"),
        ("figure", 'figure = "write:p50"\npublished = { a = 9 }', "a time such as"),
        ("figure", 'figure = "points/s"\npublished = { a = "9ms" }', "a number"),
    ],
)  # fmt: skip
def test_a_malformed_table_is_one_line_that_names_the_file(tmp_path, table: str, lines: str, word: str):
    path = tmp_path / "s.toml"
    text = 'text = "t"\n' if table == "claim" else ""
    path.write_text(f"[[{table}]]\n{text}{lines}\n")
    with pytest.raises(UserMistake, match=word) as caught:
        Study.read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_claims_and_figures_about_unknown_cells_are_refused(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(f'[[claim]]\ntext = "t"\nkind = "growth"\nfigure = "points/s"\npublished = 2\n{TWO}\n')
    with pytest.raises(UserMistake, match=r"claim.0.rungs: no cell is called 'b'"):
        Study.read(path).expect_cells(["a", "c"])
    path.write_text('[[figure]]\nfigure = "points/s"\npublished = { single-1O = 2 }\n')
    with pytest.raises(UserMistake, match=r"figure.0.published: no cell .* did you mean 'single-10'\?"):
        Study.read(path).expect_cells(["single-10"])


STUDY = """
question = "Which layout is smaller?"
[world]
use_case = "stocks"
scale = 3
interval = "1m"
start = "now-2d"
[load]
window = "2d"
[drive]
users = 1
warmup = "0s"
duration = "1s"
wait = "5ms"
[[op]]
query = "raw-one"
[[op]]
query = "prices-day"
[[op]]
query = "prices-daily"
[check]
answers = 6
[matrix]
target = [{ name = "sqlite", schema = "wal" }]
[[claim]]
text = "a point takes up to a kilobyte"
kind = "value"
figure = "bytes/point"
cell = "sqlite-wal"
published = 60
band = [1, 1_000]
product = "SQLite"
[[claim]]
text = "a point takes 60 bytes there"
kind = "value"
figure = "bytes/point"
cell = "sqlite-wal"
published = 60
product = "MongoDB"
[[figure]]
figure = "prices-daily:service:p50"
published = { sqlite-wal = "615ms" }
"""


@pytest.mark.slow
def test_a_run_of_a_study_ends_with_its_findings(tmp_path: Path):
    (tmp_path / "study.toml").write_text(STUDY)
    command = Command(tmp_path, "tsbench", "run", "study.toml", "--out", "results")
    code = command.wait()
    (results,) = (tmp_path / "results").iterdir()
    content = read_json(results / "summary.json")
    assert (content["cells"][0]["answers"]["wrong"], code in {0, 1}) == (0, True), command.stderr
    own, other = content["claims"]
    valid = content["cells"][0]["validity"]["state"] == "valid"  # not on a busy machine
    assert own["verdict"] == ("reproduced" if valid else "not judged")
    assert other["verdict"] == "not judged"
    assert other["reason"].startswith("not MongoDB, but SQLite 3.")
    assert content["figures"][0]["published"] == "615 ms"
    assert "Findings of the published study" in (results / "report.html").read_text(encoding="utf-8")
    assert "kilobyte" in command.stdout


def test_of_repeats_the_medians_of_those_that_are_valid_are_judged() -> None:
    runs = {"a": [summary(380), summary(20), summary(400), summary(9, state="invalid")], "b": [summary(100)]}
    (row,) = evaluate([ratio()], runs)
    assert (row.verdict, row.measured) == ("reproduced", "3.8 times")
    (row,) = evaluate([ratio()], runs | {"b": [summary(100, state="invalid")] * 2})
    assert (row.verdict, row.reason) == ("not judged", "b: the run is invalid")
    (shown,) = shown_figures([Figure(figure="points/s", published={"a": 500.0})], runs)
    assert shown.measured == "380 points/s (median of 3, 20 points/s to 400 points/s)"


@pytest.mark.parametrize(
    ("failed", "said"), [((2, 3), "reproduced"), ((0, 0), "not reproduced"), ((0, 3), "not judged")]
)
def test_a_rung_breaks_if_all_its_repeats_do(failed: tuple[int, int], said: str) -> None:
    runs = once(ramp(c75=0)) | {"c60": [summary(failed=one) for one in failed], "c75": [summary(failed=0)]}
    (row,) = evaluate([breaks(published=[60, 60])], runs)
    assert row.verdict == said
