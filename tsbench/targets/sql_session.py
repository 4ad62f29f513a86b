"""Sessions on SQL databases: all that is stored, read back, and the base of sessions on a database in one file."""

from __future__ import annotations

import json
import time
from abc import abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from tsbench.errors import UserMistake, one_line
from tsbench.model import OTHERS, OpError, Outcome, Rows
from tsbench.servers.embedded import delete_file
from tsbench.targets.base import Inventory, Operation, ServerObject, Statement, others_text
from tsbench.targets.session import MEANT, OpSession, new_lock, statement_of, undecodable
from tsbench.targets.sql import OWN_TAGS, TAGS_FOLLOW, quoted, table_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tsbench.model import Measurement
    from tsbench.targets.base import Command

Fetch: TypeAlias = "Callable[[str], tuple[Sequence[str], Sequence[tuple[Any, ...]]]]"
"""Executes a statement and returns the names of the answer's columns, and its rows."""


def inventory(fetch: Fetch, like_ours: str, measurements: Sequence[Measurement], *, series: bool) -> Inventory:
    """Return the inventory of a database; the statement `like_ours` finds the tables with a time as ours have it."""
    ours = table_names(measurements)
    tables = tuple(sorted({name for (name,) in fetch(like_ours)[1]} - {*ours}))
    tags = next((m.tags for m in measurements if m.tags), ())
    if not series or not tags:
        return Inventory(tables)
    columns = ("id", *tags, OTHERS)
    of, tables_all = fetch('SELECT * FROM "tags"')
    return Inventory(tables, Rows(columns, stored_records(tables_all, of, columns)))


def stored_records(
    rows: Sequence[tuple[Any, ...]], of: Sequence[str], columns: tuple[str, ...]
) -> list[tuple[Any, ...]]:
    """Return the rows of a `Stored` under its columns; `of` names those of the answer."""
    at = of.index(TAGS_FOLLOW) if TAGS_FOLLOW in of else len(of)
    places = {name: at + 1 + i for i, name in enumerate(of[at + 1 :])}
    places |= {name: i for i, name in enumerate(of[:at])}
    own_at = places.get(OWN_TAGS)
    ours = {places[name] for name in columns if name in places} | {at, own_at}
    ours |= {i for i, name in enumerate(of) if name == ("tags_id" if i < at else "id")}
    others = [(name, i) for i, name in enumerate(of) if i not in ours]
    if not others and all(name in places for name in columns[:-1]):
        known = itemgetter(*(places[name] for name in columns[:-1]))
        if own_at is None or not any(row[own_at] for row in rows):
            return [(*known(row), None) for row in rows]
    return [_stored_record(row, columns, places, own_at, others) for row in rows]


def _stored_record(
    row: tuple[Any, ...],
    columns: tuple[str, ...],
    places: Mapping[str, int],
    own_at: int | None,
    others: Sequence[tuple[str, int]],
) -> tuple[Any, ...]:
    own = {} if own_at is None else _own_tags(row[own_at])
    values = [row[places[name]] if name in places else own.pop(name, None) for name in columns[:-1]]
    return (*values, others_text({**own, **{name: row[i] for name, i in others}}))


def _own_tags(stored: Any) -> dict[str, Any]:
    """Return a row's own tags by name; any other text is one value under the column's name."""
    if isinstance(stored, str):
        try:
            stored = json.loads(stored)
        except ValueError:
            return {OWN_TAGS: stored}
    return dict(stored) if isinstance(stored, dict) else {OWN_TAGS: stored}


# --- databases in one file --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeleteFile(Operation):
    """Close the session and delete the file that is its database."""

    text: str = "delete file"


_UNSURE = frozenset({"timeout", "input/output", "server"})
"""Causes after which nobody knows whether a transaction was committed that was to be."""


