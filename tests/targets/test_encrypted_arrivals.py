"""An op over TLS ends when its answer arrived, too: the kernel's stamp is that of the encrypted bytes."""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.certificates import self_signed
from tsbench.check.audit import count_stored
from tsbench.errors import Unreachable, UserMistake
from tsbench.model import WriteMode
from tsbench.net.stamps import STAMPED
from tsbench.net.tcp import Polling
from tsbench.targets import mongodb, postgres, questdb
from tsbench.targets.base import Statement
from tsbench.testing import data

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tsbench.targets.base import Session
    from tsbench.targets.questdb.server import QuestServer

TOOK_MS = 50
"""How long a server takes for its answer."""
LATE_MS = 80
"""How long our reader is busy with something else when the answer has come."""


class Late(Polling):
    """A waiter that is not there when an answer comes."""

    late_ms = 0

    def readable(self, deadline: float) -> None:
        super().readable(deadline)
        time.sleep(Late.late_ms / 1e3)


@pytest.fixture
def certificate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A certificate for 127.0.0.1, beside its key."""
    monkeypatch.setattr(Late, "late_ms", 0)
    return self_signed(tmp_path)


def timed(session: Session, statement: Statement) -> tuple[float, float, int]:
    """Ask; return in ms how long the answer took to arrive and how long it lay unread, and the source of its end."""
    arrival = session.arrival
    assert arrival is not None
    arrival.begin()
    session.query(statement, ("x",))
    read_ns = time.perf_counter_ns()
    ended_ns = arrival.end(read_ns)
    return (ended_ns - arrival.began_ns) / 1e6, (read_ns - ended_ns) / 1e6, arrival.source


def is_timed_by_the_kernel(session: Session, statement: Statement) -> None:
    give_up = time.monotonic() + 10
    while timed(session, statement)[2] != STAMPED:  # turning stamps on takes a moment
        assert time.monotonic() < give_up
    Late.late_ms = LATE_MS
    found = [timed(session, statement) for _ in range(5)]
    assert {source for _, _, source in found} == {STAMPED}
    assert min(took_ms for took_ms, _, _ in found) == pytest.approx(TOOK_MS, abs=LATE_MS / 4)
    assert min(lain_ms for _, lain_ms, _ in found) > LATE_MS / 2


@pytest.mark.postgres
def test_postgresql_with_tls(certificate: Path, postgres_endpoint: str) -> None:
    place = urlsplit(postgres_endpoint)  # whose build has no TLS
    with tunnel((str(place.hostname), place.port or 0), certificate, asked=8, agreed=b"S") as port:
        url = postgres_endpoint.replace(f":{place.port}/", f":{port}/")
        url += f"&sslmode=verify-full&sslrootcert={certificate}"
        session = postgres.TARGET.connect(url, postgres.TARGET.schemas["btree"], waiter=Late)
        with closing(session):
            is_timed_by_the_kernel(session, Statement("SELECT 1 AS x"))


@pytest.mark.mongodb
def test_mongodb_with_tls(certificate: Path, mongodb_endpoint: str) -> None:
    place = urlsplit(mongodb_endpoint)
    with tunnel((str(place.hostname), place.port or 0), certificate) as port:
        url = place._replace(netloc=f"127.0.0.1:{port}", query=f"tls=true&tlsCAFile={certificate}").geturl()
        with closing(mongodb.TARGET.connect(url, next(iter(mongodb.TARGET.schemas.values())), waiter=Late)) as session:
            is_timed_by_the_kernel(session, Statement("aggregate nothing", ("nothing", [{"$limit": 1}])))


@pytest.mark.questdb
def test_questdb_with_tls_before_both_ports(
    certificate: Path, questdb_server: QuestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = urlsplit(questdb_server.endpoint)  # the free version has no TLS: others end it before the server
    sql_port = int(place.query.removeprefix("pg="))
    schema = questdb.TARGET.schemas["wide"]
    with (
        tunnel(("127.0.0.1", place.port or 0), certificate) as port,
        tunnel(("127.0.0.1", sql_port), certificate, asked=8, agreed=b"S") as sql,
    ):
        url = f"https://127.0.0.1:{port}/?pg={sql}"
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))  # of the authorities that this machine trusts
        with closing(questdb.TARGET.connect(url, schema, waiter=Late)) as session:
            is_timed_by_the_kernel(session, Statement("SELECT 1 AS x"))
            Late.late_ms = 0
            session.run(schema.create([data.CPU], data.shared_tags()))
            batch = data.batch(data.CPU, data.shared_tags(), time_ns=[data.START_NS + i * data.S for i in range(9)])
            assert session.write(schema.encode(batch, WriteMode.BULK)) == 9
            assert count_stored(session, schema, [data.CPU]) == 9
            session.run(schema.drop([data.CPU]))


@pytest.mark.questdb
@pytest.mark.parametrize("of_sql", [False, True], ids=["writes", "SQL"])
def test_a_certificate_that_nobody_vouches_for_is_refused_at_both_ports(
    certificate: Path, questdb_server: QuestServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, of_sql: bool
) -> None:
    place = urlsplit(questdb_server.endpoint)
    (tmp_path / "other").mkdir()
    other = self_signed(tmp_path / "other")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    both = (certificate, other) if of_sql else (other, certificate)
    with (
        tunnel(("127.0.0.1", place.port or 0), both[0]) as port,
        tunnel(("127.0.0.1", int(place.query.removeprefix("pg="))), both[1], asked=8, agreed=b"S") as sql,
        pytest.raises((Unreachable, UserMistake), match=r"(?i)certificate.verify.failed"),
    ):
        questdb.TARGET.connect(f"https://127.0.0.1:{port}/?pg={sql}", questdb.TARGET.schemas["wide"])


@contextmanager
def tunnel(server: tuple[str, int], certificate: Path, asked: int = 0, agreed: bytes = b"") -> Iterator[int]:
    """Listen with TLS before a server without, and yield the port.

    An answer is passed on after TOOK_MS, its pieces together: QuestDB sends some in two. A client asks for TLS with so
    many bytes, if its protocol has that, and is answered `agreed`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))

    def pump(source: socket.socket, sink: socket.socket, delay_s: float) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                time.sleep(delay_s)
                while delay_s and select.select([source], [], [], 0)[0] and (more := source.recv(65_536)):
                    data += more
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def serve() -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                accepted, _ = listener.accept()
                assert len(accepted.recv(asked)) == asked
                accepted.sendall(agreed)
                client, behind = context.wrap_socket(accepted, server_side=True), socket.create_connection(server)
                for each in ((client, behind, 0), (behind, client, TOOK_MS / 1e3)):
                    threading.Thread(target=pump, args=each, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
