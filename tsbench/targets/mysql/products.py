"""What MySQL and MariaDB have under different names: time limits, tables of sizes and counters, how InnoDB rests."""

from __future__ import annotations

from dataclasses import dataclass


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
