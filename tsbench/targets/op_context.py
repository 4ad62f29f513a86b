"""The context in which a session does one op: an open connection with a time limit, and errors as the op's outcome."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from tsbench.errors import Broken, UserMistake, one_line, typed_line
from tsbench.model import OpError, Outcome
from tsbench.targets.base import Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator

C = TypeVar("C")
MEANT = (OpError, UserMistake, Broken, Unsupported, OSError)
"""Errors that say what happened; any other one comes from a driver, or from code that reads its rows."""


class Opening(Protocol[C]):
    """A session that keeps a connection open between ops."""

    def begin(self, timeout_s: float) -> C:
        """Return an open connection with the time limit, in seconds, of an op that starts now."""
        ...

    def end(self, connection: C, error: BaseException | None, timeout_s: float) -> None:
        """End an op that met no error or this one; drop a connection that cannot be used any more.

        Raises
        ------
        tsbench.model.OpError
            For an error of the driver.
        """
        ...


class OpContext(Generic[C]):
    """Context of one op of a session.

    A class, since a generator's context manager takes a tenth of the time that a write of one row takes.
    """

    __slots__ = ("_connection", "_session", "_timeout_s")

    def __init__(self, session: Opening[C], timeout_s: float) -> None:
        self._session, self._timeout_s = session, timeout_s

    def __enter__(self) -> C:
        self._connection = self._session.begin(self._timeout_s)
        return self._connection

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self._session.end(self._connection, error, self._timeout_s)


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
