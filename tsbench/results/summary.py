"""Summary: the results of a run and of a result set, in the types that all writers and readers of summary.json use.

*Validity* says whether the figures were measured right, *gates* whether they were good enough. Only invalid figures are
struck out: the figure of a failed gate is as true as any other. A part that a run did not reach is None. Units are in
the names: times are in ns or s, rates per second, sizes in bytes.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from pydantic import Field
from pydantic.dataclasses import dataclass

from tsbench.model import Verdict, merge_verdicts
from tsbench.results.figures import (
    Agreement,
    AnswerCounts,
    CapFigures,
    ColdStart,
    Event,
    Limit,
    Load,
    Measured,
    PlanFigures,
    Reused,
    Size,
    Steadiness,
    Writes,
)
from tsbench.results.json_files import STRICT, Count, Flag, Named, Number, Part, Several, Text, read_part
from tsbench.results.process import FirstOp, Schedule, WarmUp
from tsbench.results.rundir import FORMAT, RunDir, write_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FILE = "summary.json"
CLIENT = "load generator"
"""What limited a run whose load generator could not do more."""
SERIES_FILE = "series.json"
ValidityState: TypeAlias = Literal["valid", "invalid", "inconclusive"]
GateState: TypeAlias = Literal["pass", "fail", "undecided", "not judged"]

_GATE_WORDS: Mapping[GateState, str] = {
    "pass": "passed",
    "fail": "failed",
    "undecided": "is undecided",
    "not judged": "was not judged",
}
SERVER_DEATHS = "server deaths<=0"
FAILED_CONNECTIONS = "failed connections<=0"
TORN_READS = "torn reads<=0"


class Phase(NamedTuple):
    """The words for a phase: its label in reports, what a user waits for, and the clause after "while" in messages.

    Both are "" for a part of a phase; nobody waits for the measuring.
    """

    label: str
    waiting_for: str = ""
    during: str = ""


PHASES = {
    "start": Phase("start of the server, tables created", "starting the server", "the server was started"),
    "load": Phase("first data stored", "storing the first data", "the first data was stored"),
    "settle": Phase(
        "database at rest, points counted", "waiting until the database has settled", "the database settled"
    ),
    "cold start": Phase("server restarted, page cache dropped", "restarting the server", "the server was restarted"),
    "measure": Phase("load processes, not divided", during="it was measured"),
    "load processes": Phase("load processes started and ended"),
    "warm-up": Phase("warm-up"),
    "measured window": Phase("measured window"),
    "figures": Phase("results merged"),
    "check": Phase("writes and answers checked", "checking answers and writes", "answers and writes were checked"),
}
"""All phases in the order of a run. A run has those that it reached."""


# --- validity and gates -----------------------------------------------------------------------------------------------


class Check(Part):
    """The outcome of one check of a run's figures, with what it counted."""

    state: ValidityState
    reason: Text = ""
    counts: Named[Count] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True, config=STRICT)
class Validity:
    """Validity of a run's figures, and the checks behind it."""

    state: ValidityState
    reason: Text = ""
    checks: Named[Check] = field(default_factory=dict)

    @classmethod
    def of(cls, checks: Mapping[str, Verdict]) -> Validity:
        """Return the worst validity among the checks."""
        worst = merge_verdicts(checks.values())
        copied = {
            name: Check(state=one.state, reason=one.reason, counts={**one.counts}) for name, one in checks.items()
        }
        return cls(worst.state, worst.reason, copied)

    @property
    def is_valid(self) -> bool:
        """True if the figures are valid."""
        return self.state == "valid"

    @property
    def stands(self) -> bool:
        """True if the figures are true of the load that was offered; otherwise they are struck out.

        That holds also where the load generator was the limit, if nothing else is in doubt: then the load is its own.
        """
        doubted = {name for name, check in self.checks.items() if check.state != "valid"}
        return self.is_valid or (self.state == "inconclusive" and doubted == {"limit"})


def failed(gates: str) -> str:
    """Return names of gates behind `failed`, with which the name of a gate on failed ops begins."""
    return gates if gates.startswith("failed ") else f"failed {gates}"


NOT_CHECKED = Validity("inconclusive", "the run ended before its figures were checked")


