"""Gates: conditions that a run must meet to pass, such as `write:p99<50ms`, checked on its summary.

A gate is `[OF:][TIME:]FIGURE OPERATOR LIMIT`, written without or with blanks:

- OF: `write`, `query`, an op's name (`single-groupby-1-1-1`, `write-250`), or `load`; left out: all ops. For
  `bytes/point` a part of the data (`table`, `index`).
- TIME: `response` or `service`; left out: the time that counts, which is response time in an open loop and service
  time in a closed one (where no schedule says when an op was due).
- FIGURE: `p` and any percentile (`p95`, `p99.9`), `max`, `mean`, `first` (of an op of a cold run); `failures` (the
  share of ops that failed or ended unknown), `points/s`, `ops/s`, `bytes/point`, `disk-reads` (bytes that the server's
  processes read from storage); `variation` (the coefficient of variation of the rate per second) and `stalls` (their
  number), of `write` or `query` (`measure.steadiness`).
- OPERATOR: `<`, `<=`, `>`, `>=`; the condition must hold for the gate to pass.
- LIMIT: a duration (`50ms`), a share (`0.1%`) or a number (`3500`), by the figure.

A gate on a percentile passes or fails when the ops beyond its limit show that with a confidence of 99 % (see
`margins.judge`); one on a rate or a mean when the limit lies outside of the figure's margin within the run. Otherwise
it is undecided, which does not fail the run. Other figures, and those of windows too short for a margin, are judged as
measured. A gate is not judged when its figure is missing (without any op there is no percentile), when it depends on
what the client's lateness hides, or when the figure does not count because the run is not valid.

Built-in gates apply to every run: failed ops (the limit is the scenario's check.failures), failed connections, and a
server that died. Figures measured before a server's death remain valid.
"""

from __future__ import annotations

import math
import operator
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tsbench import units
from tsbench.errors import UserMistake
from tsbench.measure.latency import BURST_REACH, Latency, latency_of
from tsbench.measure.margins import judge
from tsbench.text import shortened, suggestion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tsbench.results.figures import OpFigures
    from tsbench.results.summary import GateResult, GateState, Summary

EXAMPLES = "write:p99<50ms, query:p95<200ms, failures<0.1%, points/s>3500"
TIMES = ("response", "service")
KINDS = ("write", "query")
RATES = frozenset({"points/s", "ops/s"})
"""Figures of which more is better; of the others less is."""
FIGURES = (
    *("p50", "p90", "p95", "p99", "p99.9", "max", "mean", "first"),
    *("failures", "points/s", "ops/s", "bytes/point", "disk-reads", "variation", "stalls", "batch", "workers"),
)
_SHARES = {"failures", "variation"}
_OF_LOAD = {"points/s": "points_per_s", "batch": "batch", "workers": "workers"}
"""Figures of the load before the measurement, and their names in a summary."""
_OF_RATES = {"variation": "variation", "stalls": "stall_count"}
"""Figures of how a rate went on, and their names in a summary."""
_FORM = re.compile(r"(?P<name>[^<>=]+?)\s*(?P<sign><=|>=|<|>)\s*(?P<limit>[^<>=]+)")
_LONGEST = 200  # characters; the longest name of a query kind has 24
_PERCENTILE = re.compile(r"p(\d+(?:\.\d+)?)")
_HOLDS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Gate:
    """One condition on a run. `limit` is in the figure's own unit: ns, a share, points or ops per second, bytes."""

    text: str
    of: str | None
    time: str | None
    figure: str
    sign: str
    limit: float

    @property
    def percent(self) -> float | None:
        """Percentile of the figure, such as 99.0 for p99; None if the figure is no percentile."""
        match = _PERCENTILE.fullmatch(self.figure)
        return float(match[1]) if match else None

    @property
    def is_latency(self) -> bool:
        """True if the figure is a latency."""
        return self.percent is not None or self.figure in {"max", "mean", "first"}

    def holds(self, measured: float) -> bool:
        """Return whether the condition is true of a figure in the gate's unit."""
        return _HOLDS[self.sign](measured, self.limit)

    def misfit(self, kinds: Mapping[str, str], loop: str) -> str:
        """Return the reason why no run with these ops and this loop can have the figure; "" if it can.

        `kinds` maps names of ops to `write` or `query`; empty means that the ops are not known.
        """
        if self.time == "response" and loop == "closed":
            return (
                "a closed loop has no response time, since nothing says when an op was due; take 'response:' out, or "
                "set drive.loop = 'open'"
            )
        of = "write" if self.of is None and self.figure == "points/s" else self.of
        if kinds.get(str(of)) == "query" and self.figure == "points/s":
            return f"queries write no points; did you mean '{of}:ops/s'?"
        known = {*kinds, *kinds.values()}
        if not kinds or of in {None, "load", *known} or self.figure == "bytes/point":
            return ""
        hint = suggestion(str(of), sorted(known))
        return f"no op is called '{of}'; {hint}" if of not in KINDS else f"there is no {of} op; {hint}"


