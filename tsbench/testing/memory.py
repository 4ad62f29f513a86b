"""The in-process database: every query answered by polars, exactly as `model.py` words it.

It has three uses: the model of the contract suite, a database for dry runs, and the way to measure the load generator's
own ceiling (a write costs one list append). `memory://NAME` is shared by the sessions of this process.
"""

from __future__ import annotations

import os
from urllib.parse import quote

from tsbench.servers.embedded import InMemoryServer
from tsbench.targets import endpoint
from tsbench.targets.target import Access, Driver, Endpoint, Target
from tsbench.testing.schemas import KEEP, REPLACE


class MemoryServer(InMemoryServer):
    """The in-memory database: its name is the directory's, so that runs do not share it."""

    @property
    def endpoint(self) -> str:
        return f"memory://{quote(os.fsencode(self._directory))}"


def parse(url: str, target: Target) -> Endpoint:
    """Parse an endpoint, of which all after the scheme is a name."""
    return endpoint.parse(url, target, Endpoint, hosts="")


TARGET = Target(
    name="memory",
    product="the in-memory database",
    form="memory://NAME",
    schemes=("memory",),
    schemas={s.name: s for s in (KEEP, REPLACE)},
    parser="tsbench.testing.memory:parse",
    opener="tsbench.testing.session:connect",
    server="tsbench.testing.memory:MemoryServer",
    driver=Driver("polars", "report", ("polars",)),
    durable=False,
    access=Access.ONE_PROCESS,
    embedded=True,
)
