"""Summary: the content of a run's summary.json, in the one form that all writers and readers use.

*Validity* says whether the figures were measured right, *gates* whether they were good enough. Only invalid figures are
struck out: the figure of a failed gate is as true as any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from tsbench.model import Verdict, merge_verdicts
from tsbench.results.rundir import FORMAT

if TYPE_CHECKING:
    from collections.abc import Sequence

ValidityState = Literal["valid", "invalid", "inconclusive"]
GateState = Literal["pass", "fail", "not judged"]

_GATE_WORDS: Mapping[str, str] = {"pass": "passed", "fail": "failed", "not judged": "was not judged"}
SERVER_DEATHS = "server deaths<=0"
FAILED_CONNECTIONS = "failed connections<=0"
TORN_READS = "torn reads<=0"
_NOT_CHECKED = "the run ended before its figures were checked"


@dataclass(frozen=True, slots=True)
class Validity:
    """Validity of a run's figures, and the checks behind it."""

    state: ValidityState
    reason: str = ""
    checks: Mapping[str, Verdict] = field(default_factory=dict)

    @classmethod
    def of(cls, checks: Mapping[str, Verdict]) -> Validity:
        """Return the worst validity among the checks."""
        worst = merge_verdicts(checks.values())
        return cls(worst.state, worst.reason, dict(checks))

    @property
    def is_valid(self) -> bool:
        """True if the figures are valid."""
        return self.state == "valid"

    @property
    def stands(self) -> bool:
        """True if the figures are true of the load that was offered; otherwise they are struck out.

        That holds also where the load generator was the limit, if nothing else is in doubt: then the load is its own.
        """
        doubted = {name for name, check in self.checks.items() if check.valid is not True}
        return self.is_valid or (self.state == "inconclusive" and doubted == {"limit"})

    def to_json(self) -> dict[str, Any]:
        """Return the validity in the form of summary.json."""
        return {
            "state": self.state,
            "reason": self.reason,
            "checks": {name: check.to_json() for name, check in self.checks.items()},
        }

    @classmethod
    def from_json(cls, content: object) -> Validity:
        """Return the validity in a summary.json; inconclusive if it has none."""
        if not isinstance(content, Mapping) or content.get("state") not in _VALID:
            return cls("inconclusive", _NOT_CHECKED)
        checks = {str(name): _check(found, _VALID[found["state"]]) for name, found in _states(content.get("checks"))}
        return cls(content["state"], str(content.get("reason") or ""), checks)