def parse_gate(text: str) -> Gate:
    """Parse the text of a gate.

    Raises
    ------
    ValueError
        One line that names the gate, what is wrong with it and how to write it.
    """
    whole = text.strip()
    match = _FORM.fullmatch(whole)
    if match is None or len(whole) > _LONGEST:
        raise ValueError(f"'{shortened(whole)}' is not a gate; write FIGURE<LIMIT, for example {EXAMPLES}")
    asked = replace(parse_figure(match["name"], whole), text=re.sub(r"\s+", "", whole))
    try:
        limit = _limit(asked, match["limit"])
    except ValueError as error:
        raise ValueError(f"'{whole}': {error}") from None
    return replace(asked, sign=match["sign"], limit=limit)


def parse_figure(name: str, whole: str = "") -> Gate:
    """Parse the part of a gate before its operator; the returned gate has no condition.

    Raises
    ------
    ValueError
        One line that names the text and how to write it.
    """
    whole = whole or name
    *before, figure = (part.strip() for part in name.split(":"))
    of, time = _subject(whole, before)
    if not (_PERCENTILE.fullmatch(figure) or figure in FIGURES):
        hint = suggestion(figure, FIGURES, f"there are {', '.join(FIGURES)} and every other percentile")
        raise ValueError(f"'{whole}': '{figure}' is not a figure; {hint}")
    gate = Gate(name.strip(), of, time, figure, ">=", 0.0)
    mistake = _mistake(gate)
    if mistake:
        raise ValueError(f"'{whole}': {mistake}")
    return gate


def figure_of(name: str, summary: Summary) -> tuple[float | None, str]:
    """Return a figure of a summary in its own unit and its basis; or None and the reason why it is missing."""
    gate = parse_figure(name)
    if not gate.is_latency:
        return _amount(gate, summary)
    figure, basis = _latency(gate, summary)
    return (None if figure is None else figure.most_ns), basis


def believed_figure(name: str, summary: Summary) -> tuple[tuple[float, float] | None, str]:
    """Return the least and the most that a figure can be, to compare it with others; or None and the reason.

    Both are the measured value, if nothing of the client's is in it. A latency with a part of the client's is known to
    lie between two times. A closed loop's rate that the load generator held back lies between the measured one and that
    of ops which are all sent when they are due: they would only have slowed each other. A load's figure counts as well
    if the load generator was the limit of what was measured after it. Other figures of a run that is not valid cannot
    be compared.
    """
    gate = parse_figure(name)
    value, why = figure_of(name, summary)
    if value is None:
        return None, why
    if not (summary.validity.is_valid or (gate.of == "load" and summary.validity.stands)):
        return None, f"the run is {summary.validity.state}"
    if is_held_back(gate, summary):
        faster = _held_back(summary)
        return ((value, value * faster), "") if faster else (None, "the load generator was the limit")
    figure = _latency(gate, summary)[0] if gate.is_latency else None
    return (figure.bounds_ns if figure is not None else (value, value)), ""


