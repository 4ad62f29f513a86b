import pytest

from tsbench.errors import UserMistake
from tsbench.results.summary import GateResult, Summary, Validity
from tsbench.run.claims import Claim, evaluate, read_claims


def summary(points_per_s, *, state="valid", gate="pass", p50_ns=10_000_000):
    write = {
        "count": 10,
        "ok": 10,
        "failed": 0,
        "unknown": 0,
        "points_per_s": points_per_s,
        "ops_per_s": points_per_s,
        "service_ns": {"p50": p50_ns},
    }
    gates = (GateResult("points/s>1", points_per_s, gate, ""),)
    return Summary("a", Validity(state), gates, loop="closed", parts={"measured": {"write": write, "ops": {}}})


def claim(**more):
    return Claim(text="t", cell="a", figure="points/s", **{"published": 100.0, **more})


@pytest.mark.parametrize(("measured", "holds"), [(100, True), (120, True), (130, False), (70, False)])
def test_a_value_holds_within_its_share(measured, holds):
    assert evaluate([claim()], {"a": summary(measured)})[0]["holds"] is holds


@pytest.mark.parametrize(("a", "b", "holds"), [(200, 100, True), (110, 100, True), (90, 100, False)])
def test_a_direction_holds_when_the_ratio_points_the_same_way(a, b, holds):
    row = evaluate([claim(over="b", published=1.9, holds="direction")], {"a": summary(a), "b": summary(b)})[0]
    assert row["holds"] is holds
    assert row["published"] == "1.90 times"


@pytest.mark.parametrize("state", ["invalid", "inconclusive"])
def test_a_claim_about_a_cell_that_is_not_valid_is_not_judged(state):
    assert evaluate([claim()], {"a": summary(100, state=state)})[0]["holds"] is None


def test_a_claim_about_a_cell_whose_gate_failed_is_judged():
    assert evaluate([claim()], {"a": summary(100, gate="fail")})[0]["holds"] is True


def test_a_claim_that_is_only_shown_is_not_judged():
    shown = Claim(text="t", cell="a", figure="write:service:p50", published="9ms", holds="shown")
    row = evaluate([shown], {"a": summary(1)})
    assert row[0]["holds"] is None
    assert row[0]["published"] == "9.00 ms"
    assert row[0]["measured"] == "10.0 ms"


def test_a_cell_that_was_not_run_says_so():
    assert evaluate([claim()], {})[0]["measured"] == "a was not run"


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ('figure = "p51st"', "figure"),
        ('figur = "points/s"', "figur"),
        ('figure = "points/s"\nholds = "direction"', "over"),
    ],
)
def test_a_malformed_claim_is_one_line_that_names_the_file(tmp_path, line, word):
    path = tmp_path / "s.toml"
    path.write_text(f'[[claim]]\ntext = "t"\npublished = 1\ncell = "a"\n{line}\n')
    with pytest.raises(UserMistake, match=word) as caught:
        read_claims(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
