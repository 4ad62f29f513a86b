"""What sessions are made of: deadlines, ops with an outcome, and the thread that interrupts drivers which block."""

from __future__ import annotations

import _thread
import sys
import time
from abc import abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from tsbench.errors import Broken, UserMistake, one_line, typed_line
from tsbench.model import OpError, Outcome
from tsbench.net.stamps import Arrival
from tsbench.targets.base import Command, Operation, Session, Statement, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

C = TypeVar("C")
S = TypeVar("S", bound=Command)
MEANT = (OpError, UserMistake, Broken, Unsupported, OSError)
"""Errors that say what happened; any other one comes from a driver, or from code that reads its rows."""


# --- commands ---------------------------------------------------------------------------------------------------------


def timed(commands: Sequence[S], timeout_s: float) -> Iterator[tuple[S, float]]:
    """Yield each command with the seconds that are left for it, where all together have `timeout_s`.

    Raises
    ------
    tsbench.model.OpError
        UNKNOWN `timeout` if no time remains.
    """
    deadline = time.monotonic() + timeout_s
    for command in commands:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise OpError(Outcome.UNKNOWN, "timeout", f"no time was left for it within {timeout_s:g} s")
        yield command, left_s


class CommandSession(Session):
    """Base of sessions with a time limit for an op, and for all commands of a `run` together."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    def run(self, commands: Sequence[Command], *, timeout_s: float | None = None) -> None:
        for command, left_s in timed(commands, self._timeout_s if timeout_s is None else timeout_s):
            self.execute(command, left_s)

    @abstractmethod
    def execute(self, command: Command, timeout_s: float) -> None:
        """Execute one command of `run` within its time limit in seconds."""


def statement_of(command: Command) -> Statement:
    """Return a command as the statement that it is, for a session that knows no operations.

    Raises
    ------
    tsbench.model.OpError
        FAILED `statement` if it is an operation.
    """
    if isinstance(command, Operation):
        raise not_mine(command)
    return command


def not_mine(command: Command) -> OpError:
    """Return the error of a session that is given a command of another target."""
    return OpError(Outcome.FAILED, "statement", f"this database has no operation '{command.text}'")


# --- ops --------------------------------------------------------------------------------------------------------------


class OpContext(Generic[C]):
    """Context of one op of a session.

    A class, since a generator's context manager takes a tenth of the time that a write of one row takes.
    """

    __slots__ = ("_connection", "_session", "_timeout_s")

    def __init__(self, session: OpSession[C], timeout_s: float) -> None:
        self._session, self._timeout_s = session, timeout_s

    def __enter__(self) -> C:
        self._connection = self._session.begin(self._timeout_s)
        return self._connection

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self._session.end(self._connection, error, self._timeout_s)


class OpSession(CommandSession, Generic[C]):
    """Base of sessions whose ops each have an open connection with a deadline, and end with an outcome."""

    @abstractmethod
    def begin(self, timeout_s: float) -> C:
        """Return an open connection with the time limit, in seconds, of an op that starts now."""

    @abstractmethod
    def end(self, connection: C, error: BaseException | None, timeout_s: float) -> None:
        """End an op that met no error or this one; drop a connection that cannot be used any more.

        Raises
        ------
        tsbench.model.OpError
            For an error of the driver.
        """

    def _op(self, timeout_s: float | None = None) -> OpContext[C]:
        return OpContext(self, self._timeout_s if timeout_s is None else timeout_s)


GRACE_S = 1.0
"""Time in seconds that a server has more than its own limit, which should end a statement first: then the connection
survives."""


class Closable(Protocol):
    """A connection that can be closed."""

    def close(self) -> None:
        """Close it; never raises."""
        ...


N = TypeVar("N", bound=Closable)


class NetworkSession(OpSession[N]):
    """Base of sessions with a connection that an error may break.

    After an error of a statement the connection stays open; after a broken connection or a time-out it is dropped, and
    the next op opens a new one (if that fails, the op is FAILED with the cause `refused`: nothing was sent).
    """

    arrival: Arrival
    grace_s: ClassVar[float] = GRACE_S
    """Time in seconds that an op has beyond its limit: none where the server has no limit of its own for it."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(timeout_s)
        self._connection: N | None = None
        self.arrival = Arrival()

    @abstractmethod
    def reconnect(self, timeout_s: float) -> N:
        """Replace the connection by a new one and return it."""

    @abstractmethod
    def limit(self, connection: N, due_s: float) -> None:
        """Set the time, on the monotonic clock, at which an op on the connection has to end."""

    def begin(self, timeout_s: float) -> N:
        connection = self._connection or self._reopened()
        self.limit(connection, time.monotonic() + timeout_s + self.grace_s)
        return connection

    def _reopened(self) -> N:
        self.arrival.sending()
        try:
            return self.reconnect(self._timeout_s)
        except Exception as error:  # also whatever the driver raises for an answer that it cannot decode
            self._drop()
            raise OpError(Outcome.FAILED, "refused", f"cannot connect again: {self._reason(error)}") from error

    def _reason(self, error: Exception) -> str:
        """Return why connecting failed, on one line."""
        return one_line(error)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self.arrival.forget()
            connection.close()

    def close(self) -> None:
        self._drop()