def is_held_back(gate: Gate, summary: Summary) -> bool:
    """Return True for a rate of ops that the load generator held back: the database may be capable of more."""
    return gate.figure in RATES and gate.of != "load" and summary.rates_are_least


def figure_text(name: str, value: float, most: float | None = None) -> str:
    """Return a figure with its unit, as it is printed, or the least and the most that it can be."""
    gate = parse_figure(name)
    least, most = value, value if most is None else most
    if math.isinf(most):
        return f"at least {_shown(gate, least)}"
    return _shown(gate, least) if least == most else f"{_shown(gate, least)} to {_shown(gate, most)}"


def checked_gate(text: str) -> str:
    """Return the gate's text without blanks.

    Raises
    ------
    ValueError
        As `parse_gate`.
    """
    return parse_gate(text).text


def asked_gates(texts: Sequence[str]) -> list[str]:
    """Return the gates of a command line, each checked; raises UserMistake for another text."""
    try:
        return [checked_gate(text) for text in texts]
    except ValueError as error:
        raise UserMistake(f"--gate {error}") from None


def expect_fit(texts: Iterable[str], kinds: Mapping[str, str], loop: str) -> None:
    """Verify that runs with these ops (name to `write` or `query`) and this loop can have the gates' figures.

    Raises
    ------
    ValueError
        One line that names the scenario's key, the gate and the cure.
    """
    for text in texts:
        why = parse_gate(text).misfit(kinds, loop)
        if why:
            raise ValueError(f"gates: '{text}': {why}")


def percents_of_gates(gates: Iterable[Gate]) -> dict[str, float]:
    """Return the percentiles that gates refer to, by their names."""
    return {gate.figure: gate.percent for gate in gates if gate.percent is not None}


def evaluate_gates(gates: Iterable[Gate], summary: Summary) -> list[GateResult]:
    """Evaluate gates on a run's summary, which must contain their percentiles."""
    return [_result(gate, summary).under(summary.validity) for gate in gates]


def _subject(whole: str, before: Sequence[str]) -> tuple[str | None, str | None]:
    times = [part for part in before if part in TIMES]
    others = [part for part in before if part not in TIMES]
    if len(times) > 1 or len(others) > 1 or not all(before):
        raise ValueError(f"'{whole}': write at most OF:TIME:FIGURE<LIMIT, for example write:service:p99<50ms")
    return (others[0] if others else None), (times[0] if times else None)


def _mistake(gate: Gate) -> str:
    """Return the contradiction in a gate, with the cure; "" if it has none."""
    percent, of, figure = gate.percent, gate.of, gate.figure
    rules = (
        (percent is not None and not 0 < percent <= 100, "a percentile must be above 0 and at most 100"),
        (gate.time and not gate.is_latency, f"{figure} is not a time; take '{gate.time}:' out"),
        (of == "load" and figure not in _OF_LOAD, f"the load has the figures {', '.join(_OF_LOAD)}"),
        (figure in {"batch", "workers"} and of != "load", f"it is the load's; write load:{figure}"),
        (
            gate.is_latency and of is None,
            f"the ops are missing; write write:{figure}, query:{figure} or an op's name before it",
        ),
        (figure in _OF_RATES and of not in KINDS, f"the kind is missing; write write:{figure} or query:{figure}"),
        (figure == "bytes/point" and of in {*KINDS, "load"}, f"bytes/point is of the data; take '{of}:' out"),
        (figure == "disk-reads" and of, f"disk-reads is of the whole run; take '{of}:' out"),
        (figure == "first" and of in KINDS, "write the name of an op, such as raw-one:first"),
        (of == "query" and figure == "points/s", "queries write no points; did you mean 'query:ops/s'?"),
    )
    return next((text for wrong, text in rules if wrong), "")


