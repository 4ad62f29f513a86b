from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, ClassVar

import pytest

from tests.targets.mysql.support import bare, new_database
from tsbench.targets.mysql.schemas import SCHEMAS
from tsbench.testing import data
from tsbench.testing.contract import TargetContract
from tsbench.testing.data import START_NS, S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tsbench.model import Measurement, WriteMode
    from tsbench.targets.base import Payload, Schema, Session
    from tsbench.targets.mysql.server import MariadbServer, MysqlServer
    from tsbench.targets.target import Target
    from tsbench.testing.contract_base import Alteration, Point

COMPRESSED: Mapping[str, str] = {"innodb-compressed": "innodb", "innodb-compressed-by-time": "innodb-by-time"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Contract(TargetContract):
    @pytest.fixture
    def url(self, mysql_server: Callable[[str], MariadbServer | MysqlServer]) -> Iterator[str]:
        with new_database(mysql_server(self.name).endpoint) as url:
            yield url

    @staticmethod
    def stored(url: str, measurement: Measurement) -> Sequence[Point]:
        with bare(url) as cursor:
            cursor.execute(f'SELECT * FROM "{measurement.name}"')
            columns = [column[0] for column in cursor.description]
            rows = [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
        return [
            (
                (row["time"].replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1) * 1_000,
                row["tags_id"] if measurement.tags else None,
                *(float(row[name]) for name in measurement.field_names),
                json.loads(row["additional_tags"]) if measurement.own_tags else None,
            )
            for row in rows
        ]

    @staticmethod
    def alter(url: str, alteration: Alteration) -> None:
        time = f"TIMESTAMP'1970-01-01 00:00:00' + INTERVAL {alteration.time_ns // 1_000} MICROSECOND"
        with bare(url) as cursor:
            for statement in alteration.sql(time):
                cursor.execute(statement)

    def refused_in_part(
        self, session: Session, target: Target, url: str, schema: Schema, mode: WriteMode
    ) -> tuple[Session, Payload, int]:
        batch = data.batch(data.CPU, data.shared_tags(), time_ns=[START_NS, START_NS + S, START_NS + 2 * S])
        batch.fields["count"][:] = (1, 2, 3)
        refuse = "BEFORE INSERT ON cpu FOR EACH ROW BEGIN IF NEW.count = 2 THEN SIGNAL SQLSTATE '45000'; END IF; END"
        with bare(url) as cursor:
            cursor.execute(f"CREATE TRIGGER no_two {refuse}")
        return session, schema.encode(batch, mode), 1


@pytest.mark.mariadb
class TestMariadb(_Contract):
    name = "mariadb"
    wrong_endpoints = (
        "nonsense",
        "http://127.0.0.1:1/x",
        "mariadb://root@h:port/tsbench",
        "mariadb://root@h/somebody",
        "mariadb://root@127.0.0.1:1/tsbench",
        "mariadb://root@127.0.0.1:1/tsbench?password_file=/no/such/file",
    )
    absent: ClassVar[frozenset[str]] = frozenset({"tokudb", "tokudb-by-time"})
    variants: ClassVar[Mapping[str, str]] = {**COMPRESSED, "rocksdb-by-time": "innodb-by-time"}


@pytest.mark.mysql
class TestMysql(_Contract):
    name = "mysql"
    wrong_endpoints = ("nonsense", "mariadb://root@127.0.0.1/tsbench", "mysql://root@127.0.0.1:1/tsbench")
    absent: ClassVar[frozenset[str]] = frozenset(s.name for s in SCHEMAS if s.engine in {"TokuDB", "RocksDB"})
    variants = COMPRESSED
