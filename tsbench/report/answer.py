"""The answer in lines of at most 30 words, one per question, made from the findings; never more than the figures carry.

What is open is said last, with what would show it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from tsbench.errors import Broken, UserMistake
from tsbench.report.cells import ResultSet
from tsbench.report.evidence import agreement_lines
from tsbench.report.findings import LOADS, MOST_NAMES, RULES, compare, middle, names_of, three_digits, told_once
from tsbench.report.sides import ends_of, sides_of
from tsbench.results.summary import failed
from tsbench.text import joined, shortened
from tsbench.units import format_duration, format_factor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tsbench.report.cells import Cell
    from tsbench.report.findings import Finding, Rule
    from tsbench.report.sides import Side, Sides
    from tsbench.results.figures import Stall
    from tsbench.results.summary import ClaimRow, GateResult

_REPEAT = "--repeat 8"
_REPEAT_SCENARIO = "tsbench run SCENARIO --repeat 8"
"""For a set that no scenario file made: of a page in the browser, of bare Locust, of a single load."""
_SAME = "reproduced"
_STALLED_S = 1.5
"""Seconds of its rate that a stall takes at least to be said."""
_NAMED = 3
"""Sides that a line names if it has more than one beyond them; the others are counted."""


def judged_sides(results: ResultSet, whole: Sides | None = None) -> Sides:
    """Return the sides of which the answer speaks: all of a result set, or of searches those at which they ended.

    `whole` are all, if they are known: they are read from the runs' files. Gates on the ratio to a baseline are theirs.
    """
    ends = ends_of(results) if results.summary.searches else None
    judged = ends if ends is not None and ends.sides else whole or sides_of(results.cells)
    return replace(judged, sides=tuple(_with_ratios(side, results.ratios) for side in judged.sides))


def _with_ratios(side: Side, ratios: Sequence[tuple[str, GateResult]]) -> Side:
    own = [gate for name, gate in ratios if name == side.name]
    failed = {gate.gate: gate.text for gate in own if gate.state == "fail"}
    undecided = {gate.gate for gate in own if gate.state == "undecided"}
    return replace(
        side,
        failed={**side.failed, **failed},
        undecided=tuple(sorted({*side.undecided, *undecided})),
        gated=side.gated or bool(own),
    )


def answer_of(results: ResultSet, judged: Sides | None = None) -> tuple[str, ...]:
    """Return the answer of a result set: `answer` of its `judged_sides`, which may be known."""
    said = answer(judged or judged_sides(results), _REPEAT if results.scenario else _REPEAT_SCENARIO)
    summary = results.summary
    weak = (f"Evidence: {text}." for text in summary.weak)
    return (*_study(summary.claims), *agreement_lines(summary.agreements), *weak, *said)


def answer_at(results: Path) -> tuple[str, ...]:
    """Return the answer of the result set in a directory, or in its place why it cannot be read."""
    try:
        return answer_of(ResultSet.read(results))
    except (Broken, UserMistake) as error:
        return (str(error),)


def answer(judged: Sides, repeat: str = _REPEAT) -> tuple[str, ...]:
    """Return the answer of some sides, one line per question of a reader: `Label: sentence.`, whatever their order.

    What does not count and which gates failed is said first, what is open last. `repeat` is what shows how much starts
    differ.
    """
    sides = sorted(judged.sides, key=lambda side: (side.name, side.at or 0.0))
    counted = [side for side in sides if side.stands]
    lines = [("Result", "no run counts")] * (not counted) + _not_counted(sides, judged)
    if not counted:
        return _written(lines)
    at = _compared_at(counted, judged.axis)
    here = [side for side in counted if side.at == at]
    unshown: list[str] = []
    rules = LOADS if judged.searches_loads else (*LOADS[:1], *RULES) if judged.only_loads else RULES
    findings = compare(here, judged.loop, unshown, rules)
    lines = _overloaded(counted if judged.axis else here, judged) + lines
    lines += _ramp(counted, judged, unshown) if judged.axis else _gates(here)
    lines += _place(at, here, counted, judged)
    keeping_up = [side for side in here if not side.overloads]
    if len(keeping_up) == 1 < len(here):  # the others' times are not compared
        lines += [line for line in _alone(keeping_up[0], judged.loop) if line[0] in {"Writes", "Queries"}]
    lines += _alone(here[0], judged.loop) if len(here) == 1 else [(one.rule.label, _line(one)) for one in findings]
    lines += _stalls(here)
    for side in counted:
        if side.left_out:
            number = f"{len(side.left_out)} of {len(side.cells)} runs of {_where(side, judged)}"
            are = "is" if len(side.left_out) == 1 else "are"
            unshown.append(f"{number} {are} left out: less valid than the others")
    compared = counted if judged.axis else here
    unshown += _longer_runs([side for side in compared if side.undecided], judged)
    unshown += _busy_machine(compared)
    return _written([*lines, *_unshown(findings, here, sides, unshown, repeat)])


def _written(lines: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(f"{label}: {text}." for label, text in lines)


def said_reasons(cells: Sequence[Cell], sentences: Sequence[str]) -> tuple[str, ...]:
    """Return the reason of the only run that is not valid, if an answer quotes it in full; else nothing."""
    reasons = [cell.validity.reason for cell in cells if not cell.validity.is_valid]
    whole = len(reasons) == 1 and any(f"({reasons[0]})" in sentence for sentence in sentences)
    return tuple(reasons) if whole else ()


def reasons_of(cells: Sequence[Cell], said: Sequence[str] = ()) -> list[tuple[str, list[str], str]]:
    """Return why runs are not valid, unless that is `said` already: each state and reason once, with its runs."""
    doubtful = [cell for cell in cells if not cell.validity.is_valid and cell.validity.reason not in said]
    reasons: list[tuple[str, list[str], str]] = []
    for state in dict.fromkeys(cell.validity.state for cell in doubtful):
        of = ((cell.name, cell.validity.reason) for cell in doubtful if cell.validity.state == state)
        reasons += [(state, names, reason) for names, reason in told_once(of)]
    return reasons


def _study(claims: Sequence[ClaimRow]) -> tuple[str, ...]:
    """Return how many of a study's findings were found here too; nothing without a study."""
    if not claims:
        return ()
    verdicts = Counter(row.verdict for row in claims)
    rest = [f"{count} {'was' if count == 1 else 'were'} {verdict}" for verdict, count in sorted(verdicts.items())
            if verdict != _SAME]  # fmt: skip
    same = verdicts[_SAME]
    first = f"{same} of the study's {len(claims)} findings {'was' if same == 1 else 'were'} {_SAME}"
    return _written([("Study", "; ".join([first, joined(rest)] if rest else [first]))])


