"""Comparison of result sets or of cells: which figures are better or worse, by how much, and how sure that is.

Runs of the same round of one set are pairs, because a machine that drifts slows both alike. Other runs are compared by
their ranks; if one side was measured after the other, a drift of the machine looks like a difference.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from tsbench.errors import UserMistake
from tsbench.measure import gates
from tsbench.measure.bottleneck import QUIET
from tsbench.measure.statistics import (
    ALPHA,
    Bounds,
    Difference,
    Test,
    differences,
    effect_found,
    least_runs,
    paired_test,
    rank_test,
    runs_needed,
)
from tsbench.report.cells import by_cell, load_cells
from tsbench.report.findings import seen_in_few, told_once
from tsbench.report.manifest import flatten
from tsbench.report.metrics import MISSING, believable
from tsbench.report.sides import Side, counting, side_of_runs
from tsbench.results.manifest import check_same_world
from tsbench.text import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from tsbench.measure.latency import Latency
    from tsbench.report.cells import Cell
    from tsbench.results.summary import GateResult

FIGURES = ("write:points/s", "write:p99", "query:ops/s", "query:p99", "load:points/s", "bytes/point")
EFFECT = 0.05
"""Difference for which the number of runs is recommended."""
MORE_IS_BETTER = gates.RATES
_CHANCE = re.compile(
    r"\.?(id|labels|relative_start|clock|host\.(load_average|memory_available_bytes)|warnings|created"
    r"|server\.(port|caps\.measured))\b"
)
_MOST_LISTED = 12


@dataclass(frozen=True, slots=True)
class FigureFinding:
    """What the comparison of one figure found.

    `base` and `new` are medians. `least` is the number of runs below which nothing could be found, `would` the smallest
    difference that would have been found, and `needed` the number of runs of a side with which EFFECT would be; None if
    that is not known. `alone` is true if the difference would have been found had no other figure been looked at.
    """

    figure: str
    base: float
    new: float
    test: Test
    difference: Difference
    least: int
    would: float | None = None
    needed: int | None = None
    alone: bool = False
    note: str = ""
    seen: str = ""
    """`better` or `worse`, if the few runs differ so much that the answer of their set says so."""

    @property
    def answer(self) -> str:
        """The answer in words."""
        if self.difference == "too few runs":
            return f"{self._few}; {self.least} are needed to test it"
        if self.difference == "no difference found":
            would = self.would or 0.0
            seen = f"a difference of {percent(would)}" if would < 1 else f"a factor of {1 + would:.3g}"
            return f"no difference found ({self.note or f'{seen} would be'})"
        return f"{self.difference} by {ratio_text(self.test.ratio)}"

    @property
    def _few(self) -> str:
        number = min(self.test.runs)
        runs = "rounds" if self.test.paired else "runs"
        if self.seen:
            return f"{self.seen} in {f'all {number} {runs}' if number > 1 else 'the one run of each'}"
        return f"no difference found in {f'{number} {runs}' if number > 1 else 'one run of each'}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two sides compared: what differs between them besides the figures, and the findings by figure."""

    base: Side
    new: Side
    differing: Mapping[str, tuple[str, str]]
    findings: tuple[FigureFinding, ...]
    notes: tuple[str, ...]

    @property
    def is_worse(self) -> bool:
        """True if a figure is worse."""
        return any(finding.difference == "worse" for finding in self.findings)


def ratio_text(ratio: Bounds) -> str:
    """Return a change with its interval: `6.0 % (2.1 to 10 %)`; far from 1 as a factor above 1, up or down."""
    if ratio.estimate >= 2:
        return f"a factor of {ratio.estimate:.3g} ({ratio.least:.3g} to {ratio.most:.3g})"
    if ratio.estimate <= 0.5:
        factor, least, most = (1 / end if end else math.inf for end in (ratio.estimate, ratio.most, ratio.least))
        return f"a factor of {factor:.3g} ({least:.3g} to {most:.3g})"
    changes = [100 * (end - 1) for end in (ratio.estimate, ratio.least, ratio.most)]
    return f"{changes[0]:+.1f} % ({changes[1]:+.1f} to {changes[2]:+.1f} %)"


def percent(share: float) -> str:
    """Return a share with at most three significant digits: `4.25 %`."""
    return f"{100 * share:.3g} %"


# --- the sides --------------------------------------------------------------------------------------------------------


