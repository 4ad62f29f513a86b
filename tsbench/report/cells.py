"""A result set for reports: its files are read once; missing and damaged ones are left out."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ConfigDict

from tsbench.errors import UserMistake
from tsbench.measure.bottleneck import DATABASE
from tsbench.results.json_files import Count, Part, parsed
from tsbench.results.limits import LIMITS
from tsbench.results.manifest import Manifest, check_same_world
from tsbench.results.reading import damaged, parse_toml, read_bytes
from tsbench.results.rundir import COMPLETE, SERVER_DIED, RunDir, Status, find_runs
from tsbench.results.summary import GateResult, SetSummary, Summary, Validity
from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from tsbench.results.figures import Agreement, OpFigures

ROUND = "round"
"""Label of a run with the number of its round."""
_ROUND = re.compile(rf"-{ROUND}=(\d+)$")
ROUNDED_S = 0.001
"""By how much a sample's second may be off: times are rounded to 1 ms."""


BEHIND_SHARE = 0.02
"""Share of an open loop's arrivals that a database stayed behind in the measured window if it could not keep up."""


@dataclass(frozen=True, slots=True)
class Overload:
    """The rate that an open loop asked for, the rate that was done, and by how many ops the queue grew meanwhile.

    Response times then measure how long the run was: they grow as long as it lasts.
    """

    asked_per_s: float
    done_per_s: float
    queued: int


class AskedLoad(Part):
    """What a run's specification says of its load."""

    model_config = ConfigDict(extra="ignore")

    loop: Literal["open", "closed"] | None = None
    users: Count | None = None
    duration: Count | None = None
    """Length of the measured window in ns; with steps, of each that has none of its own."""
    window: Count | None = None
    """Time whose points are written, in ns, if the scenario says it."""
    steps: tuple[Any, ...] = ()


class AskedTarget(Part):
    """What a run's specification says of its server."""

    model_config = ConfigDict(extra="ignore")

    endpoint: str | None = None
    """Of a server that tsbench did not start."""


class AskedSpec(Part):
    """What a run's specification says, also of one that ended before it had a summary."""

    model_config = ConfigDict(extra="ignore")

    drive: AskedLoad = AskedLoad()
    target: AskedTarget = AskedTarget()


