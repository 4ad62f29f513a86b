"""The answer in at most five sentences, made from the findings; never more than the figures carry.

What was not shown is said last, with what would show it.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

from tsbench.measure.bottleneck import CLIENT, QUIET
from tsbench.report.findings import ECONOMY, LOADS, MOST_NAMES, RULES, compare, joined, middle, names_of, told_once
from tsbench.report.sides import ends_of, sides_of
from tsbench.text import shortened
from tsbench.units import format_factor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tsbench.measure.statistics import Interval
    from tsbench.report.cells import Cell, ResultSet
    from tsbench.report.findings import Finding, Rule
    from tsbench.report.sides import Side, Sides
    from tsbench.results.summary import ClaimRow

_REPEAT = "run with --repeat 8"
_REPEAT_SCENARIO = "tsbench run SCENARIO --repeat 8"
"""For a set that no scenario file made: of a page in the browser, of bare Locust, of a single load."""
_SAME = "reproduced"
_TIED = tuple(f"{rule.name} is not told apart" for rule in (*RULES, *LOADS))


def judged_sides(found: ResultSet, whole: Sides | None = None) -> Sides:
    """Return the sides of which the answer speaks: all of a result set, or of searches those at which they ended.

    `whole` are all, if they are known: they are read from the runs' files.
    """
    ends = ends_of(found) if found.summary.searches else None
    return ends if ends is not None and ends.sides else whole or sides_of(found.cells)


def answer_of(found: ResultSet, judged: Sides | None = None) -> tuple[str, ...]:
    """Return the answer of a result set: `answer` of its `judged_sides`, which may be known."""
    said = answer(judged or judged_sides(found), _REPEAT if found.scenario else _REPEAT_SCENARIO)
    study = _study(found.summary.claims)
    return (*study, *(said if len(said) < 5 or not study else (*said[:3], said[-1])))


def answer(found: Sides, repeat: str = _REPEAT) -> tuple[str, ...]:
    """Return the answer of some sides: at most five sentences, the same whatever the order of the runs.

    `repeat` is what shows how much starts differ.
    """
    sides = sorted(found.sides, key=lambda side: (side.name, side.at or 0.0))
    counted = [side for side in sides if side.stands]
    if not counted:
        return (f"No run counts: {joined([f'{_where(s, found)} is {s.validity}{_why(s)}' for s in sides])}.",)
    at = _compared_at(counted, found.axis)
    here = [side for side in counted if side.at == at]
    place = _place(at, here, counted, found)
    unshown: list[str] = []
    rules = LOADS if found.searches_loads else (*LOADS[:1], *RULES) if found.only_loads else RULES
    findings = compare(here, found.loop, unshown, rules)
    sentences = [_ramp(counted, found, unshown) if found.axis else _gates_of_all(here)]
    if len(here) == 1:
        sentences.append(place + _alone(here[0], found.loop))
    elif findings and all(not finding.others for finding in findings):
        sentences.append(place + _tie(findings, here))
    else:
        sentences += [
            place + text if text and not number else text
            for number, text in enumerate((_speed(findings), _economy(findings)))
        ]
    unshown += [
        f"{len(side.left_out)} of {len(side.cells)} runs of {_where(side, found)}, less valid than the others"
        for side in counted
        if side.left_out
    ]
    judged = counted if found.axis else here
    unshown += _longer_runs([side for side in judged if side.undecided], found)
    unshown += _busy_machine(judged)
    if not found.axis and not sentences[0]:
        sentences.append(_gates_of_some(here))
    sentences += [_not_counted(sides, found), _unshown(findings, here, sides, unshown, repeat)]
    return tuple(f"{_begun(text)}." for text in sentences if text)[:5]


def said_reasons(cells: Sequence[Cell], sentences: Sequence[str]) -> tuple[str, ...]:
    """Return the reason of the only run that is not valid, if an answer quotes it in full; else nothing."""
    reasons = [cell.validity.reason for cell in cells if not cell.validity.is_valid]
    whole = len(reasons) == 1 and any(f"({reasons[0]})" in sentence for sentence in sentences)
    return tuple(reasons) if whole else ()


def reasons_of(cells: Sequence[Cell], said: Sequence[str] = ()) -> list[tuple[str, list[str], str]]:
    """Return why runs are not valid, unless that is `said` already: each state and reason once, with its runs."""
    doubtful = [cell for cell in cells if not cell.validity.is_valid and cell.validity.reason not in said]
    found: list[tuple[str, list[str], str]] = []
    for state in dict.fromkeys(cell.validity.state for cell in doubtful):
        of = ((cell.name, cell.validity.reason) for cell in doubtful if cell.validity.state == state)
        found += [(state, names, reason) for names, reason in told_once(of)]
    return found


def _begun(text: str) -> str:
    """Return a sentence that begins with a capital, or with a name as it is written."""
    return text[0].upper() + text[1:] if text.startswith(_TIED) else text


def _study(claims: Sequence[ClaimRow]) -> tuple[str, ...]:
    """Return how many of a study's findings were found here too; nothing without a study."""
    if not claims:
        return ()
    verdicts = Counter(row.verdict for row in claims)
    rest = [f"{count} {'was' if count == 1 else 'were'} {verdict}" for verdict, count in sorted(verdicts.items())
            if verdict != _SAME]  # fmt: skip
    same = verdicts[_SAME]
    first = f"{same} of the study's {len(claims)} findings {'was' if same == 1 else 'were'} {_SAME}"
    return (f"{'; '.join([first, joined(rest)] if rest else [first])}.",)