def sides_at(place: Path) -> list[Side]:
    """Return the sides at a place, without figures: a result set's cells, one run, or `SET/CELL` with all its rounds.

    Raises
    ------
    UserMistake
        If there is none, or they are of another format.
    """
    name = ""
    if (
        not place.exists() and (place.parent / "scenario.toml").exists()
    ):  # a repeated cell by its name without the round
        place, name = place.parent, place.name
    grouped = by_cell(load_cells(place))
    if name and name not in grouped:
        raise UserMistake(f"{place / name}: no such cell; {place} has {listed(sorted(grouped))}")
    return [side_of(key, of) for key, of in grouped.items() if not name or key == name]


def side_of(name: str, cells: Sequence[Cell]) -> Side:
    """Return the side of some repeats that are whole and count, without figures."""
    runs = counting([cell for cell in cells if not cell.notes])
    return Side(name, rounds=tuple(cell.round for cell in runs), runs=runs, cells=tuple(cells))


def _left_out(side: Side) -> Iterable[str]:
    """Yield why runs of a side do not count."""
    for cell in side.left_out:
        reason = cell.validity.reason or cell.status.state
        yield f"{cell.name}: {cell.notes[0]}" if cell.notes else f"{cell.name} is {cell.validity.state}: {reason}"


def pairs(base: Path, new: Path) -> list[tuple[Side, Side]]:
    """Return the sides of two places that are to be compared: of the same name, else one with each other one.

    Raises
    ------
    UserMistake
        One line if nothing can be compared.
    """
    bases, news = sides_at(base), sides_at(new)
    check_same_world([cell.run for side in (*bases, *news) for cell in side.runs])
    of_same_set = bases[0].results.resolve() == news[0].results.resolve()
    by_name = {side.name: side for side in news}
    shared = [(side, by_name[side.name]) for side in bases if side.name in by_name]
    if of_same_set:
        others = [side for side in news if side.name != bases[0].name]
        if len(bases) > 1 or not others:
            cells = listed(sorted({side.name for side in (*bases, *news)}))
            raise UserMistake(
                f"{base} and {new} are the same runs; compare cells, SET/CELL with SET/CELL (there are {cells})"
            )
        sides = [(bases[0], other) for other in others]
    elif shared:
        sides = shared
    elif len(bases) == 1:
        sides = [(bases[0], side) for side in news]
    elif len(news) == 1:
        raise UserMistake(f"{base} has several cells, none of them {news[0].name}; give one of them: {base}/CELL")
    else:
        raise UserMistake(f"{base} and {new} have no cell in common; give one of each: {base}/CELL {new}/CELL")
    for side in {id(one): one for pair in sides for one in pair}.values():
        if not side.runs:
            raise UserMistake(f"{side.results / side.name} has no run to compare: {next(iter(_left_out(side)))}")
    return sides


# --- the comparison ---------------------------------------------------------------------------------------------------


def compare(base: Side, new: Side, figures: Sequence[str] = FIGURES) -> Comparison:
    """Compare two sides in each figure that all runs have."""
    paired_rounds = [number for number in base.rounds if number and number in new.rounds]
    paired = base.results.resolve() == new.results.resolve() and len(paired_rounds) > 1
    rounds = (paired_rounds, paired_rounds) if paired else (base.rounds, new.rounds)
    by_round = [dict(zip(side.rounds, side.runs, strict=True)) for side in (base, new)]
    tests: dict[str, Test] = {}
    least: dict[str, Test] = {}
    medians: dict[str, tuple[float, float]] = {}
    notes = [f"left out: {text}" for text in dict.fromkeys((*_left_out(base), *_left_out(new)))]
    for name in with_stand_ins(figures, [cell for side in (base, new) for cell in side.runs]):
        ends = [
            [_ends(name, runs[number]) for number in numbers] for runs, numbers in zip(by_round, rounds, strict=True)
        ]
        if any(end is None for side in ends for end in side):
            notes += _uncompared(name, [cell for side in (base, new) for cell in side.runs])
            continue
        of = paired_test if paired else rank_test
        least[name], tests[name] = (
            of(*([end[which] for end in side if end is not None] for side in ends)) for which in (0, 1)
        )
        medians[name] = (median(end[1] for end in ends[0] if end), median(end[1] for end in ends[1] if end))
    return Comparison(
        base,
        new,
        differing(base.runs[0], new.runs[0]),
        _with_seen(_findings(tests, least, medians), base, new),
        (*notes, *_notes(base, new, paired=paired)),
    )


def _with_seen(findings: Sequence[FigureFinding], base: Side, new: Side) -> tuple[FigureFinding, ...]:
    """Return findings with what the answer says of the few runs of two sides."""
    if all(one.difference != "too few runs" for one in findings):
        return tuple(findings)
    sides = [side_of_runs(side.name, None, side.runs) for side in (base, new)]
    return tuple(replace(one, seen=seen_in_few(column_of(one.figure), *sides)) for one in findings)


