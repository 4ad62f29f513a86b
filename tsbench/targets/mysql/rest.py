"""How the engines come to rest after a bulk load: purge and written pages, flush and compaction, awaited."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tsbench.targets.mysql.connection import Connection
    from tsbench.targets.mysql.products import Product

_PERIOD_S = 0.1
_STILL_S = 2.0
"""A number that has not fallen for so long, in seconds, is taken as low as it gets: others may use the server."""
_DIRTY = b"SHOW GLOBAL STATUS WHERE Variable_name = 'Innodb_buffer_pool_pages_dirty'"
_MARGINS = ("innodb_max_dirty_pages_pct_lwm", "innodb_max_dirty_pages_pct")


def purge(connection: Connection, product: Product, timeout_s: float) -> None:
    """Wait until InnoDB has purged old versions of rows, then until it has written all changed pages.

    It writes them all with a limit of 0 % of changed pages; the server's own limits are set again afterwards.
    """
    deadline = time.monotonic() + timeout_s
    if product.purge:
        connection.execute(product.purge.encode())
    _await_low(lambda: float(connection.execute(product.history.encode())[0][0]), deadline)
    ((low, high),) = connection.execute(f"SELECT {', '.join(f'@@GLOBAL.{name}' for name in _MARGINS)}".encode())
    try:
        for name in _MARGINS:
            connection.execute(f"SET GLOBAL {name} = 0".encode())
        _await_low(lambda: float(connection.execute(_DIRTY)[0][1]), deadline)
    finally:
        if not connection.is_interrupted:
            # The lower one may not be above the higher one.
            for name, value in zip(reversed(_MARGINS), (high, low), strict=True):
                connection.execute(f"SET GLOBAL {name} = {value}".encode())


def compact(connection: Connection) -> None:
    """Flush RocksDB's memtables and compact its files; both end when it is done."""
    connection.execute(b"SET GLOBAL rocksdb_force_flush_memtable_now = 1")
    connection.execute(b"SET GLOBAL rocksdb_compact_cf = 'default'")


def _await_low(read: Callable[[], float], deadline: float) -> None:
    """Wait until a number is 0, or has not fallen for some time."""
    lowest, since = read(), time.monotonic()
    while lowest > 0 and time.monotonic() < min(deadline, since + _STILL_S):
        time.sleep(_PERIOD_S)
        number = read()
        if number < lowest:
            lowest, since = number, time.monotonic()
