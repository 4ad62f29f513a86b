"""The context in which a session does one op: an open connection with a time limit, and errors as the op's outcome."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

C = TypeVar("C")


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