# --- lines ------------------------------------------------------------------------------------------------------------


def _line(finding: Finding) -> str:
    """Return who is best in a figure, who is within the margin, and by what factors the others are behind."""
    rule = finding.rule
    if not finding.others:
        names = [side.name for side in finding.leaders]
        return f"no difference found between {_listed(names, _room(finding))} ({_figures(rule, finding.leaders)})"
    left = _room(finding) - len(finding.leaders)
    names = [side.name for side in finding.leaders]
    # Of a load, the rate is not that of the generator of ops.
    is_least = rule.is_rate and rule not in LOADS and any(side.is_generators for side in finding.leaders)
    shown = f"{'at least ' * is_least}{_figures(rule, finding.leaders)}"
    behind = []
    if between := finding.between:
        are = "is" if len(between) == 1 else "are"
        within = f"{are} within the margin ({_range(rule, between)})"
        behind.append(f"{_listed([side.name for side in between], left)} {within}")
        left -= len(between)
    behind += _behind(finding, left)
    are = "is" if len(names) == 1 else "are"
    return f"{_listed(names, _room(finding))} {are} {rule.best} ({shown}); {', '.join(behind)}"


def _behind(finding: Finding, left: int) -> list[str]:
    """Return a clause for each of the first `left` of the other sides, and one for the rest."""
    one, many, words = finding.rule.worse
    others = finding.others
    number = len(others) if len(others) <= max(left, 1) else max(left, 0)
    said: list[str] = []
    for side in others[:number]:
        factor = finding.ahead[side.name]
        times = f"{_factor(factor.estimate, finding.by_test)} times"
        figure = finding.rule.text(middle(finding.rule.key, side))
        if finding.by_test and factor.least != factor.most:
            figure += f"; factor {_factor(factor.least, True)} to {_factor(factor.most, True)}"
        said.append(f"{side.name} {times if said else f'{one} {words.format(times)}'} ({figure})")
    if rest := others[number:]:
        factors = sorted(finding.ahead[side.name].estimate for side in (rest[0], rest[-1]))
        times = " to ".join(dict.fromkeys(_factor(factor, False) for factor in factors)) + " times"
        count, worse = _others(len(rest)), one if len(rest) == 1 else many
        said.append(f"{count}, {times}" if said else f"{count} {worse} {words.format(times)}")
    return said


