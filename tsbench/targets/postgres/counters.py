"""PostgreSQL's counters: their names, and the views that have them in each version. One statement, one row of JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tsbench.results.panels import Panel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


_DATABASE = _same(
    *("xact_commit", "xact_rollback", "blks_read", "blks_hit", "tup_returned", "tup_fetched"),
    *("tup_inserted", "tup_updated", "tup_deleted", "temp_bytes", "deadlocks", "blk_read_time", "blk_write_time"),
)
_WAL = _same("wal_records", "wal_fpi", "wal_bytes", "wal_buffers_full")
_WRITER = _same("buffers_clean", "maxwritten_clean", "buffers_alloc")
_CHECKPOINTER = _same("num_timed", "num_requested", "write_time", "sync_time", "buffers_written")
_OLD_CHECKPOINTER = {  # up to 16 these were the background writer's
    "num_timed": "checkpoints_timed",
    "num_requested": "checkpoints_req",
    "write_time": "checkpoint_write_time",
    "sync_time": "checkpoint_sync_time",
    "buffers_written": "buffers_checkpoint",
}
_WAITS = {  # sessions on this database; the one that asks is not waiting
    kind.lower(): f"count(*) FILTER (WHERE wait_event_type = '{kind}')" for kind in ("Lock", "LWLock", "IO")
}
PANELS = (
    Panel(
        "Transactions",
        "count",
        "rate",
        {"database.xact_commit": "commits", "database.xact_rollback": "roll-backs"},
    ),
    Panel("Rows written", "count", "rate", {"database.tup_inserted": "rows inserted"}),
    Panel("Rows read", "count", "rate", {"database.tup_returned": "scanned", "database.tup_fetched": "by index"}),
    Panel(
        "Blocks", "count", "rate", {"database.blks_hit": "in shared buffers", "database.blks_read": "from the system"}
    ),
    Panel(
        "Logged and written back",
        "bytes",
        "rate",
        {"wal.wal_bytes": "write-ahead log", "database.temp_bytes": "temporary files"},
        explains_stalls=True,
    ),
    Panel(
        "Checkpoints",
        "count",
        "rate",
        {"checkpointer.num_timed": "timed", "checkpointer.num_requested": "requested"},
        explains_stalls=True,
    ),
    Panel(
        "Blocks written back",
        "count",
        "rate",
        {"checkpointer.buffers_written": "by checkpoints", "writer.buffers_clean": "by the background writer"},
        explains_stalls=True,
    ),
    Panel(
        "Sessions that wait",
        "count",
        "gauge",
        {"waits.lock": "for a lock", "waits.lwlock": "for a lock in memory", "waits.io": "for the disk"},
        explains_stalls=True,
    ),
)
"""What of them the report plots."""
PARTS = ("database", "writer", "checkpointer", "wal", "waits")
"""Prefixes of the counters' names, in the order of the columns."""


def text(version: int) -> str:
    """Return the statement for a server's version, as libpq numbers it (160004)."""
    checkpointer = "pg_stat_checkpointer" if version >= 170_000 else "pg_stat_bgwriter"
    names = _CHECKPOINTER if version >= 170_000 else _OLD_CHECKPOINTER
    wal = f"(SELECT {_object(_WAL)} FROM pg_stat_wal)" if version >= 140_000 else "'{}'::jsonb"  # noqa: S608 - our own names
    return (
        f"SELECT (SELECT {_object(_DATABASE)} FROM pg_stat_database\n"  # noqa: S608 - our own names
        "        WHERE datname = current_database()),\n"
        f"       (SELECT {_object(_WRITER)} FROM pg_stat_bgwriter),\n"
        f"       (SELECT {_object(names)} FROM {checkpointer}),\n"
        f"       {wal},\n"
        f"       (SELECT {_object(_WAITS)} FROM pg_stat_activity\n"
        "        WHERE datname = current_database() AND pid <> pg_backend_pid())"
    )


def named(row: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the counters by name, from the row that the statement returns."""
    return {
        f"{part}.{name}": float(value)
        for part, values in zip(PARTS, row, strict=True)
        for name, value in values.items()
    }


def _object(columns: Mapping[str, str]) -> str:
    pairs = ", ".join(f"'{name}', {column}" for name, column in columns.items())
    return f"jsonb_build_object({pairs})"
