"""Findings: which sides are better in which figures and by how much, by the literal table RULES.

Figures of one run each count as different from the factor of their rule on, since nobody knows how much starts differ;
figures of enough repeats by a test, corrected for the number of comparisons.
"""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass
from itertools import chain, groupby, zip_longest
from typing import TYPE_CHECKING

from tsbench.measure.bottleneck import has_few_users
from tsbench.measure.statistics import ALPHA, Bounds, Test, differences, least_runs, paired_test, rank_test
from tsbench.results.summary import CLIENT
from tsbench.text import joined
from tsbench.units import format_count, format_duration, format_duration_range

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from tsbench.report.sides import Side


MOST_NAMES = 4
"""Most names in a list; the others are counted."""
_VARYING = re.compile(r"[+-]?\d[\d,]*(?:\.\d+)?(?= ?%| of \d+ cores)")
_UNIT = re.compile(r" ?%|")


def three_digits(number: float) -> str:
    """Return a number with three significant digits, and thousands separated."""
    return f"{number:,.{0 if number >= 100 else 1 if number >= 10 else 2 if number >= 1 else 3}f}"


def names_of(names: Iterable[str]) -> str:
    """Return names in a list; of many the first ones and the number of the others."""
    ordered = sorted(names) if isinstance(names, set) else list(names)
    if len(ordered) <= MOST_NAMES + 1:
        return joined(ordered)
    return f"{', '.join(ordered[:MOST_NAMES])} and {len(ordered) - MOST_NAMES} others"


def told_once(said: Iterable[tuple[str, str]]) -> list[tuple[list[str], str]]:
    """Return the names and the text of everything that is said of (name, text), each text once.

    Texts that differ only in percentages, or in how many of the cores, are one, with these from the least to the most:
    "6% to 31% higher", "0.9 to 1.7 of 2 cores".
    """
    alike: dict[tuple[str, ...], tuple[dict[str, None], list[list[str]]]] = {}
    for name, text in said:
        names, texts_of = alike.setdefault((*_VARYING.split(text),), ({}, []))
        names[name] = None
        texts_of.append(_VARYING.findall(text))
    told = []
    for pieces, (names, texts_of) in alike.items():
        ranges = [sorted({*column}, key=_number) for column in zip(*texts_of, strict=True)]
        units = [_UNIT.match(piece)[0] for piece in pieces[1:]]  # type: ignore[index]
        shown = [
            one[0] if len(one) == 1 else f"{one[0]}{unit} to {one[-1]}" for one, unit in zip(ranges, units, strict=True)
        ]
        told.append(([*names], "".join(chain.from_iterable(zip_longest(pieces, shown, fillvalue="")))))
    return told


def _number(text: str) -> float:
    return float(text.replace(",", ""))


@dataclass(frozen=True, slots=True)
class Rule:
    """The words for a figure: the `label` of its line in the answer, its `name`, and the adjective of the `best` side.

    `worse` is what another side does by a factor: its verb, singular and plural, and the rest with `{}` for the factor.
    `apart` is the factor from which on single runs count as different. Rates (`is_rate`, more is better) are compared
    only where the database was the limit. A rule serves where no earlier one of the same `about` does.
    """

    about: str
    key: str
    name: str
    label: str
    best: str
    worse: tuple[str, str, str]
    apart: float
    before: str = ""
    after: str = ""
    form: Callable[[float], str] = three_digits
    is_rate: bool = False

    def text(self, interval: Bounds) -> str:
        """Return a figure without the words around it."""
        if self.form is format_duration and interval.least < interval.most:
            return format_duration_range(interval.least, interval.most)
        return self.form(interval.estimate)


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