def _room(finding: Finding) -> int:
    """Return how many sides a line names: all of a few, the best of many."""
    sides = len(finding.leaders) + len(finding.between) + len(finding.others)
    return sides if sides <= _NAMED + 1 else _NAMED


def _listed(names: Sequence[str], most: int) -> str:
    """Return names in a list; of more than `most` the first ones and the number of the others."""
    shown = names if len(names) <= max(most, 1) else names[: max(most, 0)]
    more = len(names) - len(shown)
    return joined([*shown, *([_others(more)] if more else [])])


def _others(count: int) -> str:
    return f"{count} other{'s' * (count > 1)}"


def _figures(rule: Rule, sides: Sequence[Side]) -> str:
    return f"{rule.before}{_range(rule, sides)}{rule.after}"


def _range(rule: Rule, sides: Sequence[Side]) -> str:
    """Return the figures of one side or two, of more from the least to the most, with their unit once."""
    figures = [middle(rule.key, side) for side in sides]
    texts = [*dict.fromkeys(map(rule.text, figures))]
    if len(texts) == 1:
        return texts[0]
    first, last = texts[0], texts[-1]
    if len(sides) > 2 and rule.form is format_duration:  # each of them may be a range, too
        ends = min(one.least for one in figures), max(one.most for one in figures)
        first, last = map(format_duration, ends)
    number, _, unit = first.rpartition(" ")
    if number and last.endswith(f" {unit}"):
        first = number
    return f"{first} {'and' if len(sides) == 2 else 'to'} {last}"


def _factor(factor: float, precise: bool) -> str:
    return f"{factor:.2f}" if precise and factor < 10 else format_factor(factor).removesuffix("x")


def _alone(side: Side, loop: str) -> list[tuple[str, str]]:
    """Return a line of each figure of the only side that counts."""
    rules = {rule.key: rule for rule in RULES if rule.key in side.figures}
    said = []
    rate = rules.get("write_points_per_s")
    for about, does in (("write", "writes"), ("query", "answers")):
        time = next((rule for rule in rules.values() if rule.about == about and not rule.is_rate), None)
        of_time = f"a {time.before}of {_range(time, [side])}" if time else ""
        if about == "write" and rate:
            is_more = loop == "closed" and side.is_generators
            shown = f"{'at least ' * is_more}{_figures(rate, [side])}{f' with {of_time}' if of_time else ''}"
            said.append((rate.label, f"{side.name} {does} {shown}"))
        elif time:
            said.append((time.label, f"{side.name} {does} with {of_time}"))
    if size := rules.get("bytes_per_point"):
        said.append((size.label, f"{side.name} takes {_figures(size, [side])}"))
    return said or [("Result", f"{side.name} counts, but has no figures")]


# --- gates, ramps, what does not count and what was not shown ---------------------------------------------------------


def _overloaded(sides: Sequence[Side], judged: Sides) -> list[tuple[str, str]]:
    """Return a line for each of the first sides that could not keep up with an open loop, at their lowest such load."""
    lowest: dict[str, Side] = {}
    for side in sorted(sides, key=lambda side: side.at or 0.0):
        if side.overloads:
            lowest.setdefault(side.name, side)
    said = []
    for side in lowest.values():
        asked = _span(three_digits(one.asked_per_s) for one in side.overloads)
        done = _span(three_digits(one.done_per_s) for one in sorted(side.overloads, key=lambda one: one.done_per_s))
        queue = max(one.queued for one in side.overloads)
        did = f"of {asked} ops/s asked for it did {done}; its queue grew to {queue:,}"
        said.append(f"{_where(side, judged)} could not keep up: {did}")
    return [("Overloaded", text) for text in _first(said, "others could not keep up either")]


def _span(texts: Iterable[str]) -> str:
    first, *others = dict.fromkeys(texts)
    return f"{first} to {others[-1]}" if others else first


def _gates(sides: Sequence[Side]) -> list[tuple[str, str]]:
    """Return a line for each of the first sides that failed gates, and one for the sides that passed theirs."""
    broken = [f"{side.name} {failed(_named(side))}" for side in sides if side.failed]
    passed = [side.name for side in sides if side.passed and side.gated]
    said = [*_first(broken, "others failed, too")]
    if broken and passed:
        said.append(f"{names_of(passed)} passed")
    return [("Gates", text) for text in said]


