"""A server of line protocol over HTTP that attacks its client: takes any login, sends it elsewhere, says anything."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.hostile.doors import SECRET, USER, Attack, Ended, FakeServer, Loot, environment, holds_secret
from tsbench.errors import UserMistake
from tsbench.targets.registry import get

if TYPE_CHECKING:
    from random import Random

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


# --- dialogues --------------------------------------------------------------------------------------------------------

_STATUSES = (b"200 OK", b"204 No Content", b"301 Moved", b"307 Temporary", b"308 Permanent", b"400 Bad", b"401 No",
             b"403 No", b"404 Not Found", b"413 Large", b"429 Busy", b"500 Error", b"503 Busy", b"101 No")  # fmt: skip
_BODIES = (
    NOTHING,
    b"",
    b"{",
    b"[]",
    b"null",
    b"1e999",
    b'{"results":[{"series":[{"name":"x","columns":["time"],"values":[[1,2],[3]]}]}]}',
    b'{"results":[{"series":[{"columns":["time","name"],"values":[]}]}]}',
    b'{"results":[{"error":7}]}',
    b'{"results":{}}',
    b'{"results":[[]]}',
    b'{"error":"partial write: x dropped=999999999999999999999"}',
    b'{"buckets":[{"description":"Made by tsbench, which deletes it with all that is in it at every run.","id":"1"}]}',
    b'{"buckets":[[]]}',
    b'{"buckets":{}}',
    b'{"config":[]}',
    b"#datatype,string,long\n,result,table\n,,0\n",
    b"#datatype,string,long\n,result,table,_value\n,,x,1\n\n#error\n",
    b"storage_wal_size{ x\nstorage_tsm_files_disk_bytes{ 1e400\n",
    b'{"status":"success","data":{"result":[{"metric":{},"value":[1,"x"]},{"metric":{"__name__":"cpu_busy"},"value":[1,"7e99"]}]}}',
    b'{"status":"success","data":{"result":[{"metric":[],"value":{}}]}}',
    b'{"status":"success","data":[7,{}]}',
    b'{"status":[]}',
    b'{"metric":{"__name__":"cpu_busy","host":[]},"values":[1,2],"timestamps":[1]}',
    b'{"metric":{"__name__":"cpu_busy"},"values":[null,{}],"timestamps":[1,"x"]}\n{"metric":0}',
    b'vm_active_merges{type="x"} 1e999\nvm_data_size_bytes{type="storage/x"} -e\nvm_parts 1\n',
    b"[" * 100_000,
    b"\xff\xfe\x00",
    b"9" * 5_000,
    b'{"results":' + b"9" * 5_000 + b"}",
)


def honest(request: bytes, random: Random) -> bytes:
    """Return the answer of a server that takes everything."""
    return response(b"204 No Content", b"") if b"write?" in request[:40] else response()


def anything(random: Random) -> bytes:
    """Return a response that a server may send, or that no server may."""
    fields = random.choice((
        b"",
        b"Transfer-Encoding: chunked\r\n",
        b"Content-Encoding: gzip\r\n",
        b"Content-Length: 99999999999\r\n",
        b"Connection: close\r\n",
        b"X: " + b"y" * 60_000 + b"\r\n",
        b"Set-Cookie: a=b\r\nWWW-Authenticate: Basic\r\n",
        b"Content-Type: application/json\r\n",
    ))  # fmt: skip
    made = response(random.choice(_STATUSES), random.choice(_BODIES), fields)
    if random.random() < 0.2:
        made = made.replace(
            b"Content-Length", random.choice((b"Content-Length: 7\r\nContent-Length", b"X-Length", b"\0"))
        )
    return made if random.random() < 0.95 else random.randbytes(random.randrange(1, 60))
