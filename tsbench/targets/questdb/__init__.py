"""The target for QuestDB: line protocol over HTTP, SQL over PostgreSQL's protocol."""

from __future__ import annotations

from tsbench.targets.questdb.schemas import DEDUP, WIDE
from tsbench.targets.target import Driver, Requirement, Target

TARGET = Target(
    name="questdb",
    product="QuestDB",
    form="http://user@host:9000/?pg=8812",
    schemes=("http", "https"),
    schemas={s.name: s for s in (WIDE, DEDUP)},
    options=("pg",),
    parser="tsbench.targets.questdb.session:parse",
    opener="tsbench.targets.questdb.session:connect",
    server="tsbench.targets.questdb.server:QuestServer",
    driver=Driver("psycopg", "postgres", ("psycopg",)),
    greetings=(rb"HTTP/1\.\d .*?\r\n(?i:Server: questDB)",),
    secrets=("TSBENCH_PASSWORD",),
    resolution_ns=1_000,
    has_counters=True,
    shows_at_once=False,
    durability="`cairo.commit.mode = sync`",
    requirements=(
        Requirement("QuestDB (questdb)", programs=("questdb",)),
        Requirement("Java 17 or newer (questdb)", how="install a Java runtime", programs=("java",)),
    ),
)
