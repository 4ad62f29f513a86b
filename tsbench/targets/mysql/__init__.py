"""The MySQL and MariaDB targets, by mysqlclient.

They are two targets, since figures belong to a product: a session verifies which one answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tsbench.targets.base import Access, Driver, KeepsAll, require_driver
from tsbench.targets.endpoint import open_or_name
from tsbench.targets.mysql.endpoint import parse
from tsbench.targets.mysql.schemas import SCHEMAS, MysqlSchema
from tsbench.targets.requirements import LocalServer, Part, Requirement

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tsbench.net.tcp import NewWaiter
    from tsbench.targets.base import Schema
    from tsbench.targets.mysql.session import MysqlSession


@dataclass(frozen=True, slots=True)
class MysqlTarget(KeepsAll):
    """The MySQL or the MariaDB target; an endpoint is `<name>://user@host:3306/tsbench`, without a password."""

    name: str
    product: str
    schemas: Mapping[str, MysqlSchema]
    durable: bool = True
    driver: Driver | None = Driver("MySQLdb", "mysql", ("mysqlclient",))
    resolution_ns: int = 1_000
    cooperative: bool = True
    access: Access = Access.ANY_PROCESS
    embedded: bool = False
    acknowledges_in_part: bool = False
    has_counters: bool = True
    startable: bool = True
    requirements: tuple[Part, ...] = ()

    def check_endpoint(self, endpoint: str) -> None:
        """Verify the form of an endpoint."""
        parse(endpoint, self.name, self.product)

    def connect(
        self,
        endpoint: str,
        schema: Schema,
        *,
        timeout_s: float = 30.0,
        connect_timeout_s: float | None = None,
        waiter: NewWaiter | None = None,
    ) -> MysqlSession:
        """Open a session; see `tsbench.targets.mysql.session.connect`."""
        del schema  # the layout is in the statements
        require_driver(self)
        from tsbench.targets.mysql.session import connect

        of = parse(endpoint, self.name, self.product)
        return open_or_name(
            lambda limit_s: connect(of, timeout_s=timeout_s, connect_timeout_s=limit_s, waiter=waiter),
            timeout_s if connect_timeout_s is None else connect_timeout_s,
            (of.host, of.port),
            {"a MariaDB server", "a MySQL server"},
            endpoint.partition("?")[0],
        )


_DRIVER = Requirement("mysqlclient", "MySQLdb", "make mysql (docs/databases/mysql.md)", is_optional=True)
_MARIADB = LocalServer("MariaDB (mariadb)", ("mariadbd",), "install the package mariadb-server, or give --endpoint")
_MYSQL = LocalServer("MySQL (mysql)", ("mysql-9",), "run .ci/servers mysql-9, or give --endpoint")
MARIADB = MysqlTarget("mariadb", "MariaDB", {s.name: s for s in SCHEMAS}, requirements=(_DRIVER, _MARIADB))
MYSQL = MysqlTarget("mysql", "MySQL", {s.name: s for s in SCHEMAS}, requirements=(_MYSQL,))