# --- sentences --------------------------------------------------------------------------------------------------------


def _speed(findings: Sequence[Finding]) -> str:
    """Return who is faster, by how much, and of what no difference was found."""
    told = [one for one in findings if one.rule not in ECONOMY and one.others]
    text = ""
    for leaders, group in groupby(told, key=lambda one: one.leaders):
        clauses = [f"{_verb(one)} ({_evidence(one)})" for one in group]
        text += f"{', but ' if text else ''}{names_of(side.name for side in leaders)} {joined(clauses)}"
    return _with_ties(text, [one for one in findings if one.rule not in ECONOMY and not one.others])


def _economy(findings: Sequence[Finding]) -> str:
    """Return who is smaller, steadier and cheaper in CPU, by how much, and of what no difference was found."""
    told = sorted(
        (one for one in findings if one.rule in ECONOMY and one.others),
        key=lambda one: next(n for n, other in enumerate(findings) if other.leaders == one.leaders and other.others
                             and other.rule in ECONOMY),
    )  # fmt: skip
    parts = []
    for leaders, group in groupby(told, key=lambda one: one.leaders):
        clauses = [f"{_verb(one)} ({_evidence(one)})" for one in group]
        are = "is" if len(leaders) == 1 else "are"
        parts.append(f"{names_of(side.name for side in leaders)} {are} {joined(clauses)}")
    return _with_ties("; ".join(parts), [one for one in findings if one.rule in ECONOMY and not one.others])


def _verb(finding: Finding) -> str:
    is_comparative = bool(finding.between) or len(finding.leaders + finding.others) == 2
    words = finding.rule.two if is_comparative else finding.rule.many
    verb, _, rest = words.partition(" ")
    return f"{verb.removesuffix('s')} {rest}" if len(finding.leaders) > 1 and verb.endswith("s") else words


def _evidence(finding: Finding) -> str:
    """Return the leaders' figures, those of the next and the last of the others, the factors, and who may be either."""
    rule, by_test = finding.rule, finding.by_test
    shown = _range([middle(rule.key, side) for side in finding.leaders], rule)
    of_ops = rule.is_rate and rule not in LOADS  # a load's rate is not that of the generator of ops
    least = "at least " if of_ops and any(side.is_generators for side in finding.leaders) else ""
    ends = finding.others[:: max(1, len(finding.others) - 1)]
    against = [f"{rule.text(middle(rule.key, s))} of {s.name}, {_times(finding.ahead[s.name], by_test)}" for s in ends]
    unplaced = f"; {_unplaced(finding)}" if finding.between else ""
    return f"{least}{rule.before}{shown}{rule.after} against {', to '.join(against)}{unplaced}"


def _unplaced(finding: Finding) -> str:
    """Return the sides that may be as good as the leaders or as bad as the others, with their figures."""
    sides, rule = finding.between, finding.rule
    shown = _range([middle(rule.key, side) for side in sides], rule)
    return f"{names_of(side.name for side in sides)} with {shown} {'is' if len(sides) == 1 else 'are'} not told apart"


