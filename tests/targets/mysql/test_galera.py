"""Several nodes of MariaDB by Galera: sessions on all of them, conflicts, a node that is lost, and what is refused."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import pytest

from tsbench.errors import Broken, UserMistake
from tsbench.model import OpError, Outcome
from tsbench.targets.base import Statement
from tsbench.targets.mysql import MARIADB
from tsbench.targets.mysql.schemas import CreateDatabase

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tsbench.servers.base import Server

pytestmark = [pytest.mark.every_user, pytest.mark.needs("MySQLdb")]

SETTINGS = {"innodb_buffer_pool_size": "32M", "innodb_log_file_size": "16M"}
SCHEMA = next(iter(MARIADB.schemas.values()))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    place = tmp_path_factory.mktemp("galera")
    place.chmod(0o755)
    server = MARIADB.new_server(place / "server", SETTINGS, None, nodes=3, replicas=3)
    try:
        server.start()
    except UserMistake as mistake:
        pytest.skip(str(mistake))
    try:
        yield server
    finally:
        server.kill()
        server.remove()


def value(session: Any, text: str) -> Any:
    return session.query(Statement(text), ("v",)).records[0][0]


@pytest.mark.galera
@pytest.mark.slow
def test_sessions_are_spread_a_conflict_is_a_failed_write_and_a_lost_node_is_left(cluster: Server) -> None:
    with ExitStack() as stack:
        opened: dict[str, Any] = {}
        for _ in range(3):
            session: Any = stack.enter_context(closing(MARIADB.connect(cluster.endpoint, SCHEMA, timeout_s=30)))
            opened[value(session, "SELECT @@wsrep_node_name")] = session
        assert sorted(opened) == ["node-1", "node-2", "node-3"]
        one, two = opened["node-1"], opened["node-2"]
        one.run([CreateDatabase("create")])
        one.run([Statement("CREATE TABLE tsbench.kept (n INT PRIMARY KEY, v INT)")])
        for number in range(50):
            one.run([Statement(f"INSERT INTO tsbench.kept VALUES ({number}, 0)")])
            assert value(two, "SELECT count(*) FROM tsbench.kept") == number + 1, "what is acknowledged is seen"

        change = "UPDATE tsbench.kept SET v = {} WHERE n = 7"
        one.run([Statement("START TRANSACTION"), Statement(change.format(1))])
        two.run([Statement(change.format(2))])
        with pytest.raises(OpError) as caught:
            one.run([Statement("COMMIT")])
        assert (caught.value.outcome, caught.value.cause) == (Outcome.FAILED, "conflict")
        assert value(one, "SELECT v FROM tsbench.kept WHERE n = 7") == 2

        cluster.parts()["node 2"].kill()
        assert cluster.regroup() == ""
        assert cluster.alive()
        with pytest.raises(OpError):
            value(two, "SELECT 1")
        assert value(two, "SELECT @@wsrep_node_name") in {"node-1", "node-3"}
        assert value(two, "SELECT count(*) FROM tsbench.kept") == 50
        with pytest.raises(OpError, match="ROCKSDB"):
            one.run([Statement("CREATE TABLE tsbench.other (n INT PRIMARY KEY) ENGINE=ROCKSDB")])


@pytest.mark.galera
@pytest.mark.nightly
@pytest.mark.slow
def test_nodes_without_a_majority_do_not_go_on(cluster: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsbench.targets.mysql.cluster._REGROUP_S", 12.0)
    for number in (2, 3):
        cluster.parts()[f"node {number}"].kill()
    with pytest.raises(Broken, match=r"do not go on after 12 s \(non-Primary, 1 nodes\)"):
        cluster.regroup()
    with pytest.raises((OpError, UserMistake, Broken)):
        MARIADB.connect(cluster.endpoint, SCHEMA, timeout_s=5).close()


@pytest.mark.parametrize(
    ("nodes", "replicas", "settings", "why"),
    [
        (2, 2, {}, "Galera needs 3 nodes or more"),
        (3, 1, {}, "give server.replicas = server.nodes"),
        (3, 3, {"wsrep-sst-method": "mariabackup"}, "wsrep-sst-method: tsbench sets it itself"),
    ],
)
def test_what_galera_cannot_do_is_refused(
    tmp_path: Path, nodes: int, replicas: int, settings: dict[str, str], why: str
) -> None:
    with pytest.raises(UserMistake, match=why):
        MARIADB.new_server(tmp_path, settings, None, nodes=nodes, replicas=replicas)
