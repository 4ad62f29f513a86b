"""START and STOP of Locust's web UI: which fields a request may set, which values they may have, and what STOP ends.

Locust itself sets any option that a request names (`results`, `logfile`), and any attribute of a user class. It answers
a value of the wrong type with an error that its form does not show, and begins to count --run-time while the first data
is being stored. Its STOP ends no test that has no users yet.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from flask import jsonify, make_response, request
from locust.argument_parser import ui_extra_args_dict
from locust.util.timespan import parse_timespan
from werkzeug.datastructures import ImmutableMultiDict

from tsbench.text import shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from flask import Response
    from locust.web import WebUI

    from tsbench.results.summary import Summary

logger = logging.getLogger("tsbench")

ALWAYS = frozenset({"user_count", "spawn_rate", "host", "run_time", "profile"})
PICKED = frozenset({"user_classes", "shape_class"})
"""Fields that the start form has only with --class-picker."""
MOST_RUN_TIME_S = 7 * 86_400
"""Longest run time: results are made for a week at most."""
OF_A_USER = frozenset({"user_class_name", "host", "weight", "fixed_count", "tasks"})
"""Fields that --class-picker adds to the form for each user class."""


def guard(
    web_ui: WebUI,
    refusal: Callable[[Mapping[str, str], Collection[str]], str],
    stop_preparing: Callable[[], bool],
    end_after: Callable[[float | None], None],
) -> None:
    """Refuse requests that cannot be carried out, or with fields that no form has, before Locust acts on them.

    Parameters
    ----------
    refusal
        Returns the reason why no test can be started with these fields and user classes, "" if one can.
    stop_preparing
        Stops the test that is being prepared; returns False if none is.
    end_after
        Sets the run time of the test that begins next; None: until it is stopped.
    """
    picker = bool(web_ui.userclass_picker_is_active)
    fields = ALWAYS | set(ui_extra_args_dict()) | (PICKED if picker else set())
    allowed = {"locust.swarm": fields, "locust.update_user": OF_A_USER if picker else frozenset()}
    app: Any = web_ui.app

    @app.before_request
    def check() -> Response | None:
        if request.method != "POST":
            return None
        if request.endpoint == "locust.stop" and stop_preparing():
            return jsonify({"success": True, "message": "Test stopped"})
        if request.endpoint not in allowed:
            return None
        given = request.form.keys() if request.endpoint == "locust.swarm" else _keys(request.get_data())
        unknown = sorted(set(given) - allowed[request.endpoint])
        text = f"the form has no field '{unknown[0]}'; give such an option when tsbench is started" if unknown else ""
        if text := text or _absurd(request.form, {"Default", *(web_ui.environment.available_shape_classes or ())}):
            return make_response(jsonify({"success": False, "message": text}), 400)
        return _checked_start(refusal, end_after) if request.endpoint == "locust.swarm" else None


def _absurd(form: Mapping[str, str], shapes: Collection[str]) -> str:
    """Return the reason to refuse a field on which Locust itself would fail, or ""."""
    with suppress(ValueError):  # which Locust names
        if run_time := form.get("run_time"):
            try:
                is_long = parse_timespan(run_time) > MOST_RUN_TIME_S
            except OverflowError:
                is_long = True
            if is_long:
                return f"run_time: at most {MOST_RUN_TIME_S // 86_400} days; leave it empty to stop the test by hand"
    if (shape := form.get("shape_class", "Default")) not in shapes:
        return f"shape_class: there is no '{shortened(shape)}'; there are {', '.join(sorted(shapes))}"
    return ""


def _checked_start(
    refusal: Callable[[Mapping[str, str], Collection[str]], str], end_after: Callable[[float | None], None]
) -> Response | None:
    """Return the answer to a START that is refused, in the form of Locust's own, whose reason its page shows."""
    reason = refusal(request.form, request.form.getlist("user_classes"))
    if reason:
        logger.warning("the test was not started: %s", reason)
        return jsonify({"success": False, "message": reason})
    run_time_s = None
    if wanted := request.form.get("run_time"):
        try:
            run_time_s = parse_timespan(wanted)
        except ValueError:
            return None  # Locust says so
    end_after(run_time_s)
    fields = [(key, value) for key, value in request.form.items(multi=True) if key != "run_time"]
    request.form = ImmutableMultiDict(fields)
    return None