class FileSession(OpSession[Any]):
    """Base of sessions on a database in one file, by a driver that runs in our own process.

    After an error no transaction is open and the session remains usable. An error of a write is FAILED, since an answer
    always comes, but UNKNOWN if it may have met the commit.
    """

    product: ClassVar[str]
    error: ClassVar[type[Exception]]
    """What the driver raises."""
    tables: ClassVar[str]
    """Statement for the names of all tables and views of anybody's, with their schema if it is not ours."""
    like_ours: ClassVar[str]
    """Statement for the names of the tables with a time as ours have it."""

    def __init__(self, connection: Any, path: Path, timeout_s: float) -> None:
        super().__init__(timeout_s)
        self._connection, self._path = connection, path
        self.due_s = float("inf")
        self._may_commit = False
        """True from when a statement is sent that commits a write."""
        self._lock, self._closing = new_lock(), False
        """Held by the op that uses the connection, and whether it is to be closed as soon as none does."""

    @staticmethod
    @abstractmethod
    def cause_of(error: Exception) -> str:
        """Return the cause of one of the driver's errors, one of the words for `OpError.cause`."""

    def limit(self, due_s: float) -> None:
        """Set the time, on the monotonic clock, at which the running statement is interrupted; infinity for never."""
        self.due_s = due_s

    def begin(self, timeout_s: float) -> Any:
        self._lock.acquire()
        self._may_commit = False
        self.limit(time.monotonic() + timeout_s)
        return self._connection

    def end(self, connection: Any, error: BaseException | None, timeout_s: float) -> None:
        self.limit(float("inf"))
        try:
            if error is not None:
                self._raise_for(error, connection)
        finally:
            self._lock.release()
            if self._closing:
                self._close_unused()

    def _raise_for(self, error: BaseException, connection: Any) -> None:
        is_undone = self._is_undone(connection)
        if isinstance(error, self.error):
            cause = self.cause_of(error)
            is_unknown = self._may_commit and not is_undone and cause in _UNSURE
            outcome = Outcome.UNKNOWN if is_unknown else Outcome.FAILED
            raise OpError(outcome, cause, f"{self.product}: {one_line(error)}") from error
        if isinstance(error, Exception) and not isinstance(error, MEANT):
            raise undecodable(self.product, error) from error

    def _is_undone(self, connection: Any) -> bool:
        """Return True if a transaction was open; it is rolled back, so that nothing is stored."""
        try:
            connection.execute("ROLLBACK")
        except self.error:  # no transaction is open
            return False
        return True

    def execute(self, command: Command, timeout_s: float) -> None:
        if isinstance(command, DeleteFile):
            self.close()
            delete_file(self._path)
            return
        statement = statement_of(command)
        with self._op(timeout_s) as connection:
            connection.execute(statement.text, statement.params).fetchall()

    def query(self, statement: Statement, columns: tuple[str, ...]) -> Rows:
        with self._op():
            names, rows = self._fetch(statement.text, statement.params)
        return Rows(columns, stored_records(rows, names, columns) if columns[-1] == OTHERS else rows)

    def _fetch(self, text: str, params: Sequence[Any] = ()) -> tuple[list[str], list[tuple[Any, ...]]]:
        cursor = self._connection.execute(text, params)
        rows = cursor.fetchall()
        return [column[0] for column in cursor.description or ()], rows

    def objects(self, measurements: Sequence[Measurement]) -> Sequence[ServerObject]:
        """Return the tables, and the file, which holds them and whatever others made in it."""
        with self._op():
            there = [name for (name,) in self._fetch(self.tables)[1]]
        tables = [
            ServerObject(f"table {name}", (Statement(f"DROP TABLE {quoted(name)}"),))
            for name in table_names(measurements)
            if name in there
        ]
        file = ServerObject(f"file {self._path}", (DeleteFile(),), str(self._path.stat().st_ino), len(there))
        return [*tables, file]

    def inventory(self, measurements: Sequence[Measurement], *, series: bool) -> Inventory:
        with self._op():
            return inventory(self._fetch, self.like_ours, measurements, series=series)

    def close(self) -> None:
        """Close the connection, after the op that uses it, which is interrupted.

        That is the op of a user who was killed: its thread goes on. To close SQLite's connection under it crashed the
        process.
        """
        self._closing = True
        if not self._close_unused():
            self.limit(float("-inf"))

    def _close_unused(self) -> bool:
        """Close the connection unless an op uses it; return whether none did."""
        if not self._lock.acquire(blocking=False):
            return False
        with suppress(self.error):
            self.disconnect()
        self._lock.release()
        return True

    def disconnect(self) -> None:
        """Close the connection, which nobody uses."""
        self._connection.close()


def foreign_file(path: Path) -> UserMistake:
    """Return the error for a file with data that is not tsbench's: `create` drops tables."""
    return UserMistake(f"{path} holds a database that is not tsbench's; name a file that is not there yet")
