"""Faults of a VictoriaMetrics: of the server that tsbench starts, of one that others use too, and of the way to it."""

from __future__ import annotations

import re
import signal
import urllib.request
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from tests.faults import proxy
from tests.faults.bench import IMPATIENT, KEPT, Fault, limits
from tests.faults.hands import (
    CHECKING,
    FIVE_SECONDS,
    LOADING,
    behaves,
    nothing,
    on_way,
    refusing,
    server,
    signalled,
    small_disk,
    some_measured,
    suspended,
)
from tests.faults.proxy import Proxy

if TYPE_CHECKING:
    from tests.faults.bench import Stand

DIED = r"the server died during the run"


def _delete_a_host(stand: Stand) -> None:
    stand.until("measured")
    assert stand.server is not None
    place = urlsplit(stand.server.endpoint).netloc
    body = urlencode({"match[]": '{hostname="host_1"}'}).encode()
    for path in ("/internal/force_flush", "/api/v1/admin/tsdb/delete_series"):
        urllib.request.urlopen(f"http://{place}{path}", body, timeout=20).close()


def _another_digit(answer: bytes) -> bytes:
    """Return an answer whose first value has another last digit."""
    found = re.search(rb'(\d)(?="\]\])|(?<="values":\[)(\d)', answer)
    at = found.start() if found else 0
    return answer[:at] + (b"%d" % ((int(answer[at : at + 1]) + 1) % 10)) + answer[at + 1 :] if found else answer


FAULTS = (
    Fault("server killed in the measurement", signalled(server, signal.SIGKILL, "measured"),
          (DIED, r"killed by SIGKILL"), validity="valid"),
    Fault("server killed in the checks", signalled(server, signal.SIGKILL, "check"),
          (DIED, r"killed by SIGKILL"), validity="valid", words=CHECKING),
    Fault("server suspended in the checks", suspended("checking"),
          (r"answers could not be checked|could not be counted", r"--set timeout\.check=4s"),
          words=(*CHECKING, *limits(check=2, connect=5)), resumed=KEPT, holds=some_measured),
    Fault("disk full in the load", nothing, (r"no space left|No space left|disk full|read-only",),
          words=LOADING, before=small_disk("104m"), of_root=True),
    Fault("a host's points deleted by somebody else", _delete_a_host,
          (r"stored|missing|wrong",), validity="invalid", words=FIVE_SECONDS, at="own", resumed=KEPT),
    Fault("connection refused from the start", nothing, (r"cannot connect to|no server answers",),
          code=2, validity="", words=FIVE_SECONDS, at="proxied", before=refusing),
    Fault("connections reset 40 times in the measurement", on_way("measured", Proxy.reset_often), (r"failed",),
          validity="valid", words=FIVE_SECONDS, at="proxied", resumed=KEPT),
    Fault("answers cut in the middle", behaves("measured", proxy.Cut), (r"could not be reached any more",),
          validity="valid", words=IMPATIENT, at="proxied"),
    Fault("HTTP 503 for writes",
          behaves("measure", lambda: proxy.Answer(proxy.writes, "503 Service Unavailable", b"storage is read-only")),
          (r"failed",), validity="valid", words=FIVE_SECONDS, at="proxied", resumed=KEPT),
    Fault("a digit of an answer changed", behaves("measure", lambda: proxy.Change(proxy.queries, _another_digit)),
          (r"wrong",), validity="invalid", words=FIVE_SECONDS, at="proxied", resumed=KEPT),
    Fault("lie: 1 of 10 writes acknowledged and not stored",
          behaves("measure", lambda: proxy.Replay(proxy.writes, every=10)),
          (r"acknowledged|stored",), validity="invalid", words=FIVE_SECONDS, at="proxied", resumed=KEPT),
    Fault("lie: the answers of another query", behaves("measure", lambda: proxy.Replay(proxy.queries)),
          (r"wrong",), validity="invalid", words=FIVE_SECONDS, at="proxied", resumed=KEPT),
)  # fmt: skip