def _range(found: Sequence[Interval], rule: Rule) -> str:
    texts = [rule.text(one) for one in found]
    if len(texts) == 2:
        return joined(texts)
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]} to {texts[-1]}"


def _times(factor: Interval, by_test: bool) -> str:
    if not by_test or factor.least == factor.most:
        return format_factor(factor.estimate)
    least, most = (f"{end:.2f}x" if end < 10 else format_factor(end) for end in (factor.least, factor.most))
    estimate = f"{factor.estimate:.2f}x" if factor.estimate < 10 else format_factor(factor.estimate)
    return f"{estimate}, interval {least} to {most}"


def _with_ties(text: str, ties: Sequence[Finding]) -> str:
    if not ties:
        return text
    said = [f"{one.rule.name} is not told apart ({_both(one)})" for one in ties]
    return f"{text}{'; ' if text else ''}{joined(said)}"


def _both(finding: Finding) -> str:
    """Return the figures of sides between which no difference was found: of more than two the range."""
    return f"{_range([middle(finding.rule.key, side) for side in finding.leaders], finding.rule)}{finding.rule.after}"


def _tie(findings: Sequence[Finding], sides: Sequence[Side]) -> str:
    said = joined([f"{one.rule.name} ({_both(one)})" for one in findings])
    are = "is" if len(findings) == 1 else "are"
    runs = f"{sides[0].repeats} runs" if sides[0].repeats > 1 else "one run"
    why = f"{'not told apart by' if findings[0].by_test else 'too close for'} {runs} of each"
    return f"No difference between {names_of(side.name for side in sides)} was found: {said} {are} {why}"


def _alone(side: Side, loop: str) -> str:
    """Return the figures of the only side that counts."""
    found = {r.key: (r, f"{r.text(middle(r.key, side))}{r.after}") for r in RULES if r.key in side.figures}
    said = []
    if rate := found.get("write_points_per_s"):
        # a run of much think time is valid although the generator was its limit
        is_more = loop == "closed" and (side.is_generators or side.limited_by == CLIENT)
        said.append(f"writes {'at least ' if is_more else ''}{rate[1]}")
    for about in ("write", "query"):
        time = next((one for key, one in found.items() if one[0].about == about and not one[0].is_rate), None)
        said += [f"has a {time[0].name} of {time[1]}"] if time else []
    if size := found.get("bytes_per_point"):
        said.append(f"takes {size[1]}")
    return f"{side.name} {joined(said) or 'counts, but has no figures'}"


# --- gates, ramps, what does not count and what was not shown ---------------------------------------------------------


def _failures(side: Side) -> str:
    return joined([f"{gate} ({_measured(text)})" for gate, text in sorted(side.failed.items())])


def _gates_of_all(sides: Sequence[Side]) -> str:
    if not all(side.failed for side in sides):
        return ""
    if len(sides) == 1:
        return f"{sides[0].name} failed {_failures(sides[0])}"
    return f"None passed: {joined([f'{side.name} failed {_failures(side)}' for side in sides])}"


def _gates_of_some(sides: Sequence[Side]) -> str:
    failed = [f"{side.name} failed {_failures(side)}" for side in sides if side.failed]
    passed = [side.name for side in sides if side.passed and side.gated]
    return f"{joined(failed)}; {names_of(passed)} passed" if failed and passed else joined(failed)


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


def _place(at: float | None, here: Sequence[Side], counted: Sequence[Side], found: Sides) -> str:
    if at is None:
        return ""
    names = {side.name for side in counted}
    holds = all(not side.failed for side in here) and len(here) == len(names)
    gated = any(side.failed or side.gated for side in counted)
    which = ", the highest that all hold," if holds and gated and len(names) > 1 else ","
    return f"At {at_load(found.axis, at)}{which} "


