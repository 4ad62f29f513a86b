# ruff: noqa: S608 - names are quoted by sql.quoted
"""The condition that a row belongs to any of the series of its table, for looking up a window of rows by their key.

In a table with the key (tags_id, time) the rows of a window lie apart, those of each series in a place of their own.
MySQL and MariaDB look such rows up by key only if the series are literals, and with a subquery read the whole table:
50,000 rows of 17 million, on disk, took 45 s. So a session asks for the series first, which the key answers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tsbench.targets.sql import quoted

if TYPE_CHECKING:
    from tsbench.targets.mysql.connection import Connection

_SUBQUERY = re.compile(r'"tags_id" IN \((SELECT DISTINCT "tags_id" FROM "(?:[^"]|"")+")\)')


def condition(table: str) -> str:
    """Return the condition as SQL that can be executed as it is."""
    return f'm."tags_id" IN (SELECT DISTINCT "tags_id" FROM {quoted(table)})'


def resolved(text: str, connection: Connection) -> str:
    """Return a statement with the series that the table has now in place of its subquery, if it has the condition."""
    found = _SUBQUERY.search(text)
    if found is None:
        return text
    series = ", ".join(str(number) for (number,) in connection.execute(found[1].encode())) or "NULL"
    with_series = f"{text[: found.start(1)]}{series}{text[found.end(1) :]}"
    return with_series if len(with_series) < connection.max_packet_bytes else text
