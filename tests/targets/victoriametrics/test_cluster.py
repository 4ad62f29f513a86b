"""Several nodes of VictoriaMetrics: vmagent's queue, merged answers, and nodes that are away."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tests.drive.support import document
from tests.faults.proxy import Behaviour, Link, Proxy
from tests.targets.victoriametrics.test_target import write
from tsbench.check.comparison import canonical
from tsbench.check.stored_rows import Flaw, compare_canonical
from tsbench.errors import UserMistake
from tsbench.model import Aggregated, Count, Latest, OpError, Raw, Stored, Window, WriteMode
from tsbench.scenario.spec import Scenario, world
from tsbench.scenario.validation import check_spec
from tsbench.servers.programs import cached_program
from tsbench.targets.victoriametrics import TARGET
from tsbench.targets.victoriametrics.cluster import Queue, _newest, merged
from tsbench.targets.victoriametrics.schemas import FIELDS
from tsbench.targets.victoriametrics.server import VictoriaAgent, VictoriaCluster, VictoriaServer
from tsbench.testing.data import CPU, START_NS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tsbench.targets.base import Session

pytestmark = pytest.mark.every_user

# --- vmagent's queue


def page(*, pushed: int, in_blocks: int, blocks: int, sent: tuple[int, ...], pending: tuple[int, ...] = ()) -> bytes:
    """What vmagent says of its queue."""
    lines = [f'vmagent_remotewrite_rows_pushed_after_relabel_total{{path="q/1_A",url="1:secret-url"}} {pushed}']
    lines += [f"vmagent_remotewrite_block_size_rows_sum {in_blocks}"]
    lines += [f"vmagent_remotewrite_block_size_rows_count {blocks}"]
    for number, count in enumerate(sent, 1):
        lines.append(f'vmagent_remotewrite_blocks_sent_total{{url="{number}:secret-url"}} {count}')
        lines.append(f'vmagent_remotewrite_packets_dropped_total{{url="{number}:secret-url"}} 0')
    for number, size in enumerate(pending, 1):
        lines.append(f'vmagent_remotewrite_pending_data_bytes{{path="q/{number}_A", url="{number}:secret-url"}} {size}')
    return ("\n".join(lines) + "\n").encode()


def test_points_that_are_in_no_block_yet_are_not_delivered() -> None:
    # As seen half a second after a write: no byte is pending, and no node has got anything.
    assert not Queue.of(page(pushed=240, in_blocks=0, blocks=0, sent=(0, 0), pending=(0, 0))).is_flushed


def test_a_block_on_its_way_is_not_delivered_although_no_byte_is_pending() -> None:
    queue = Queue.of(page(pushed=480, in_blocks=480, blocks=9, sent=(4, 2), pending=(0, 0)))
    assert (queue.is_flushed, queue.undelivered, queue.bytes_for(1), queue.bytes_for(2)) == (True, 3, 0, 0)


def test_a_queue_is_empty_when_all_blocks_were_sent() -> None:
    queue = Queue.of(page(pushed=480, in_blocks=480, blocks=9, sent=(4, 5), pending=(0, 0)))
    assert (queue.is_flushed, queue.undelivered, queue.sent) == (True, 0, {1: 4, 2: 5})


def test_bytes_that_wait_are_counted_by_node() -> None:
    queue = Queue.of(page(pushed=5, in_blocks=5, blocks=2, sent=(1, 0), pending=(0, 457_765)))
    assert (queue.bytes_for(1), queue.bytes_for(2)) == (0, 457_765)
    assert Queue.of(b"").undelivered == 0


# --- merging


def series(times: list[int], values: list[float], **labels: str) -> dict[str, Any]:
    return {"metric": {"__name__": "cpu_busy", **labels}, "timestamps": times, "values": values}


@pytest.mark.parametrize(
    ("exports", "times", "values"),
    [
        ([[series([1, 2], [5, 6])], [series([1, 2], [5, 6])]], [1, 2], [5, 6]),
        ([[series([1, 3], [5, 7])], [series([2, 3], [6, 7])]], [1, 2, 3], [5, 6, 7]),  # each lacks one
        ([[series([1, 2], [5, 6])], [series([1, 2], [5, 9])]], [1, 2, 2], [5, 6, 9]),  # one was changed
        ([[series([1, 1, 2], [5, 5, 6])], []], [1, 2], [5, 6]),  # delivered twice
        ([[series([1], [5]), series([2], [6])], []], [1, 2], [5, 6]),  # a series in two lines
        ([[series([1, 1], [5, 6])], []], [1, 1], [5, 6]),
    ],
)
def test_copies_count_once_and_values_that_differ_are_all_kept(
    exports: list[list[dict[str, Any]]], times: list[int], values: list[float]
) -> None:
    (found,) = merged(exports)
    assert (found["timestamps"], found["values"]) == (times, values)


def test_series_of_several_nodes_are_kept_apart_by_their_labels() -> None:
    found = merged([[series([1], [5], host="a")], [series([1], [5], host="b")]])
    assert sorted(one["metric"]["host"] for one in found) == ["a", "b"]


def test_the_newest_row_of_a_series_is_that_of_the_node_that_has_it() -> None:
    answers = [[(1, "a", 5.0), (7, "b", 1.0)], [(3, "a", 6.0), (7, "b", 1.0)], [(3, "a", 6.5)]]
    assert _newest(answers, keyed=True) == [(3, "a", 6.0), (3, "a", 6.5), (7, "b", 1.0)]
    assert _newest([[(1, 5.0)], [(2, 6.0)]], keyed=False) == [(2, 6.0)]


# --- what a scenario may say


def refused(tmp_path: Path, **tables: Any) -> str:
    base = document(op=[{"write": 1}], target={"name": "victoriametrics"}) | {"server": {"nodes": 2}}
    scenario = Scenario(tmp_path / "x.toml", base | tables)
    with pytest.raises(UserMistake) as caught:
        check_spec(scenario.expand()[0], "x.toml")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("tables", "why"),
    [
        ({"target": {"name": "sqlite"}}, "server.nodes: tsbench starts one node of sqlite, several of postgres, "),
        ({"server": {"nodes": 2, "replicas": 3}}, "3 replicas need as many nodes, not 2; set nodes"),
        ({"server": {"nodes": 17}}, "server.nodes: must be at most 16"),
        ({"op": [{"query": "raw-one"}]}, "op: query = 'raw-one': of 2 nodes, none asks the others"),
        ({"target": {"name": "victoriametrics", "endpoint": "http://h/tsbench"}}, "take target.endpoint or this out"),
        (
            {"world": {"use_case": "cpu-only", "duplicate": 0.1}},
            "world.duplicate: of 2 nodes, copies that the world makes",
        ),
        ({"event": [{"at": "1s", "do": "kill", "node": 3}]}, "kill node 3 at 1s: there are 2 nodes"),
        ({"event": [{"at": "1s", "do": "kill", "node": 2}]}, "kill node 2 leaves a node without copies away"),
        ({"event": [{"at": "1s", "users": 3, "node": 2}]}, "node belongs to do; the load has none"),
    ],
)
def test_what_several_nodes_cannot_do_is_refused_in_one_line(tmp_path: Path, tables: dict[str, Any], why: str) -> None:
    assert why in refused(tmp_path, **tables)


def test_as_many_nodes_may_stay_away_as_others_have_copies_of(tmp_path: Path) -> None:
    def spec(*numbers: int) -> dict[str, Any]:
        events = [{"at": f"{n}s", "do": "kill", "node": n} for n in numbers]
        drive = {"users": 4, "warmup": "0s", "duration": "9s"}
        return document(op=[{"write": 1}], drive=drive) | {"server": {"nodes": 3, "replicas": 2}, "event": events}

    Scenario(tmp_path / "x.toml", spec(1)).expand()
    with pytest.raises(UserMistake, match="leaves a node without copies away"):
        Scenario(tmp_path / "x.toml", spec(1, 2)).expand()


# --- servers


@pytest.fixture(scope="module")
def programs(victoria_server: VictoriaServer) -> None:
    """Skip where vmagent is missing; the other fixture does where VictoriaMetrics is."""
    if cached_program("vmagent") is None:
        pytest.skip("vmagent is not installed; run tsbench servers install vmagent")


@pytest.fixture
def cluster(programs: None, tmp_path: Path) -> Iterator[VictoriaCluster]:
    tmp_path.chmod(0o755)
    server = VictoriaCluster(tmp_path / "server", {}, None, nodes=3, replicas=2)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        server.remove()
    assert not (tmp_path / "server").exists()


POINTS = 8 * 60
WORLD = world("cpu-only", scale=8)


def stored(session: Session) -> int:
    (m,) = WORLD.measurements
    return int(session.query(FIELDS.compile(Count(m)), ("count",)).records[0][0])


def fill(session: Session) -> None:
    for batch in WORLD.mixed(range(8), points=POINTS, first_tick=0, last_tick=60):
        assert session.write(FIELDS.encode(batch, WriteMode.BULK)) == len(batch)


@pytest.mark.victoria
@pytest.mark.slow
def test_all_nodes_are_asked_and_copies_count_once(cluster: VictoriaCluster) -> None:
    with closing(TARGET.connect(cluster.endpoint, FIELDS)) as session:
        fill(session)
        assert stored(session) == POINTS
        (m,) = WORLD.measurements
        window = Window(WORLD.time_ns(0), WORLD.time_ns(60))
        rows = session.query(FIELDS.compile(Raw(m, m.field_names, window, None)), ("time", "hostname", *m.field_names))
        assert len(rows.records) == POINTS
        newest = Latest(m, m.field_names)
        assert {row[0] for row in session.query(FIELDS.compile(newest), newest.columns).records} == {WORLD.time_ns(59)}
        held = [
            int(node.query(FIELDS.compile(Count(m)), ("count",)).records[0][0])
            for node in session._nodes.values()  # type: ignore[attr-defined]
        ]
        assert sum(held) == 2 * POINTS
        assert all(held)
        parts = session.sizes(WORLD.measurements)
        assert {name.rpartition(" ")[0] for name in parts} == {"node 1", "node 2", "node 3"}
        assert cluster.settings()["replicas"] == "2"
        query = Aggregated.of(m, m.field_names[:1], "mean", 60 * 1_000_000_000, window, None)
        with pytest.raises(OpError, match="do not ask each other"):
            session.query(FIELDS.compile(query), query.columns)
        session.run(FIELDS.drop(WORLD.measurements))
        assert stored(session) == 0


@pytest.mark.victoria
def test_a_point_that_two_nodes_hold_differently_is_found_and_named(cluster: VictoriaCluster) -> None:
    with closing(TARGET.connect(cluster.endpoint, FIELDS)) as session:
        line = f"cpu,host=a,region=eu busy=1,load=2,count=3i {START_NS}"
        write(cluster.endpoint, line)
        query = Stored(CPU, None, None, None)
        statement = FIELDS.compile(query)
        session.deliver(10)
        right = canonical(session.query(statement, query.columns), odd_as_text=True)
        assert len(right) == 1
        node = cluster.parts()["node 1"].endpoint
        write(node, line.replace("busy=1", "busy=7"))
        wrong = canonical(session.query(statement, query.columns), odd_as_text=True)
        found = compare_canonical(query, right, [], wrong)
        assert found
        assert {one.series for one in found} == {"a"}
        assert {one.kind for one in found} <= {Flaw.WRONG_VALUE, Flaw.PARTIAL, Flaw.DUPLICATE}


@pytest.mark.victoria
def test_a_node_that_is_away_is_made_up_for_by_copies_and_two_are_not(cluster: VictoriaCluster) -> None:
    with closing(TARGET.connect(cluster.endpoint, FIELDS)) as session:
        cluster.parts()["node 2"].kill()
        assert cluster.alive()
        fill(session)
        assert stored(session) == POINTS
        cluster.parts()["node 3"].kill()
        with pytest.raises(OpError, match=r"node 2: .*node 3: "):
            stored(session)
        for name in ("node 2", "node 3"):
            cluster.parts()[name].start()
        assert stored(session) == POINTS


class _Held(Behaviour):
    """Keeps back what vmagent writes, for a time each."""

    def request(self, link: Link, data: bytes) -> bytes:
        time.sleep(5)
        return data


@pytest.mark.victoria
@pytest.mark.slow
def test_blocks_on_their_way_to_a_slow_node_are_waited_for_while_another_is_away(cluster: VictoriaCluster) -> None:
    parts = cluster.parts()
    agent = parts["vmagent"]
    assert isinstance(agent, VictoriaAgent)
    agent.kill()
    slow = urlsplit(parts["node 3"].endpoint)
    with Proxy(slow.port or 0) as proxy:
        agent.addresses = [*agent.addresses[:2], f"127.0.0.1:{proxy.port}"]
        agent.start()
        with closing(TARGET.connect(cluster.endpoint, FIELDS)) as session:
            fill(session)
            assert stored(session) == POINTS
            session.run(FIELDS.drop(WORLD.measurements))
            parts["node 2"].kill()
            proxy.behaviour = _Held()
            fill(session)
            assert stored(session) == POINTS  # those of node 2 and node 3 are on their way to node 3 alone


@pytest.mark.victoria
def test_a_node_that_dies_by_itself_is_the_death_of_the_server(cluster: VictoriaCluster) -> None:
    node = cluster.parts()["node 2"]
    node._process.kill()  # type: ignore[attr-defined]
    assert not cluster.alive()
    assert "node 2 killed by SIGKILL" in cluster.ended()
    log = cluster.log()
    assert log is not None
    names = {line.partition(":")[0] for line in log.read_text(encoding="utf-8").splitlines()}
    assert names == {"node 1", "node 2", "node 3", "vmagent"}
