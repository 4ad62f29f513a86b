"""What MySQL and MariaDB have under different names, and how their engines come to rest after a bulk load."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tsbench.targets.base import Plan, grouped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tsbench.targets.mysql.connection import Connection


@dataclass(frozen=True, slots=True)
class Product:
    """The statements of one product; `limit` has a place `{ms}`, and `session` is a setting of every session."""

    name: str
    limit: str
    tablespaces: str
    purge: str
    history: str
    session: str = ""
    has_metrics: bool = False
    """True if counters are in information_schema.innodb_metrics that are no status variables."""

    def limit_text(self, timeout_s: float) -> str:
        """Return the assignment that sets the server's own time limit of a statement; 0 would be none."""
        return self.limit.format(ms=max(1, round(timeout_s * 1_000)))


PRODUCTS = {
    "MariaDB": Product(
        "MariaDB",
        limit="max_statement_time = {ms} / 1000",
        tablespaces="information_schema.innodb_sys_tablespaces",
        purge="SET GLOBAL innodb_max_purge_lag_wait = 0",
        history="SELECT variable_value FROM information_schema.global_status\n"
        "WHERE variable_name = 'Innodb_history_list_length'",
    ),
    "MySQL": Product(
        "MySQL",
        limit="max_execution_time = {ms}",  # of SELECT only; others are left to their end
        tablespaces="information_schema.innodb_tablespaces",
        purge="",  # it has no statement that waits
        history="SELECT count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'",
        session="information_schema_stats_expiry = 0",  # else sizes are up to a day old
        has_metrics=True,
    ),
}


def product_of(server: str) -> Product:
    """Return the product by the version that a server sends."""
    return PRODUCTS["MariaDB" if "MariaDB" in server else "MySQL"]


def sizes_text(product: Product) -> str:
    """Return the query for tables: name, bytes of data and indexes as the engine counts them, and of the file."""
    return (
        "SELECT t.table_name, t.data_length, t.index_length, s.file_size\n"
        f"FROM information_schema.tables t LEFT JOIN {product.tablespaces} s\n"
        "  ON s.name = concat(t.table_schema, '/', t.table_name)\n"
        "WHERE t.table_schema = {database} AND t.table_name IN ({tables})"
    )


READS = b"SHOW SESSION STATUS LIKE 'Handler_read%'"
"""Query for the numbers of rows that the session's statements read, by the way; it reads some itself."""


def plan(steps: tuple[Sequence[str], Sequence[tuple[Any, ...]]], examined: int, returned: int) -> Plan:
    """Return the plan in the answer to EXPLAIN: names of columns, and rows."""
    columns, rows = steps
    steps_all = [dict(zip(columns, row, strict=True)) for row in rows]
    ways = grouped((f"{step['type']} on {step['table']}", step["key"] or "") for step in steps_all if step["table"])
    text = json.dumps(steps_all, default=str, ensure_ascii=False)
    return Plan(ways or "no table", examined, returned, None, text)


FACTS = (
    "version_comment",
    "innodb_buffer_pool_size",
    "innodb_flush_log_at_trx_commit",
    "innodb_flush_method",
    "innodb_log_file_size",
    "innodb_redo_log_capacity",
    "innodb_doublewrite",
    "innodb_page_size",
    "innodb_io_capacity",
    "innodb_io_capacity_max",
    "innodb_compression_level",
    "log_bin",
    "sync_binlog",
    "max_allowed_packet",
    "tx_isolation",
    "transaction_isolation",
    "rocksdb_block_cache_size",
    "rocksdb_default_cf_options",
    "rocksdb_flush_log_at_trx_commit",
    "rocksdb_max_background_jobs",
    "rocksdb_write_disable_wal",
    "tokudb_cache_size",
    "tokudb_commit_sync",
    "tokudb_row_format",
)
"""Settings that matter to a reader of a result, where the server has them."""


# --- coming to rest ---------------------------------------------------------------------------------------------------

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
