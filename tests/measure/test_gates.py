"""Gates: which are possible, which are refused with a cure, and their results on a run's figures."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.results.made import limit, load, measured, op_figures, size
from tsbench.measure.built_in_gates import failed_ops, server_deaths, torn_reads
from tsbench.measure.gates import (
    evaluate_gates,
    parse_gate,
    percents_of_gates,
)
from tsbench.measure.hist import Histogram
from tsbench.measure.merge import OpTotals
from tsbench.results.figures import OpFigures, Steadiness
from tsbench.results.process import FirstOp
from tsbench.results.summary import Summary, Validity
from tsbench.scenario.spec import RunSpec

MS = 1_000_000
VALID = Validity("valid")


def op(kind: str, **changes: object) -> OpFigures:
    latencies = {"p50": 5 * MS, "p95": 40 * MS, "p99": 60 * MS, "p99.9": 90 * MS, "max": 100 * MS, "mean": 10 * MS}
    points = {"points_per_s": 3_600.0} if kind == "write" else {}
    service = {name: value / 2 for name, value in latencies.items()}
    counts = {"count": 1_000, "ok": 999, "failed": 1, "ops_per_s": 100.0}
    times = {"response_ns": latencies, "service_ns": service}
    return op_figures(**{"kind": kind, **counts, **points, **times, **changes})


def summary(loop: str = "open", write: OpFigures | None = None, **parts: Any) -> Summary:
    ops = {"write-50": write or op("write"), "lastpoint": op("query")}
    known = {"load": load(25_000.0), "size": size(96.5), "measured": measured(*ops.values(), **ops), "validity": VALID}
    return Summary.model_validate({"cell": "a", "loop": loop, **known, **parts})


PARSED = [
    ("write:p99<50ms", ("write", None, "p99", "<", 50 * MS)),
    ("query : p95 <= 200 ms", ("query", None, "p95", "<=", 200 * MS)),
    ("single-groupby-1-1-1:p99.9<1s", ("single-groupby-1-1-1", None, "p99.9", "<", 1_000 * MS)),
    ("write-250:max<1m30s", ("write-250", None, "max", "<", 90_000 * MS)),
    ("write:mean<800us", ("write", None, "mean", "<", 800_000)),
    ("write:service:p99<50ms", ("write", "service", "p99", "<", 50 * MS)),
    ("response:write:p99<50ms", ("write", "response", "p99", "<", 50 * MS)),
    ("failures<0.1%", (None, None, "failures", "<", 0.001)),
    ("query:failures<=0", ("query", None, "failures", "<=", 0)),
    ("points/s>3500", (None, None, "points/s", ">", 3_500)),
    ("points/s>3.5k", (None, None, "points/s", ">", 3_500)),
    ("load:points/s>=1_000_000", ("load", None, "points/s", ">=", 1_000_000)),
    ("query:ops/s>99.5", ("query", None, "ops/s", ">", 99.5)),
    ("bytes/point<100", (None, None, "bytes/point", "<", 100)),
    ("index:bytes/point<20", ("index", None, "bytes/point", "<", 20)),
    ("disk-reads<=0", (None, None, "disk-reads", "<=", 0)),
    ("raw-one:first<50ms", ("raw-one", None, "first", "<", 50 * MS)),
]


@pytest.mark.parametrize(("text", "expected"), PARSED)
def test_a_gate_is_of_something_by_some_time_a_figure_and_a_limit(text, expected):
    gate = parse_gate(text)
    assert (gate.of, gate.time, gate.figure, gate.sign) == expected[:4]
    assert gate.limit == pytest.approx(expected[4])
    assert parse_gate(gate.text) == gate


REFUSED = [
    ("", "is not a gate; write FIGURE<LIMIT, for example write:p99<50ms"),
    ("write:p99", "is not a gate"),
    ("write:p99=50ms", "is not a gate"),
    ("write:p99<50ms<60ms", "is not a gate"),
    ("write:p99<", "is not a gate"),
    ("write:p99<50", "a time needs a unit; write write:p99<50ms, say"),
    ("write:p99<fast", "'fast' is not a duration"),
    ("write:pp99<50ms", "'pp99' is not a figure; did you mean 'p99'?"),
    ("latency<50ms", "'latency' is not a figure; there are p50"),
    ("write:p101<50ms", "a percentile must be above 0 and at most 100"),
    ("write:p0<50ms", "a percentile must be above 0 and at most 100"),
    ("p99<50ms", "the ops are missing; write write:p99, query:p99 or an op's name before it"),
    ("load:p99<50ms", "the load has the figures points/s, batch, workers"),
    ("failures<1", "'1' is not a share; write for example 0.1%"),
    ("failures<101%", "is not a share"),
    ("points/s>fast", "'fast' is not a number; write for example 3500, 3_500 or 3.5k"),
    ("query:points/s>1", "queries write no points; did you mean 'query:ops/s'?"),
    ("service:points/s>1", "points/s is not a time; take 'service:' out"),
    ("write:bytes/point<1", "bytes/point is of the data; take 'write:' out"),
    ("write:disk-reads<1", "disk-reads is of the whole run; take 'write:' out"),
    ("query:first<1s", "write the name of an op, such as raw-one:first"),
    ("write:service:response:p99<1s", "write at most OF:TIME:FIGURE<LIMIT"),
    ("write:query:p99<1s", "write at most OF:TIME:FIGURE<LIMIT"),
    (":p99<1s", "write at most OF:TIME:FIGURE<LIMIT"),
]


@pytest.mark.parametrize(("text", "cure"), REFUSED)
def test_what_is_no_gate_is_refused_in_one_line_that_names_it_and_the_cure(text, cure):
    with pytest.raises(ValueError, match=re.escape(cure)) as refused:
        parse_gate(text)
    said = str(refused.value)
    assert said.startswith(f"'{text}'")
    assert "\n" not in said


KINDS = {"write-50": "write", "lastpoint": "query"}
MISFITS = [
    ("lastpint:p99<1s", "closed", "no op is called 'lastpint'; did you mean 'lastpoint'?"),
    ("write:response:p99<1s", "closed", "a closed loop has no response time"),
    ("write:response:p99<1s", "open", ""),
    ("lastpoint:points/s>1", "open", "queries write no points; did you mean 'lastpoint:ops/s'?"),
    ("load:points/s>1", "closed", ""),
    ("failures<1%", "closed", ""),
    ("write-50:p99<1s", "closed", ""),
]


@pytest.mark.parametrize(("text", "loop", "why"), MISFITS)
def test_a_gate_that_the_run_cannot_tell_is_found_before_it(text, loop, why):
    found = parse_gate(text).misfit(KINDS, loop)
    assert found.startswith(why)
    assert bool(found) == bool(why)


def test_a_kind_that_the_run_does_not_have_is_found_before_it():
    only = {"lastpoint": "query"}
    assert (
        parse_gate("write:p99<1s").misfit(only, "open").startswith("there is no write op; there are lastpoint, query")
    )
    assert parse_gate("points/s>1").misfit(only, "open").startswith("there is no write op")
    assert parse_gate("anything:p99<1s").misfit({}, "closed") == "", "bare Locust names no ops"


RESULTS = [
    ("write:p99<60ms", "open", 60 * MS, "fail"),
    ("write:p99<=60ms", "open", 60 * MS, "pass"),
    ("write:p99<60ms", "closed", 30 * MS, "pass"),
    ("write:service:p99<60ms", "open", 30 * MS, "pass"),
    ("write:p95<1ms", "open", 40 * MS, "fail"),
    ("lastpoint:max<1s", "open", 100 * MS, "pass"),
    ("query:mean>9ms", "open", 10 * MS, "pass"),
    ("failures<0.1%", "open", 0.001, "fail"),
    ("failures<=0.1%", "open", 0.001, "pass"),
    ("write-50:failures<1%", "open", 0.001, "pass"),
    ("points/s>3500", "open", 3_600, "pass"),
    ("write:points/s>3600", "open", 3_600, "fail"),
    ("ops/s>=200", "open", 200, "pass"),
    ("query:ops/s>100", "open", 100, "fail"),
    ("load:points/s>20k", "open", 25_000, "pass"),
    ("bytes/point<96", "open", 96.5, "fail"),
    ("write:response:p99<1s", "closed", None, "not judged"),
    ("other:p99<1s", "open", None, "not judged"),
    ("write:p42<1s", "open", None, "not judged"),
]


@pytest.mark.parametrize(("text", "loop", "measured", "state"), RESULTS)
def test_a_gate_passes_fails_or_is_not_judged(text, loop, measured, state):
    (result,) = evaluate_gates([parse_gate(text)], summary(loop))
    assert result.gate == text
    assert result.state == state
    assert result.measured == (pytest.approx(measured) if measured is not None else None)


def test_a_result_says_which_time_it_is_and_of_how_many_ops():
    gate = parse_gate("write:p99<50ms")
    in_open, in_closed = (evaluate_gates([gate], summary(loop))[0] for loop in ("open", "closed"))
    assert in_open.text == "60.0 ms (response time of 1,000 ops, open loop)"
    assert in_closed.text == "30.0 ms (service time of 1,000 ops, closed loop)"
    assert in_open.sentence == f"gate write:p99<50ms failed: {in_open.text}"


@pytest.mark.parametrize("text", ["write:p99<1s", "failures<1%", "points/s>0", "load:points/s>0", "bytes/point<1"])
def test_a_run_that_measured_nothing_passes_no_gate(text):
    for nothing in (Summary(cell="a"), Summary(cell="a", loop="closed", measured=measured())):
        (result,) = evaluate_gates([parse_gate(text)], nothing)
        assert result.state == "not judged"
        assert result.text


def test_a_percentile_of_no_op_is_missing_and_not_zero():
    empty = summary(measured=measured(op("write", count=0)))
    (result,) = evaluate_gates([parse_gate("write:p99<1s")], empty)
    assert result.state == "not judged"
    assert result.text == "no write ended in the measured window"


@pytest.mark.parametrize("state", ["invalid", "inconclusive"])
def test_a_figure_of_a_run_that_is_not_valid_passes_and_fails_no_gate(state):
    gates = [parse_gate(text) for text in ("write:p99<1s", "write:p99<1ns", "failures<=0.1%", "bytes/point<1")]
    for result in evaluate_gates(gates, summary(validity=Validity(state))):
        assert result.state == "not judged"
        assert result.measured is not None
        assert result.text.endswith(f"but the run is {state}")


@pytest.mark.parametrize(
    ("loop", "text", "state"),
    [
        ("closed", "points/s>3000", "pass"),  # more than enough, and perhaps yet more
        ("closed", "points/s>4000", "undecided"),
        ("closed", "points/s<3000", "fail"),  # already more
        ("closed", "points/s<4000", "undecided"),
        ("closed", "query:ops/s>=200", "undecided"),
        ("closed", "load:points/s>30000", "fail"),
        ("closed", "write:p99<50ms", "pass"),
        ("closed", "write:p99<20ms", "fail"),
        ("closed", "bytes/point<90", "fail"),
        ("open", "points/s>4000", "fail"),
    ],
)
def test_where_the_load_generator_was_the_limit_rates_are_the_least_and_all_else_is_judged(loop, text, state):
    run = summary(loop, limited_by="load generator")
    (found,) = evaluate_gates([parse_gate(text)], run)
    assert found.state == state
    assert ("at least" in found.text) is (state == "undecided")
    assert evaluate_gates([parse_gate(text)], summary(loop))[0].state != "undecided"


def test_a_gate_is_judged_by_both_ends_of_what_a_latency_can_be():
    found = summary(write=op("write", response_undelayed_ns={"p99": 30e6, "p50": 4.8e6}))  # measured: 60 and 5 ms

    def result(text):
        return evaluate_gates([parse_gate(text)], found)[0]

    assert result("write:p99<66ms").state == "pass", "it is lower without the client's part"
    between = result("write:p99<45ms")
    assert (between.state, between.measured) == ("not judged", 60e6)
    assert between.text.startswith("30.0-60.0 ms around the limit of 45.0 ms: response time of")
    assert result("write:p99<24ms").state == "fail", "it is higher even without the client's part"
    assert result("write:p99>24ms").state == "pass"
    assert result("write:p99>45ms").state == "not judged"
    assert result("write:p50<4.9ms").state == "fail", "a part below a tenth is not noticeable"


def test_a_gate_that_bursts_of_the_client_may_have_broken_is_not_judged():
    found = summary(limit=limit(sent_in_bursts=0.2))

    def result(text):
        return evaluate_gates([parse_gate(text)], found)[0]

    assert result("write:p99<66ms").state == "pass"
    assert result("write:p99<45ms").state == "not judged"
    assert "20% of the ops were sent in bursts" in result("write:p99<45ms").text
    assert result("write:p99<25ms").state == "fail", "more than bursts can do"


def test_a_built_in_gate_that_failed_stands_whatever_the_validity_and_one_that_passed_does_not():
    bad = failed_ops(1_000, 1, 1, Counter(timeout=2), 0.0)
    good = server_deaths("")
    assert (bad.state, good.state) == ("fail", "pass")
    assert bad.under(Validity("invalid")) == bad
    assert good.under(Validity("invalid")).state == "not judged"


@pytest.mark.parametrize(("allowed", "state"), [(0.0, "fail"), (0.0019, "fail"), (0.002, "pass"), (0.5, "pass")])
def test_the_limit_of_failed_ops_is_the_scenarios(allowed, state):
    gate = failed_ops(1_000, 1, 1, Counter(timeout=1, constraint=1), allowed)
    assert gate.state == state
    assert gate.measured == 0.002
    assert "1 ops failed and 1 ended unknown (timeout 1, constraint 1)" in gate.text


def test_writes_refused_in_part_count_against_the_limit_of_failed_ops():
    gate = failed_ops(1_000, 0, 0, Counter({"partial write": 1}), 0.0, partial=1)
    assert (gate.state, gate.measured) == ("fail", 0.001)
    assert "1 writes were refused in part (partial write 1)" in gate.text
    some = measured(op_figures(ok=999, partial=1, ops_per_s=1.0, points_per_s=1.0))
    (share,) = evaluate_gates([parse_gate("failures<0.1%")], summary(measured=some))
    assert (share.state, share.measured) == ("fail", 0.001)


def test_how_steady_a_rate_was_can_be_a_condition() -> None:
    steady = Steadiness(0, 10.0, variation=0.25, drift=0.0, stalls=(), stall_count=2, stalled_s=3)
    texts = "write:variation<20%", "write:variation<30%", "write:stalls<=1", "query:stalls<=0"
    results = evaluate_gates(map(parse_gate, texts), summary(steadiness={"write": steady}))
    assert [result.state for result in results] == ["fail", "pass", "fail", "not judged"]
    assert [result.text for result in results[:3]] == ["25 %", "25 %", "2 stalls"]
    assert results[3].text == "how the rate went on is known of runs of 20 s or more"
    for text in ("variation<20%", "write-1:stalls<=0"):
        with pytest.raises(ValueError, match=r"the kind is missing; write write:(variation|stalls) or query:"):
            parse_gate(text)


def test_torn_reads_fail_their_gate_by_the_number_of_answers():
    none, some = torn_reads(0, 0, 200), torn_reads(3, 40, 200)
    assert (none.gate, none.state, none.measured) == ("torn reads<=0", "pass", 0.0)
    assert (some.state, some.measured, some.built_in) == ("fail", 3.0, True)
    assert some.text == "3 of 200 answers had torn rows (40 in all)"


def test_failed_ops_are_not_judged_where_no_op_ended():
    assert failed_ops(0, 0, 0, Counter(), 0.0).state == "not judged"


def test_any_percentile_is_taken_from_the_histogram():
    values = np.arange(1, 100_001) * 1_000
    totals = OpTotals(Histogram(values), Histogram(values), done=len(values))
    gates = [parse_gate(f"write:{name}<1s") for name in ("p95", "p99.99", "p12.5", "p99")]
    figures = totals.figures(10, percents_of_gates(gates)).response_ns
    assert list(figures) == ["p50", "p90", "p99", "p99.9", "max", "p95", "p99.99", "p12.5", "mean"]
    for name, exact in (("p95", 95_000_000), ("p99.99", 99_990_000), ("p12.5", 12_500_000)):
        assert figures[name] == pytest.approx(exact, rel=2e-3)


def test_gates_without_blanks_are_what_a_spec_keeps():
    document = {"id": "x", "scenario": "x", "world": {"use_case": "cpu-only"}, "target": {"name": "sqlite"}}
    spec = RunSpec.model_validate({**document, "gates": ["write : p99 < 50 ms"]})
    assert spec.gates == ("write:p99<50ms",)
    assert spec.demands == (parse_gate("write:p99<50ms"),)


def judged(text: str, **parts: Any) -> tuple[str, str]:
    """Return the state and the text of a gate on a run with these parts."""
    (result,) = evaluate_gates([parse_gate(text)], summary(**parts))
    return result.state, result.text


def test_a_part_of_the_data_has_its_own_bytes_per_point():
    parts = size(96.5).model_copy(update={"points": 10, "parts": {"table": 725, "index": 240}})
    assert judged("index:bytes/point<25", size=parts)[0] == "pass"
    assert judged("table:bytes/point<25", size=parts)[0] == "fail"
    assert judged("toast:bytes/point<25", size=parts) == (
        "not judged",
        "the database reports no size of 'toast', but of table, index",
    )


def test_what_the_server_read_from_disk_is_not_judged_without_a_sample():
    ops = {"write-50": op("write")}
    for read_bytes, state in ((0, "pass"), (1, "fail"), (None, "not judged")):
        found = measured(*ops.values(), **ops).model_copy(update={"disk_read_bytes": read_bytes})
        assert judged("disk-reads<=0", measured=found)[0] == state


def test_the_first_op_of_a_cold_run_is_a_time_of_its_own():
    firsts = {"lastpoint": FirstOp(0, 60 * MS, 40 * MS, "ok"), "write-50": FirstOp(0, MS, MS, "failed")}
    assert judged("lastpoint:first<50ms", loop="closed", firsts=firsts)[0] == "pass"
    assert judged("lastpoint:first<50ms", firsts=firsts)[0] == "fail"  # an open loop's is from when it was due
    assert judged("lastpoint:service:first<50ms", firsts=firsts)[0] == "pass"
    for name in ("write-50", "raw-one"):
        assert judged(f"{name}:first<50ms", firsts=firsts)[0] == "not judged"
