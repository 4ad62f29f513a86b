"""The fields that a request to Locust's web UI may set: those of its forms, and no others.

Locust itself sets any option that a request names (`results`, `logfile`), and any attribute of a user class.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from flask import jsonify, make_response, request
from locust.argument_parser import ui_extra_args_dict

if TYPE_CHECKING:
    from flask import Response
    from locust.web import WebUI

ALWAYS = frozenset({"user_count", "spawn_rate", "host", "run_time", "profile"})
PICKED = frozenset({"user_classes", "shape_class"})
"""Fields that the start form has only with --class-picker."""
OF_A_USER = frozenset({"user_class_name", "host", "weight", "fixed_count", "tasks"})
"""Fields that --class-picker adds to the form for each user class."""


def guard(web_ui: WebUI) -> None:
    """Refuse requests with fields that no form has, before Locust handles them."""
    picker = bool(web_ui.userclass_picker_is_active)
    fields = ALWAYS | set(ui_extra_args_dict()) | (PICKED if picker else set())
    allowed = {"locust.swarm": fields, "locust.update_user": OF_A_USER if picker else frozenset()}
    app: Any = web_ui.app

    @app.before_request
    def check() -> Response | None:
        if request.method != "POST" or request.endpoint not in allowed:
            return None
        given = request.form.keys() if request.endpoint == "locust.swarm" else _keys(request.get_data())
        unknown = sorted(set(given) - allowed[request.endpoint])
        if not unknown:
            return None
        text = f"the form has no field '{unknown[0]}'; give such an option when tsbench is started"
        return make_response(jsonify({"success": False, "message": text}), 400)


def _keys(body: bytes) -> set[str]:
    """Return the keys of a JSON object; for any other body a name that no form has."""
    try:
        content = json.loads(body)
    except ValueError:
        return {"(not JSON)"}
    return set(content) if isinstance(content, dict) else {"(no object)"}
