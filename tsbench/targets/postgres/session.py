"""One psycopg connection as a session: time limits, and the causes of errors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tsbench.model import WriteMode
from tsbench.results.panels import Panel
from tsbench.targets.base import Plan, ServerObject, Statement, grouped, nodes
from tsbench.targets.endpoint import open_or_name
from tsbench.targets.pgwire.login import parameters, refused
from tsbench.targets.pgwire.session import PgwireSession
from tsbench.targets.postgres import counters
from tsbench.targets.postgres.schemas import CHUNK_INTERVAL, EXTENSIONS, INTERVAL, NAMESPACE, TIME_BUCKET
from tsbench.targets.sql import quoted, table_names, tables_of
from tsbench.targets.sql_session import inventory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tsbench.model import Measurement
    from tsbench.net.tcp import NewWaiter
    from tsbench.targets.base import Inventory, Payload, Schema
    from tsbench.targets.target import Endpoint

_PARTS = ("table", "index", "toast")
_SINGLE = WriteMode.SINGLE  # a member of an enum takes 0.1 us to look up


class PostgresSession(PgwireSession):
    """One connection in autocommit mode with time zone UTC."""

    product = "PostgreSQL"
    options = f"-c search_path={NAMESPACE}"
    prepares_queries = False
    """From its sixth execution on, a prepared statement may have a plan that does not know the values. For a window of
    time it took the index of the time alone: 68 ms in place of 8.8 for eight hours of one of 100 hosts."""
    panels: Sequence[Panel] = counters.PANELS

    @classmethod
    def connect(
        cls,
        of: Endpoint,
        schema: Schema,
        *,
        timeout_s: float,
        connect_timeout_s: float,
        waiter: NewWaiter | None = None,
    ) -> PostgresSession:
        """Open a session, as `Target.connect` says."""
        given = parameters(of.url)

        def opened(limit_s: float) -> PostgresSession:
            session = cls(given, timeout_s, waiter)
            try:
                session.reconnect(limit_s)
            except Exception as error:  # also whatever psycopg raises for an answer that it cannot decode
                raise refused(of.url, error) from error
            return session

        place = (of.host, of.port) if of.host else None
        return open_or_name(opened, connect_timeout_s, place, {"a PostgreSQL server"}, of.url)

    def write(self, payload: Payload) -> int:
        connection = self.begin(self._timeout_s)
        try:  # as `_op`, which would be a tenth of what a write of one row costs
            if payload.mode is _SINGLE:
                return connection.statements.execute_prepared(payload.text, payload.data)
            if payload.mode is WriteMode.MULTI:
                # It has thousands of parameters; keeping its plan would cost more than parsing it.
                return connection.statements.execute_once(payload.text, payload.data)
            return connection.statements.copy_in(payload.text, payload.data)
        except BaseException as error:
            self.end(connection, error, self._timeout_s)
            raise

    def explain(self, statement: Statement) -> Plan:
        with self._op() as connection:
            text = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement.text}"
            ((answer,),) = connection.execute(text, statement.params or None, prepare=False).fetchall()
        return _plan(answer[0])

    def facts(self) -> Mapping[str, str]:
        """Return the server's version and every setting that differs from its default."""
        text = (
            "SELECT name, current_setting(name) FROM pg_settings\n"
            "WHERE source NOT IN ('default', 'client', 'session', 'override')"
        )
        with self._op() as connection:
            version = connection.execute("SHOW server_version").fetchall()[0][0]
            return {"version": f"PostgreSQL {version}", **dict(connection.execute(text).fetchall())}

    def sizes(self, measurements: Sequence[Measurement]) -> Mapping[str, int]:
        """Return the bytes of tables, indexes and out-of-line storage (with free-space and visibility maps)."""
        return self._sizes_of(tables_of(measurements))

    def _sizes_of(self, tables: Sequence[str]) -> dict[str, int]:
        text = (
            "SELECT coalesce(sum(pg_relation_size(r)), 0)::bigint, coalesce(sum(pg_indexes_size(r)), 0)::bigint,\n"
            "       coalesce(sum(pg_table_size(r) - pg_relation_size(r)), 0)::bigint\n"
            "FROM (SELECT quote_ident(n)::regclass AS r FROM unnest($1::text[]) AS n) AS relations"
        )
        with self._op() as connection:
            sizes = connection.execute(text, (list(tables),)).fetchall()[0]
        return dict(zip(_PARTS, sizes, strict=True))

    def objects(self, measurements: Sequence[Measurement]) -> Sequence[ServerObject]:
        """Return the tables, the function that TSBS's queries call, and our namespace, which goes with it."""
        tables = (
            "SELECT n.nspname, c.relname, c.oid::text\n"
            "FROM unnest($1::text[]) AS t(name) JOIN pg_class c ON c.oid = to_regclass(quote_ident(t.name))\n"
            "JOIN pg_namespace n ON n.oid = c.relnamespace"
        )
        namespace = (
            "SELECT oid::text, (SELECT count(*) FROM pg_class WHERE relnamespace = n.oid)\n"
            "  + (SELECT count(*) FROM pg_proc p\n"
            "     WHERE pronamespace = n.oid AND p.oid IS DISTINCT FROM to_regprocedure($2))\n"
            "  + (SELECT count(*) FROM pg_type WHERE typnamespace = n.oid)\n"
            "FROM pg_namespace n WHERE nspname = $1"
        )
        with self._op() as connection:
            tables_all = [
                ServerObject(
                    f"table {place}.{name}", (Statement(f"DROP TABLE {quoted(place)}.{quoted(name)}"),), number
                )
                for place, name, number in connection.execute(tables, (table_names(measurements),)).fetchall()
            ]
            function = Statement(f"DROP FUNCTION IF EXISTS {TIME_BUCKET}")
            for (number,) in connection.execute("SELECT to_regprocedure($1)::oid::text", (TIME_BUCKET,)).fetchall():
                tables_all += [ServerObject(f"function {TIME_BUCKET}", (function,), number)] if number else []
            for number, holds in connection.execute(namespace, (NAMESPACE, TIME_BUCKET)).fetchall():
                drop = Statement(f"DROP SCHEMA {quoted(NAMESPACE)}")  # which fails if anything is in it
                tables_all.append(ServerObject(f"schema {NAMESPACE}", (function, drop), number, holds))
        return tables_all

    def inventory(self, measurements: Sequence[Measurement], *, series: bool) -> Inventory:
        like_ours = (
            "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace\n"
            "JOIN pg_attribute t ON t.attrelid = c.oid AND t.attname = 'time' AND t.atttypid = 'timestamptz'::regtype\n"
            "JOIN pg_attribute o ON o.attrelid = c.oid AND o.attname = 'additional_tags'\n"
            "WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p') AND o.atttypid = 'jsonb'::regtype"
        )

        def fetch(text: str) -> tuple[list[str], list[tuple[Any, ...]]]:
            cursor = connection.execute(text, prepare=False)  # a column may have been added to it since
            return [column.name for column in cursor.description or ()], cursor.fetchall()

        with self._op() as connection:
            return inventory(fetch, like_ours, measurements, series=series)

    def counters(self) -> Mapping[str, float]:
        """Return the server's counters of this database, its checkpoints and its write-ahead log.

        Sessions report what they did at most once a second, so a total may be that late.
        """
        with self._op() as connection:
            text = counters.text(connection.info.server_version)
            row = connection.execute(text, prepare=True).fetchall()[0]
        return counters.named(row)