@dataclass(frozen=True, slots=True)
class Cell:
    """One run: its directory and the content of its JSON files. `notes` name files that could not be read.

    The summary of a run that did not complete is not valid; one without a summary has an empty one.
    """

    name: str
    run: RunDir
    summary: Summary
    manifest: Manifest | None
    spec: Mapping[str, Any]
    asked: AskedSpec
    status: Status
    notes: tuple[str, ...] = ()
    agreements: tuple[Agreement, ...] = ()
    """How far other databases of the result set agree with this one on answers without gold."""

    @property
    def is_whole(self) -> bool:
        """True if the run's results are whole, though they may end at its server's death."""
        return self.status.state in {COMPLETE, SERVER_DIED}

    @property
    def loop(self) -> str | None:
        """Loop of the run: `open` or `closed`; None if neither summary nor spec has it."""
        return self.summary.loop or self.asked.drive.loop

    @property
    def time(self) -> Literal["response", "service"]:
        """Kind of time for latencies: `response` (from when the op was due) in an open loop, else `service`."""
        return "response" if self.loop == "open" else "service"

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels of the run, also of one that ended before it had a summary."""
        asked = self.spec.get("labels")
        return self.summary.labels or {str(k): str(v) for k, v in (asked if isinstance(asked, dict) else {}).items()}

    @property
    def round(self) -> int:
        """Number of its round among repeats; 0 of a run that was not repeated."""
        return int(match.group(1)) if (match := _ROUND.search(self.run.cell_id)) else 0

    @property
    def unrepeated(self) -> str:
        """Id of its cell without the round, which repeats share."""
        return _ROUND.sub("", self.run.cell_id)

    @property
    def ops(self) -> Mapping[str, OpFigures]:
        """Figures of each op in the measured window, by name."""
        return self.summary.measured.ops if self.summary.measured else {}

    @property
    def window(self) -> tuple[float, float] | None:
        """Start and end of the measured window in epoch seconds; None if the summary lacks them."""
        if self.summary.measured is None:
            return None
        window = self.summary.measured.window
        return window.start_s, window.start_s + window.duration_s

    def is_measured(self, second: Any) -> Any:
        """Return which sampled seconds (an array or a column of a frame) lie as a whole in the measured window.

        A row covers the second that begins at its `second`; one that overlaps the warm-up is not part of the window.
        """
        start_s, end_s = self.window or (0.0, 0.0)
        return (second >= -ROUNDED_S) & (second <= end_s - start_s - 1 + ROUNDED_S)

    @property
    def ended_early(self) -> str:
        """Sentence on a run that wrote every recorded point before its time was over; "" of others."""
        drive, measured = self.asked.drive, self.summary.measured
        asked_s = 0 if drive.window or drive.steps else (drive.duration or 0) / NS_PER_S
        if self.status.state != COMPLETE or measured is None or measured.write is None:
            return ""
        if (took_s := measured.window.duration_s) > asked_s - 1:
            return ""
        return f"every point was written after {took_s:g} s of {asked_s:g} s; load less of the data to measure longer"

    @property
    def overload(self) -> Overload | None:
        """How far the database stayed behind an open loop's rate; None if it kept up, and of a closed loop."""
        schedule, measured = self.summary.schedule, self.summary.measured
        asked, done = self.summary.asked_ops_per_s, self.summary.done_ops_per_s
        if schedule is None or measured is None or not asked or done is None or self.limited_by != DATABASE:
            return None
        queued = schedule.scheduled - measured.ended
        if queued <= max(BEHIND_SHARE * schedule.scheduled, self.summary.users or 0):
            return None
        return Overload(asked, done, queued)

    @property
    def limited_by(self) -> str:
        """The limiting factor of the run; `unknown` if the run ended before it was determined."""
        return self.summary.limited_by or "unknown"

    @property
    def limit_text(self) -> str:
        """The limiting factor as printed: `database (overloaded)` where the queue of an open loop grew."""
        return f"{self.limited_by} (overloaded)" if self.overload is not None else self.limited_by

    @property
    def disturbed(self) -> str:
        """What else used this machine while the run was measured, in one clause.

        "" if nothing did, or if it may have been the server, which tsbench did not start.
        """
        limit = self.summary.limit
        return limit.disturbed if limit is not None and self.asked.target.endpoint is None else ""

    @property
    def started(self) -> str:
        """Start time of the run, as ISO text to the second; "" if unknown."""
        return re.sub(r"\.\d+", "", self.summary.started or "")

    @property
    def validity(self) -> Validity:
        """Validity of the figures; invalid figures are struck out."""
        return self.summary.validity

    @property
    def gates_text(self) -> str:
        """Result of the gates in words: `pass`, `1 of 4 fail`, `undecided`, `not judged`, `none`; or `server died`."""
        summary = self.summary
        if summary.gate_state != "fail":
            return summary.gate_state if summary.shown_gates else "none"
        return SERVER_DIED if summary.death else f"{len(summary.failed_gates)} of {len(summary.shown_gates)} fail"


@dataclass(frozen=True, slots=True)
class ResultSet:
    """The runs of a result set in the order of the scenario, its own summary, and the text of its scenario file.

    `ratios` are the results of gates on the ratio to a baseline, each with the name of its side.
    """

    path: Path
    cells: tuple[Cell, ...]
    summary: SetSummary
    scenario: str
    name: str
    question: str
    ratios: tuple[tuple[str, GateResult], ...] = ()

    @property
    def ends(self) -> frozenset[str]:
        """The runs at which searches ended."""
        return frozenset(cell for one in self.summary.searches for cell in one.cells)

    @classmethod
    def read(cls, results: Path) -> ResultSet:
        """Read a result set, or the one run in `results`.

        Raises
        ------
        UserMistake
            If the directory has no run, one of another format, or runs that did not store the same data.
        """
        cells = load_cells(results)
        summary, text = _of_set(results), _scenario_of(results)
        question = summary.question or next((cell.summary.question for cell in cells if cell.summary.question), "")
        with suppress(ValueError):  # the page shows the text nevertheless
            question = question or _text(parse_toml(text), "question")
        question = question or next(filter(None, (_text(cell.spec, "question") for cell in cells)), "")
        names = [summary.scenario, *(cell.summary.scenario for cell in cells)]
        names += [*(_text(cell.spec, "scenario") for cell in cells), results.resolve().name]
        return cls(results, tuple(cells), summary, text, next(filter(None, names)), question)