_FAST = ("fastest", ("takes", "take", "{} as long"))
_RATE = ("fastest", ("is", "are", "{} slower"))
_MUCH = ("takes", "take", "{} as much")
SPEED: tuple[Rule, ...] = (
    Rule(
        "write", "write_points_per_s", "write rate", "Writes", *_RATE, 1.2, "", " points/s", format_count, is_rate=True
    ),
    Rule("write", "write_p99_ns", "write p99", "Writes", *_FAST, 1.5, "p99 ", "", format_duration),
    Rule("write", "write_p50_ns", "write p50", "Writes", *_FAST, 1.2, "p50 ", "", format_duration),
    Rule("write", "write_mean_ns", "write mean", "Writes", *_FAST, 1.2, "mean ", "", format_duration),
    Rule("query", "query_p99_ns", "query p99", "Queries", *_FAST, 1.5, "p99 ", "", format_duration),
    Rule("query", "query_p50_ns", "query p50", "Queries", *_FAST, 1.2, "p50 ", "", format_duration),
    Rule("query", "query_mean_ns", "query mean", "Queries", *_FAST, 1.2, "mean ", "", format_duration),
)
ECONOMY: tuple[Rule, ...] = (
    Rule("size", "bytes_per_point", "size", "Size", "smallest", _MUCH, 1.02, "", " bytes per point"),
    Rule("steady", "write_variation", "variation", "Steadiness", "steadiest", ("varies", "vary", "{} as much"), 1.5,
         "write rate varies by ", "", _share),
    Rule("cpu", "cpu_s_per_million", "CPU", "CPU", "cheapest", _MUCH, 1.2, "", " s per million points"),
    Rule("cpu", "cpu_s_per_thousand", "CPU", "CPU", "cheapest", _MUCH, 1.2, "", " s per 1,000 ops"),
)  # fmt: skip
RULES = SPEED + ECONOMY
"""All figures that the answer speaks of, in the order in which it does."""
_OF_QUERIES = {"query_p99_ns", "query_p50_ns", "query_mean_ns", "cpu_s_per_thousand"}
LOADS: tuple[Rule, ...] = (
    Rule("load", "load_points_per_s", "load rate", "Load", *_RATE, 1.2, "", " points/s", format_count, is_rate=True),
    ECONOMY[0],
)  # fmt: skip
"""Those of bulk loads, where these are what was searched: the ops after them only show that all is stored."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The sides that lead in a figure, between which no difference was found, and the others, each from the best on.

    Each leader differs from the first of the others, and each side of `between` neither from that nor from the best.
    `ahead` has by how much the leaders are better than each of the others, by its name.
    """

    rule: Rule
    leaders: tuple[Side, ...]
    between: tuple[Side, ...]
    others: tuple[Side, ...]
    ahead: Mapping[str, Bounds]
    by_test: bool


def compare(sides: Sequence[Side], loop: str, unshown: list[str], of_rules: Sequence[Rule] = RULES) -> list[Finding]:
    """Return the findings of all rules between sides at one load; missing comparisons are appended to `unshown`."""
    chosen: list[tuple[Rule, list[Side]]] = []
    lacking: dict[tuple[str, ...], list[str]] = {}
    limited = {side.name: side for side in sides if side.is_generators and loop == "closed"}
    if _asked_differently(sides):
        unshown.append("the runs asked different queries, so their times and CPU are not compared")
    for _, rules in groupby(of_rules, key=lambda rule: rule.about):
        rule = next((rule for rule in rules if _serves(rule, sides, loop)), None)
        if rule is None:
            continue
        has = [side for side in sides if rule.key in side.figures and _is_fair(rule, side, sides)]
        none = tuple(side.name for side in sides if rule.key not in side.figures and not side.overloads)
        if none and rule.about != "load":  # a run that used another one's load has none of its own
            lacking.setdefault(none, []).append(rule.name)
        if len(has) > 1:
            chosen.append((rule, has))
    if limited and any(rule in SPEED for rule in of_rules):
        unshown.append(f"the {CLIENT} limited the rate of {names_of(limited)}; {_more_load([*limited.values()])}")
    for names, metrics in lacking.items():
        are = "is" if len(metrics) == 1 else "are"
        unshown.append(f"{joined(metrics)} of {names_of(names)} {are} not measured")
    return _found(chosen)


def _more_load(limited: Collection[Side]) -> str:
    """Return what would show how much sides can take whose rate the load generator limited."""
    they = "it" if len(limited) == 1 else "they"
    runs = [cell.summary for side in limited for cell in side.runs]
    few = bool(runs) and all(has_few_users(run.users or 0, run.processes or 1) for run in runs)
    return f"more {'users' if few else 'processes or machines'} would show how much {they} can take"


def _asked_differently(sides: Sequence[Side]) -> bool:
    return len({side.kinds for side in sides if side.kinds}) > 1


def leaders_of(rule: Rule, sides: Sequence[Side], loop: str) -> tuple[Side, ...]:
    """Return the sides that lead in a figure, as the answer has it; none if all are alike or it cannot be compared."""
    has = [side for side in sides if side.stands and rule.key in side.figures and _is_fair(rule, side, sides)]
    if len(has) < 2 or not _serves(rule, has, loop):
        return ()
    (leaders,) = _found([(rule, has)])
    return leaders.leaders if leaders.others else ()


def _serves(rule: Rule, sides: Sequence[Side], loop: str) -> bool:
    """Return True if a side has the figure and all can be compared by it.

    That is, of queries, if all were asked the same; of a rate, if the database (or the generator) was the limit of all.
    """
    if rule.key in _OF_QUERIES and _asked_differently(sides):
        return False
    has = [side for side in sides if rule.key in side.figures]
    if not has or not rule.is_rate or rule in LOADS:
        return bool(has)
    limits = {side.limited_by for side in has if not side.is_generators}
    return loop == "closed" and limits <= {"database"} and all(_is_fair(rule, side, sides) for side in has)


