"""One psycopg connection whose waits have deadlines, and statements at little cost for the client.

These go through psycopg's `pq` layer, which is libpq: send, wait, read. An INSERT of one row with encoded values takes
20 us of the client's CPU so (under gevent, on a Unix socket) where a psycopg cursor takes 85, a query 40 us less.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, overload

import psycopg
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.pq import DiagnosticField, ExecStatus, Format

from tsbench.net.stamps import duplicate
from tsbench.net.tcp import Polling
from tsbench.targets.session import undecodable

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from psycopg import abc
    from psycopg.abc import Buffer
    from psycopg.pq.abc import PGresult

    from tsbench.net.stamps import Arrival
    from tsbench.net.tcp import NewWaiter, Waiter

# As plain numbers: an enum's members take longer to look up and to compare, a dozen times for every op.
_BINARY = Format.BINARY.value
_DONE, _ROWS = ExecStatus.COMMAND_OK.value, ExecStatus.TUPLES_OK.value
_FAILED, _COPY_IN = ExecStatus.FATAL_ERROR.value, ExecStatus.COPY_IN.value
_NO_SUCH_STATEMENT = b"26000"
_READY = b"Z\0\0\0\5"
"""Kind and length of the message that ends every answer, ready for a query; a byte follows."""
_MESSAGE_BYTES = 1 << 20
"""Largest message of a COPY: libpq copies each into a buffer, which is never made smaller again."""
_PIECE_ROWS = 250_000
"""Number of rows that are converted to Python's values at a time."""


class Connection(psycopg.Connection[Any]):
    """A connection whose every wait ends at `deadline`, a moment of time.monotonic(), with a TimeoutError.

    The server's own statement_timeout cannot end a wait for a server that hangs, and TCP's time limits do not count
    while the peer's kernel acknowledges. After a TimeoutError the connection can only be closed.
    """

    deadline = float("inf")
    waiter: Waiter | None = None
    statements: Statements
    """Set by `wait_with`."""

    def wait_with(self, waiter: NewWaiter | None, arrival: Arrival) -> None:
        """Wait with this waiter from now on, by default by blocking the thread; let `arrival` watch the connection."""
        self.waiter = (waiter or Polling)(self.pgconn.socket)
        self.statements = Statements(self, self.waiter, arrival)
        self._watched = duplicate(self.pgconn.socket)
        arrival.watch(self._watched)

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **more: Any) -> Any:
        """Run one of psycopg's generators to its end."""
        waiter = self.waiter
        if waiter is None:
            return super().wait(gen, *args, **more)
        # A generator yields what it waits for: 1 for reading, 2 for writing, 3 for either. It is sent what is possible;
        # after waiting for either that is both, which it tries without blocking.
        waits = (waiter.readable, waiter.writable, waiter.readable_or_writable)
        try:
            wanted = next(gen)
            while True:
                waits[wanted - 1](self.deadline)
                wanted = gen.send(wanted)
        except StopIteration as end:
            return end.value

    def close(self) -> None:
        """Close the connection and its waiter."""
        waiter, self.waiter = self.waiter, None
        if waiter is not None:
            waiter.close()
            self._watched.close()
        super().close()


class _ManyRows(Sequence[tuple[Any, ...]]):
    """The rows of a large result, converted a piece at a time.

    5,000,000 rows of four numbers take 0.7 GB in libpq, and as Python's tuples 1 GB more.
    """

    def __init__(self, converter: abc.Transformer, count: int) -> None:
        self._converter, self._count = converter, count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> tuple[Any, ...]: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[tuple[Any, ...]]: ...
    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            start, stop, step = place.indices(self._count)
            return self._converted(start, max(start, stop))[::step]
        start = range(self._count)[place]
        return self._converted(start, start + 1)[0]

    def _converted(self, start: int, stop: int) -> list[tuple[Any, ...]]:
        try:
            return self._converter.load_rows(start, stop, tuple)
        except Exception as error:  # what psycopg raises for a value that Python has none for
            raise undecodable("PostgreSQL", error) from error

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for start in range(0, self._count, _PIECE_ROWS):
            yield from self[start : start + _PIECE_ROWS]