def _limit(gate: Gate, text: str) -> float:
    if gate.is_latency:
        if re.fullmatch(r"[\d.]+", text.strip()):
            raise ValueError(f"a time needs a unit; write {gate.text}ms, say")
        return units.parse_duration_ns(text)
    return units.parse_share(text) if gate.figure in _SHARES else units.parse_count(text)


def _result(gate: Gate, summary: Summary) -> GateResult:
    if gate.is_latency:
        return _latency_result(gate, summary)
    measured, what = _amount(gate, summary)
    if measured is None:
        return _judged(gate, None, "not judged", what)
    basis = f" ({what})" if gate.figure == "failures" else ""
    if is_held_back(gate, summary) and gate.holds(measured) != gate.holds(math.inf):
        text = f"at least {_shown(gate, measured)}, as much as the load generator could do"
        return _judged(gate, measured, "undecided", text)
    return _by_margin(gate, measured, f"{_shown(gate, measured)}{basis}", _ops(gate, summary))


def _by_margin(gate: Gate, measured: float, text: str, ops: Sequence[OpFigures]) -> GateResult:
    """Return the result of a gate by the margin of its figure within the run, or as measured if it has none."""
    margin = ops[0].margins.get(gate.figure) if len(ops) == 1 and gate.percent is None else None
    ends = {gate.holds(end) for end in margin or (measured,)}
    if margin is not None:
        text += f", {_shown(gate, margin[0])} to {_shown(gate, margin[1])} within this run"
    state: GateState = "undecided" if len(ends) > 1 else "pass" if ends.pop() else "fail"
    return _judged(gate, measured, state, text)


def _latency_result(gate: Gate, summary: Summary) -> GateResult:
    """Return the result of a gate on a latency; it is not judged if the limit lies within the times that it can be."""
    interval, what = _latency(gate, summary)
    if interval is None:
        return _judged(gate, None, "not judged", what)
    tail = summary.measured.tails.get(gate.text) if summary.measured else None
    if tail is not None and gate.percent is not None:
        seen = judge(tail, gate.percent, gate.limit, below=gate.sign in {"<", "<="})
        if seen.state != "not judged":
            text = f"{interval.text}: {seen.text} ({what})"
            return _judged(gate, interval.most_ns, seen.state, text, confidence=seen.confidence)
    least_ns, most_ns = interval.bounds_ns
    doubt = what
    if interval.is_open_ended:
        doubt = f"{sum(part.unsent for part in _ops(gate, summary))} arrivals were still waiting when the run ended"
    elif share := summary.limit.sent_in_bursts if summary.limit else 0.0:
        least_ns /= BURST_REACH
        doubt = f"{share:.0%} of the ops were sent in bursts, which slow the server"
    ends = {gate.holds(end_ns) for end_ns in (least_ns, most_ns)}
    if len(ends) > 1:
        text = f"{interval.text} around the limit of {units.format_duration(gate.limit)}: {doubt}"
        return _judged(gate, interval.most_ns, "not judged", text)
    return _by_margin(
        gate, interval.most_ns, f"{interval.text} ({what})", () if interval.is_interval else _ops(gate, summary)
    )


def _judged(
    gate: Gate, measured: float | None, state: GateState, text: str, confidence: float | None = None
) -> GateResult:
    # Load processes parse gates and judge none: what a summary consists of would take each of them 0.1 s.
    from tsbench.results.summary import GateResult  # noqa: PLC0415

    return GateResult(gate.text, measured, state, text, confidence=confidence)


