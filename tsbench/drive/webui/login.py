"""Access to the web UI: from this host alone, or with the password in TSBENCH_WEB_PASSWORD.

Locust's own UI listens on all interfaces, answers any origin, and leaves one route without its login.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import gevent
from flask import Response, make_response, redirect, request, session, url_for
from flask_login import UserMixin, current_user, login_user
from werkzeug.exceptions import HTTPException

from tsbench.drive.webui import start_form
from tsbench.drive.webui.guesses import Guesses
from tsbench.errors import one_line
from tsbench.targets import credentials
from tsbench.targets.credentials import WEB_PASSWORD, is_loopback

if TYPE_CHECKING:
    from flask import Blueprint
    from locust.argument_parser import LocustArgumentParser
    from locust.web import WebUI
    from werkzeug.wrappers import Response as BaseResponse

logger = logging.getLogger("tsbench")

HERE = "127.0.0.1"
PAUSE_S = 1.0
"""Pause after a wrong password, which slows down guessing."""
OPEN = {"locust.login", "locust.send_assets", "tsbench.login"}
"""Paths that need no login."""
BODY_BYTES = 1 << 20
"""Largest request; the start form's are below a kilobyte."""


class _Someone(UserMixin):  # type: ignore[misc]  # flask_login is untyped
    """A user who knows the password."""

    id = "tsbench"


def set_defaults(parser: LocustArgumentParser) -> None:
    """Make 127.0.0.1 the default of --web-host and --master-bind-host; require a login if a password is set."""
    wanted = credentials.is_set(WEB_PASSWORD)
    parser.set_defaults(web_host=HERE, master_bind_host=HERE, **({"web_login": True} if wanted else {}))
    texts = {
        "web_host": f"Host to bind the web interface to: {HERE}, which is this host only; '*' is all interfaces",
        "master_bind_host": f"Host to bind the master to: {HERE}, which is this host only; '*' is all interfaces",
    }
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to an option
        action.help = texts.get(action.dest, action.help)


def protect(web_ui: WebUI, routes: Blueprint, gate: start_form.Gate) -> None:
    """Install the login, if a password is set; refuse requests from other sites, and starts that the gate refuses.

    Raises
    ------
    UserMistake
        If other machines can reach the web UI and no password is set, or if its file cannot be read.
    """
    secret = credentials.secret_for(web_ui.host, WEB_PASSWORD, "--web-host")
    app: Any = web_ui.app
    app.config["MAX_CONTENT_LENGTH"] = BODY_BYTES
    app.register_error_handler(Exception, _one_line)
    app.before_request(lambda: _refuse_foreign(only_loopback=secret is None))
    if secret is not None:
        _install_login(web_ui, routes, secret)
    start_form.guard(web_ui, gate)


def _install_login(web_ui: WebUI, routes: Blueprint, secret: str) -> None:
    app: Any = web_ui.app
    app.secret_key = secrets.token_bytes(32)
    app.config.update(
        SESSION_COOKIE_NAME="tsbench",
        SESSION_COOKIE_HTTPONLY=True,
        SESSION_COOKIE_SAMESITE="Lax",
        SESSION_COOKIE_SECURE=bool(web_ui.tls_cert),
    )
    web_ui.login_manager.user_loader(lambda name: _Someone() if name == _Someone.id else None)
    web_ui.auth_args = {
        "custom_form": {
            "inputs": [{"label": "Password", "name": "password", "is_secret": True, "is_required": True}],
            "callback_url": "./tsbench/login",
            "submit_button_text": "Log in",
        },
    }

    guesses = Guesses(time.monotonic)

    @routes.route("/login", methods=["POST"])
    def login() -> BaseResponse:
        source, given = request.remote_addr or "", request.form.get("password", "")
        wait_s = guesses.wait_s(source)
        if wait_s:  # the password is not even looked at
            text = f"Too many wrong passwords; try again in {wait_s} s."
            return Response(text, 429, {"Retry-After": str(wait_s)}, mimetype="text/plain")
        if hmac.compare_digest(given.encode(), secret.encode()):
            guesses.right(source)
            session.pop("auth_error", None)
            login_user(_Someone())
            return redirect(url_for("locust.index"))
        guesses.wrong(source)
        gevent.sleep(PAUSE_S)
        logger.warning("the web UI was given a wrong password from %s", source)
        session["auth_error"] = "That is not the password."
        return redirect(url_for("locust.login"))

    @app.before_request
    def ask() -> Any:
        if request.endpoint not in OPEN and not current_user.is_authenticated:
            return web_ui.login_manager.unauthorized()
        return None


def _one_line(error: Exception) -> Response:
    """Return the answer to a request that no route could answer; one that cannot be read is the client's mistake."""
    code = error.code or 500 if isinstance(error, HTTPException) else 500
    if code >= 500:
        logger.error("the web UI could not answer %s %s: %s", request.method, request.path, one_line(error))
    text = f"Refused: {error.name}." if isinstance(error, HTTPException) else "This request could not be answered."
    return Response(text, code, mimetype="text/plain")


def _refuse_foreign(*, only_loopback: bool) -> Response | None:
    """Refuse requests from a page of another site, or to a host name that is not ours."""
    if _is_foreign():
        return make_response("Refused: this request comes from another site.", 403)
    host = _host(f"//{request.host}")[0]
    if not host:
        return make_response("Refused: the Host header names no host.", 403)
    if only_loopback and not is_loopback(host):
        return make_response("Refused: use the address 127.0.0.1 or localhost, or set TSBENCH_WEB_PASSWORD.", 403)
    return None


def _host(url: str) -> tuple[str, str]:
    """Return a URL's host, and the host with its port as written; ("", "") for what cannot be read."""
    try:
        parts = urlsplit(url)
        (parts.hostname or "").encode("idna")  # raises what would be raised when a redirect is made
        return parts.hostname or "", parts.netloc
    except ValueError:
        return "", ""


def _is_foreign() -> bool:
    """Return True if a page of another site made the request.

    "same-site" is another site: it is any other port of this host, and any other name of its domain.
    """
    origin = request.headers.get("Origin")
    if origin is not None and not _host(origin)[0]:  # `null`, or not to be read
        return True
    site = request.headers.get("Sec-Fetch-Site")
    if site is None:  # not a browser, or an old one
        return origin is not None and _host(origin)[1] != request.host
    if site == "same-origin":
        return False
    if request.method not in {"GET", "HEAD"}:  # these change nothing
        return True
    how = request.headers.get("Sec-Fetch-Mode"), request.headers.get("Sec-Fetch-Dest")
    return site != "none" and how != ("navigate", "document")  # an address typed, or a link followed
