"""Endpoints of InfluxDB 1.x, of one server or of several nodes.

An endpoint is `http://user@host:8086/database`, with https for TLS; several hosts, with commas between them, are nodes
that know nothing of each other. Options after a question mark: `rp`, the policy's name, which begins with `tsbench`;
its `retention` (`30d`, else forever) and `shard` length; `consistency` of writes; `gzip=1` to compress them;
`replicas`, the number of nodes that get each point.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tsbench.errors import UserMistake
from tsbench.targets import http
from tsbench.targets.endpoint import check_text
from tsbench.targets.http import HttpEndpoint

if TYPE_CHECKING:
    from tsbench.net.http import Place
    from tsbench.targets.target import Target

_DURATION = re.compile(r"inf|\d+[mhdw]", re.IGNORECASE)
_SECONDS = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


@dataclass(frozen=True, slots=True)
class Influx1Endpoint(HttpEndpoint):
    """An endpoint whose path is a database; `places` are those of several nodes."""

    places: tuple[Place, ...] = ()

    @property
    def expire_after_s(self) -> int | None:
        retention = self.options.get("retention", "inf").lower()
        return None if retention == "inf" else int(retention[:-1]) * _SECONDS[retention[-1]] or None

    @property
    def nodes(self) -> tuple[tuple[str, int], ...]:
        return tuple((place.host, place.port) for place in self.places)


def parse(url: str, target: Target) -> Influx1Endpoint:
    """Parse an endpoint."""
    shown = check_text(url)
    if url.count("://") > 1:
        raise UserMistake(f"'{shown}': write several nodes as one URL with all hosts, http://user@a:8086,b:8086/db")
    found = _of_nodes(url, target)
    if not found.path or "/" in found.path:
        raise UserMistake(f"'{url}' names no database; write {target.form}")
    options = found.options
    if not options.get("rp", "tsbench").startswith("tsbench"):
        raise UserMistake(f"rp={options['rp']}: tsbench drops its retention policy; its name must begin with tsbench")
    for name in ("retention", "shard"):
        if not _DURATION.fullmatch(options.get(name, "inf")):
            raise UserMistake(f"{name}={options[name]} is no duration of InfluxDB's; write 30d, 12h or inf")
    if options.get("consistency", "one") not in {"any", "one", "quorum", "all"}:
        raise UserMistake(f"consistency={options['consistency']}: there are any, one, quorum and all")
    if not re.fullmatch(r"[1-9]\d?", options.get("replicas", "1")):
        raise UserMistake(f"replicas={options['replicas']}: write the number of nodes that get each point")
    if found.replicas > (of := max(1, len(found.places))):
        raise UserMistake(f"replicas={found.replicas}: needs as many nodes, and '{shown}' names {of}")
    if twice := [place for place, times in Counter(found.places).items() if times > 1]:
        raise UserMistake(f"'{shown}' names {twice[0]} twice; each node must be another one")
    return found


def _of_nodes(url: str, target: Target) -> Influx1Endpoint:
    """Return the parts of an endpoint, the first host's where it has several."""
    head, slashes, rest = url.partition("//")
    before, at, hosts = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")
    after = rest[len(before + at + hosts) :]
    each = [
        http.parse(head + slashes + before + at + host + after, target, Influx1Endpoint) for host in hosts.split(",")
    ]
    return replace(each[0], url=url, places=tuple(one.place for one in each) if len(each) > 1 else ())
