"""START and STOP of Locust's web UI: which fields a request may set, which values they may have, and what STOP ends.

Locust itself sets any option that a request names (`results`, `logfile`), and any attribute of a user class. It answers
a value of the wrong type with an error that its form does not show, and begins to count --run-time while the first data
is being stored. Its STOP ends no test that has no users yet.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Protocol

from flask import jsonify, make_response, request
from locust.argument_parser import ui_extra_args_dict
from locust.util.timespan import parse_timespan
from werkzeug.datastructures import ImmutableMultiDict

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from flask import Response
    from locust.web import WebUI

logger = logging.getLogger("tsbench")

ALWAYS = frozenset({"user_count", "spawn_rate", "host", "run_time", "profile"})
PICKED = frozenset({"user_classes", "shape_class"})
"""Fields that the start form has only with --class-picker."""
OF_A_USER = frozenset({"user_class_name", "host", "weight", "fixed_count", "tasks"})
"""Fields that --class-picker adds to the form for each user class."""


class Gate(Protocol):
    """What START and STOP may do now, as the test and the page know it."""

    def refusal(self, form: Mapping[str, str], picked: Collection[str]) -> str:
        """Return the reason why no test can be started with these fields and user classes, "" if one can."""
        ...

    def stop_preparing(self) -> bool:
        """Stop the test that is being prepared; return False if none is."""
        ...

    def end_after(self, run_time_s: float | None) -> None:
        """Set the run time of the test that begins next; None: until it is stopped."""
        ...


def guard(web_ui: WebUI, gate: Gate) -> None:
    """Refuse requests that the gate refuses, or with fields that no form has, before Locust acts on them."""
    picker = bool(web_ui.userclass_picker_is_active)
    fields = ALWAYS | set(ui_extra_args_dict()) | (PICKED if picker else set())
    allowed = {"locust.swarm": fields, "locust.update_user": OF_A_USER if picker else frozenset()}
    app: Any = web_ui.app

    @app.before_request
    def check() -> Response | None:
        if request.method != "POST":
            return None
        if request.endpoint == "locust.stop" and gate.stop_preparing():
            return jsonify({"success": True, "message": "Test stopped"})
        if request.endpoint not in allowed:
            return None
        given = request.form.keys() if request.endpoint == "locust.swarm" else _keys(request.get_data())
        unknown = sorted(set(given) - allowed[request.endpoint])
        if unknown:
            text = f"the form has no field '{unknown[0]}'; give such an option when tsbench is started"
            return make_response(jsonify({"success": False, "message": text}), 400)
        return _checked_start(gate) if request.endpoint == "locust.swarm" else None


def _checked_start(gate: Gate) -> Response | None:
    """Return the answer to a START that is refused, in the form of Locust's own, whose reason its page shows."""
    reason = gate.refusal(request.form, request.form.getlist("user_classes"))
    if reason:
        logger.warning("the test was not started: %s", reason)
        return jsonify({"success": False, "message": reason})
    run_time_s = None
    if wanted := request.form.get("run_time"):
        try:
            run_time_s = parse_timespan(wanted)
        except ValueError:
            return None  # Locust says so
    gate.end_after(run_time_s)
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
