"""Endpoints of InfluxDB 1.x.

An endpoint is `http://user@host:8086/database`, with https for TLS. Options after a question mark: `rp`, the policy's
name, which begins with `tsbench`; its `retention` (`30d`, else forever) and `shard` length; `consistency` of writes;
`gzip=1` to compress them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tsbench.errors import UserMistake
from tsbench.targets import http
from tsbench.targets.http import HttpEndpoint

if TYPE_CHECKING:
    from tsbench.targets.target import Target

_DURATION = re.compile(r"inf|\d+[mhdw]", re.IGNORECASE)
_SECONDS = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


@dataclass(frozen=True, slots=True)
class Influx1Endpoint(HttpEndpoint):
    """An endpoint whose path is a database."""

    @property
    def expire_after_s(self) -> int | None:
        retention = self.options.get("retention", "inf").lower()
        return None if retention == "inf" else int(retention[:-1]) * _SECONDS[retention[-1]] or None


def parse(url: str, target: Target) -> Influx1Endpoint:
    """Parse an endpoint."""
    endpoint = http.parse(url, target, Influx1Endpoint)
    if not endpoint.path or "/" in endpoint.path:
        raise UserMistake(f"'{url}' names no database; write {target.form}")
    options = endpoint.options
    if not options.get("rp", "tsbench").startswith("tsbench"):
        raise UserMistake(f"rp={options['rp']}: tsbench drops its retention policy; its name must begin with tsbench")
    for name in ("retention", "shard"):
        if not _DURATION.fullmatch(options.get(name, "inf")):
            raise UserMistake(f"{name}={options[name]} is no duration of InfluxDB's; write 30d, 12h or inf")
    if options.get("consistency", "one") not in {"any", "one", "quorum", "all"}:
        raise UserMistake(f"consistency={options['consistency']}: there are any, one, quorum and all")
    return endpoint
