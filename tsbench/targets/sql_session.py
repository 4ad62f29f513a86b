"""Sessions on SQL databases: all that is stored, read back, and the base of sessions on a database in one file."""

from __future__ import annotations

import json
import time
from abc import abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

import numpy as np

from tsbench.errors import UserMistake, one_line
from tsbench.model import OTHERS, ByColumn, Codes, OpError, Outcome, Rows
from tsbench.servers.embedded import delete_file
from tsbench.targets.base import Inventory, Operation, ServerObject, Statement, others_text
from tsbench.targets.session import MEANT, OpSession, new_lock, statement_of, undecodable
from tsbench.targets.sql import OWN_TAGS, quoted, table_names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tsbench.model import Measurement
    from tsbench.targets.base import Command

NamedColumns: TypeAlias = "tuple[Sequence[str], Sequence[Any]]"
"""The names of an answer's columns, and the columns: lists, tuples or arrays."""
Fetch: TypeAlias = "Callable[[str], tuple[Sequence[str], Sequence[tuple[Any, ...]]]]"
"""Executes a statement and returns the names of the answer's columns, and its rows."""
_NO_NUMBER = -(2**63)
"""The number of no series."""
_ALL_TAGS = 'SELECT * FROM "tags"'


def inventory(fetch: Fetch, like_ours: str, measurements: Sequence[Measurement], *, series: bool) -> Inventory:
    """Return the inventory of a database; the statement `like_ours` finds the tables with a time as ours have it."""
    ours = table_names(measurements)
    tables = tuple(sorted({name for (name,) in fetch(like_ours)[1]} - {*ours}))
    tags = next((m.tags for m in measurements if m.tags), ())
    if not series or not tags:
        return Inventory(tables)
    columns = ("id", *tags, OTHERS)
    return Inventory(tables, stored_rows(columns, *by_column(*fetch(_ALL_TAGS))))


def by_column(of: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> NamedColumns:
    """Return the columns of an answer that came as rows."""
    return of, [*zip(*rows, strict=True)] if rows else [()] * len(of)


def read_stored(fetch: Callable[[Statement], NamedColumns], statement: Statement, columns: tuple[str, ...]) -> Rows:
    """Return the rows of a `Stored` under its columns; `fetch` executes a statement."""
    tags = fetch(Statement(_ALL_TAGS)) if statement.has_tags_apart else None
    return stored_rows(columns, *fetch(statement), tags)


def stored_rows(
    columns: tuple[str, ...], of: Sequence[str], values: Sequence[Any], tags: NamedColumns | None = None
) -> Rows:
    """Return the rows of a `Stored`; `of` names the columns of the answer, which are `values`.

    If the tags of rows are in a table of their own, `tags` is that table, by whose `id` the answer has `tags_id`. To
    join them here takes less than half the time: in each row they would be most of its values.
    """
    pairs, size = [*zip(of, values, strict=True)], len(values[0]) if values else 0
    if tags is not None:
        pairs, size = _joined(pairs, *tags)
    known: dict[str, Any] = {}
    others = []
    for name, column in pairs:
        if name in known or (name not in columns and name != OWN_TAGS):
            others.append((name, column))
        else:
            known[name] = column
    stored, *more = ByColumn([known.pop(OWN_TAGS, ()), *(column for _, column in others)]).lists()
    own: list[dict[str, Any]] = [*map(_own_tags, stored)] if any(stored) else [{} for _ in range(size)]
    made = [known[name] if name in known else [each.pop(name, None) for each in own] for name in columns[:-1]]
    rest: list[Any] = [None] * size
    if any(stored) or others:
        names = [name for name, _ in others]
        columns_of_others = zip(*more, strict=True) if others else repeat(())
        rest = [
            others_text({**one, **dict(zip(names, row, strict=True))})
            for one, row in zip(own, columns_of_others, strict=False)
        ]
    return Rows(columns, ByColumn([*made, rest]))


def _joined(
    pairs: Sequence[tuple[str, Any]], of: Sequence[str], tags: Sequence[Any]
) -> tuple[list[tuple[str, Any]], int]:
    """Return the named columns of rows with those of the tags of their series, as a left join has them, and the length.

    A row of which no series has the number lacks all tags; one of which several have it, is as many.
    """
    (numbers,) = (_integers(column, _NO_NUMBER) for name, column in pairs if name == "tags_id")
    ids = _integers(tags[[*of].index("id")], _NO_NUMBER + 1)
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    first = np.searchsorted(ordered, numbers)
    others = [(name, column) for name, column in pairs if name != "tags_id"]
    if (ordered[1:] == ordered[:-1]).any():
        times = np.maximum(np.searchsorted(ordered, numbers, "right") - first, 1)
        rows = np.repeat(np.arange(len(numbers)), times)
        others = [(name, [column[row] for row in rows.tolist()]) for name, column in others]
        first = first[rows] + np.arange(len(rows)) - np.repeat(np.cumsum(times) - times, times)
        numbers = numbers[rows]
    is_known = np.append(ordered, _NO_NUMBER + 1)[first] == numbers
    codes = np.where(is_known, np.append(order, -1)[first], -1).astype(np.int32)
    none = cast("str", None)  # the last of each column, that of -1
    of_tags = zip(of, ByColumn([*tags]).lists(), strict=True)
    return [*others, *((name, Codes(codes, (*column, none))) for name, column in of_tags if name != "id")], len(codes)


def _integers(column: Any, otherwise: int) -> NDArray[np.int64]:
    """Return a column's integers, with `otherwise` in place of all else."""
    values = np.array(column)
    if values.dtype.kind == "i":
        return values
    return np.array([value if type(value) is int else otherwise for value in column], dtype=np.int64)


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
            if columns[-1] != OTHERS:
                return Rows(columns, self._fetch(statement.text, statement.params)[1])
            return read_stored(self._by_column, statement, columns)

    def _by_column(self, statement: Statement) -> NamedColumns:
        return by_column(*self._fetch(statement.text, statement.params))

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
