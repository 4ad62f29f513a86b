"""The SQLite target, in process; an endpoint is `sqlite:///absolute/path.db`."""

from __future__ import annotations

from tsbench.servers.embedded import EmbeddedServer
from tsbench.targets.sqlite.schemas import CLUSTERED, WAL
from tsbench.targets.target import Requirement, Target


class SqliteServer(EmbeddedServer):
    """The directory of an SQLite database."""

    scheme = "sqlite"
    file = "tsbench.db"


TARGET = Target(
    name="sqlite",
    product="SQLite",
    form="sqlite:///absolute/path.db",
    schemes=("sqlite",),
    schemas={s.name: s for s in (WAL, CLUSTERED)},
    parser="tsbench.targets.endpoint:parse_file",
    opener="tsbench.targets.sqlite.session:connect",
    server="tsbench.targets.sqlite:SqliteServer",
    cooperative=False,
    embedded=True,
    read_only="PRAGMA query_only = ON",
    durability="`journal_mode = WAL`, `synchronous = FULL`",
    has_counters=True,
    requirements=(
        Requirement("SQLite", "use a Python that was built with SQLite", modules=("sqlite3",), is_optional=False),
    ),
)