def with_stand_ins(figures: Sequence[str], cells: Sequence[Cell]) -> list[str]:
    """Return the figures; p50, else the mean, for a p99 for which some of the runs have too few ops, as the answer."""
    shown = []
    for name in figures:
        others = [name.replace("p99", part) for part in ("p50", "mean")] if name.endswith(":p99") else []
        having = (one for one in (name, *others) if all(is_believable(one, cell) for cell in cells))
        shown.append(next(having, name))
    return list(dict.fromkeys(shown))


def is_believable(name: str, cell: Cell) -> bool:
    """Return True for a figure that a run has, and for a latency that it has of enough ops."""
    gate = gates.parse_figure(name)
    if not gate.is_latency or gate.figure == "first":
        return bool(gates.figure_of(name, cell.summary)[0])
    return _believed(gate, cell) is not None


def _believed(gate: gates.Gate, cell: Cell) -> Latency | None:
    """Return a latency of a run; None if it has none, or too few ops for it."""
    measured = cell.summary.measured
    op = measured and (measured.of_kind(gate.of or "") or measured.ops.get(gate.of or ""))
    return believable(op, gate.time or cell.time, gate.figure) if op else None


def column_of(figure: str) -> str:
    """Return the name of a figure with its unit, as frames and files of exports have it: `write_p99_ns`."""
    name = re.sub(r"[:.]", "_", figure.replace("/", "_per_"))
    return f"{name}_ns" if gates.parse_figure(figure).is_latency else name


def _ends(name: str, cell: Cell) -> tuple[float, float] | None:
    """Return the least and the most that a figure of a run can be; None if it has none that can be compared."""
    gate, summary = gates.parse_figure(name), cell.summary
    if gates.is_held_back(gate, summary):
        return None
    if not gate.is_latency:
        value = gates.figure_of(name, summary)[0]
        return (value, value) if value and value > 0 else None
    if cell.overload is not None:
        return None
    interval = _believed(gate, cell)
    if interval is None or interval.is_open_ended or min(interval.bounds_ns) <= 0:  # a ratio needs numbers above zero
        return None
    return interval.bounds_ns


def _uncompared(name: str, cells: Sequence[Cell]) -> Iterable[str]:
    """Yield why a figure that some of the runs have is not compared."""
    gate = gates.parse_figure(name)
    limited = sum(gates.is_held_back(gate, cell.summary) for cell in cells)
    missing = sum(_ends(name, cell) is None for cell in cells)
    if gate.is_latency and (behind := sum(cell.overload is not None for cell in cells)):
        yield f"{name} is not compared: {behind} of {len(cells)} runs could not keep up with the rate asked for"
        return
    if limited:
        yield f"{name} is not compared: the load generator was the limit of {limited} of {len(cells)} runs"
    elif missing < len(cells):
        yield f"{name} is not compared: {missing} of {len(cells)} runs do not have it"


def _findings(
    tests: Mapping[str, Test], least: Mapping[str, Test], medians: Mapping[str, tuple[float, float]]
) -> tuple[FigureFinding, ...]:
    upwards = {name: gates.parse_figure(name).figure in MORE_IS_BETTER for name in tests}
    words, other = differences(tests, upwards), differences(least, upwards)
    findings = []
    for name, test in tests.items():
        word, note = words[name], ""
        if word != other[name] and "too few runs" not in {word, other[name]}:
            word, note = "no difference found", "it depends on how late the load generator sent its ops"
        findings.append(
            FigureFinding(
                name,
                *medians[name],
                test,
                word,
                least_runs(len(tests), paired=test.paired),
                would=effect_found(test.noise, test.runs, len(tests), paired=test.paired),
                needed=_needed(test, len(tests)),
                alone=test.p <= ALPHA and word == "no difference found" and not note,
                note=note,
            )
        )
    return tuple(findings)


def _needed(test: Test, figures: int) -> int | None:
    seen = min(test.runs)
    if seen < 2:
        return least_runs(figures, paired=test.paired)
    return runs_needed(test.noise, EFFECT, figures, paired=test.paired, seen=seen)


def _notes(base: Side, new: Side, *, paired: bool) -> Iterable[str]:
    of_sides = {"base": base, "new": new}
    disturbed = told_once((name, c.disturbed) for name, side in of_sides.items() for c in side.runs if c.disturbed)
    for names, text in disturbed:
        yield f"{text} while {' and '.join(names)} {'was' if len(names) == 1 else 'were'} measured: {QUIET}"
    if paired:
        return
    if base.results.resolve() != new.results.resolve() and max(len(base.runs), len(new.runs)) > 1:
        yield (
            "the sides were measured one after the other: a drift of the machine looks like a difference; "
            "cells of one scenario with --repeat are measured in turns"
        )