def _latency(gate: Gate, summary: Summary) -> tuple[Latency | None, str]:
    """Return the latency, and its kind and number of ops; or None and the reason why it is missing."""
    time = gate.time or summary.time
    if time == "response" and summary.loop == "closed":
        return None, "a closed loop has no response time"
    if gate.figure == "first":
        return _first(gate, time, summary)
    ops = next(iter(_ops(gate, summary)), None)
    if ops is None or not ops.count:
        return None, f"no {gate.of} ended in the measured window"
    interval = latency_of(ops, time, gate.figure)
    if interval is None:
        return None, f"the run kept no {gate.figure}"
    return interval, f"{time} time of {units.format_count(ops.count)} ops, {summary.loop} loop"


def _first(gate: Gate, time: str, summary: Summary) -> tuple[Latency | None, str]:
    first = summary.firsts.get(gate.of or "")
    if first is None or first.outcome != "ok":
        return None, f"no first {gate.of} succeeded after a cold start (target.cold)"
    taken_ns = first.service_ns if time == "service" else first.response_ns
    return Latency(taken_ns, taken_ns), f"{time} time of the first {gate.of} after the cold start"


def _amount(gate: Gate, summary: Summary) -> tuple[float | None, str]:
    """Return the figure and its basis; or None and the reason why it is missing."""
    if gate.figure in {"bytes/point", "disk-reads"}:
        return _disk(gate, summary)
    if gate.of == "load":
        amount = getattr(summary.load, _OF_LOAD[gate.figure], None)
        return amount, "nothing is known of the load before the measurement"
    if gate.figure in _OF_RATES:
        why = "how the rate went on is known of runs of 20 s or more"
        return getattr(summary.steadiness.get(gate.of or ""), _OF_RATES[gate.figure], None), why
    ops = _ops(gate, summary)
    done, bad = sum(part.ended for part in ops), sum(part.bad for part in ops)
    if not done:
        return None, f"no {gate.of or 'op'} ended in the measured window"
    if gate.figure == "failures":
        return bad / done, f"{units.format_count(bad)} of {units.format_count(done)} ops"
    per_s = sum(part.points_per_s if gate.figure == "points/s" else part.ops_per_s for part in ops)
    return per_s, f"{units.format_count(done)} ops"


def _disk(gate: Gate, summary: Summary) -> tuple[float | None, str]:
    """Return the bytes per point, of all data or of a part, or the bytes read from storage; or None and the reason."""
    if gate.figure == "disk-reads":
        return getattr(summary.measured, "disk_read_bytes", None), "no process of the server was sampled"
    size, unknown = summary.size, "the size of the data is not known"
    if size is None or gate.of is None:
        return getattr(size, "bytes_per_point", None), unknown
    if gate.of not in size.parts:
        return None, f"the database reports no size of '{gate.of}', but of {', '.join(size.parts)}"
    return (size.parts[gate.of] / size.points if size.points else None), unknown


def _ops(gate: Gate, summary: Summary) -> list[OpFigures]:
    """Return the figures of the gate's ops: one part of the summary, or writes and queries for all ops."""
    measured = summary.measured
    if measured is None:
        return []
    if gate.of is None:
        parts = [measured.write, measured.query]
    else:
        parts = [measured.of_kind(gate.of) if gate.of in KINDS else measured.ops.get(gate.of)]
    return [part for part in parts if part is not None]


def _held_back(summary: Summary) -> float | None:
    """Return how many times as many ops a closed loop's users would have ended with a client in time, if known."""
    per_s = sum(part.ops_per_s for part in _ops(parse_figure("ops/s"), summary))
    in_time_per_s = summary.limit.in_time_per_s if summary.limit else None
    return max(1.0, in_time_per_s / per_s) if in_time_per_s and per_s else None


def _shown(gate: Gate, measured: float) -> str:
    if gate.is_latency:
        return units.format_duration(measured)
    if gate.figure in _SHARES:
        return f"{100 * measured:.3g} %"
    if gate.figure == "disk-reads":
        return f"{units.format_size(measured)} read from disk"
    count = units.format_count(measured)
    return f"{gate.figure}={count}" if gate.figure in {"batch", "workers"} else f"{count} {gate.figure}"
