"""Dialogues of tsbench's clients with servers that say anything at each step, drawn from a seed.

`python -m tests.hostile.dialogues --dialogues 10000` lets clients talk to such servers, and prints what came of it.
"""

from __future__ import annotations

import argparse
import random
import secrets
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from unittest import mock

from tests.hostile import http, mongodb, mysql, postgres, questdb
from tests.hostile.doors import SECRET, Attack, FakeServer, environment
from tsbench.errors import UserMistake
from tsbench.model import Count, OpError, Stored, WriteMode
from tsbench.targets.registry import get
from tsbench.testing import data
from tsbench.testing.data import CPU, START_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from tests.hostile.doors import Channel

PROTOCOLS: dict[str, ModuleType] = {
    "postgres": postgres,
    "mariadb": mysql,
    "mongodb": mongodb,
    "influxdb1": http,
    "influxdb2": http,
    "victoriametrics": http,
    "questdb": questdb,
}
CONNECT_S, OP_S = 1.0, 0.5
GRACE_S = 4.0
"""Seconds by which a call may miss its deadline on a busy machine; libpq takes no limit under 2 s."""
_MOST_STEPS = 40
_MOST_STREAMED = 3_000_000


def play(channel: Channel, protocol: ModuleType, rng: random.Random) -> None:
    """Serve one connection: honest answers for a while, with anything in between, and some end."""
    if hasattr(protocol, "play"):  # its packets are numbered through
        protocol.play(channel, rng)
        return
    manners = rng.choice((0.0, 0.5, 0.9, 0.97))
    for _ in range(rng.randrange(1, _MOST_STEPS)):
        request = channel.waited(0.05)
        if request and rng.random() < manners:
            channel.send(protocol.honest(request, rng))
        elif request or rng.random() < 0.1:
            for _ in range(rng.randrange(1, 4)):
                channel.send(protocol.anything(rng))
    if rng.random() < 0.02:
        piece = protocol.anything(rng) * 50
        for _ in range(_MOST_STREAMED // len(piece)):
            channel.send(piece)
    elif rng.random() < 0.02:
        channel.waited(CONNECT_S + OP_S)  # silence
    elif rng.random() < 0.5:
        channel.reset()


def use(name: str, endpoint: str) -> Iterator[Callable[[], Any]]:
    """Yield the calls that a run makes, one after the other, until one of them cannot be made."""
    target = get(name)
    schema = next(iter(target.schemas.values()))
    found: list[Any] = []
    yield lambda: found.append(target.connect(endpoint, schema, timeout_s=OP_S, connect_timeout_s=CONNECT_S))
    if not found:
        return
    (session,) = found
    single = schema.encode(data.batch(CPU, data.shared_tags(), time_ns=[START_NS]), WriteMode.SINGLE)
    whole = Stored(CPU, START_NS, START_NS + 10**9)
    yield lambda: session.write(single)
    yield lambda: session.query(schema.compile(Count(CPU)), ("points",))
    yield lambda: session.query(schema.compile(whole), whole.columns)
    yield session.facts
    yield session.counters
    yield lambda: session.sizes([CPU])
    yield lambda: session.objects([CPU])
    yield lambda: session.run(schema.create([CPU], data.shared_tags()), timeout_s=OP_S)
    yield session.close


def converse(name: str, seed: str, found: Counter[str]) -> list[str]:
    """Let a client talk to such a server; return what it did that it must not, and count what it did."""
    faults: list[str] = []
    protocol = PROTOCOLS[name]
    numbers = iter(range(1_000_000))

    def serve(channel: Channel) -> None:
        play(channel, protocol, random.Random(f"{seed} {next(numbers)}"))

    with FakeServer(serve) as server:
        options = random.Random(seed).choice(getattr(protocol, "OPTIONS", ("",)))
        for call in use(name, protocol.ENDPOINTS[name].format(port=server.port) + options):
            began = time.monotonic()
            try:
                call()
                found["calls answered"] += 1
            except (OpError, UserMistake) as error:
                found["errors of one line"] += 1
                if "\n" in str(error) or len(str(error)) > 2_000:
                    faults.append(f"not one line: {error!r}")
            except Exception as error:  # noqa: BLE001 - what is looked for
                faults.append(f"{type(error).__name__}: {error}"[:300])
            if (took_s := time.monotonic() - began) > CONNECT_S + OP_S + GRACE_S:
                faults.append(f"one call took {took_s:.1f} s")
    seen = server.seen(Attack.NO_TLS)
    if hasattr(protocol, "betrayed") and protocol.betrayed(seen):  # over HTTP a password is sent as it is
        faults.append("a secret was sent")
    found["connections"] += len(server.channels)
    found[name] += 1
    return faults


class Opened:
    """Notes the files that Python code opens on the threads of dialogues, modules and their caches aside."""

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self._threads: set[int] = set()
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and threading.get_ident() in self._threads:
            path = str(arguments[0])
            if not path.endswith((".py", ".pyc", ".so", ".zip")) and not path.startswith(sys.prefix):
                self.paths.add(path)

    @contextmanager
    def watched(self) -> Iterator[None]:
        self._threads.add(threading.get_ident())
        try:
            yield
        finally:
            self._threads.discard(threading.get_ident())


OPENED = Opened()


@contextmanager
def alone() -> Iterator[None]:
    """Let clients name no other product in their errors, which would cost each failed connection another second."""
    with (
        mock.patch("tsbench.targets.endpoint.product_at", return_value=""),
        mock.patch("tsbench.targets.mongodb.client.product_at", return_value=""),
        environment(TSBENCH_PASSWORD=SECRET),
    ):
        yield


def converse_all(count: int, seed: str, shown: Callable[[str], None]) -> Counter[str]:
    """Hold so many dialogues, as many with each target; return the counts."""
    found: Counter[str] = Counter()
    names = [name for name in PROTOCOLS if name != "mariadb" or find_spec("MySQLdb") is not None]  # which is compiled
    with alone(), OPENED.watched():
        for name in names:  # drivers are imported, and baits laid, before anybody looks at the time
            getattr(PROTOCOLS[name], "betrayed", bool)(b"")
            with suppress(UserMistake):
                next(use(name, PROTOCOLS[name].ENDPOINTS[name].format(port=1)))()
        OPENED.paths.clear()
        for number in range(count):
            own = f"{seed}-{number}"
            faults = converse(names[number % len(names)], own, found)
            found["faults"] += bool(faults)
            for fault in faults:
                shown(f"{names[number % len(names)]}, seed {own}: {fault}")
    found["files opened"] = len(OPENED.paths)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dialogues", type=int, default=10_000)
    parser.add_argument("--seed", default=secrets.token_hex(4))
    given = parser.parse_args()
    began = time.monotonic()
    found = converse_all(given.dialogues, given.seed, print)
    texts = ", ".join(f"{number:,} {what}" for what, number in found.items())
    print(f"seed {given.seed}, {time.monotonic() - began:.0f} s: {texts} {sorted(OPENED.paths)}")
    sys.exit(bool(found["faults"] or found["files opened"]))


if __name__ == "__main__":
    main()