def _first(texts: Sequence[str], what: str) -> list[str]:
    """Return the first texts, and the number of the others, followed by `what`."""
    if len(texts) <= MOST_NAMES:
        return [*texts]
    return [*texts[:_NAMED], f"{len(texts) - _NAMED} {what}"]


def _compared_at(sides: Sequence[Side], axis: str) -> float | None:
    """Return the highest load that all hold, else the highest at which the most of them count; None without loads."""
    if not axis:
        return None
    names = {side.name for side in sides}
    held = _held(sides)
    common = [side.at for side in sides if side.at is not None and all(side.at in held[name] for name in names)]
    if common:
        return max(common)
    present = {side.at: sum(other.at == side.at for other in sides) for side in sides if side.at is not None}
    return max(present, key=lambda at: (present[at], -at if any(side.failed for side in sides) else at))


def _held(sides: Sequence[Side]) -> dict[str, list[float]]:
    """Return by name the loads that a side held: those up to the first that failed at which its gates are decided."""
    held: dict[str, list[float]] = {}
    going: dict[str, bool] = {}
    for side in sorted(sides, key=lambda side: side.at or 0.0):
        going[side.name] = going.get(side.name, True) and not side.failed
        held.setdefault(side.name, []).extend([side.at or 0.0] if going[side.name] and not side.undecided else [])
    return held


def at_load(axis: str, at: float, *, bare: bool = False) -> str:
    """Return a load of a ramp in words: `a rate of 500`, `20 users`, or the number alone if `bare`."""
    number = f"{at:,.12g}"
    if bare:
        return number
    return {"drive.rate": f"a rate of {number}", "drive.users": f"{number} users"}.get(axis, f"{axis}={number}")


def _stalls(sides: Sequence[Side]) -> list[tuple[str, str]]:
    """Return a line on the worst stall, if one took `_STALLED_S` of a side's rate, with the sides that had others."""
    said = []
    for side in sides:
        stalls = [one for cell in side.cells if (one := _worst_stall(cell))]
        if stalls:
            lost_s, kind, stall = max(stalls, key=lambda one: one[0])
            runs = f" ({len(stalls)} of {len(side.cells)} runs had such a stall)" if len(side.cells) > 1 else ""
            text = f"{side.name}'s {kind} rate fell to {stall.lowest:.0%} for {stall.length_s} s"
            said.append((lost_s, side.name, f"{text}, {stall.start_s} s after the start{runs}"))
    if not said:
        return []
    (_, _, text), *others = sorted(said, key=lambda one: -one[0])
    more = f"; {names_of([name for _, name, _ in others])} stalled for less" if others else ""
    return [("Stalls", text + more)]


def _worst_stall(cell: Cell) -> tuple[float, str, Stall] | None:
    """Return what a run's worst stall took, in seconds of the rate, with the kind of ops."""
    stalls = [(one.lost_s, kind, one) for kind, steady in cell.summary.steadiness.items() for one in steady.stalls]
    worst = max(stalls, key=lambda one: one[0], default=None)
    return worst if worst and worst[0] >= _STALLED_S else None


def _place(at: float | None, here: Sequence[Side], counted: Sequence[Side], sides: Sides) -> list[tuple[str, str]]:
    if at is None:
        return []
    names = {side.name for side in counted}
    holds = all(not side.failed for side in here) and len(here) == len(names)
    gated = any(side.failed or side.gated for side in counted)
    which = ", the highest that all hold" if holds and gated and len(names) > 1 else ""
    return [("Figures", f"at {at_load(sides.axis, at)}{which}")]


def _ramp(counted: Sequence[Side], sides: Sides, unshown: list[str]) -> list[tuple[str, str]]:
    """Return a line for each side with the load at which it breaks; none if nothing was asked of them."""
    if not any(side.failed or side.gated for side in counted):
        return []
    held = _held(counted)
    highest = max(side.at or 0.0 for side in counted)
    broke: list[tuple[float, str, str]] = []
    unbroken: dict[float, list[str]] = {}
    for name, loads in held.items():
        first = next((s for s in counted if s.name == name and s.failed), None)
        top = max(loads, default=None)
        if first is None and top is None:
            continue
        if first is None:
            unbroken.setdefault(top or 0.0, []).append(name)
            continue
        where = at_load(sides.axis, first.at or 0.0, bare=top is not None)
        until = f"holds {at_load(sides.axis, top)} and breaks at {where}" if top is not None else f"breaks at {where}"
        broke.append((top or 0.0, name, f"{name} {until}: {_named(first)}"))
    said = [text for _, _, text in sorted(broke)]
    for top, names in sorted(unbroken.items()):
        verb = "holds" if len(names) == 1 else "hold"
        load = at_load(sides.axis, top, bare=bool(said))
        said.append(f"{names_of(names)} {verb} {load}, the highest that was tried{' with it' if top < highest else ''}")
    if names := [name for _, of in sorted(unbroken.items()) for name in of]:
        verb = "breaks" if len(names) == 1 else "break"
        unshown.append(f"higher values of {sides.axis} would show where {names_of(sorted(names))} {verb}")
    return [("Limit", text) for text in _first(said, "others have a row each")]