def _is_fair(rule: Rule, side: Side, sides: Sequence[Side]) -> bool:
    """Return False for a rate that the load generator limited, unless it is the best of all, and for times of a queue.

    Times of a side whose queue grew are none of its own, but of how long the run was.
    """
    if side.overloads and rule in SPEED and not rule.is_rate:
        return False
    if not side.is_generators or not rule.is_rate or rule in LOADS:
        return True
    others = [median(rule.key, other) for other in sides if other is not side and rule.key in other.figures]
    return all(median(rule.key, side) > other for other in others)


def seen_in_few(key: str, base: Side, new: Side) -> str:
    """Return `better` or `worse` where few runs of two sides differ by as much as the answer asks for, else ""."""
    rule = next((rule for rule in (*RULES, *LOADS) if rule.key == key), None)
    if rule is None or key not in base.figures or key not in new.figures:
        return ""
    return "worse" if _apart(rule, base, new) else "better" if _apart(rule, new, base) else ""


def median(key: str, side: Side) -> float:
    """Return a side's figure: of several runs their median."""
    return statistics.median(seen.estimate for seen in side.figures[key])


def middle(key: str, side: Side) -> Bounds:
    """Return a side's figure: of one run with the times between which it lies, of several their median."""
    values = side.figures[key]
    value = median(key, side)
    return values[0] if len(values) == 1 else Bounds(value, value, value)


def _found(chosen: Sequence[tuple[Rule, list[Side]]]) -> list[Finding]:
    """Return the findings of all rules: the tests of all of them are corrected for their number together."""
    ordered = [
        (rule, sorted(has, key=lambda s: (-median(rule.key, s) if rule.is_rate else median(rule.key, s), s.name)))
        for rule, has in chosen
    ]
    tests = {
        f"{rule.key} {number}": _test(rule, has[0], other)
        for rule, has in ordered
        for number, other in enumerate(has[1:])
        if _can_test(has[0], other)
    }
    verdicts = differences(tests, dict.fromkeys(tests, True))
    findings = []
    for rule, (best, *rest) in ordered:
        leaders: list[Side] = [best]
        others: list[Side] = []
        ahead: dict[str, Bounds] = {}
        tested = [tests.get(f"{rule.key} {number}") for number in range(len(rest))]
        for number, (side, test) in enumerate(zip(rest, tested, strict=True)):
            is_worse = (
                verdicts[f"{rule.key} {number}"] == "better" if test is not None else _apart(rule, best, side)
            ) or bool(others)  # whoever is behind one that is behind
            (others if is_worse else leaders).append(side)
        between = [side for side in leaders[1:] if others and not _differs(rule, side, others[0])]
        leaders = [side for side in leaders if side not in between]
        for side in others:
            test = tests.get(f"{rule.key} {rest.index(side)}")
            factor = _factor(rule, leaders[-1], side)
            alone = test is not None and len(leaders) == 1
            ahead[side.name] = test.ratio if test and alone else Bounds(factor, factor, factor)
        by_test = any(test is not None for test in tested)
        findings.append(Finding(rule, tuple(leaders), tuple(between), tuple(others), ahead, by_test))
    return findings


def _differs(rule: Rule, better: Side, worse: Side) -> bool:
    return _test(rule, better, worse).p <= ALPHA if _can_test(better, worse) else _apart(rule, better, worse)


def _shared(one: Side, other: Side) -> list[int]:
    """Return the rounds of both sides; none unless they are enough for a test of pairs."""
    shared = [number for number in one.rounds if number and number in other.rounds]
    return shared if len(shared) >= least_runs(paired=True) else []


def _can_test(one: Side, other: Side) -> bool:
    return bool(_shared(one, other)) or min(one.repeats, other.repeats) >= least_runs(paired=False)


def _test(rule: Rule, best: Side, other: Side) -> Test:
    """Return the test of how much better one side is than another, as a factor above 1; by pairs of the same round."""
    shared = _shared(best, other)
    by_round = [dict(zip(side.rounds, side.figures[rule.key], strict=True)) for side in (best, other)]
    better, worse = ([of[number].estimate for number in shared or of] for of in by_round)
    base, new = (worse, better) if rule.is_rate else (better, worse)
    return paired_test(base, new) if shared else rank_test(base, new)


def _factor(rule: Rule, best: Side, other: Side) -> float:
    one, two = median(rule.key, best), median(rule.key, other)
    high, low = (one, two) if rule.is_rate else (two, one)
    return high / low if low else float("inf")


def _apart(rule: Rule, best: Side, other: Side) -> bool:
    """Return True if few runs of two sides differ by the rule's factor, and their ranges do not overlap."""
    one, two = (best, other) if not rule.is_rate else (other, best)
    highest = max(by_round.most for by_round in _all(rule.key, one))
    lowest = min(by_round.least for by_round in _all(rule.key, two))
    return _factor(rule, best, other) >= rule.apart and highest < lowest


def _all(key: str, side: Side) -> list[Bounds]:
    return [*side.figures[key], *([side.margins[key]] if key in side.margins else [])]
