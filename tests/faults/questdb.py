"""Faults of a QuestDB: of the server that tsbench starts, of one that others use too, and of the way to it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

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
from tests.faults.postgres import bit_changed
from tests.faults.proxy import Proxy
from tests.faults.victoria import DIED
from tests.targets.questdb.test_target import ask, deleting

if TYPE_CHECKING:
    from tests.faults.bench import Stand


def _delete_a_host(stand: Stand) -> None:
    stand.until("measured")
    assert stand.server is not None
    ask(stand.server.endpoint, *deleting("tsbench_cpu", "hostname = 'host_1'"))


def _suspend_a_table(stand: Stand) -> None:
    stand.until("measured")
    assert stand.server is not None
    ask(stand.server.endpoint, "SELECT 1", "ALTER TABLE tsbench_cpu SUSPEND WAL")


# The proxy is on the way of writes, or on that of queries, which have a port of their own.
FAULTS = (
    Fault("server killed in the measurement", signalled(server, signal.SIGKILL, "measured"),
          (DIED, r"killed by SIGKILL"), validity="valid", quick=True),
    Fault("server killed in the checks", signalled(server, signal.SIGKILL, "check"),
          (DIED, r"killed by SIGKILL"), validity="valid", words=CHECKING),
    Fault("server suspended in the checks", suspended("checking"),
          (r"answers could not be checked|could not be counted", r"--set timeout\.check=4s"),
          words=(*CHECKING, *limits(check=2, connect=5)), resumed=KEPT, holds=some_measured),
    Fault("disk full in the load", nothing, (r"[Nn]o space left|disk full|suspended|died|could not",),
          words=LOADING, before=small_disk("500m"), of_root=True),
    Fault("a host's points deleted by somebody else", _delete_a_host,
          (r"stored|missing|wrong|no table",), validity="invalid", words=FIVE_SECONDS, at="own", resumed=KEPT),
    Fault("a table suspended by somebody else", _suspend_a_table, (r"tsbench_cpu is suspended",),
          words=FIVE_SECONDS, at="own", resumed=KEPT),
    Fault("connection refused from the start", nothing, (r"cannot connect to|no server answers",),
          code=2, validity="", words=FIVE_SECONDS, at="proxied", before=refusing),
    Fault("connections reset 40 times in the measurement", on_way("measured", Proxy.reset_often), (r"failed",),
          validity="valid", words=FIVE_SECONDS, at="proxied", resumed=KEPT),
    Fault("answers to writes cut in the middle", behaves("measured", proxy.Cut), (r"failed|unknown",),
          validity="valid", words=IMPATIENT, at="proxied"),
    Fault("HTTP 503 for writes",
          behaves("measure", lambda: proxy.Answer(proxy.writes, "503 Service Unavailable", b"busy")),
          (r"QuestDB: 503 busy",), validity="valid", words=FIVE_SECONDS, at="proxied"),
    Fault("lie: 1 of 10 writes acknowledged and not stored",
          behaves("measure", lambda: proxy.Replay(proxy.writes, every=10)),
          (r"acknowledged|stored",), validity="invalid", words=FIVE_SECONDS, at="proxied", resumed=KEPT),
    Fault("a bit of an answer changed", behaves("measure", lambda: proxy.Change(proxy.queries, bit_changed)),
          (r"wrong",), validity="invalid", words=FIVE_SECONDS, at="sql proxied", resumed=KEPT),
    Fault("lie: the answers of another query", behaves("measure", lambda: proxy.Replay(proxy.queries)),
          (r"wrong",), validity="invalid", words=FIVE_SECONDS, at="sql proxied", resumed=KEPT),
)  # fmt: skip
