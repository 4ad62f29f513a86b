"""The runs of a result set for reports: their files are read once; missing ones are left out."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tsbench.errors import UserMistake
from tsbench.results.limits import LIMITS
from tsbench.results.manifest import Manifest, check_same_world
from tsbench.results.reading import parse_toml, read_bytes, read_json
from tsbench.results.rundir import COMPLETE, SERVER_DIED, RunDir, find_runs
from tsbench.results.summary import Summary, Validity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tsbench.results.summary import GateResult, ValidityState


@dataclass(frozen=True, slots=True)
class Cell:
    """One run: its directory and the content of its JSON files. `notes` name files that could not be read."""

    name: str
    run: RunDir
    summary: Mapping[str, Any]
    manifest: Manifest | None
    spec: Mapping[str, Any]
    status: Mapping[str, Any]
    notes: tuple[str, ...] = field(default=())

    @property
    def state(self) -> str:
        """State of the run: `complete`, `server died`, `failed` or `interrupted`."""
        return str(self.status.get("state", "interrupted"))

    @property
    def is_whole(self) -> bool:
        """True if the run's results are whole, though they may end at its server's death."""
        return self.state in {COMPLETE, SERVER_DIED}

    @property
    def loop(self) -> str | None:
        """Loop of the run: `open` or `closed`; None if neither summary nor spec has it."""
        loop = self.summary.get("loop") or lookup(self.spec, ("drive", "loop"))
        return loop if loop in {"open", "closed"} else None

    @property
    def time(self) -> str:
        """Kind of time for latencies: `response` (from when the op was due) in an open loop, else `service`."""
        return "response" if self.loop == "open" else "service"

    @property
    def limited_by(self) -> str:
        """The limiting factor of the run; `unknown` if the run ended before it was determined."""
        return str(self.summary.get("limited_by") or "unknown")

    @property
    def started(self) -> str:
        """Start time of the run, as ISO text to the second; "" if unknown."""
        return re.sub(r"\.\d+", "", str(self.summary.get("started") or ""))

    @property
    def outcome(self) -> Summary:
        """The run's summary with validity and gates; a run that did not complete is not valid."""
        found = Summary.from_json(self.summary)
        if self.is_whole:
            return found
        error = str(self.status.get("error") or "")
        reasons = [f"{self.state}: {error}" if error else self.state]
        state: ValidityState = "inconclusive"
        if found.validity.state == "invalid":
            state = "invalid"
            reasons.append(found.validity.reason)
        validity = replace(found.validity, state=state, reason="; ".join(filter(None, reasons)))
        return replace(found, validity=validity, gates=tuple(gate.under(validity) for gate in found.gates))

    @property
    def validity(self) -> Validity:
        """Validity of the figures; invalid figures are struck out."""
        return self.outcome.validity

    @property
    def failed_gates(self) -> list[GateResult]:
        """The gates that failed."""
        return [gate for gate in self.outcome.gates if gate.state == "fail"]

    @property
    def gates_text(self) -> str:
        """Result of the gates in some words: `pass`, `1 of 4 fail`, `not judged`, `none`; or `server died`."""
        outcome = self.outcome
        if outcome.death and outcome.gate_state == "fail":
            return SERVER_DIED
        if outcome.gate_state == "fail":
            return f"{len(self.failed_gates)} of {len(outcome.gates)} fail"
        return outcome.gate_state if outcome.gates else "none"


def lookup(content: object, path: Sequence[str]) -> Any:
    """Return the value under `path` in nested objects; None if any part is missing."""
    for key in path:
        if not isinstance(content, dict):
            return None
        content = content.get(key)
    return content


def load_cells(results: Path) -> list[Cell]:
    """Return the runs of a result set (or the one run in `results`), in the order of the scenario.

    Raises
    ------
    UserMistake
        If the directory has no run, one of a newer format, or runs that did not store the same data.
    """
    cells: list[Cell] = []
    runs = list(find_runs(results))
    check_same_world(runs)
    for run in runs:
        taken = any(cell.name == run.cell_id for cell in cells)  # an old complete run beside a newer failed attempt
        cells.append(_load(run, run.path.name if taken else run.cell_id))
    planned = [c.get("cell") for c in read_optional(results / "summary.json").get("cells") or [] if isinstance(c, dict)]
    place = {name: number for number, name in enumerate(planned)}
    return sorted(cells, key=lambda cell: (place.get(cell.run.cell_id, len(place)), cell.name))