class Statements:
    """Executes statements on a connection that has a waiter, through libpq.

    All methods raise psycopg's errors, and TimeoutError at the connection's deadline. A prepared statement is prepared
    when it comes for the first time. One that the server has forgotten (after DEALLOCATE or DISCARD ALL) is prepared
    again, once: it was not executed before.
    """

    def __init__(self, connection: Connection, waiter: Waiter, arrival: Arrival) -> None:
        self._connection, self._waiter, self._pgconn = connection, waiter, connection.pgconn
        self._arrival, self._is_seen = arrival, True
        self._names: dict[tuple[str, Sequence[int]], bytes] = {}
        self._numbers = (
            count()
        )  # a name never comes again: the server may have forgotten some statements and not others

    def execute_prepared(self, text: str, values: Sequence[bytes]) -> int:
        """Execute a prepared statement with values in binary form; return the number of rows."""
        return _rows(self._run(text, (), values, [_BINARY] * len(values)))

    def execute_once(self, text: str, values: Sequence[bytes]) -> int:
        """Execute a statement that is not kept prepared, with values in binary form; return the number of rows."""
        encoded, formats = text.encode(), [_BINARY] * len(values)
        self._arrival.sending()
        self._pgconn.send_query_params(encoded, values, None, formats)
        return _rows(self._result())

    def fetch(self, text: str, params: Sequence[Any]) -> Sequence[tuple[Any, ...]]:
        """Execute a prepared query with Python values; return its rows, which are sent in binary form.

        Many rows are converted to Python's values as they are used.
        """
        converter = Transformer(self._connection)
        values = converter.dump_sequence(params, [PyFormat.AUTO] * len(params))
        return _converted(converter, self._run(text, converter.types or (), values, converter.formats or ()))

    def fetch_once(self, text: str, params: Sequence[Any] = ()) -> Sequence[tuple[Any, ...]]:
        """Execute a query that is not kept prepared with Python values; return its rows as `fetch` does."""
        converter = Transformer(self._connection)
        values = converter.dump_sequence(params, [PyFormat.AUTO] * len(params))
        encoded = text.encode()
        is_first = self._arrival.sending()
        self._pgconn.send_query_params(encoded, values, converter.types, converter.formats, _BINARY)
        if is_first:
            self._arrival.sent()
        return _converted(converter, self._result())

    def copy_in(self, text: str, data: bytearray) -> int:
        """Execute a COPY FROM STDIN with this data; return the number of rows."""
        encoded = text.encode()
        self._arrival.sending()
        self._pgconn.send_query(encoded)
        result = self._result()
        if result.status == _COPY_IN:
            view = memoryview(data)
            for start in range(0, len(data), _MESSAGE_BYTES):
                while not self._pgconn.put_copy_data(view[start : start + _MESSAGE_BYTES]):
                    self._waiter.writable(self._connection.deadline)
                self._flush()
            while not self._pgconn.put_copy_end():
                self._waiter.writable(self._connection.deadline)
            result = self._result()
        return _rows(result)

    def _run(
        self, text: str, types: Sequence[int], values: Sequence[Buffer | None], formats: Sequence[int]
    ) -> PGresult:
        """Execute a prepared statement, again if the server has forgotten it; return its result, also an error."""
        known = text, types
        name = self._names.get(known) or self._prepare(known)
        is_first = self._arrival.sending()
        self._pgconn.send_query_prepared(name, values, formats, _BINARY)
        if is_first:
            self._arrival.sent()
        result = self._result()
        if result.status == _FAILED and result.error_field(DiagnosticField.SQLSTATE) == _NO_SUCH_STATEMENT:
            self._names.clear()
            self._pgconn.send_query_prepared(self._prepare(known), values, formats, _BINARY)
            result = self._result()
        return result

    def _prepare(self, known: tuple[str, Sequence[int]]) -> bytes:
        name = b"tsbench_%d" % next(self._numbers)
        text, types = known
        self._arrival.sending()
        self._pgconn.send_prepare(name, text.encode(), types)
        _rows(self._result())
        self._names[known] = name
        return name

    def _result(self) -> PGresult:
        """Wait until the statement has ended (or data may be copied); return its result, or its error if any.

        An INSERT is committed after its result was sent, so that an error may follow.
        """
        pgconn = self._pgconn
        if pgconn.flush():
            self._flush()
        results: PGresult | None = None
        try:
            while True:
                while pgconn.is_busy():
                    self._read()
                result = pgconn.get_result()
                if result is None:
                    break
                status = result.status
                if results is None or status == _FAILED:
                    results = result
                if status == _COPY_IN:
                    break
        except psycopg.OperationalError:  # the connection's end; the server may have said why before
            if results is None or results.status != _FAILED:
                raise
        if not self._is_seen:
            self._arrival.confirm()
        if results is None:
            raise psycopg.InternalError("the server sent no result")
        return results

    def _read(self) -> None:
        """Wait for bytes and let libpq read them, after a look at when they arrived."""
        self._waiter.readable(self._connection.deadline)
        arrival = self._arrival
        nbytes = arrival.peek()
        if nbytes > 5 and arrival.peeked.startswith(_READY, nbytes - 6):
            self._is_seen = True
        else:
            self._is_seen = False
            arrival.look()
        self._pgconn.consume_input()

    def _flush(self) -> None:
        """Send everything that libpq has buffered; it reads meanwhile, or a server that waits for us would never."""
        while self._pgconn.flush():
            self._waiter.readable_or_writable(self._connection.deadline)
            self._arrival.look()
            self._is_seen = False
            self._pgconn.consume_input()


def _converted(converter: abc.Transformer, result: PGresult) -> Sequence[tuple[Any, ...]]:
    if result.status != _ROWS:
        raise _error(result)
    converter.set_pgresult(result)
    if result.ntuples > _PIECE_ROWS:
        return _ManyRows(converter, result.ntuples)
    return converter.load_rows(0, result.ntuples, tuple)


def _rows(result: PGresult) -> int:
    """Return the number of rows that a statement wrote, or raise its error."""
    if result.status != _DONE:
        raise _error(result)
    return result.command_tuples or 0


def _error(result: PGresult) -> psycopg.Error:
    if result.status == _FAILED:
        return error_from_result(result)
    return psycopg.ProgrammingError(f"the statement ended with the status {ExecStatus(result.status).name}")