def differing(base: Cell, new: Cell) -> dict[str, tuple[str, str]]:
    """Return environment, versions, world and scenario entries that differ between two runs, with both texts."""
    sides = []
    for cell in (base, new):
        manifest = cell.manifest.to_json() if cell.manifest is not None else {}
        flat = flatten(manifest) | {f"scenario.{key}": text for key, text in flatten(dict(cell.spec)).items()}
        own_place = f"/{cell.run.cell_id}.partial/"  # where its server had its data
        flat = {key: text for key, text in flat.items() if own_place not in text}
        sides.append({key: text for key, text in flat.items() if not _CHANCE.match(key.removeprefix("scenario."))})
    keys = dict.fromkeys(key for side in sides for key in side)
    facts = {key: (sides[0].get(key) or MISSING, sides[1].get(key) or MISSING) for key in keys}
    return {key: texts for key, texts in facts.items() if texts[0] != texts[1]}


# --- in words ---------------------------------------------------------------------------------------------------------


def lines(comparison: Comparison) -> list[str]:
    """Return a comparison as lines of text: what differs, the figures, what was not found and what would find it."""
    said = [f"BASE {comparison.base.text}", f"NEW  {comparison.new.text}"]
    entries = list(comparison.differing.items())
    said += [f"differs: {key}: {a} | {b}" for key, (a, b) in entries[:_MOST_LISTED]]
    if entries[_MOST_LISTED:]:
        said.append(f"differs: {len(entries) - _MOST_LISTED} more entries (--json has them)")
    said += list(comparison.notes)
    if not comparison.findings:
        return [*said, "no figure is known of all runs"]
    width = max(len(finding.figure) for finding in comparison.findings)
    for finding in comparison.findings:
        texts = [gates.figure_text(finding.figure, value) for value in (finding.base, finding.new)]
        said.append(f"{finding.figure:{width}}  {texts[0]} -> {texts[1]}: {finding.answer}")
    return [*said, *advice(comparison)]


def advice(comparison: Comparison) -> list[str]:
    """Return what the correction for several figures did, and how many runs of each side would find EFFECT."""
    said = []
    decided = [finding for finding in comparison.findings if finding.difference != "too few runs"]
    if len(comparison.findings) > 1 and decided:
        lost = [finding.figure for finding in decided if finding.alone]
        what = f"it took the difference in {listed(lost)} away" if lost else "it took no difference away"
        said.append(f"corrected for {len(comparison.findings)} figures at once (Benjamini-Hochberg): {what}")
    open_ = [
        finding for finding in comparison.findings if finding.difference in {"no difference found", "too few runs"}
    ]
    texts = [
        f"{one.needed or 'more than 200'} for {one.figure}, whose runs differ by {percent(one.test.noise)}"
        for one in open_
        if min(one.test.runs) > 1 and one.test.noise
    ]
    if texts:
        said.append(f"runs of each side needed to find a difference of {percent(EFFECT)}: {'; '.join(texts)}")
    elif open_ and min(open_[0].test.runs) < 2:
        said.append("how much runs differ by chance is known from two runs of each side on: run with --repeat")
    return said


def to_json(comparison: Comparison, judged: Sequence[GateResult] = ()) -> dict[str, Any]:
    """Return a comparison and its gates as plain data; an interval's end that is not known is null."""

    def number(value: float) -> float | None:
        return value if abs(value) < 1e300 and value == value else None  # noqa: PLR0124 - JSON has no NaN

    return {
        "base": str(comparison.base.results / comparison.base.name),
        "new": str(comparison.new.results / comparison.new.name),
        "differing": {key: list(texts) for key, texts in comparison.differing.items()},
        "notes": [*comparison.notes, *advice(comparison)],
        "figures": {
            one.figure: {
                "base": one.base,
                "new": one.new,
                "ratio": one.test.ratio.estimate,
                "least": number(one.test.ratio.least) if one.test.ratio.least else None,
                "most": number(one.test.ratio.most),
                "p": one.test.p,
                "runs": list(one.test.runs),
                "paired": one.test.paired,
                "noise": one.test.noise,
                "difference": one.difference,
                "would_have_been_found": one.would,
                "runs_needed": one.needed,
                "answer": one.answer,
            }
            for one in comparison.findings
        },
        "gates": [{"gate": one.gate, "measured": one.measured, "state": one.state, "text": one.text} for one in judged],
    }
