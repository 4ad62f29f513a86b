"""The common part of both InfluxDB versions: their targets, sessions, payloads, and the meaning of responses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tsbench.model import OpError, Outcome, PartialWrite, Stored
from tsbench.targets import http
from tsbench.targets.base import Operation
from tsbench.targets.http import LineSchema
from tsbench.targets.target import Target
from tsbench.units import NS_PER_S, parse_duration_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tsbench.model import Measurement, Query
    from tsbench.net.http_parser import Response
    from tsbench.targets.base import Command


@dataclass(frozen=True, slots=True)
class WaitForCompactions(Operation):
    """Wait until no compaction is active or queued; InfluxDB has no statement that asks for one.

    Wait before that until the cache is written into shards, where the server does so soon after the last write.
    """

    text: str = "wait until no compaction is active or queued"


COLD = "cache-snapshot-write-cold-duration"
"""Setting: how long after its last write a shard's cache is written out; its points are in the log only until then."""
OUR_COLD = "3s"
"""That of a server which tsbench starts; the default of 10 min is too long to wait for."""
_SOON_NS = 60 * NS_PER_S


def settle(
    facts: Mapping[str, str], busy: Callable[[float], float], cached: Callable[[float], float], timeout_s: float
) -> None:
    """Wait as `http.settle` until nothing is compacted, nor `cached` if by the `facts` it is written out soon."""
    soon = any(name.endswith(COLD) and parse_duration_ns(value) <= _SOON_NS for name, value in facts.items())
    what = "InfluxDB still compacts" + (" or has a cache to write out" if soon else "")
    http.settle(lambda left_s: busy(left_s) + (cached(left_s) if soon else 0), timeout_s, what)


influxdb_target = partial(
    Target,
    product="InfluxDB",
    schemes=("http", "https"),
    greetings=(rb"HTTP/1\.\d .*?\r\n(?i:X-Influxdb-)",),
    acknowledges_in_part=True,
    has_counters=True,
    durability="write-ahead log synced at every write (`wal-fsync-delay = 0s`)",
)
"""Makes the target of a version."""
OPTIONS = ("gzip",)


class InfluxSchema(LineSchema):
    """Base of the schemas. Points of a series at the same time replace each other."""

    def settle(self, measurements: Sequence[Measurement]) -> Sequence[Command]:
        return [WaitForCompactions()]


def tags_of(query: Query) -> tuple[str, ...]:
    """Return the parameters of a query's statement: for `Stored`, and where points lack fields, the names of the tags.

    The session must know them: somebody may have made a field with the name of a tag, or the other way round; and what
    an answer has no column for is a text that is empty, or a number that is missing.
    """
    m = query.measurement
    return (*m.tags, *m.own_tags) if isinstance(query, Stored) or m.nullable else ()


def refusal(response: Response, *, write: bool = False) -> OpError:
    """Return the error for an unexpected response."""
    message = http.error_text(response)
    outcome, cause = meaning(response.status, message, write=write)
    return OpError(outcome, cause, f"InfluxDB: {response.status} {message}")


_DROPPED = re.compile(r"partial write: (.*) dropped=(\d+)(?: for database: .*)?", re.DOTALL)
_OF_ALL_SHARDS = re.compile(r"points (?:beyond|outside) retention policy")


def write_refusal(response: Response, points: int) -> OpError:
    """Return the error for a response that does not acknowledge a write of `points` points.

    InfluxDB splits a write by shards. It drops what is older than the retention policy first, and says so when all
    shards have stored the rest. Any other drop is one shard's: InfluxDB answers as soon as the first shard has dropped
    something, so that others may have dropped more, which is not in the count (`coordinator/points_writer.go` of 1.8
    and 2.7). Then nobody knows of the points that the answer does not count.
    """
    error = refusal(response, write=True)
    match = _DROPPED.search(http.message_of(response))
    dropped = int(match[2]) if match else 0
    if match is None or not dropped:  # with dropped=0 lines could not be parsed, and it does not say how many
        return error
    if dropped >= points:
        return OpError(Outcome.FAILED, "data", str(error))
    acknowledged = points - dropped if _OF_ALL_SHARDS.search(match[1]) else 0
    return PartialWrite(str(error), acknowledged=acknowledged, refused=dropped)


_BY_WORDS = (
    (re.compile("partial write"), Outcome.UNKNOWN, "partial write"),
    (re.compile("(database|retention policy|bucket).* not found|could not find bucket"), Outcome.FAILED, "no table"),
    (re.compile("timeout|timed out"), Outcome.UNKNOWN, "timeout"),
)
_RESOURCES = re.compile("memory|limit exceeded|^max-")


def meaning(status: int, message: str, *, write: bool) -> tuple[Outcome, str]:
    """Return the outcome of a refused op (FAILED or UNKNOWN) and its cause.

    A write that was refused with 4xx (or 429, 503: not now) left nothing behind. A partial one that does not count its
    points, and one that ended with another 5xx, may have stored some of them: InfluxDB has them in its cache before the
    log, and a batch in one shard before the next.
    """
    text = message.lower()
    for words, outcome, cause in _BY_WORDS:
        if words.search(text):
            return outcome, cause
    if status in http.BY_STATUS:
        return http.BY_STATUS[status]
    outcome = Outcome.UNKNOWN if status < 400 or (write and status >= 500) else Outcome.FAILED
    if _RESOURCES.search(text):
        return outcome, "resources"
    if 400 <= status < 500:
        return outcome, "data" if write else "statement"
    return outcome, "server"
