"""The MongoDB target, by pymongo; also FerretDB, which speaks its protocol.

An endpoint is a MongoDB URL without a password, with a database. Options after a question mark are MongoDB's (`w`,
`journal`, `tls`, ...), or tsbench's own: `ordered`, and for time-series collections `granularity`,
`bucketMaxSpanSeconds` and `expireAfterSeconds`.
"""

from __future__ import annotations

from tsbench.targets.mongodb.endpoint import OURS
from tsbench.targets.mongodb.schemas import SCHEMAS
from tsbench.targets.target import Driver, Requirement, Target

TARGET = Target(
    name="mongodb",
    product="MongoDB",
    form="mongodb://user@host:27017/tsbench",
    schemes=("mongodb", "mongodb+srv"),
    schemas={s.name: s for s in SCHEMAS},
    options=("w", "journal", *OURS, "tls"),
    parser="tsbench.targets.mongodb.endpoint:parse",
    opener="tsbench.targets.mongodb.session:connect",
    server="tsbench.targets.mongodb.server:FerretdbServer",
    driver=Driver("pymongo", "mongodb", ("pymongo",)),
    greetings=(rb"HTTP/1\.\d .*MongoDB", rb".{12}\xdd\x07\0\0"),
    secrets=("TSBENCH_PASSWORD",),
    resolution_ns=1_000_000,
    durability="FerretDB's PostgreSQL: `fsync = on`, `synchronous_commit = on`",
    acknowledges_in_part=True,
    has_counters=True,
    requirements=(Requirement("FerretDB (mongodb)", programs=("ferretdb", "documentdb")),),
)
