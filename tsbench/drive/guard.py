"""Who may use the web UI: this host alone, or whoever knows the password in TSBENCH_WEB_PASSWORD.

Locust's own UI listens on all interfaces, answers any origin, and leaves one route without its login.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import gevent
from flask import Response, make_response, redirect, request, session, url_for
from flask_login import UserMixin, current_user, login_user

from tsbench.errors import UserMistake

if TYPE_CHECKING:
    from flask import Blueprint
    from locust.argument_parser import LocustArgumentParser
    from locust.web import WebUI
    from werkzeug.wrappers import Response as BaseResponse

logger = logging.getLogger("tsbench")

VARIABLE = "TSBENCH_WEB_PASSWORD"
PAUSE_S = 1.0
"""After a wrong password, so that guessing is slow."""
OPEN = {"locust.login", "locust.send_assets", "tsbench.login"}
"""What can be had without being logged in."""


class _Someone(UserMixin):  # type: ignore[misc]  # flask_login is untyped
    """Whoever knew the password."""

    id = "tsbench"


def password() -> str:
    """The password that the environment sets for the web UI; empty when it sets none.

    Raises
    ------
    UserMistake
        If the file that is to hold it cannot be read, or is empty.
    """
    if text := os.environ.get(VARIABLE, ""):
        return text
    if not (path := os.environ.get(f"{VARIABLE}_FILE", "")):
        return ""
    try:
        text = Path(path).read_text(encoding="utf-8").strip("\r\n")
    except OSError as error:
        raise UserMistake(f"{VARIABLE}_FILE={path} cannot be read: {error.strerror}") from None
    if not text:
        raise UserMistake(f"{VARIABLE}_FILE={path} is empty")
    return text


def set_defaults(parser: LocustArgumentParser) -> None:
    """Make 127.0.0.1 the default of --web-host, and a login the rule where a password is set."""
    wanted = bool(os.environ.get(VARIABLE) or os.environ.get(f"{VARIABLE}_FILE"))
    parser.set_defaults(web_host="127.0.0.1", **({"web_login": True} if wanted else {}))
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to an option
        if action.dest == "web_host":
            action.help = "Host to bind the web interface to: 127.0.0.1, which is this host only; '*' is all interfaces"


def protect(web_ui: WebUI, routes: Blueprint) -> None:
    """Install the login, if there is a password, and refuse what comes from pages of other sites."""
    secret, loopback = password(), _is_loopback(web_ui.host)
    if not secret and not loopback:
        where = web_ui.host or "all interfaces"
        logger.warning(
            "the web UI listens on %s without a password; set %s or use --web-host 127.0.0.1", where, VARIABLE
        )
    app: Any = web_ui.app
    app.before_request(lambda: _refuse_foreign(only_loopback=loopback and not secret))
    if secret:
        _install_login(web_ui, routes, secret)


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

    @routes.route("/login", methods=["POST"])
    def login() -> BaseResponse:
        given = request.form.get("password", "")
        if hmac.compare_digest(given.encode(), secret.encode()):
            session.pop("auth_error", None)
            login_user(_Someone())
            return redirect(url_for("locust.index"))
        gevent.sleep(PAUSE_S)
        logger.warning("the web UI was given a wrong password from %s", request.remote_addr)
        session["auth_error"] = "That is not the password."
        return redirect(url_for("locust.login"))

    @app.before_request
    def ask() -> Any:
        if request.endpoint not in OPEN and not current_user.is_authenticated:
            return web_ui.login_manager.unauthorized()
        return None


def _refuse_foreign(*, only_loopback: bool) -> Response | None:
    """Refuse requests that a page of another site makes, or that reach us by a name that is not ours."""
    site = request.headers.get("Sec-Fetch-Site")
    origin = request.headers.get("Origin")
    foreign = origin is not None and urlsplit(origin).netloc != request.host
    if site == "cross-site" and request.headers.get("Sec-Fetch-Mode") == "navigate" and request.method == "GET":
        site = "none"  # somebody follows a link to us
    if site == "cross-site" or (site is None and foreign):
        return make_response("Refused: this request comes from another site.", 403)
    if only_loopback and not _is_loopback(urlsplit(f"//{request.host}").hostname or ""):
        return make_response("Refused: use the address 127.0.0.1 or localhost, or set TSBENCH_WEB_PASSWORD.", 403)
    return None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