_LOOKED_AT = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
_BLOCKS = ("Shared Hit Blocks", "Shared Read Blocks")


def _plan(answer: Mapping[str, Any]) -> Plan:
    """Return the plan in the answer to EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON).

    Rows are examined where a table is read: those that a filter or a look at the block removed are among them. Blocks
    are those of all tables and indexes, whether they were in shared buffers or not.
    """
    top = answer["Plan"]
    scans = [node for node in nodes(top) if str(node.get("Node Type", "")).endswith("Scan")]
    scans = [node for node in scans if node["Node Type"] != "Custom Scan" or "Plans" not in node]  # those of chunks
    read = [node for node in scans if "Relation Name" in node]
    return Plan(
        grouped(_accesses(scans)) or str(top["Node Type"]),
        round(sum(_total(node, *_LOOKED_AT) for node in read)),
        round(_total(top, "Actual Rows")),
        float(answer["Execution Time"]),
        json.dumps(answer, default=str, ensure_ascii=False),
        blocks=sum(int(top.get(name, 0)) for name in _BLOCKS),
    )


def _total(node: Mapping[str, Any], *names: str) -> float:
    """Return the sum of figures over all loops of a node, which has means."""
    return float(node.get("Actual Loops", 1)) * sum(float(node.get(name, 0)) for name in names)


def _accesses(scans: list[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the scans that were executed, each with its index or table."""
    for node in scans:
        if node.get("Actual Loops", 1):
            yield str(node["Node Type"]), str(node.get("Index Name") or node.get("Relation Name") or "")


class TimescaleSession(PostgresSession):
    """One connection to PostgreSQL with TimescaleDB."""

    panels = (
        *counters.PANELS,
        Panel("Chunks", "count", "gauge", {"chunks": "of all hypertables"}, explains_stalls=True),
    )

    def facts(self) -> Mapping[str, str]:
        """Return also the extension's version, which is the product's, and its licence (apache: no compression)."""
        text = (
            "SELECT coalesce(installed_version, default_version), current_setting('timescaledb.license', true),\n"
            f"       {INTERVAL}::text\n"
            "FROM pg_available_extensions WHERE name = 'timescaledb'"
        )
        facts = dict(super().facts())
        with self._op() as connection:
            rows = connection.execute(text).fetchall()
        if not rows:
            return facts
        version, licence, interval = rows[0]
        facts |= {"version": f"TimescaleDB {version} on {facts['version']}", CHUNK_INTERVAL: interval}
        return facts | ({"timescaledb.license": licence} if licence else {})

    def sizes(self, measurements: Sequence[Measurement]) -> Mapping[str, int]:
        """Return the bytes of tables, indexes and out-of-line storage, with those of all chunks, compressed or not."""
        text = (
            "SELECT sum(h.table_bytes)::bigint, sum(h.index_bytes)::bigint, coalesce(sum(h.toast_bytes), 0)::bigint\n"
            f"FROM unnest($1::text[]) AS n, {EXTENSIONS}.hypertable_detailed_size(quote_ident(n)::regclass) AS h"
        )
        with self._op() as connection:
            ((*parts,),) = connection.execute(text, ([m.name for m in measurements],)).fetchall()
        tags = self._sizes_of(["tags"] * any(m.tags for m in measurements))
        return {part: size + tags[part] for part, size in zip(_PARTS, parts, strict=True)}

    def counters(self) -> Mapping[str, float]:
        """Return the server's counters, with the number of chunks of our hypertables."""
        text = (
            "SELECT count(*) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhparent\n"
            "WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'"
        )
        with self._op() as connection:
            ((chunks,),) = connection.execute(text, prepare=True).fetchall()
        return {**super().counters(), "chunks": float(chunks)}