def _ramp(counted: Sequence[Side], found: Sides, unshown: list[str]) -> str:
    """Return where each side breaks; "" if nothing was asked of them."""
    if not any(side.failed or side.gated for side in counted):
        return ""
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
        where = at_load(found.axis, first.at or 0.0, bare=top is not None)
        until = f"holds {at_load(found.axis, top)} and breaks at {where}" if top is not None else f"breaks at {where}"
        broke.append((top or 0.0, name, f"{name} {until} ({_named(first)})"))
    said = [text for _, _, text in sorted(broke)]
    for top, names in sorted(unbroken.items()):
        verb = "holds" if len(names) == 1 else "hold"
        load = at_load(found.axis, top, bare=bool(said))
        said.append(f"{names_of(names)} {verb} {load}, the highest that was tried{' with it' if top < highest else ''}")
    if names := [name for _, of in sorted(unbroken.items()) for name in of]:
        verb = "breaks" if len(names) == 1 else "break"
        unshown.append(f"where {names_of(sorted(names))} {verb} (higher values of {found.axis})")
    more = f"; {len(said) - MOST_NAMES} others have a row each" if len(said) > MOST_NAMES else ""
    return "; ".join(said[:MOST_NAMES]) + more


def _named(side: Side) -> str:
    return joined([f"{gate}: {_measured(text)}" for gate, text in sorted(side.failed.items())])


def _measured(text: str) -> str:
    """Return what a gate measured, without the basis of a long text, which tables have."""
    return shortened(text if len(text) <= 80 else text.partition(": ")[0], 80)


def _longer_runs(undecided: Sequence[Side], found: Sides) -> list[str]:
    """Return what longer runs would show: of a side at several loads, or several with the same gates, at once."""
    alike: dict[tuple[str, str], list[Side]] = {}
    for side in undecided:
        alike.setdefault(("" if side.at is None else side.name, names_of(side.undecided)), []).append(side)
    said = []
    for (_, gates), (first, *others) in alike.items():
        more = [side.name if side.at is None else at_load(found.axis, side.at, bare=True) for side in others]
        verb = "pass" if more and first.at is None else "passes"
        said.append(f"whether {names_of([_where(first, found), *more])} {verb} {gates} (a longer run)")
    return said


def _where(side: Side, found: Sides) -> str:
    return side.name if side.at is None else f"{side.name} at {at_load(found.axis, side.at)}"


def _why(side: Side) -> str:
    return f" ({shortened(side.reason, 160)})" if side.reason else ""


def _not_counted(sides: Sequence[Side], found: Sides) -> str:
    out = [side for side in sides if not side.stands]
    if not out:
        return ""
    if len(out) == 1:
        return f"{_where(out[0], found)} does not count: it is {out[0].validity}{_why(out[0])}"
    said = [f"{_where(side, found)} is {side.validity}{_why(side)}" for side in out[:MOST_NAMES]]
    return f"{names_of(_where(side, found) for side in out)} do not count: {joined(said)}"


def _busy_machine(sides: Sequence[Side]) -> list[str]:
    """Return that figures are those of a machine with other work, where it had any."""
    found = told_once((side.name, text) for side in sides for text in side.disturbed)
    all_names = {side.name for side in sides}
    causes = [text if {*names} == all_names else f"{text} beside {names_of(names)}" for names, text in found]
    return [f"what a quiet machine shows, for {joined(causes)} ({QUIET})"] if causes else []


def _unshown(
    findings: Sequence[Finding], here: Sequence[Side], sides: Sequence[Side], unshown: list[str], repeat: str
) -> str:
    """Return what was not shown and what would show it; of repeats, what their figures are."""
    runs = min(side.repeats for side in here)
    few = runs < 2 or (bool(findings) and not all(one.by_test for one in findings))
    if len(here) == 1:
        other = "no other run counts" if len({side.name for side in sides}) > 1 else "there is nothing to compare with"
        unshown.append(f"whether that is much, for {other}{'' if other.startswith('no') else ' (a second target)'}")
    if few:
        there = f"there {'is one run' if runs == 1 else f'are {runs} runs'}{' of each' if len(here) > 1 else ''}"
        tied = findings and all(not one.others for one in findings) and len(here) > 1
        what = "small differences, and what differs between starts" if tied else "what differs between starts"
        unshown.append(f"{what}, for {there} ({repeat})")
    said = f"Not shown: {'; '.join(unshown)}" if unshown else ""
    if few:
        return said
    most = max(side.repeats for side in here)
    number = f"{runs}" if runs == most else f"{runs} to {most}"
    basis = f"igures are medians of {number} runs of each{', intervals are of 95 %' if findings else ''}"
    return f"{said}; f{basis}" if said else f"F{basis}"
