"""Counters of MySQL and MariaDB: names in GLOBAL STATUS and in InnoDB's metrics, and how the report plots them."""

from __future__ import annotations

from tsbench.results.panels import Panel

_COMMON = (
    Panel(
        "Statements",
        "count",
        "rate",
        {"Com_replace": "REPLACE", "Com_load": "LOAD DATA", "Com_select": "SELECT", "Com_rollback": "roll-backs"},
    ),
    Panel(
        "Rows",
        "count",
        "rate",
        {
            "Handler_write": "written",
            "Handler_read_next": "read in order of a key",
            "Handler_read_key": "looked up",
            "Handler_read_rnd_next": "scanned",
        },
    ),
    Panel("Traffic", "bytes", "rate", {"Bytes_received": "received", "Bytes_sent": "sent"}),
    Panel(
        "Read and written by InnoDB",
        "bytes",
        "rate",
        {"Innodb_data_read": "read", "Innodb_data_written": "written", "Innodb_os_log_written": "redo log"},
        explains_stalls=True,
    ),
    Panel(
        "Buffer pool of InnoDB, pages",
        "count",
        "gauge",
        {
            "Innodb_buffer_pool_pages_dirty": "not yet written",
            "Innodb_buffer_pool_pages_data": "in use",
            "Innodb_buffer_pool_pages_free": "free",
        },
        explains_stalls=True,
    ),
    Panel(
        "Waits in InnoDB",
        "count",
        "rate",
        {
            "Innodb_log_waits": "for room in the log buffer",
            "Innodb_buffer_pool_wait_free": "for a free page",
            "Innodb_row_lock_waits": "for a row lock",
        },
        explains_stalls=True,
    ),
)


def _of_product(limit: str, called: str, history: str) -> tuple[Panel, ...]:
    """Return what products have under different names: a limit of the redo log, and the number of old versions."""
    age = {"Innodb_checkpoint_age": "since the checkpoint", limit: called}
    return (
        Panel("Redo log of InnoDB", "bytes", "gauge", age, explains_stalls=True),
        Panel("Old versions of rows", "count", "gauge", {history: "transactions to purge"}, explains_stalls=True),
    )


_MARIADB = _of_product("Innodb_checkpoint_max_age", "limit", "Innodb_history_list_length")
_MYSQL = _of_product("Innodb_redo_log_capacity_resized", "capacity", "trx_rseg_history_len")
_ROCKSDB = (
    Panel(
        "Written by RocksDB",
        "bytes",
        "rate",
        {
            "Rocksdb_flush_write_bytes": "memtables",
            "Rocksdb_compact_write_bytes": "compaction",
            "Rocksdb_wal_bytes": "write-ahead log",
        },
        explains_stalls=True,
    ),
    Panel(
        "Memtables of RocksDB",
        "bytes",
        "gauge",
        {"Rocksdb_memtable_total": "in memory", "Rocksdb_memtable_unflushed": "not yet written"},
        explains_stalls=True,
    ),
    Panel(
        "Writes delayed by RocksDB, us",
        "count",
        "rate",
        {"Rocksdb_stall_micros": "delay"},
        explains_stalls=True,
    ),
    Panel(
        "Writes stopped or slowed by RocksDB",
        "count",
        "rate",
        {"Rocksdb_stall_total_stops": "stopped", "Rocksdb_stall_total_slowdowns": "slowed down"},
        explains_stalls=True,
    ),
    Panel(
        "Block cache of RocksDB",
        "count",
        "rate",
        {"Rocksdb_block_cache_hit": "hits", "Rocksdb_block_cache_miss": "misses"},
    ),
)
_MORE = (
    "Threads_connected", "Threads_running", "Com_commit", "Innodb_data_fsyncs", "Innodb_pages_read",
    "Innodb_pages_written", "Innodb_buffer_pool_reads", "Innodb_buffer_pool_read_requests", "Innodb_row_lock_time",
    "Innodb_redo_log_current_lsn", "Innodb_redo_log_checkpoint_lsn", "Rocksdb_compact_read_bytes",
    "Rocksdb_wal_synced", "Rocksdb_stall_l0_file_count_limit_stops", "Rocksdb_stall_memtable_limit_stops",
    "Rocksdb_stall_pending_compaction_limit_stops",
)  # fmt: skip
"""Counters without a plot."""
METRICS = ("trx_rseg_history_len",)
"""Counters of information_schema.innodb_metrics, which MySQL has in place of a status variable."""


def panels_for(product: str, *, has_rocksdb: bool) -> tuple[Panel, ...]:
    """Return what the report plots of a server."""
    own = _MARIADB if product == "MariaDB" else _MYSQL
    return (*_COMMON, *own, *(_ROCKSDB if has_rocksdb else ()))


STATUS = tuple(
    dict.fromkeys(
        name for panel in (*_COMMON, *_MARIADB, *_MYSQL, *_ROCKSDB) for name in panel.counters if name not in METRICS
    )
) + _MORE  # fmt: skip
"""Counters of GLOBAL STATUS, where the server has them."""


def complete(values: dict[str, float]) -> dict[str, float]:
    """Return the counters with the checkpoint age, which MySQL has as two positions in the log."""
    current, checkpoint = values.get("Innodb_redo_log_current_lsn"), values.get("Innodb_redo_log_checkpoint_lsn")
    if current is None or checkpoint is None:
        return values
    return {"Innodb_checkpoint_age": current - checkpoint, **values}