def _keys(body: bytes) -> set[str]:
    """Return the keys of a JSON object; for any other body a name that no form has."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return {"(not JSON)"}
    return set(content) if isinstance(content, dict) else {"(no object)"}


# --- the stages of a test ---------------------------------------------------------------------------------------------


class Stage(StrEnum):
    """The stages of a test; the next one may be started in `NONE` and `ENDED`."""

    NONE = "none"
    PREPARING = "preparing"
    RUNNING = "running"
    CHECKING = "checking"
    ENDED = "ended"


_NO_REPORT = {
    Stage.NONE: "No test has run yet.",
    Stage.PREPARING: "The test is being prepared.",
    Stage.RUNNING: "The test is running; stop it first.",
    Stage.CHECKING: "The checks are running; the report is made from what they find.",
}
_NO_START = {
    Stage.PREPARING: "a test is being prepared; stop it first",
    Stage.CHECKING: "answers and writes of the last test are still being checked; wait until its report is ready",
}


@dataclass(slots=True)
class TestState:
    """The stage of the current test, the step that it waits for, and the result of the last one."""

    stage: Stage = Stage.NONE
    step: str = ""
    """The step of the preparation or of the checks, in words; "" before the first one."""
    share: float | None = None
    """How much of the step is done, from 0 to 1; None if that is not known."""
    results: Path | None = None
    """Results of the last test, once it has been checked."""
    ended_early: str = ""
    """Why the last test has no report."""
    verdict: dict[str, Any] | None = None
    """What the page says of the last test, of `verdict_of`."""

    def enter(self, stage: Stage) -> None:
        """Enter a stage; a new test forgets the results of the last one."""
        self.stage, self.step, self.share = stage, "", None
        if stage is Stage.PREPARING:
            self.results, self.ended_early, self.verdict = None, "", None

    def end(self, results: Path | None, why: str = "", verdict: dict[str, Any] | None = None) -> None:
        """End the test with its results, or with the reason why it has none."""
        self.enter(Stage.ENDED)
        self.results, self.ended_early, self.verdict = results, why, verdict

    @property
    def why_no_report(self) -> str:
        """The reason for a missing report; "" if the test has one."""
        return _NO_REPORT.get(self.stage, "" if self.results is not None else self.ended_early)

    @property
    def why_no_start(self) -> str:
        """The reason why no test can be started now; "" if one can."""
        return _NO_START.get(self.stage, "")

    @property
    def progress(self) -> dict[str, str | float | None] | None:
        """The step and its share as the page shows them, None if nobody waits for one."""
        if self.stage not in {Stage.PREPARING, Stage.CHECKING}:
            return None
        other = "preparing the test" if self.stage is Stage.PREPARING else "checking answers and writes"
        return {"step": self.step or other, "share": self.share}


def measuring(passed_s: float, whole_s: float | None) -> dict[str, str | float | None]:
    """Return the step of a running test, `passed_s` after its measured window began, and its share if it has an end."""
    if passed_s < 0:
        return {"step": "warming up", "share": None}
    if whole_s is None or whole_s <= 0:
        return {"step": f"measuring for {passed_s:.0f} s", "share": None}
    return {"step": f"measuring {whole_s:.0f} s", "share": min(1.0, passed_s / whole_s)}


def verdict_of(results: Path, summary: Summary) -> dict[str, Any]:
    """Return what the page says of a checked test: as the report does, from the same files."""
    from tsbench.report.answer import answer_at  # noqa: PLC0415 - a second of imports, in a thread of its own

    gates = [{"gate": gate.gate, "state": gate.state, "text": gate.text} for gate in summary.shown_gates]
    said = {"headline": _headline(summary), "limited_by": summary.limited_by}
    return {**said, "passed": summary.passed, "gates": gates, "answer": [*answer_at(results)]}


def _headline(summary: Summary) -> str:
    """Return the validity with its reason, and how many gates did not pass; which ones stands beside it."""
    if not summary.validity.is_valid:
        return f"{summary.validity.state}: {summary.validity.reason}"
    states = Counter(gate.state for gate in summary.gates)
    counted = {"failed": states["fail"], "not judged": states["not judged"], "undecided": states["undecided"]}
    missed = [f"{count} of {len(summary.shown_gates)} gates {word}" for word, count in counted.items() if count]
    return f"valid, but {', '.join(missed)}" if missed else summary.headline