@dataclass(frozen=True, slots=True)
class GateResult:
    """Result of a gate; `measured` is in the figure's own unit: ns, a share, points or ops per second, bytes.

    `text` is the figure as printed with its basis, or the reason why it is missing. Built-in gates apply to every run.
    """

    gate: str
    measured: float | None
    state: GateState
    text: str
    built_in: bool = False

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
        return replace(self, state="not judged", text=f"{self.text}, but the run is {validity.state}")


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of one run.

    `parts` holds the figures by part, as plain JSON: `measured`, `schedule`, `limit`, `load`, `size`, `answers`,
    `writes`, `caps`, `failures` and others; parts that the run did not reach are missing or None.
    """

    cell: str
    validity: Validity
    gates: tuple[GateResult, ...] = ()
    scenario: str = ""
    question: str = ""
    target: str = ""
    schema: str = ""
    labels: Mapping[str, Any] = field(default_factory=dict)
    loop: str | None = None
    users: int | None = None
    """Highest number of users in the measured window; in earlier results the number at its start."""
    users_least: int | None = None
    processes: int | None = None
    started: str | None = None
    limited_by: str | None = None
    parts: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, content: Mapping[str, Any], validity: Validity, gates: Sequence[GateResult]) -> Summary:
        """Return a summary from the content by name; names of fields become fields, the others parts."""
        own = {name: content[name] for name in _OWN if content.get(name) is not None}
        parts = {name: part for name, part in content.items() if name not in _OWN}
        return cls(**{"cell": "", **own}, validity=validity, gates=tuple(gates), parts=parts)

    @property
    def passed(self) -> bool:
        """True if the figures are valid and every gate passed."""
        return self.validity.is_valid and self.gate_state == "pass"

    @property
    def gate_state(self) -> GateState:
        """State of all gates together: failed if one failed, else not judged if one was not."""
        states = {gate.state for gate in self.gates}
        return "fail" if "fail" in states else "not judged" if "not judged" in states else "pass"

    @property
    def death(self) -> str:
        """How the server died during the run; "" if it did not."""
        found = (gate for gate in self.gates if gate.gate == SERVER_DEATHS)
        return next((gate.text for gate in found if gate.measured or gate.state == "fail"), "")

    @property
    def headline(self) -> str:
        """Validity and gates in one line, with reasons unless all is well."""
        if self.passed:
            return f"valid, all {len(self.gates)} gates passed" if self.gates else "valid"
        failed = [gate.sentence for gate in self.gates if gate.state == "fail"]
        if not self.validity.is_valid:
            return f"{self.validity.state}: {'; '.join([self.validity.reason, *failed])}"
        unjudged = [gate.sentence for gate in self.gates if gate.state == "not judged"]
        return f"valid, but {'; '.join([*failed, *unjudged])}"

    def to_json(self) -> dict[str, Any]:
        """Return the summary in the form of summary.json."""
        return {
            "format": FORMAT,
            **{name: getattr(self, name) for name in _OWN},
            "validity": self.validity.to_json(),
            "gates": [asdict(gate) for gate in self.gates],
            **self.parts,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Summary:
        """Return the summary in a summary.json of this format or the previous one; missing parts are None or empty."""
        if content.get("format") == 1:
            validity, gates = _of_format_1(content)
        else:
            validity = Validity.from_json(content.get("validity"))
            names = [each.name for each in fields(GateResult)]
            found = [
                gate
                for gate in content.get("gates") or []
                if isinstance(gate, Mapping) and {*names} <= gate.keys() and gate["state"] in _GATE_WORDS
            ]
            gates = [GateResult(**{name: gate[name] for name in names}) for gate in found]
        left_out = {"format", "validity", "gates", "verdict", "verdicts"}
        return cls.of({name: part for name, part in content.items() if name not in left_out}, validity, gates)


_OWN = tuple(each.name for each in fields(Summary) if each.name not in {"validity", "gates", "parts"})
_VALID: Mapping[object, bool | None] = {"valid": True, "invalid": False, "inconclusive": None}


def _states(checks: object) -> list[tuple[str, Mapping[str, Any]]]:
    found = checks.items() if isinstance(checks, Mapping) else ()
    return [(name, one) for name, one in found if isinstance(one, Mapping) and one.get("state") in _VALID]


def _check(content: Mapping[str, Any], valid: bool | None) -> Verdict:
    return Verdict(valid, str(content.get("reason") or ""), content.get("counts") or {})


# --- the format before: one verdict over figures and gates ------------------------------------------------------------


def _of_format_1(content: Mapping[str, Any]) -> tuple[Validity, list[GateResult]]:
    """Return validity and gates of a summary in format 1, where a failed gate made the run's verdict false."""
    verdicts = content.get("verdicts")
    found = {
        str(name): _check(one, one["valid"])
        for name, one in (verdicts.items() if isinstance(verdicts, Mapping) else ())
        if isinstance(one, Mapping) and "valid" in one
    }
    built_in = []
    for name, gate in (("ops", "failed ops<=0%"), ("server", SERVER_DEATHS)):
        check = found.get(name)
        if check is not None and (name == "server" or check.counts.get("done")):
            state: GateState = "fail" if found.pop(name).valid is False else "pass"
            built_in.append(GateResult(gate, float(state == "fail"), state, check.reason or "none", built_in=True))
        elif check is not None:  # no op ended
            found[name] = replace(check, valid=None if check.valid is False else check.valid)
    found.pop("gates", None)
    validity = Validity.of(found) if found else Validity("inconclusive", _NOT_CHECKED)
    states: Mapping[object, GateState] = {True: "pass", False: "fail"}
    asked = [
        GateResult(
            str(gate.get("gate")),
            gate.get("measured"),
            states.get(gate.get("valid"), "not judged"),
            str(gate.get("text") or ""),
        )
        for gate in content.get("gates") or []
        if isinstance(gate, Mapping)
    ]
    return validity, [gate.under(validity) for gate in (*built_in, *asked)]
