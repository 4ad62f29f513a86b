"""The MySQL and MariaDB targets, by mysqlclient; an endpoint is `<name>://user@host:3306/tsbench`, without a password.

They are two targets, since figures belong to a product: a session verifies which one answers.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tsbench.targets.mysql.endpoint import OPTIONS
from tsbench.targets.mysql.schemas import SCHEMAS
from tsbench.targets.target import Driver, Requirement, Target

_DRIVER = Requirement(
    "mysqlclient",
    "pip install 'tsbench[mysql]', with a C compiler, pkg-config and MariaDB's headers",
    modules=("MySQLdb",),
)
_MARIADB = Requirement(
    "MariaDB (mariadb)", "install the package mariadb-server, or give --endpoint", programs=("mariadbd",)
)
_GALERA = Requirement(
    "several nodes of MariaDB by Galera (mariadb)",
    "install the packages galera-4 and rsync",
    programs=("rsync",),
    files=(Path("/usr/lib/galera/libgalera_smm.so"),),
)
_MYSQL = Requirement("MySQL (mysql)", programs=("mysql-9",))


def _target(name: str, product: str, *requirements: Requirement) -> Target:
    return Target(
        name=name,
        product=product,
        form=f"{name}://user@host:3306/tsbench",
        schemes=(name,),
        schemas={s.name: s for s in SCHEMAS},
        options=OPTIONS,
        parser="tsbench.targets.mysql.endpoint:parse",
        opener="tsbench.targets.mysql.session:connect",
        server=f"tsbench.targets.mysql.server:{name.title()}Server",
        driver=Driver("MySQLdb", "mysql", ("mysqlclient",)),
        secrets=("TSBENCH_PASSWORD",),
        resolution_ns=1_000,
        read_only="SET SESSION TRANSACTION READ ONLY",
        durability="`innodb_flush_log_at_trx_commit = 1`, `innodb_doublewrite = 1`",
        has_counters=True,
        requirements=requirements,
    )


MARIADB = replace(
    _target("mariadb", "MariaDB", _DRIVER, _MARIADB, _GALERA),
    greetings=(rb"...\0\x0a[^\0]*(?i:MariaDB)", rb"...\0\xff.*MariaDB"),
    cluster="tsbench.targets.mysql.cluster:GaleraCluster",
    nodes_are_copies=True,
)
MYSQL = replace(_target("mysql", "MySQL", _MYSQL), greetings=(rb"...\0\x0a\d+\.\d", rb"...\0\xff..(?:Host|#\d)"))
