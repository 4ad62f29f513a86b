"""The MongoDB target, by pymongo; also FerretDB, which speaks its protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tsbench.targets.base import Access, Driver, require_driver
from tsbench.targets.mongodb.schemas import SCHEMAS, DocumentSchema
from tsbench.targets.requirements import LocalServer, Part

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tsbench.net.tcp import NewWaiter
    from tsbench.targets.base import Schema
    from tsbench.targets.mongodb.session import MongodbSession


@dataclass(frozen=True, slots=True)
class MongodbTarget:
    """The MongoDB target; an endpoint is a MongoDB URL without a password, with a database.

    Options after a question mark are MongoDB's (`w`, `journal`, `tls`, ...), or tsbench's own: `ordered`, and for
    time-series collections `granularity`, `bucketMaxSpanSeconds` and `expireAfterSeconds`.
    """

    name: str
    schemas: Mapping[str, DocumentSchema]
    durable: bool = True
    driver: Driver | None = Driver("pymongo", "mongodb", ("pymongo",))
    resolution_ns: int = 1_000_000
    cooperative: bool = True
    access: Access = Access.ANY_PROCESS
    embedded: bool = False
    acknowledges_in_part: bool = True
    has_counters: bool = True
    startable: bool = True
    requirements: tuple[Part, ...] = (
        LocalServer("FerretDB (mongodb)", ("ferretdb", "documentdb"), "run .ci/servers, or give --endpoint"),
    )

    def check_endpoint(self, endpoint: str) -> None:
        """Verify the form of an endpoint."""
        from tsbench.targets.mongodb.endpoint import parse

        parse(endpoint)

    def expires_after_s(self, endpoint: str) -> int | None:
        from tsbench.targets.mongodb.endpoint import parse

        return parse(endpoint).expire_after_s

    def connect(
        self,
        endpoint: str,
        schema: Schema,
        *,
        timeout_s: float = 30.0,
        connect_timeout_s: float | None = None,
        waiter: NewWaiter | None = None,
    ) -> MongodbSession:
        """Open a session; see `tsbench.targets.mongodb.session.connect`."""
        require_driver(self)
        from tsbench.targets.mongodb.session import connect

        layout = self.schemas[schema.name]
        return connect(endpoint, layout, timeout_s=timeout_s, connect_timeout_s=connect_timeout_s, waiter=waiter)


TARGET = MongodbTarget("mongodb", {s.name: s for s in SCHEMAS})
