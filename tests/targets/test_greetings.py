"""The product at a port is named by its first bytes, which the targets declare."""

from __future__ import annotations

import pytest

from tsbench.targets import endpoint

FIRST_BYTES = [
    (b"J\0\0\0\x0a5.5.5-10.6.7-MariaDB\0", "a MariaDB server"),
    (b"J\0\0\0\xffj\x04Host '::1' is not allowed to connect to this MariaDB server", "a MariaDB server"),
    (b"J\0\0\0\x0a9.1.0\0", "a MySQL server"),
    (b"J\0\0\0\xffj\x04Host '::1' is not allowed to connect to this MySQL server", "a MySQL server"),
    (b"HTTP/1.0 200 OK\r\n\r\nIt looks like you are trying to access MongoDB over HTTP", "a MongoDB server"),
    (b"\x40\0\0\0\x01\0\0\0\0\0\0\0\xdd\x07\0\0", "a MongoDB server"),
    (b"HTTP/1.1 200 OK\r\nserver: questDB/1.0\r\n\r\n", "a QuestDB server"),
    (b"HTTP/1.1 204 No Content\r\nX-Influxdb-Build: OSS\r\n\r\n", "an InfluxDB server"),
    (b"HTTP/1.0 200 OK\r\nX-Server-Hostname: here\r\n\r\n", "a VictoriaMetrics server"),
    (b"HTTP/1.1 400 Bad Request\r\n\r\nThe plain HTTP request was sent to HTTPS port", "an HTTPS server"),
    (b"HTTP/1.1 200 OK\r\n\r\n", "an HTTP server"),
    (b"S", "a PostgreSQL server"),
    (b"N", "a PostgreSQL server"),
    (b"SSH-2.0-OpenSSH_9.2\r\n", "an SSH server"),
    (b"-ERR unknown command\r\n", "a Redis server"),
    (b"", ""),
]


@pytest.mark.parametrize(("found", "product"), FIRST_BYTES)
def test_a_product_is_named_by_its_first_bytes(found: bytes, product: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "_first_bytes", lambda *_: found)
    assert endpoint.product_at("here", 1) == product
