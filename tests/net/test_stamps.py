"""An answer has arrived when its last byte did, whenever it is read; where that is not known, it is counted."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING

import pytest

from tests.certificates import self_signed
from tsbench.net import stamps, tcp
from tsbench.net.stamps import READ, STAMPED, STEPPED, Arrival

if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable, Iterator
    from pathlib import Path

MS = 1_000_000
QUESTION = b"?"
LATE_MS = 60
"""How long our reader is busy with something else."""


class Answering:
    """A server on loopback that answers each question with pieces and pauses, and keeps when it sent the last one."""

    def __init__(self, family: socket.AddressFamily, wrap: Callable[[socket.socket], socket.socket]) -> None:
        self.pieces: list[bytes | float] = []
        self.sent_ns = 0
        self.listener = socket.create_server(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0), family=family)
        self._wrap = wrap
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        accepted, _ = self.listener.accept()
        with self._wrap(accepted) as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while peer.recv(1):
                for piece in self.pieces:
                    if isinstance(piece, float):
                        time.sleep(piece)
                        continue
                    self.sent_ns = time.perf_counter_ns()
                    peer.sendall(piece)
                if not self.pieces:
                    return


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


def connected(stack: ExitStack, kind: str = "plain", place: Path | None = None) -> tuple[Answering, Arrival, tcp.Wire]:
    """Return a server, and a connection to it whose kernel has begun to take stamps."""
    family = socket.AF_INET6 if kind == "IPv6" else socket.AF_INET
    client = None
    wrap: Callable[[socket.socket], socket.socket] = lambda peer: peer  # noqa: E731
    if kind == "TLS":
        assert place is not None
        file = self_signed(place)
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(file, file.with_name("key.pem"))
        client = ssl.create_default_context(cafile=file)
        wrap = lambda peer: server.wrap_socket(peer, server_side=True)  # noqa: E731
    answering = Answering(family, wrap)
    stack.callback(answering.listener.close)
    host, port = answering.listener.getsockname()[:2]
    arrival = Arrival()
    name = "localhost" if kind == "TLS" else host
    wire = stack.enter_context(closing(tcp.connect(name, port, client, time.monotonic() + 10, arrival)))
    give_up = time.monotonic() + 10
    while arrival.source != STAMPED and time.monotonic() < give_up:  # turning them on takes a moment
        asked(answering, arrival, wire, [b"x"])
    return answering, arrival, wire


def asked(
    server: Answering, arrival: Arrival, wire: tcp.Wire, pieces: list[bytes | float], late_ms: float = 0
) -> tuple[float, float]:
    """Ask, be late, and read the answer; return for how long it was under way and for how long it lay unread, in ms."""
    server.pieces = pieces
    arrival.begin()
    wire.put(QUESTION, b"", time.monotonic() + 10)
    time.sleep(late_ms / 1e3)
    length = sum(len(piece) for piece in pieces if isinstance(piece, bytes))
    while length > 0:
        length -= len(wire.get(time.monotonic() + 10))
    read_ns = time.perf_counter_ns()
    ended_ns = arrival.end(read_ns)
    return (ended_ns - server.sent_ns) / MS, (read_ns - ended_ns) / MS


@pytest.mark.parametrize("kind", ["plain", "IPv6", "TLS"])
def test_an_answer_has_arrived_when_its_last_byte_did_not_when_we_read_it(
    kind: str, stack: ExitStack, tmp_path: Path
) -> None:
    server, arrival, wire = connected(stack, kind, tmp_path)
    # Of several: on a busy machine the server may be interrupted between its clock and its send.
    found = [asked(server, arrival, wire, [b"answer"], LATE_MS) for _ in range(5)]
    assert arrival.source == STAMPED
    assert min(under_way for under_way, _ in found) < 5
    assert max(lain for _, lain in found) > LATE_MS / 2


def test_an_answer_in_pieces_has_arrived_with_the_last_of_them(stack: ExitStack) -> None:
    server, arrival, wire = connected(stack)
    pieces: list[bytes | float] = [b"a" * 1_000, 0.2, b"b" * 1_000, 0.001, b"c" * 1_000]
    found = [asked(server, arrival, wire, pieces, late_ms) for late_ms in (0, 0, 0, 210 + LATE_MS, 210 + LATE_MS)]
    assert arrival.source == STAMPED
    assert min(under_way for under_way, _ in found[:3]) < 5  # each piece was read as it came
    assert min(under_way for under_way, _ in found[3:]) < 5  # all of them were read at once, later
    assert found[-1][1] > LATE_MS / 2


def test_the_first_bytes_of_an_answer_in_pieces_have_a_time_of_their_own(stack: ExitStack) -> None:
    server, arrival, wire = connected(stack)
    asked(server, arrival, wire, [b"a" * 1_000, 0.2, b"b" * 1_000, 0.1, b"c"])
    first_ns = arrival.first_ns()
    assert first_ns is not None
    assert 0 <= first_ns < server.sent_ns - 250 * MS - arrival.began_ns  # which is of the last piece
    asked(server, arrival, wire, [b"whole"])
    assert arrival.first_ns() is None


def test_an_answer_longer_than_the_buffer_was_read_by_the_client(stack: ExitStack) -> None:
    server, arrival, wire = connected(stack)
    _, lain_ms = asked(server, arrival, wire, [b"x" * 20_000_000], LATE_MS)
    assert arrival.source == READ
    assert 0 < lain_ms < 50  # since the last bytes were read, whatever is done with them afterwards


def test_a_broken_connection_has_no_arrival_and_the_next_one_has(stack: ExitStack) -> None:
    server, arrival, wire = connected(stack)
    server.pieces = []
    arrival.begin()
    wire.put(QUESTION, b"", time.monotonic() + 10)
    with suppress(ConnectionResetError):  # if the server had not read all of the question when it closed
        assert wire.get(time.monotonic() + 10) == b""
    now_ns = time.perf_counter_ns()
    assert (arrival.end(now_ns), arrival.source) == (now_ns, READ)
    wire.close()
    assert not arrival.is_watching


def test_a_step_of_the_wall_clock_leaves_our_own_clock(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    server, arrival, wire = connected(stack)
    server.pieces = [b"x"]
    arrival.begin()
    wire.put(QUESTION, b"", time.monotonic() + 10)
    real = time.time_ns
    monkeypatch.setattr(stamps, "time_ns", lambda: real() - 3_600 * 1_000 * MS)  # set back by an hour
    assert wire.get(time.monotonic() + 10)
    now_ns = time.perf_counter_ns()
    assert (arrival.end(now_ns), arrival.source) == (now_ns, STEPPED)
    asked(server, arrival, wire, [b"x"])  # the kernel's stamps do not know of it
    assert arrival.source == READ


def test_a_preemption_between_two_readings_is_no_step(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    server, arrival, wire = connected(stack)
    server.pieces = [b"x"]
    arrival.begin()
    real, calls = time.time_ns, iter([5 * MS])
    monkeypatch.setattr(stamps, "time_ns", lambda: real() + next(calls, 0))  # the first reading is late
    wire.put(QUESTION, b"", time.monotonic() + 10)
    assert wire.get(time.monotonic() + 10)
    arrival.end(time.perf_counter_ns())
    assert arrival.source == STAMPED


def test_bytes_that_come_between_the_look_and_the_read_have_no_stamp(stack: ExitStack) -> None:
    """As a driver reads, here by plain `recv`: half of an answer is seen, and all of it read."""
    ours, theirs, arrival = pair(stack)
    arrival.begin()
    arrival.sending()
    theirs.send(b"half")
    await_bytes(ours, 4)
    assert arrival.peeked[: arrival.peek()] == b"half"
    arrival.look()
    theirs.send(b" whole")
    await_bytes(ours, 10)
    assert ours.recv(100) == b"half whole"
    arrival.confirm()
    read_ns = arrival.read_ns
    time.sleep(0.01)
    assert (arrival.end(time.perf_counter_ns()), arrival.source) == (read_ns, READ)


@pytest.mark.parametrize("nbytes", [100, stamps.PEEKED_BYTES, 50_000])
def test_what_a_driver_reads_is_stamped_if_nothing_came_after_the_look(nbytes: int, stack: ExitStack) -> None:
    ours, theirs, arrival = pair(stack)
    arrival.begin()
    arrival.sending()
    theirs.sendall(b"x" * nbytes)
    await_bytes(ours, nbytes)
    time.sleep(0.02)
    is_seen = arrival.peek() == nbytes < stamps.PEEKED_BYTES
    if not is_seen:
        arrival.look()
    assert len(ours.recv(1 << 20)) == nbytes
    if not is_seen:
        arrival.confirm()
    read_ns = time.perf_counter_ns()
    assert read_ns - arrival.end(read_ns) > 20 * MS
    assert arrival.source == STAMPED


def test_an_answer_without_a_stamp_does_not_end_when_an_earlier_one_was_read(stack: ExitStack) -> None:
    ours, theirs, arrival = pair(stack)
    arrival.begin()
    arrival.sending()
    arrival.read_by_client()  # of the op's first request
    theirs.send(b"x")
    await_bytes(ours, 1)
    ours.setsockopt(socket.SOL_SOCKET, stamps._SO_TIMESTAMPNS, 0)
    assert arrival.peek() == 1
    now_ns = time.perf_counter_ns()
    assert (arrival.end(now_ns), arrival.source) == (now_ns, READ)
    arrival.begin()
    arrival.read_by_client()
    arrival.begin()  # the op before does not count
    arrival.sending()
    now_ns = time.perf_counter_ns()
    assert (arrival.end(now_ns), arrival.source) == (now_ns, READ)


def test_segments_out_of_order_are_noticed_where_a_driver_reads_an_answer_in_two_parts(stack: ExitStack) -> None:
    ours, theirs, arrival = pair(stack)
    arrival.begin()
    arrival.sending()
    for part in (b"half", b"whole"):
        theirs.send(part)
        await_bytes(ours, len(part))
        assert arrival.peek() == len(part)
        if part == b"half":
            arrival.look()
        assert ours.recv(100) == part
        if part == b"half":
            arrival.confirm()
    arrival._reordered -= 1  # as if the kernel had counted one since
    now_ns = time.perf_counter_ns()
    assert (arrival.end(now_ns), arrival.source) == (now_ns, READ)


def test_a_unix_socket_has_no_stamps(stack: ExitStack) -> None:
    ours, theirs = (stack.enter_context(one) for one in socket.socketpair())
    arrival = Arrival()
    arrival.watch(ours)
    theirs.send(b"x")
    assert not arrival.is_watching
    assert arrival.receive(ours, 10) == b"x"
    assert (arrival.end(7), arrival.source) == (7, READ)


def test_segments_out_of_order_leave_our_own_clock(stack: ExitStack) -> None:
    ours, theirs, arrival = pair(stack)
    arrival.begin()
    arrival.sending()
    theirs.send(b"x")
    await_bytes(ours, 1)
    time.sleep(0.02)
    assert arrival.receive(ours, 10) == b"x"
    arrival._reordered -= 1  # as if the kernel had counted one since
    now_ns = time.perf_counter_ns()
    assert (arrival.end(now_ns), arrival.source) == (now_ns, READ)


def pair(stack: ExitStack) -> tuple[_socket.socket, socket.socket, Arrival]:
    """Return the watched end and the other end of a connection whose stamps have been turned on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = stack.enter_context(socket.create_connection(listener.getsockname()))
        theirs, _ = listener.accept()
    stack.enter_context(theirs)
    ours = stamps.duplicate(client.fileno())
    stack.callback(ours.close)
    arrival = Arrival()
    arrival.watch(ours)
    give_up = time.monotonic() + 10
    while arrival.source != STAMPED and time.monotonic() < give_up:
        arrival.begin()
        arrival.sending()
        theirs.send(b"x")
        await_bytes(ours, 1)
        arrival.receive(ours, 10)
        arrival.end(time.perf_counter_ns())
    return ours, theirs, arrival


def await_bytes(ours: _socket.socket, nbytes: int) -> None:
    give_up = time.monotonic() + 10
    while len(ours.recv(1 << 20, socket.MSG_PEEK)) < nbytes:
        assert time.monotonic() < give_up
        time.sleep(0.001)
