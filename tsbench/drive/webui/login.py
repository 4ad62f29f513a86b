"""Access to the web UI: from this host alone, or with the password in TSBENCH_WEB_PASSWORD.

Locust's own UI listens on all interfaces, answers any origin, and leaves one route without its login.
"""

from __future__ import annotations

import hmac
import logging
import math
import secrets
import time
from collections import OrderedDict
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import gevent
from flask import Response, make_response, redirect, request, session, url_for
from flask_login import UserMixin, current_user, login_user
from werkzeug.exceptions import HTTPException

from tsbench.errors import one_line
from tsbench.run.locust_process import expect_free
from tsbench.targets import credentials
from tsbench.targets.credentials import WEB_PASSWORD, is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable

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


def protect(web_ui: WebUI, routes: Blueprint) -> None:
    """Install the login, if a password is set; refuse requests from other sites.

    Raises
    ------
    UserMistake
        If other machines can reach the web UI and no password is set, if its file cannot be read, or if the port is
        taken, which Locust says with a traceback.
    """
    secret = credentials.secret_for(web_ui.host, WEB_PASSWORD, "--web-host")
    expect_free(web_ui.host, web_ui.port, "--web-port")
    app: Any = web_ui.app
    app.config["MAX_CONTENT_LENGTH"] = BODY_BYTES
    app.register_error_handler(Exception, _one_line)
    app.before_request(lambda: _refuse_foreign(only_loopback=secret is None))
    if secret is not None:
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


# --- guesses ----------------------------------------------------------------------------------------------------------

FREE = 3
"""Wrong passwords of a source without a wait: the owner mistypes."""
LONGEST_S = 30.0
"""Longest wait of a source; each wrong password doubles it, from 1 s."""
FORGOTTEN_S = 600.0
"""Time after which a source's wrong passwords are forgotten."""
ALL_PER_S, ALL_AT_ONCE = 1.0, 30.0
"""Wrong passwords of all sources together: in the long run, and at once."""
SOURCES = 1024
"""Sources that are remembered, each of those with wrong passwords and of those with the right one."""


class Guesses:
    """The wait after wrong passwords: by source, and for all sources together; `now` is a monotonic clock in seconds.

    An attacker with many addresses meets the common limit, which does not hold for the addresses that the password came
    from. Whoever shares the attacker's address waits with him, for `LONGEST_S` at most once he stops. The memory is
    bounded; what is forgotten is what was not used for the longest time.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._right: OrderedDict[str, None] = OrderedDict()
        self._all_until = -math.inf
        """When the wrong passwords of all sources are paid for, at `ALL_PER_S`."""

    def wait_s(self, source: str) -> int:
        """Return the whole seconds until the next password of a source is looked at; 0 for now."""
        now, key = self._now(), _key(source)
        count, last = self._wrong.get(key, (0, -math.inf))
        own_s = last + min(LONGEST_S, 2.0 ** (count - FREE)) - now if count >= FREE else 0.0
        all_s = 0.0 if key in self._right else self._all_until - ALL_AT_ONCE / ALL_PER_S - now
        return math.ceil(max(own_s, all_s, 0.0))

    def wrong(self, source: str) -> None:
        """Count a wrong password."""
        now, key = self._now(), _key(source)
        count, last = self._wrong.pop(key, (0, now))
        self._wrong[key] = (1 if now - last > FORGOTTEN_S else min(count + 1, 60)), now
        if key not in self._right:
            self._all_until = min(max(self._all_until, now) + 1 / ALL_PER_S, now + (ALL_AT_ONCE + 1) / ALL_PER_S)
        if len(self._wrong) > SOURCES:
            self._wrong.popitem(last=False)

    def right(self, source: str) -> None:
        """Forget a source's wrong passwords."""
        key = _key(source)
        self._wrong.pop(key, None)
        self._right[key] = None
        self._right.move_to_end(key)
        if len(self._right) > SOURCES:
            self._right.popitem(last=False)


def _key(source: str) -> str:
    """Return what counts as one source: an address, of IPv6 the 64 bits that one customer gets."""
    try:
        address = ip_address(source.partition("%")[0])
    except ValueError:
        return source
    if not isinstance(address, IPv6Address):
        return str(address)
    return str(address.ipv4_mapped or int(address) >> 64)