@dataclass(frozen=True, slots=True, config=STRICT)
class GateResult:
    """Result of a gate; `measured` is in the figure's own unit: ns, a share, points or ops per second, bytes.

    `text` is the figure as printed with its basis, or the reason why it is missing. Built-in gates apply to every run.
    `confidence` is that of the statistical test by which it passed or failed, None for a figure judged as measured.
    """

    gate: Text
    measured: Number | None
    state: GateState
    text: Text
    built_in: Flag = False
    confidence: Number | None = None

    @property
    def sentence(self) -> str:
        """The gate and its result in one sentence."""
        return f"gate {self.gate} {_GATE_WORDS[self.state]}: {self.text}"

    def under(self, validity: Validity) -> GateResult:
        """Return the result as it counts in a run of that validity: the gates of an invalid run are not judged.

        A built-in gate that failed stays failed: one server that died is one too many, whatever the rest of the run.
        """
        if self.state == "not judged" or validity.is_valid or (self.built_in and self.state == "fail"):
            return self
        return replace(self, state="not judged", confidence=None, text=f"{self.text}, but the run is {validity.state}")


# --- the whole --------------------------------------------------------------------------------------------------------


class Summary(Part):
    """The summary of one run."""

    format: Literal[3] = FORMAT
    cell: Text
    scenario: Text = ""
    question: Text = ""
    target: Text = ""
    schema_: Text = Field(default="", alias="schema")
    labels: Named[Text] = Field(default_factory=dict)
    loop: Literal["open", "closed"] | None = None
    users: Count | None = None
    """Highest number of users in the measured window."""
    users_least: Count | None = None
    processes: Count | None = None
    started: Text | None = None
    limited_by: Text | None = None
    server_version: Text = ""
    durable: Flag | None = None
    """True if acknowledged points survive a loss of power, by the server's settings; None if that is not known."""
    validity: Validity = NOT_CHECKED
    gates: Several[GateResult] = ()
    load: Load | None = None
    reused: Reused | None = None
    """What a run with `reuse` found stored; only the one that loaded has `load`."""
    caps: CapFigures | None = None
    measured: Measured | None = None
    schedule: Schedule | None = None
    limit: Limit | None = None
    encode_s: Number | None = None
    """Time in which the load processes encoded writes."""
    steadiness: Named[Steadiness] = Field(default_factory=dict)
    warmup: WarmUp | None = None
    cold: ColdStart | None = None
    firsts: Named[FirstOp] = Field(default_factory=dict)
    events: Several[Event] = ()
    """What was done to the server in the measured window."""
    failures: Named[Count] = Field(default_factory=dict)
    """Number of failed ops by error message."""
    size: Size | None = None
    answers: AnswerCounts | None = None
    writes: Writes | None = None
    plans: Named[PlanFigures] = Field(default_factory=dict)
    durations_s: Named[Number] = Field(default_factory=dict)
    """How long the run took (`total`), and each phase of PHASES that it reached."""

    @property
    def time(self) -> Literal["response", "service"]:
        """Kind of time that counts: `response` (from when the op was due) in an open loop, else `service`."""
        return "response" if self.loop == "open" else "service"

    @property
    def passed(self) -> bool:
        """True if the figures are valid and no gate failed or could not be judged; an undecided one fails no run."""
        return self.validity.is_valid and self.gate_state in {"pass", "undecided"}

    @property
    def gate_state(self) -> GateState:
        """State of all gates together: failed if one failed, else not judged, else undecided if one is."""
        states = {gate.state for gate in self.gates}
        worst: tuple[GateState, ...] = ("fail", "not judged", "undecided")
        return next((state for state in worst if state in states), "pass")

    @property
    def rates_are_least(self) -> bool:
        """True if the rates are at least those of the database, since the load generator held a closed loop back."""
        return self.loop == "closed" and self.limited_by == CLIENT

    @property
    def asked_ops_per_s(self) -> float | None:
        """Rate of an open loop's arrivals in the measured window; None of a closed loop."""
        if self.schedule is None or self.measured is None or not self.schedule.scheduled:
            return None
        return self.schedule.scheduled / self.measured.duration_s

    @property
    def done_ops_per_s(self) -> float | None:
        """Rate of the ops of an open loop that ended in the measured window; None of a closed loop."""
        if self.measured is None or self.asked_ops_per_s is None:
            return None
        return self.measured.ended / self.measured.duration_s

    @property
    def shown_gates(self) -> list[GateResult]:
        """The gates that the user asked for, and built-in ones that failed."""
        return [gate for gate in self.gates if not gate.built_in or gate.state == "fail"]

    @property
    def failed_gates(self) -> list[GateResult]:
        """The gates that failed."""
        return [gate for gate in self.gates if gate.state == "fail"]

    @property
    def death(self) -> str:
        """How the server died during the run; "" if it did not."""
        deaths = (gate for gate in self.gates if gate.gate == SERVER_DEATHS)
        return next((gate.text for gate in deaths if gate.measured or gate.state == "fail"), "")

    @property
    def headline(self) -> str:
        """Validity and gates in one line, with reasons unless all is well."""
        undecided = [gate.sentence for gate in self.gates if gate.state == "undecided"]
        if self.passed:
            asked = len(self.shown_gates)
            passed = f"{asked - len(undecided)} of {asked}" if undecided else f"all {asked}" if asked > 1 else "the"
            gates = f"gate{'s' if asked > 1 else ''} passed"
            return "; ".join([f"valid, {passed} {gates}" if asked > len(undecided) else "valid", *undecided])
        failed = [gate.sentence for gate in self.failed_gates]
        if not self.validity.is_valid:
            return f"{self.validity.state}: {'; '.join([self.validity.reason, *failed])}"
        unjudged = [gate.sentence for gate in self.gates if gate.state == "not judged"]
        return f"valid, but {'; '.join([*failed, *unjudged, *undecided])}"

    def to_json(self) -> dict[str, Any]:
        """Return the summary in the form of summary.json."""
        return self.model_dump(by_alias=True)

    def write(self, run: RunDir) -> None:
        """Write it into a run directory."""
        run.write_json(FILE, self.to_json())

    @classmethod
    def read(cls, run: RunDir) -> Summary:
        """Return the summary of a run; raises UserMistake if the file is missing or damaged."""
        return read_part(run / FILE, cls)


