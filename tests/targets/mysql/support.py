"""The bare driver, for tests that look at what is stored without our session."""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tsbench.targets.registry import get

if TYPE_CHECKING:
    from collections.abc import Iterator

_numbers = itertools.count()


@contextmanager
def bare(url: str) -> Iterator[Any]:
    """Yield a cursor of mysqlclient's own, without the modes of our sessions but with standard quotes."""
    import MySQLdb

    name = url.partition(":")[0]
    of: Any = get(name).parse(url)
    connection = MySQLdb.connect(
        host=of.host, port=of.port, user=of.user, password=of.password(), autocommit=True, charset="utf8mb4"
    )
    cursor = connection.cursor()
    try:
        cursor.execute("SET sql_mode = 'ANSI_QUOTES'")
        cursor.execute("SELECT count(*) FROM information_schema.schemata WHERE schema_name = %s", (of.path,))
        if cursor.fetchone()[0]:
            cursor.execute(f'USE "{of.path}"')
        yield cursor
    finally:
        connection.close()


@contextmanager
def new_database(endpoint: str) -> Iterator[str]:
    """Yield the endpoint of a database that does not exist, and drop what the test made of it."""
    place, _, options = endpoint.partition("?")
    database = f"tsbench_{next(_numbers)}"
    url = f"{place.rpartition('/')[0]}/{database}?{options}"
    yield url
    with bare(url) as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {database}")