def load_cells(results: Path) -> list[Cell]:
    """Return the runs of a result set (or the one run in `results`), in the order of the scenario.

    Raises
    ------
    UserMistake
        If the directory has no run, one of another format, or runs that did not store the same data.
    """
    cells: list[Cell] = []
    runs = list(find_runs(results))
    check_same_world(runs)
    for run in runs:
        taken = any(cell.name == run.cell_id for cell in cells)  # an old complete run beside a newer failed attempt
        cells.append(_load(run, run.path.name if taken else run.cell_id))
    of_set = _of_set(results)
    place = {cell.cell: number for number, cell in enumerate(of_set.cells)}
    cells = [replace(cell, agreements=of_set.agreements) for cell in cells] if of_set.agreements else cells
    return sorted(cells, key=lambda cell: (place.get(cell.run.cell_id, len(place)), cell.name))


def by_cell(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    """Return runs by the id of their cell without the round: those of a repeated cell are together."""
    cells_of: dict[str, list[Cell]] = {}
    for cell in cells:
        cells_of.setdefault(cell.unrepeated, []).append(cell)
    return cells_of


def _of_set(results: Path) -> SetSummary:
    """Return the set's summary; an empty one if it is missing or damaged, as that of a single run is here."""
    try:
        return SetSummary.read(results)
    except UserMistake:
        return SetSummary()


def _scenario_of(results: Path) -> str:
    try:
        return read_bytes(results / "scenario.toml", LIMITS.text_bytes).decode(errors="replace")
    except OSError:
        return ""


def _text(content: Mapping[str, Any], key: str) -> str:
    return value if isinstance(value := content.get(key), str) else ""


def _load(run: RunDir, name: str) -> Cell:
    notes: list[str] = []

    def read(of: Callable[[], Any], default: Any) -> Any:
        try:
            return of()
        except UserMistake as mistake:
            notes.append(str(mistake))
            return default

    manifest = read(lambda: Manifest.read(run), None)
    empty = Summary(cell=run.cell_id)
    summary = read(lambda: Summary.read(run), empty) if run.has("summary.json") else empty
    spec = read(lambda: run.read_json("spec.json"), {})
    asked = read(lambda: _asked(run, spec), AskedSpec())
    status = run.status()
    cell = Cell(name, run, summary, manifest, spec, asked, status, tuple(notes))
    return cell if cell.is_whole else replace(cell, summary=_broken_off(summary, status))


def _asked(run: RunDir, spec: Mapping[str, Any]) -> AskedSpec:
    try:
        return parsed(AskedSpec, spec)
    except ValueError as error:
        raise damaged(run / "spec.json", error) from None


def _broken_off(summary: Summary, status: Status) -> Summary:
    """Return the summary of a run that did not complete: its figures are inconclusive, if they are not wrong."""
    told = status.error.startswith(status.state)  # "interrupted by the user" says it by itself
    reasons = [status.error if told else f"{status.state}: {status.error}" if status.error else status.state]
    state: Literal["invalid", "inconclusive"] = "inconclusive"
    if summary.validity.state == "invalid":
        state = "invalid"
        reasons.append(summary.validity.reason)
    validity = replace(summary.validity, state=state, reason="; ".join(filter(None, reasons)))
    gates = tuple(gate.under(validity) for gate in summary.gates)
    return summary.model_copy(update={"validity": validity, "gates": gates})
