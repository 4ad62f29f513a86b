"""A server that speaks HTTP and PostgreSQL's protocol at one port, and says anything in both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.hostile import http, postgres

if TYPE_CHECKING:
    from random import Random

ENDPOINTS = {"questdb": http.ENDPOINTS["questdb"]}


def honest(request: bytes, random: Random) -> bytes:
    """Return the answer of a server that takes everything."""
    return http.honest(request, random) if request.startswith(b"POST") else postgres.honest(request, random)


def anything(random: Random) -> bytes:
    """Return an answer that a server may send, or that no server may."""
    return random.choice((http.anything, postgres.anything))(random)