def question_of(results: Path, cells: Sequence[Cell]) -> tuple[str, str]:
    """Return the scenario's name and question, from the first file that has them."""
    found: list[Mapping[str, Any]] = [read_optional(results / "summary.json"), *(cell.summary for cell in cells)]
    with suppress(ValueError):  # the page shows the text nevertheless
        found.append({"scenario": None, **parse_toml(scenario_of(results))})
    found.extend(cell.spec for cell in cells)
    name = next((c["scenario"] for c in found if isinstance(c.get("scenario"), str)), results.resolve().name)
    question = next((c["question"] for c in found if isinstance(c.get("question"), str) and c["question"]), "")
    return name, question


def scenario_of(results: Path) -> str:
    """Return the text of the scenario file of a result set; "" if it is missing or damaged."""
    try:
        return read_bytes(results / "scenario.toml", LIMITS.text_bytes).decode(errors="replace")
    except OSError:
        return ""


def read_optional(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file; empty if it is missing or damaged."""
    try:
        return read_json(path)
    except UserMistake:
        return {}


def _load(run: RunDir, name: str) -> Cell:
    notes = []
    content: dict[str, dict[str, Any]] = {}
    manifest: Manifest | None = None
    try:
        manifest = Manifest.read(run)
    except UserMistake as mistake:
        notes.append(str(mistake))
    for part in ("summary", "spec"):
        content[part] = {}
        if not run.has(f"{part}.json"):
            continue
        try:
            content[part] = run.read_json(f"{part}.json")
        except UserMistake as mistake:
            notes.append(str(mistake))
    return Cell(name, run, content["summary"], manifest, content["spec"], run.status(), tuple(notes))


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """A finding of a published study, what was measured here, and the verdict with its reason."""

    claim: str
    published: str
    reproduced_if: str
    measured: str
    verdict: str
    reason: str

    @property
    def outcome(self) -> str:
        """The verdict, with the reason of one that could not be judged."""
        return f"{self.verdict}: {self.reason}" if self.reason else self.verdict


@dataclass(frozen=True, slots=True)
class FigureTable:
    """Published figures behind a study's findings: per run, each figure as (published, measured)."""

    figures: tuple[str, ...]
    runs: Mapping[str, Sequence[tuple[str, str]]]


_CLAIM_TEXTS = ("claim", "published", "reproduced_if", "measured", "reason")


def claims_of(results: Path) -> list[ClaimRow]:
    """Return the claims table of a result set; empty if its scenario has no claims."""
    found = read_optional(results / "summary.json").get("claims") or []
    return [
        ClaimRow(**{key: str(row.get(key) or "") for key in _CLAIM_TEXTS}, verdict=_verdict_word(row))
        for row in found
        if isinstance(row, dict) and {"claim", "published", "measured"} <= row.keys()
    ]


def figures_of(results: Path) -> FigureTable | None:
    """Return the published figures behind the claims of a result set; None if its scenario has none."""
    found = [row for row in read_optional(results / "summary.json").get("figures") or [] if isinstance(row, dict)]
    if not found:
        return None
    texts = {
        (row.get("cell"), row.get("figure")): (str(row.get("published")), str(row.get("measured"))) for row in found
    }
    names = tuple(dict.fromkeys(str(row.get("figure")) for row in found))
    cells = dict.fromkeys(str(row.get("cell")) for row in found)
    return FigureTable(names, {cell: [texts.get((cell, name), ("", "")) for name in names] for cell in cells})


def knee_of(results: Path) -> str:
    """Return a sentence on the highest load that held, "" if the scenario has no ramp."""
    knee = read_optional(results / "summary.json").get("knee")
    if not isinstance(knee, dict):
        return ""
    held, broke = knee.get("held"), knee.get("broke")
    if broke is None:
        return f"Every load held, up to {held}; the knee lies beyond."
    found = f"The highest load that held is {held}" if held else "No load held"
    what = "did not pass" if knee.get("judged", True) else "could not be judged"
    return f"{found}; {broke} {what}: {knee.get('reason')}"


def _verdict_word(row: Mapping[str, Any]) -> str:
    """Return the verdict; earlier results have `holds` and `judged` instead."""
    if row.get("verdict"):
        return str(row["verdict"])
    words: dict[object, str] = {True: "reproduced", False: "not reproduced"}
    return "not judged" if row.get("judged") == "shown" else words.get(row.get("holds"), "not judged")
