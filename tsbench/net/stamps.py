"""The moment at which an answer arrived, from the kernel: no delay of ours between arrival and reading is in it.

With SO_TIMESTAMPNS a TCP socket hands over, with data, when the last segment of them was received. The kernel merges
segments and keeps the last one's stamp, so an answer's is that of its last byte, if nothing came between a look and the
read. Where something did, where an answer is longer than the socket's buffer (it arrives as fast as we read), or where
segments came out of order (one that is sent again may be younger than the stamp of what had waited for it), the answer
counts as read by the client, at the time of the read.
"""

from __future__ import annotations

import _socket
import os
import struct
from contextlib import suppress
from time import perf_counter_ns, time_ns
from typing import TYPE_CHECKING, Any

from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable

STAMPED, READ, STEPPED = range(3)
"""How an op's end is known: by the kernel's stamp, by our clock, by our clock because the wall clock was set."""
PEEKED_BYTES = 16_384
"""What `Arrival.peek` sees; looking at a longer answer takes two more calls of the kernel."""

_SO_TIMESTAMPNS = 35
"""Linux's number. A kernel that has no stamps refuses it, or hands over data without any."""
_stamp = struct.Struct("@ll")
_ROOM = _socket.CMSG_SPACE(_stamp.size) if hasattr(_socket, "CMSG_SPACE") else 0
_PEEK = _socket.MSG_PEEK | getattr(_socket, "MSG_DONTWAIT", 0)
_LOOK = _PEEK | _socket.MSG_TRUNC
_TCP_INFO = getattr(_socket, "TCP_INFO", 11)
_info = struct.Struct("=128xQ88xI")
"""Of struct tcp_info (include/uapi/linux/tcp.h): bytes received, segments that came out of order (since Linux 5.4)."""
_scratch = [bytearray(1 << 23)]
"""Never written: with MSG_TRUNC the kernel counts bytes, up to this length, without copying them."""
_PATIENCE_NS = 10_000_000_000
"""A connection whose answers have no stamp for so long has none; the kernel turns them on when it has time for that."""
_STEP_NS = 20_000
"""The difference between the clocks is read again if it seems to have changed by more than this."""
_LAIN_NS = 5_000_000
"""If an answer seems to have lain longer, a segment that was sent again is as likely a reason as a busy client."""


