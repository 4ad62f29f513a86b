"""Faults of an InfluxDB 1.8: of the server that tsbench starts, of one that others use too, and of the way to it."""

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
    from collections.abc import Callable

    from tests.faults.bench import Stand

DIED = r"the server died during the run"


def _influxql(moment: str, text: str) -> Callable[[Stand], None]:
    def act(stand: Stand) -> None:
        stand.until(moment)
        assert stand.server is not None
        url = urlsplit(stand.server.endpoint)
        body = urlencode({"db": url.path.strip("/"), "q": text}).encode()
        urllib.request.urlopen(f"http://{url.netloc}/query", body, timeout=20).close()

    return act


def _another_digit(answer: bytes) -> bytes:
    """Return an answer whose last number has another last digit."""
    found = re.search(rb"(\d)(?=\]\]\}\]\}\])", answer)
    return answer[: found.start()] + (b"%d" % ((int(found[1]) + 1) % 10)) + answer[found.end() :] if found else answer


def _truncated(answer: bytes) -> bytes:
    """Return an answer whose document ends early, with the length that its head says."""
    return re.sub(rb"\]\}\]\}\]\}(?=\s*(?:\r\n0\r\n\r\n)?$)", b"      ", answer)


def _answers(status: str, body: bytes = b"{}", of: Callable[..., bool] = proxy.writes) -> Callable[[Stand], None]:
    return behaves("measure", lambda: proxy.Answer(of, status, body))


def _some_fail(name: str, act: Callable[[Stand], None], *says: str) -> Fault:
    """Return a fault in which ops fail, and the figures of the others stand."""
    return Fault(name, act, says, validity="valid", words=FIVE_SECONDS, at="proxied", resumed=KEPT)


FAULTS = (
    Fault("server killed in the measurement", signalled(server, signal.SIGKILL, "measured"),
          (DIED, r"killed by SIGKILL"), validity="valid"),
    Fault("server killed in the checks", signalled(server, signal.SIGKILL, "check"),
          (DIED, r"killed by SIGKILL"), validity="valid", words=CHECKING),
    Fault("server suspended in the checks", suspended("checking"),
          (r"answers could not be checked", r"--set timeout\.check=4s", r'FROM "cpu"'),
          words=(*CHECKING, *limits(check=2, connect=5)), resumed=KEPT, holds=some_measured),
    Fault("disk full in the load", nothing, (r"no space left|No space left|disk full",),
          words=LOADING, before=small_disk("20m")),
    # A query that meets the drop is answered with what is still there, and then an answer is wrong.
    Fault("database dropped by somebody else in the measurement", _influxql("measured", "DROP DATABASE tsbench"),
          (r"stored|database not found",), validity="inconclusive|invalid", words=FIVE_SECONDS, at="own", resumed=KEPT),
    Fault("a host's points deleted by somebody else",
          _influxql("measured", "DROP SERIES FROM cpu WHERE hostname = 'host_1'"),
          (r"stored|missing|wrong",), validity="invalid", words=FIVE_SECONDS, at="own", resumed=KEPT),
    Fault("connection refused from the start", nothing, (r"cannot connect to|no server answers",),
          code=2, validity="", words=FIVE_SECONDS, at="proxied", before=refusing),
    Fault("connections refused in the measurement", on_way("measured", lambda p: p.refuse()),
          (r"could not be reached any more",), validity="valid", words=FIVE_SECONDS, at="proxied"),
    _some_fail("connections reset 40 times in the measurement", on_way("measured", Proxy.reset_often), r"failed"),
    Fault("nothing comes through in the load", behaves("load", proxy.Silence),
          (r"the bulk load failed", r"timeout\.(load|connect)"),
          words=(*LOADING, *limits(load=1, connect=2)), at="proxied"),
    Fault("nothing comes through in the measurement", behaves("measured", proxy.Silence),
          (r"could not be reached any more|no answer",), validity="valid", words=IMPATIENT, at="proxied"),
    Fault("answers later than the limit", behaves("measured", lambda: proxy.Delay(2.5)),
          (r"timeout|no answer|could not be reached",), validity="valid", words=IMPATIENT, at="proxied"),
    Fault("answers cut in the middle", behaves("measured", proxy.Cut), (r"could not be reached any more",),
          validity="valid", words=IMPATIENT, at="proxied"),
    Fault("garbage in place of answers", behaves("measured", lambda: proxy.Replace(b"SSH-2.0-OpenSSH_9.2\r\n")),
          (r"could not be reached any more|protocol|HTTP",), validity="valid", words=IMPATIENT, at="proxied"),
    _some_fail("HTTP 500 for writes", _answers("500 Internal Server Error", b'{"error":"engine is closed"}'),
               r"failed"),
    _some_fail("HTTP 503 for writes", _answers("503 Service Unavailable", b'{"error":"overloaded"}'), r"failed"),
    _some_fail("HTTP 429 for writes", _answers("429 Too Many Requests", b'{"error":"slow down"}'), r"failed"),
    _some_fail("HTTP 401 for writes", _answers("401 Unauthorized", b'{"error":"authorization failed"}'), r"failed"),
    Fault("HTTP 200 with an error inside for queries",
          _answers("200 OK", b'{"results":[{"statement_id":0,"error":"timeout"}]}', proxy.queries),
          (r"timeout",), validity="inconclusive", words=FIVE_SECONDS, at="proxied", resumed=KEPT),
    Fault("truncated JSON for queries", behaves("measure", lambda: proxy.Change(proxy.queries, _truncated)),
          (r"no result in|protocol",), validity="inconclusive", words=FIVE_SECONDS, at="proxied", resumed=KEPT),
    Fault("a digit of an answer changed", behaves("measure", lambda: proxy.Change(proxy.queries, _another_digit)),
          (r"wrong",), validity="invalid", words=FIVE_SECONDS, at="proxied", resumed=KEPT),
    Fault("lie: 1 of 10 writes acknowledged and not stored",
          behaves("measure", lambda: proxy.Replay(proxy.writes, every=10)),
          (r"acknowledged|stored",), validity="invalid", words=FIVE_SECONDS, at="proxied", resumed=KEPT),
    Fault("lie: writes stored twice, which is idempotent here", behaves("measure", lambda: proxy.Twice(proxy.writes)),
          code=0, validity="valid", words=FIVE_SECONDS, at="proxied", resumed=KEPT),
    Fault("lie: the answers of another query", behaves("measure", lambda: proxy.Replay(proxy.queries)),
          (r"wrong",), validity="invalid", words=FIVE_SECONDS, at="proxied", resumed=KEPT, quick=True),
)  # fmt: skip
