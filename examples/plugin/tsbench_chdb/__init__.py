"""chDB (ClickHouse in our own process) as a target of tsbench, and a use case, both by entry points.

An endpoint is `chdb:///absolute/directory`. One process at a time can open it; within a process, connections share it.
"""

from __future__ import annotations

from pathlib import Path

from tsbench.servers.embedded import EmbeddedServer
from tsbench.targets.target import Access, Driver, Requirement, Target
from tsbench_chdb.schemas import MERGETREE

__all__ = ["RACKS", "TARGET", "ChdbServer"]


class ChdbServer(EmbeddedServer):
    """The directory of a chDB database."""

    scheme = "chdb"
    file = "tsbench.chdb"


TARGET = Target(
    interface=1,
    name="chdb",
    product="chDB",
    form="chdb:///absolute/directory",
    schemes=("chdb",),
    schemas={MERGETREE.name: MERGETREE},
    parser="tsbench_chdb.session:parse",
    opener="tsbench_chdb.session:connect",
    server="tsbench_chdb:ChdbServer",
    driver=Driver("chdb", "chdb", ("chdb", "chdb-core", "pyarrow")),
    cooperative=False,
    access=Access.ONE_PROCESS,
    embedded=True,
    durability="fsync_after_insert and fsync_part_directory: a part is synced before its insert returns",
    requirements=(Requirement("chDB", "pip install chdb", modules=("chdb",), is_optional=False),),
)
RACKS = Path(__file__).with_name("racks.toml")
