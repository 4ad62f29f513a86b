"""Several nodes of PostgreSQL: who takes over, what a former primary comes back with, and where sessions go."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tsbench.errors import Broken, UserMistake
from tsbench.model import OpError
from tsbench.targets.base import Statement
from tsbench.targets.postgres import TARGET
from tsbench.targets.postgres.cluster import Node, PostgresCluster
from tsbench.targets.postgres.schemas import BTREE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tsbench.targets.postgres.server import PostgresServer

pytestmark = pytest.mark.every_user

SETTINGS = {"shared_buffers": "16MB", "fsync": "off", "synchronous_commit": "remote_apply"}


@pytest.fixture
def cluster(postgres_server: PostgresServer, tmp_path: Path) -> Iterator[PostgresCluster]:
    """Three nodes, of which two have a write before it is acknowledged; the other fixture skips without PostgreSQL."""
    tmp_path.chmod(0o755)
    server = PostgresCluster(tmp_path / "server", SETTINGS, None, nodes=3, replicas=2)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        server.remove()
    assert not (tmp_path / "server").exists()


def node(cluster: PostgresCluster, number: int) -> Node:
    return cluster._nodes[number - 1]


def count(one: Node) -> int:
    return int(one.ask("SELECT count(*) FROM kept"))


@pytest.mark.slow
@pytest.mark.postgres
def test_the_standby_that_acknowledged_takes_over_and_the_old_primary_comes_back_as_its_copy(
    cluster: PostgresCluster,
) -> None:
    first, second, third = (node(cluster, number) for number in (1, 2, 3))
    first.ask("CREATE TABLE kept (n int)")
    cluster.regroup()  # all standbys have the table
    second.ask("ALTER SYSTEM SET primary_conninfo = 'host=127.0.0.1 port=1'")
    second.ask("SELECT pg_reload_conf()")
    while second.ask("SELECT count(*) FROM pg_stat_wal_receiver WHERE status = 'streaming'"):
        time.sleep(0.05)
    first.ask("INSERT INTO kept VALUES (1)")  # acknowledged by node 3
    first.kill()
    assert cluster.regroup() == "node 3 took over"
    assert count(third) == 1
    with closing(TARGET.connect(cluster.endpoint, BTREE, timeout_s=10)) as session:
        session.run([Statement("INSERT INTO public.kept VALUES (3)")])
    first.start()
    assert cluster.regroup() == ""
    assert [one.ask("SELECT pg_is_in_recovery()") for one in (first, second, third)] == [True, True, False]
    assert [count(one) for one in (first, second, third)] == [2, 2, 2]
    assert "ANY 1" in third.ask("SHOW synchronous_standby_names")


@pytest.mark.slow
@pytest.mark.postgres
def test_sessions_go_on_at_the_new_primary_and_nobody_is_asked_when_none_is_left(cluster: PostgresCluster) -> None:
    with closing(TARGET.connect(cluster.endpoint, BTREE, timeout_s=10)) as session:
        session.run([Statement("CREATE TABLE public.kept (n int)")])
        for _ in range(2):
            before = cluster._primary
            before.kill()
            with pytest.raises(OpError):
                session.run([Statement("INSERT INTO public.kept VALUES (1)")])
            assert cluster.regroup().endswith(" took over")
            assert cluster._primary is not before
            session.run([Statement("INSERT INTO public.kept VALUES (1)")])
        assert count(cluster._primary) == 2
    assert cluster._primary.ask("SHOW synchronous_standby_names") == ""
    cluster._primary.kill()
    with pytest.raises(Broken, match="no node is left that could become the primary"):
        cluster.regroup()


@pytest.mark.parametrize("name", ["synchronous_standby_names", "primary_conninfo", "cluster_name"])
def test_settings_that_make_the_cluster_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserMistake, match=f"settings: {name} is set by tsbench"):
        PostgresCluster(tmp_path, {name: "x"}, None, nodes=2, replicas=1)


@pytest.mark.parametrize(("replicas", "who"), [(1, "the primary alone"), (2, "1 of its 2 standbys")])
def test_the_report_says_who_acknowledges(tmp_path: Path, replicas: int, who: str) -> None:
    server = PostgresCluster(tmp_path, {"synchronous_commit": "remote_apply"}, None, nodes=3, replicas=replicas)
    assert who in server.settings()["acknowledged by"]
    assert ("remote_apply" in server.settings()["acknowledged by"]) is (replicas > 1)
