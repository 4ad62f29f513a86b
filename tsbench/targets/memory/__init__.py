"""The answer key: every query answered by polars, in process, exactly as `model.py` words it.

It has four uses: the gold answers that databases are compared with, the model of the contract suite, a database for
dry runs, and the way to measure the load generator's own ceiling (a write costs one list append).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from tsbench.errors import UserMistake
from tsbench.servers.embedded import InMemoryServer
from tsbench.targets.base import Access, Driver, KeepsAll, require_driver
from tsbench.targets.endpoint import split
from tsbench.targets.memory.schemas import KEEP, REPLACE, MemorySchema
from tsbench.text import shortened

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tsbench.net.tcp import NewWaiter
    from tsbench.targets.base import Schema
    from tsbench.targets.memory.session import MemorySession
    from tsbench.targets.requirements import Part

_FORM = "memory://NAME"


@dataclass(frozen=True, slots=True)
class MemoryTarget(KeepsAll):
    """The in-process database; `memory://NAME` is shared by the sessions of this process."""

    name: str
    schemas: Mapping[str, MemorySchema]
    durable: bool = False
    driver: Driver | None = Driver("polars", "report", ("polars",))
    resolution_ns: int = 1
    cooperative: bool = True
    access: Access = Access.OPENER
    embedded: bool = True
    acknowledges_in_part: bool = False
    has_counters: bool = False
    startable: bool = True
    requirements: tuple[Part, ...] = ()

    def check_endpoint(self, endpoint: str) -> None:
        """Verify the form of an endpoint."""
        if split(endpoint, _FORM).scheme != "memory":
            raise UserMistake(f"'{shortened(endpoint)}' is not an in-memory endpoint; write {_FORM}")

    def connect(
        self,
        endpoint: str,
        schema: Schema,
        *,
        timeout_s: float = 30.0,
        connect_timeout_s: float | None = None,
        waiter: NewWaiter | None = None,
    ) -> MemorySession:
        """Open a session on the store of that name, making it if need be. Nothing here waits, so nothing times out."""
        del timeout_s, connect_timeout_s, waiter
        require_driver(self)
        from tsbench.targets.memory.session import MemorySession, store_at

        self.check_endpoint(endpoint)
        return MemorySession(schema, store_at(endpoint))


class MemoryServer(InMemoryServer):
    """The in-memory database: its name is the directory's, so that runs do not share it."""

    @property
    def endpoint(self) -> str:
        """The URL of the store."""
        return f"memory://{quote(os.fsencode(self._directory))}"


TARGET = MemoryTarget("memory", {s.name: s for s in (KEEP, REPLACE)})