# --- answers that nobody understands ----------------------------------------------------------------------------------


def undecodable(product: str, error: Exception) -> OpError:
    """Return the error for an answer that the driver of a `product` cannot decode: nobody knows what it said."""
    return OpError(Outcome.UNKNOWN, "protocol", f"{product}: an answer cannot be decoded ({typed_line(error)})")


def caused_line(error: BaseException) -> str:
    """Return an error as one line: an op's with its cause, one without a meaning with its type."""
    if isinstance(error, OpError):
        return f"{error.cause}: {one_line(error)}"
    return one_line(error) if isinstance(error, MEANT) else typed_line(error)


@contextmanager
def decoded(product: str, but: type[Exception] | tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Raise an `OpError` in place of whatever a driver, or the code that reads its rows, raises for a broken answer.

    Errors with a meaning pass, and those of the type `but`. Also a decorator of methods.
    """
    try:
        yield
    except MEANT:
        raise
    except but:
        raise
    except Exception as error:
        raise undecodable(product, error) from error


# --- drivers that block -----------------------------------------------------------------------------------------------


class Interruptible(Protocol):
    """A session whose running call another thread can end."""

    due_s: float
    """Time at which the running call is interrupted, on the monotonic clock."""

    def interrupt(self) -> None:
        """Interrupt the running call; called again and again until the limit is lifted."""
        ...


class Watchdog:
    """Interrupts the calls of sessions that exceed their time limit.

    One thread checks all sessions of the process 50 times a second: a timer per statement would cost a thread each.
    Thread, lock and sleep are the operating system's, also where gevent has replaced them: gevent's would wait for the
    very statement that they are to interrupt.
    """

    PERIOD_S = 0.02

    def __init__(self) -> None:
        self._sessions: set[Interruptible] = set()
        self._lock = new_lock()
        self._runs = False

    def watch(self, session: Interruptible) -> None:
        """Check a session from now on."""
        with self._lock:
            self._sessions.add(session)
            if not self._runs:
                self._runs = True
                _original("_thread", "start_new_thread")(self._look, ())

    def forget(self, session: Interruptible) -> None:
        """Check a session no longer."""
        with self._lock:
            self._sessions.discard(session)

    def limit(self, session: Interruptible, due_s: float) -> None:
        """Set when the session's running call is interrupted, on the monotonic clock; infinity for never."""
        with self._lock:  # so that no other statement begins between the check and the interrupt
            session.due_s = due_s

    def _look(self) -> None:
        sleep = _original("time", "sleep")
        while True:
            sleep(self.PERIOD_S)
            with self._lock:
                if not self._sessions:
                    self._runs = False
                    return
                for session in self._sessions:
                    if time.monotonic() > session.due_s:
                        session.interrupt()


def new_lock() -> Any:
    """Return a lock of the operating system, also where gevent has replaced them."""
    return _original("_thread", "allocate_lock")()


def _original(module: str, name: str) -> Any:
    """Return a function of the standard library, in its original form if gevent has replaced it."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey.get_original(module, name) if monkey else getattr({"_thread": _thread, "time": time}[module], name)