def _named(side: Side) -> str:
    """Return the gates that a side failed, with what was measured."""
    gates = [f"{gate} ({_measured(text)})" for gate, text in sorted(side.failed.items())]
    return joined(_first(gates, "other gates"))


def _measured(text: str) -> str:
    """Return what a gate measured, without the basis of a long text, which tables have."""
    return shortened(text if len(text) <= 80 else text.partition(": ")[0], 80)


def _longer_runs(undecided: Sequence[Side], sides: Sides) -> list[str]:
    """Return what longer runs would show: of a side at several loads, or several with the same gates, at once."""
    alike: dict[tuple[str, str], list[Side]] = {}
    for side in undecided:
        alike.setdefault(("" if side.at is None else side.name, names_of(side.undecided)), []).append(side)
    said = []
    for (_, gates), (first, *others) in alike.items():
        more = [side.name if side.at is None else at_load(sides.axis, side.at, bare=True) for side in others]
        verb = "pass" if more and first.at is None else "passes"
        said.append(f"a longer run would show whether {names_of([_where(first, sides), *more])} {verb} {gates}")
    return said


def _where(side: Side, sides: Sides) -> str:
    return side.name if side.at is None else f"{side.name} at {at_load(sides.axis, side.at)}"


def _why(side: Side) -> str:
    return f" ({shortened(side.reason, 160)})" if side.reason else ""


def _not_counted(sides: Sequence[Side], judged: Sides) -> list[tuple[str, str]]:
    """Return a line for each of the first sides that do not count, with the reason, and one for the others."""
    out = [side for side in sides if not side.stands]
    shown = out if len(out) <= MOST_NAMES else out[:_NAMED]
    said = [(side.validity.capitalize(), f"{_where(side, judged)} does not count{_why(side)}") for side in shown]
    return said + [("Invalid", f"{len(out) - len(shown)} others do not count either")] * (len(shown) < len(out))


def _busy_machine(sides: Sequence[Side]) -> list[str]:
    """Return that figures are those of a machine with other work, where it had any."""
    sentences = told_once((side.name, text) for side in sides for text in side.disturbed)
    all_names = {side.name for side in sides}
    causes = [text if {*names} == all_names else f"{text} beside {names_of(names)}" for names, text in sentences]
    return [f"{cause}; measure again on a quiet machine" for cause in causes]


def _unshown(
    findings: Sequence[Finding], here: Sequence[Side], sides: Sequence[Side], unshown: list[str], repeat: str
) -> list[tuple[str, str]]:
    """Return a line for each open question with what would answer it; of repeats, what their figures are."""
    runs, most = min(side.repeats for side in here), max(side.repeats for side in here)
    few = runs < 2 or (bool(findings) and not all(one.by_test for one in findings))
    if len(here) == 1:
        alone = len({side.name for side in sides}) == 1
        unshown.append("there is nothing to compare with; add a second target" if alone else "no other run counts")
    if early := [side.name for side in here if any(cell.ended_early for cell in side.runs)]:
        unshown.append(f"{names_of(early)} wrote every point before the time was over; load less of the data")
    if few:
        each = "it" if len(here) == 1 else "each side"
        number = "once" if runs == 1 else f"{runs} times"
        tests = " tests whether differences are more than chance" if runs > 1 and len(here) > 1 else ""
        unshown.append(f"{each} ran {number}; {repeat}{tests or ' shows how much runs differ'}")
    said = [("Open", text) for text in unshown]
    if few:
        return said
    number = f"{runs}" if runs == most else f"{runs} to {most}"
    intervals = ", ranges of factors are 95 % intervals" if findings else ""
    return [*said, ("Basis", f"figures are medians of {number} runs of each{intervals}")]
