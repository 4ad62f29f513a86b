"""The parts of a MongoDB endpoint, and the options that are tsbench's own; read without the driver but for `parse`."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from tsbench.errors import UserMistake
from tsbench.targets.endpoint import check_text
from tsbench.targets.target import Endpoint
from tsbench.text import shortened

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tsbench.targets.target import Target

_TELLING = frozenset({"PLAIN", "MONGODB-OIDC"})
"""Mechanisms that hand over what a listener could log in with; they are used only if an endpoint names them."""
_MOST = 300
_CHOICES = {"ordered": ("true", "false"), "granularity": ("seconds", "minutes", "hours")}
_SECONDS_TEXT = re.compile(r"[0-9]{1,10}")
_SECONDS = ("bucketMaxSpanSeconds", "expireAfterSeconds")
OURS = frozenset({*_CHOICES, *_SECONDS})
"""All others are MongoDB's."""


@dataclass(frozen=True, slots=True)
class MongodbEndpoint(Endpoint):
    """An endpoint whose path is a database; `options` are tsbench's own."""

    for_driver: str = ""
    """The endpoint without them, and without the user."""

    @property
    def is_ordered(self) -> bool:
        """True if the server stops a write at the first document that it refuses."""
        return self.options.get("ordered", "true") == "true"

    def timeseries(self, *, has_tags: bool) -> dict[str, Any]:
        """Return the options of a time-series collection."""
        options: dict[str, Any] = {"timeField": "time", **({"metaField": "tags"} if has_tags else {})}
        if "granularity" in self.options:
            options["granularity"] = self.options["granularity"]
        if "bucketMaxSpanSeconds" in self.options:
            span = int(self.options["bucketMaxSpanSeconds"])
            options |= {"bucketMaxSpanSeconds": span, "bucketRoundingSeconds": span}
        return options

    @property
    def expire_after_s(self) -> int | None:
        return int(self.options["expireAfterSeconds"]) if "expireAfterSeconds" in self.options else None


def parse(endpoint: str, target: Target) -> MongodbEndpoint:
    """Parse an endpoint, as `Target.parse` says."""
    from pymongo.errors import ConfigurationError, InvalidURI  # noqa: PLC0415 - settings are checked without it
    from pymongo.uri_parser import parse_uri  # noqa: PLC0415

    shown = check_text(endpoint)
    if not endpoint.startswith(("mongodb://", "mongodb+srv://")):
        raise UserMistake(f"{shown} is not a MongoDB endpoint; write {target.form}")
    try:
        parts = urlsplit(endpoint)
        given = parse_qsl(parts.query, keep_blank_values=True)
        _refuse_repeated(shown, [name.lower() for name, _ in given])
        user = parts.username or ""
        bare = parts.netloc.rpartition("@")[2]
        theirs = urlencode([g for g in given if g[0] not in OURS], safe=":,")  # it does not decode tags
        url = urlunsplit((parts.scheme, bare, parts.path or "/", theirs, ""))
        # A service record would be looked up in the domain name system: it is, when a session is opened.
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # of a compressor that it does not have, which it leaves out
            known = parse_uri(url.replace("mongodb+srv://", "mongodb://"), warn=False)
    except OSError as error:  # of a file that an option names
        raise UserMistake(f"{shown}: {error.filename or 'a file'} cannot be read: {error.strerror}") from None
    except (ValueError, InvalidURI, ConfigurationError, UserWarning) as error:
        reason = shortened(str(error), _MOST)
        raise UserMistake(f"{shown} is not a MongoDB endpoint ({reason}); write {target.form}") from None
    database = known["database"] or ""
    if not database.startswith("tsbench"):
        text = f"tsbench drops collections; name a database that begins with tsbench, as in {target.form}"
        raise UserMistake(f"{shown}: {text}")
    check_options(shown, dict(given))
    _keep_from_listeners(shown, parts.scheme, known["options"])
    ours = {name: value for name, value in given if name in OURS}
    return MongodbEndpoint(endpoint, target, user=user, path=database, options=ours, for_driver=url)


def _refuse_repeated(shown: str, names: Sequence[str]) -> None:
    """Refuse an option that is given twice, of which the driver would take the last and warn on the console."""
    for name in names:
        if names.count(name) > 1 and name != "readpreferencetags":  # a list
            raise UserMistake(f"{shown}: the option {name} is given twice; keep one")


def _keep_from_listeners(shown: str, scheme: str, given: Mapping[str, Any]) -> None:
    """Refuse a mechanism that sends the password or token itself, where the endpoint says nothing of TLS."""
    mechanism = given.get("authMechanism")
    if mechanism in _TELLING and given.get("tls") is None and scheme == "mongodb":
        text = f"authMechanism={mechanism} sends the password as it is, and anybody on the way could read it"
        raise UserMistake(f"{shown}: {text}; add tls=true, or tls=false if that is meant")


def check_options(shown: str, given: Mapping[str, str]) -> None:
    """Verify the options of tsbench's own, and that writes are acknowledged; `shown` names the endpoint in errors.

    Raises
    ------
    tsbench.errors.UserMistake
        One line that names the option.
    """
    if given.get("w") == "0":
        raise UserMistake(f"{shown}: w=0: writes that are not acknowledged cannot be accounted for; take it out")
    for name, allowed in _CHOICES.items():
        if given.get(name, allowed[0]) not in allowed:
            raise UserMistake(f"{shown}: {name}={shortened(given[name])}: there are {', '.join(allowed)}")
    for name in _SECONDS:
        text = given.get(name, "1")
        if not (_SECONDS_TEXT.fullmatch(text) and 1 <= int(text) <= 2**31 - 1):
            raise UserMistake(f"{shown}: {name}={shortened(text)} is not a whole number of seconds from 1 on")
    if "granularity" in given and "bucketMaxSpanSeconds" in given:
        raise UserMistake(f"{shown}: granularity and bucketMaxSpanSeconds exclude each other; take one out")


def local(port: int, options: Mapping[str, str]) -> str:
    """Return the endpoint of a server on this machine."""
    query = f"?{urlencode(options, quote_via=quote)}" if options else ""
    return f"mongodb://127.0.0.1:{port}/tsbench{query}"
