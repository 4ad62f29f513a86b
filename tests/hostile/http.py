"""A server of line protocol over HTTP that attacks its client: takes any login, sends it elsewhere, says anything."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.hostile.doors import SECRET, USER, Attack, Ended, FakeServer, Loot, environment, holds_secret
from tsbench.errors import UserMistake
from tsbench.targets.registry import get

if TYPE_CHECKING:
    from tests.hostile.doors import Certificates, Channel

TITLE = "HTTP"
_PRODUCTS = {
    "InfluxDB 1.x": "influxdb1",
    "InfluxDB 2.x": "influxdb2",
    "VictoriaMetrics": "victoriametrics",
    "QuestDB": "questdb",
}
MODES = tuple(f"{product} at {scheme}://" for product in _PRODUCTS for scheme in ("http", "https"))
ENDPOINTS = {
    "influxdb1": f"http://{USER}@127.0.0.1:{{port}}/tsbench",
    "influxdb2": "http://127.0.0.1:{port}/?org=o&bucket=b",
    "victoriametrics": f"http://{USER}@127.0.0.1:{{port}}/tsbench",
    "questdb": f"http://{USER}@127.0.0.1:{{port}}/?pg={{port}}",
}
NOTHING = b'{"results": [{}], "buckets": [], "status": "success", "data": {"result": []}}'
"""What all of them take for the answer of an empty server."""
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


def response(status: bytes = b"200 OK", body: bytes = NOTHING, fields: bytes = b"") -> bytes:
    return b"HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s" % (status, fields, len(body), body)


def read_request(channel: Channel) -> bytes:
    """Return a client's next request, its head and its body."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += channel.read(1)
        if len(head) > 100_000:
            raise Ended
    found = _LENGTH.search(head)
    return head + channel.read(int(found[1]) if found else 0)


def probe(mode: str, attack: Attack, certificates: Certificates) -> Loot:
    """Connect to a server that accepts everybody."""

    def serve(channel: Channel) -> None:
        channel.begin()
        while True:
            read_request(channel)
            channel.send(response())

    product, _, scheme = mode.partition(" at ")
    target = get(_PRODUCTS[product])
    trusted = str(certificates.authority)
    with (
        FakeServer(serve, certificates.context(attack)) as server,
        environment(TSBENCH_PASSWORD=SECRET, SSL_CERT_FILE=trusted),
    ):
        url = ENDPOINTS[target.name].format(port=server.port).replace("http://", scheme)
        with suppress(UserMistake):
            target.connect(url, next(iter(target.schemas.values())), timeout_s=2).close()
        seen = server.seen(attack)
    if holds_secret(seen):
        return Loot.PASSWORD
    return Loot.DATA if b"HTTP/1.1" in seen else Loot.NOTHING
