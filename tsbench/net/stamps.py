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
from typing import TYPE_CHECKING, Any, TypeAlias

from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_Found: TypeAlias = tuple[int, int, bytes]
"""A message beside the data: level, kind, content."""

STAMPED, READ, STEPPED = range(3)
"""How an op's end is known: by the kernel's stamp, by our clock, by our clock because the wall clock was set."""
PEEKED_BYTES = 16_384
"""What `Arrival.peek` sees; looking at a longer answer takes two more calls of the kernel."""

_SO_TIMESTAMPNS = 35
"""Linux's number. A kernel that has no stamps refuses it, or hands over data without any."""
_stamp = struct.Struct("@ll")
_unpack = _stamp.unpack
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
_STEPS_NS = 2 * _STEP_NS
_LAIN_NS = 5_000_000
"""If an answer seems to have lain longer, a segment that was sent again is as likely a reason as a busy client."""


class Arrival:
    """When the request of a session's current op was sent and when its answer arrived; all ns of `perf_counter_ns`.

    Each session over a network owns one. Its connections call `watch` and `forget`, `sending` and `sent`, and either
    read by `receive`, or call `peek` or `look` before a driver reads, and `confirm` after. Whoever times the session's
    ops calls `begin` before an op and `end` after it. What every op calls is kept as short as it can be: the stamp of
    the last bytes, for example, is decoded at the end.
    """

    __slots__ = (
        "_buffers",
        "_first",
        "_found",
        "_give_up_ns",
        "_known_ns",
        "_length",
        "_lowest_ns",
        "_peek",
        "_recvmsg",
        "_reordered",
        "_room",
        "_rounds",
        "_seen",
        "_socket",
        "_start",
        "began_ns",
        "peeked",
        "read_ns",
        "sent_ns",
        "source",
    )

    def __init__(self) -> None:
        self._socket: _socket.socket | None = None
        self._recvmsg: Callable[..., tuple[bytes, Sequence[_Found], int, Any]]
        self._peek: Callable[..., tuple[int, Sequence[_Found], int, Any]]
        self._buffers: list[bytearray] = []
        self.peeked = bytearray()
        """Buffer of `peek`, which fills its beginning."""
        self.began_ns = 0
        """Right before the op's first request was sent; 0 if nothing was."""
        self.sent_ns = 0
        """Right after it; before `began_ns`, if that request was not sent at once."""
        self.read_ns = 0
        """When an answer that came in parts, or of unknown arrival, had been read; else 0, or before `began_ns`."""
        self.source = READ
        self._found: Sequence[_Found] = ()
        """What the kernel has said of the last bytes that were looked at: their stamp, if it has one."""
        self._first: Sequence[_Found] = ()
        """The same of the bytes that were looked at first, of an answer that came in several parts."""
        self._rounds = self._length = self._start = self._seen = 0
        self._reordered = self._room = self._give_up_ns = self._lowest_ns = 0
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
            self.peeked = self.peeked or bytearray(PEEKED_BYTES)  # making one for each look takes as long as it
            self._buffers = [self.peeked]
            self._socket, self._give_up_ns = connected, perf_counter_ns() + _PATIENCE_NS
            self._lowest_ns = 0  # so that the first stamp is noticed

    @property
    def is_watching(self) -> bool:
        """True while the connection's answers may have stamps."""
        return self._socket is not None

    def forget(self) -> None:
        """Take no more stamps; to be called before the socket is closed."""
        self._socket = None
        self._found, self.read_ns = (), 0

    def sending(self) -> bool:
        """Record that a request is about to be sent, or a connection opened for it; return True for an op's first."""
        if self.began_ns:
            return False
        self.began_ns = perf_counter_ns()
        return True

    def sent(self) -> None:
        """Record that the op's first request was handed to the kernel as a whole, at once."""
        self.sent_ns = perf_counter_ns()

    def receive(self, connected: _socket.socket, nbytes: int) -> bytes:
        """Return up to `nbytes` unread bytes of a socket, the watched one."""
        if self._socket is None:
            return connected.recv(nbytes)
        if self._rounds == 1:
            self._first = self._found
        data, self._found, _, _ = self._recvmsg(nbytes, _ROOM)
        self._rounds += 1
        self._length += len(data)
        if self._rounds > 1:
            self.read_ns = perf_counter_ns()
        return data

    def peek(self) -> int:
        """Look at unread bytes before a driver reads them, and return the number of those that are in `peeked`.

        If they do not end an answer, `look` must be called before the read, and `confirm` after it.
        """
        if self._socket is None:
            return 0
        if self._rounds:  # a look has seen a part of the answer before
            if self._rounds == 1:
                self._first = self._found
            self._rounds += 1
        try:
            nbytes, self._found, _, _ = self._peek(self._buffers, _ROOM, _PEEK)
        except OSError:  # the driver will meet it, too
            return 0
        self.read_ns = 0
        return nbytes

    def look(self) -> None:
        """Look at all unread bytes before a driver reads them; call `confirm` after the read."""
        if self._rounds == 1:
            self._first = self._found
        is_first, self._rounds = not self._rounds, self._rounds + 1
        self._found, self.read_ns = (), 0
        if self._socket is None:
            return
        with suppress(OSError):
            self._seen = self._received(self._socket)
            nbytes, self._found, _, _ = self._socket.recvmsg_into(_scratch, _ROOM, _LOOK)
            if is_first:
                self._start = self._seen - nbytes

    def confirm(self) -> None:
        """Verify that nothing has arrived since the last `look`; else its stamp is not that of the answer's end."""
        if not self._found or self._socket is None:
            self.read_by_client()
            return
        with suppress(OSError):
            received = self._received(self._socket)
            self._length = received - self._start
            self.read_ns = perf_counter_ns()
            if received != self._seen:
                self.read_by_client()

    def read_by_client(self) -> None:
        """Record that a driver has just read an answer whose arrival is not known, in whichever thread."""
        self._found = ()
        self.read_ns = perf_counter_ns()

    @staticmethod
    def _received(connected: _socket.socket) -> int:
        received: int = _info.unpack_from(connected.getsockopt(_socket.IPPROTO_TCP, _TCP_INFO, _info.size))[0]
        return received

    # --- for whoever times ops

    def begin(self) -> int:
        """Forget the op before; return the time."""
        self.began_ns = self._rounds = self._length = 0
        self._found = self._first = ()
        return perf_counter_ns()

    def end(self, read_ns: int) -> int:
        """Return when the op's answer arrived, or else when it was read; `source` says which.

        Its values were there at `read_ns`, just now. The first op to end after the wall clock was set has none of the
        kernel's time: nobody knows whether the clock was set while its answer was on the way.
        """
        if not self._found:
            return self._end_without(read_ns)
        if (time_ns() - read_ns - self._lowest_ns) // _STEPS_NS and self._was_set():  # cheaper than two comparisons
            self.source = STEPPED
            return read_ns
        seconds, ns = _unpack(self._found[0][2])
        arrived_ns: int = seconds * NS_PER_S + ns - self._known_ns
        if self._rounds < 2 and self.began_ns <= arrived_ns <= read_ns <= arrived_ns + _LAIN_NS:  # nearly all are so
            self.source = STAMPED
            return arrived_ns
        self.source = READ
        if not self.began_ns - _STEP_NS < arrived_ns < read_ns + _STEP_NS:  # not of this answer, or of another clock
            return self._when_read(read_ns)
        if (self._rounds > 1 or read_ns - arrived_ns > _LAIN_NS) and self._is_doubtful():
            return self._when_read(read_ns)
        self.source = STAMPED
        return max(self.began_ns, min(arrived_ns, read_ns))

    def first_ns(self) -> int | None:
        """Return how long after the send an answer that came in several parts began to arrive; call it after `end`.

        The kernel merges segments and keeps the last one's stamp, so that the very first byte may have come earlier.
        None if the kernel has not said.
        """
        if not self._first:
            return None
        seconds, ns = _unpack(self._first[0][2])
        first_ns: int = seconds * NS_PER_S + ns - self._known_ns - self.began_ns
        return first_ns if 0 <= first_ns <= perf_counter_ns() - self.began_ns and self.source != STEPPED else None

    def _end_without(self, read_ns: int) -> int:
        """Return when an answer without a stamp was read; watch the connection no longer if it never has one."""
        self.source = READ
        if self._give_up_ns and perf_counter_ns() > self._give_up_ns:
            self._socket = None
        return self._when_read(read_ns)

    def _when_read(self, converted_ns: int) -> int:
        """Return when the last bytes were read; if that is not known, when they were converted."""
        return self.read_ns if self.read_ns > self.began_ns > 0 else converted_ns

    def _was_set(self) -> bool:
        """Read the difference between the clocks again, and return whether it has changed."""
        before_ns, self._known_ns = self._known_ns, _offset_ns()
        self._lowest_ns = self._known_ns - _STEP_NS
        self._give_up_ns = 0  # it has stamps, so that an answer without is an exception
        return abs(self._known_ns - before_ns) >= _STEP_NS

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