class ClaimRow(Part):
    """A finding of a published study, what was measured here, and the verdict with its reason."""

    claim: Text
    published: Text
    reproduced_if: Text
    measured: Text
    verdict: Text
    reason: Text


class FigureRow(Part):
    """A published figure of a run beside the measured one."""

    figure: Text
    cell: Text
    published: Text
    measured: Text


class Knee(Part):
    """The last cell of a ramp that passed, the first that did not with the reason, and whether that was judged."""

    held: Text | None
    broke: Text | None
    reason: Text
    judged: Flag

    @property
    def sentence(self) -> str:
        """The highest load that held, in one sentence; of a load that failed a gate the run itself has the reason."""
        if self.broke is None:
            return f"No gate failed up to {self.held}; the knee lies beyond."
        first = f"The highest load that held is {self.held}" if self.held else "No load held"
        return f"{first}; {self.broke} {'did not pass.' if self.judged else f'could not be judged: {self.reason}'}"


class Searched(Part):
    """Where a search ended: the keys of that step, its runs, its middle figure, and why no key was raised further."""

    name: Text
    keys: Named[Count]
    cells: Several[Text]
    figure: Number | None
    text: Text
    reasons: Several[Text]
    of: Text = "load:points/s"
    """The figure, as in a gate."""

    @property
    def sentence(self) -> str:
        """The end of the search in one sentence."""
        where = ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in self.keys.items())
        return f"The search {self.name} ended at {where} with {self.text}: {'; '.join(self.reasons)}."


class SetSummary(Part):
    """The summary of a result set: its runs in the order of the scenario, and what they say of a study or a ramp."""

    format: Literal[3] = FORMAT
    scenario: Text = ""
    question: Text = ""
    command: Text = ""
    """What asked for it, without the places of results."""
    cells: Several[Summary] = ()
    claims: Several[ClaimRow] = ()
    figures: Several[FigureRow] = ()
    knee: Knee | None = None
    searches: Several[Searched] = ()
    agreements: Several[Agreement] = ()
    """How far databases agree on answers without gold, where several answered the same questions."""
    weak: Several[Text] = ()
    """For which kinds of query of which runs less speaks than `check.evidence` asks for, as sentences."""

    @property
    def found(self) -> list[str]:
        """What a ramp or searches found, as sentences."""
        ramp = [self.knee.sentence] if self.knee is not None else []
        return ramp + [one.sentence for one in self.searches]

    def write(self, results: Path) -> None:
        """Write it into a result set; empty parts are left out."""
        content = self.model_dump(by_alias=True)
        write_json(results / FILE, {key: part for key, part in content.items() if part or key in _OF_EVERY_SET})

    @classmethod
    def read(cls, results: Path) -> SetSummary:
        """Return the summary of a result set; raises UserMistake if the file is missing or damaged."""
        return read_part(results / FILE, cls)


class Series(Part):
    """The file in the directory of a series, beside its result sets: why scenarios were not run, by name."""

    format: Literal[3] = FORMAT
    failed: Named[Text] = Field(default_factory=dict)

    def write(self, place: Path) -> None:
        """Write it into the directory."""
        write_json(place / SERIES_FILE, self.model_dump())

    @classmethod
    def read(cls, place: Path) -> Series:
        """Return a directory's series, an empty one without the file; raises UserMistake if the file is damaged."""
        return read_part(place / SERIES_FILE, cls) if (place / SERIES_FILE).exists() else cls()


_OF_EVERY_SET = {"format", "scenario", "question", "cells"}