class Arrival:
    """When the request of a session's current op was sent and when its answer arrived; all ns of `perf_counter_ns`.

    Each session over a network owns one. Its connections call `watch` and `forget`, `sending` and `sent`, and either
    read by `receive`, or call `peek` or `look` before a driver reads, and `confirm` after. Whoever times the session's
    ops calls `begin` before an op and `end` after it.
    """

    __slots__ = (
        "_buffers",
        "_give_up_ns",
        "_known_ns",
        "_length",
        "_peek",
        "_recvmsg",
        "_reordered",
        "_room",
        "_rounds",
        "_seen",
        "_socket",
        "_start",
        "began_ns",
        "read_ns",
        "sent_ns",
        "source",
        "stamp_ns",
    )

    def __init__(self) -> None:
        self._socket: _socket.socket | None = None
        self._recvmsg: Callable[..., tuple[bytes, list[tuple[int, int, bytes]], int, Any]]
        self._peek: Callable[..., tuple[int, list[tuple[int, int, bytes]], int, Any]]
        self._buffers: list[bytearray] = []
        self.began_ns = 0
        """Right before the op's first request was sent; 0 if nothing was."""
        self.sent_ns = 0
        """Right after it; 0 also for a request that is not sent at once."""
        self.stamp_ns = 0
        """The wall clock's time at which the last bytes that were looked at had arrived; 0 if it is not known."""
        self.read_ns = 0
        """When a driver had read an answer of unknown arrival; else 0."""
        self.source = READ
        self._rounds = self._length = self._start = self._seen = 0
        self._reordered = self._room = self._give_up_ns = 0
        self._known_ns = _offset_ns()

    # --- for connections

    def watch(self, connected: _socket.socket) -> None:
        """Take stamps of this socket from now on; one that is not TCP has none."""
        self.forget()
        if connected.family not in {_socket.AF_INET, _socket.AF_INET6} or not _ROOM:
            return
        with suppress(OSError, struct.error):
            connected.setsockopt(_socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            self._reordered = _info.unpack_from(connected.getsockopt(_socket.IPPROTO_TCP, _TCP_INFO, _info.size))[1]
            self._room = _room(connected)
            self._recvmsg, self._peek = connected.recvmsg, connected.recvmsg_into
            self._buffers = self._buffers or [bytearray(PEEKED_BYTES)]  # making one for each look takes as long as it
            self._socket, self._give_up_ns = connected, perf_counter_ns() + _PATIENCE_NS

    @property
    def is_watching(self) -> bool:
        """True while the connection's answers may have stamps."""
        return self._socket is not None

    def forget(self) -> None:
        """Take no more stamps; to be called before the socket is closed."""
        self._socket = None
        self.stamp_ns = 0

    def sending(self) -> None:
        """Record that a request is about to be sent, or a connection opened for it."""
        if not self.began_ns:
            self.began_ns = perf_counter_ns()

    def sent(self) -> None:
        """Record that a request was handed to the kernel as a whole, at once."""
        if not self.sent_ns:
            self.sent_ns = perf_counter_ns()

    def receive(self, connected: _socket.socket, nbytes: int) -> bytes:
        """Return what a socket, the watched one, has received and nobody read, at most `nbytes`."""
        if self._socket is None:
            return connected.recv(nbytes)
        data, found, _, _ = self._recvmsg(nbytes, _ROOM)
        self._rounds += 1
        self._length += len(data)
        if found:
            seconds, ns = _stamp.unpack(found[0][2])
            self.stamp_ns = seconds * NS_PER_S + ns
        else:
            self._miss()
        return data

    def peek(self, is_whole: Callable[[bytearray, int], bool]) -> bool:
        """Look at unread bytes before a driver reads them. Return True if they end an answer.

        If they do not, `confirm` must be called after the read. `is_whole` is called with a buffer and the number of
        bytes in it.
        """
        if self._socket is None:
            return True
        try:
            nbytes, found, _, _ = self._peek(self._buffers, _ROOM, _PEEK)
        except OSError:  # the driver will meet it, too
            self.stamp_ns = 0
            return False
        if not is_whole(self._buffers[0], nbytes):
            self.look()
            return False
        self._rounds += 1
        if found:
            seconds, ns = _stamp.unpack(found[0][2])
            self.stamp_ns = seconds * NS_PER_S + ns
        else:
            self._miss()
        return True

    def look(self) -> None:
        """Look at all unread bytes before a driver reads them; call `confirm` after the read."""
        self._rounds += 1
        self.stamp_ns = self.read_ns = 0
        if self._socket is None:
            return
        with suppress(OSError):
            self._seen = self._received(self._socket)
            nbytes, found, _, _ = self._socket.recvmsg_into(_scratch, _ROOM, _LOOK)
            self._start = self._start or self._seen - nbytes
            if found:
                seconds, ns = _stamp.unpack(found[0][2])
                self.stamp_ns = seconds * NS_PER_S + ns
            else:
                self._miss()

    def confirm(self) -> None:
        """Verify that nothing has arrived since the last `look`; else its stamp is not that of the answer's end."""
        if not self.stamp_ns or self._socket is None:
            self.read_by_client()
            return
        with suppress(OSError):
            received = self._received(self._socket)
            self._length = received - self._start
            if received != self._seen:
                self.read_by_client()

    def read_by_client(self) -> None:
        """Record that a driver has just read an answer, in whichever thread, of which the arrival is not known."""
        self.stamp_ns = 0
        self.read_ns = perf_counter_ns()

    @staticmethod
    def _received(connected: _socket.socket) -> int:
        received: int = _info.unpack_from(connected.getsockopt(_socket.IPPROTO_TCP, _TCP_INFO, _info.size))[0]
        return received

    def _miss(self) -> None:
        self.stamp_ns = self.read_ns = 0
        if self._give_up_ns and perf_counter_ns() > self._give_up_ns:
            self._socket = None

    # --- for whoever times ops

    def begin(self) -> None:
        """Forget the op before."""
        self.began_ns = self.sent_ns = self.stamp_ns = self.read_ns = self._rounds = self._length = self._start = 0

    def end(self, read_ns: int) -> int:
        """Return when the op's answer arrived, or else when it was read; `source` says which.

        It was read at `read_ns`, just now. The first op to end after the wall clock was set has none of the kernel's
        time: nobody knows whether the clock was set while its answer was on the way.
        """
        self.source = READ
        if not self.stamp_ns:
            return self.read_ns or read_ns
        self._give_up_ns = 0  # it has stamps, so that an answer without is an exception
        if not -_STEP_NS < time_ns() - read_ns - self._known_ns < _STEP_NS:
            before_ns, self._known_ns = self._known_ns, _offset_ns()
            if abs(self._known_ns - before_ns) >= _STEP_NS:
                self.source = STEPPED
                return read_ns
        arrived_ns = self.stamp_ns - self._known_ns
        if self._rounds == 1 and self.began_ns <= arrived_ns <= read_ns <= arrived_ns + _LAIN_NS:  # nearly all are so
            self.source = STAMPED
            return arrived_ns
        if not self.began_ns - _STEP_NS < arrived_ns < read_ns + _STEP_NS:  # not of this answer, or of another clock
            return read_ns
        if (self._rounds > 1 or read_ns - arrived_ns > _LAIN_NS) and self._is_doubtful():
            return read_ns
        self.source = STAMPED
        return max(self.began_ns, min(arrived_ns, read_ns))

    def _is_doubtful(self) -> bool:
        """Return whether segments came out of order lately, or the answer is longer than the buffer was."""
        if self._socket is None:
            return True
        _, reordered = _info.unpack_from(self._socket.getsockopt(_socket.IPPROTO_TCP, _TCP_INFO, _info.size))
        was_reordered, self._reordered = self._reordered, reordered
        was_room, self._room = self._room, _room(self._socket)
        return reordered != was_reordered or self._length > was_room


def _offset_ns() -> int:
    """Return the wall clock's time less that of `perf_counter_ns`, which only changes when the wall clock is set.

    A preemption between the two readings looks like a step, unlike one of a few readings.
    """
    return min(-perf_counter_ns() + time_ns() for _ in range(5))


def duplicate(descriptor: int) -> _socket.socket:
    """Return a socket for a connection that a driver owns; not Python's class, which gevent replaces."""
    return _socket.socket(fileno=os.dup(descriptor))


def _room(connected: _socket.socket) -> int:
    """Return how many bytes the kernel keeps for us; it counts its own overhead, too."""
    return connected.getsockopt(_socket.SOL_SOCKET, _socket.SO_RCVBUF) // 2
