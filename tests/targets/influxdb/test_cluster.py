"""Several nodes of InfluxDB 1.x: which get a series, copies that are not alike, and nodes that are away."""

from __future__ import annotations

import itertools
import shutil
import time
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from tests.check.stand import UNSURE, Stand, world_of
from tests.drive.support import document
from tests.targets import data
from tests.targets.data import CPU, START_NS, S
from tests.targets.influxdb.test_v1 import ask, write
from tsbench.check.answers import Answers, read_back
from tsbench.check.audit import account, count_stored
from tsbench.encode import line_protocol
from tsbench.errors import UserMistake
from tsbench.model import Bucketed, Latest, OpError, Outcome, PartialWrite, Verdict, Window, WriteMode
from tsbench.scenario.spec import Scenario
from tsbench.scenario.validation import check_spec
from tsbench.targets import credentials
from tsbench.targets.base import Payload
from tsbench.targets.influxdb.cluster import differing
from tsbench.targets.influxdb.placement import Placement, placement
from tsbench.targets.influxdb.server import InfluxCluster1, InfluxServer1
from tsbench.targets.influxdb.v1 import TAGS, TARGET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tsbench.servers.base import Server

pytestmark = pytest.mark.every_user

# --- placement


def lines(count: int) -> list[bytes]:
    return [b"cpu,host=host_%d,region=eu busy=%d %d" % (i, i, START_NS + i) for i in range(count)]


def test_a_series_has_its_nodes_in_every_process_and_in_every_version() -> None:
    found = [Placement(3, 2).of_line(line) for line in lines(6)]
    assert found == [(1, 2), (1, 3), (2, 3), (1, 3), (2, 3), (1, 2)]


@pytest.mark.parametrize(("nodes", "replicas"), [(2, 1), (3, 1), (3, 2), (5, 3)])
def test_series_are_spread_evenly_each_over_as_many_nodes_as_it_has_copies(nodes: int, replicas: int) -> None:
    of = Placement(nodes, replicas)
    found = [of.of_line(line) for line in lines(3_000)]
    assert {len({*numbers}) for numbers in found} == {replicas}
    held = Counter(number for numbers in found for number in numbers)
    assert sorted(held) == list(range(1, nodes + 1))
    assert max(held.values()) < 1.1 * min(held.values())


def test_the_nodes_of_a_line_are_those_of_its_stored_tags() -> None:
    of = Placement(7, 2)
    shared = data.shared_tags()
    batch = data.batch(CPU, shared, time_ns=[START_NS + i for i in range(40)])
    for line, series in zip(line_protocol.encode_singles(batch), batch.series.tolist(), strict=True):
        tags = {tag: shared[tag].tolist()[series] for tag in CPU.tags}
        assert of.of_line(line) == of.of_tags("cpu", tags) == of.of_tags("cpu", dict(reversed(tags.items())))
    odd = rb"a\ b\,c,k\=1=v\ w,l=x\,y busy=1 5"
    assert of.of_line(odd) == of.of_tags("a b,c", {"l": "x,y", "k=1": "v w", "none": ""})
    assert {of.of_line(odd.replace(b"x", b"%d" % i)) for i in range(9)} != {of.of_line(odd)}


def test_every_line_goes_to_the_nodes_of_its_series_once() -> None:
    all_lines = lines(50)
    shares = placement(3, 2).spread(memoryview(b"\n".join(all_lines) + b"\n"), 50)
    assert sorted(line for some, _ in shares.values() for line in bytes(some).split(b"\n")) == sorted(all_lines)
    assert sum(points for _, points in shares.values()) == 50
    assert len(shares) == 3
    assert placement(2, 2).spread(b"as it is", 7) == {(1, 2): (b"as it is", 7)}
    (single,) = placement(3, 1).spread(all_lines[0], 1).values()
    assert single == (all_lines[0], 1)


def test_heads_that_are_remembered_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsbench.targets.influxdb.placement._MOST", 10)
    of = Placement(3, 1)
    found = [of.of_line(line) for line in lines(25)]
    assert len(of._known) == 5
    assert [of.of_line(line) for line in lines(25)] == found


# --- copies that are not alike

COLUMNS = ("time", "host", "busy", "load", "(others)")
FIRST = "a at 2016-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("held", "wanted", "said"),
    [
        ({(START_NS, "a", 1, 2, None): [1, 2]}, 2, ()),
        ({(START_NS, "a", 1, 2, None): [1]}, 1, ()),
        (
            {(START_NS, "a", 1, 2, None): [1, 3], (START_NS, "a", 7, 2, None): [2]},
            3,
            (f"1 x copies that differ, first {FIRST}: node 1 and node 3 have busy=1, node 2 has busy=7",),
        ),
        (
            {(START_NS, "a", 1, 2, None): [1], (START_NS, "b", 1, 2, None): [1, 2], (START_NS, "c", 1, 2, None): [2]},
            2,
            (f"2 x copy that is missing, first {FIRST}: only node 1 has it",),
        ),
    ],
)  # fmt: skip
def test_copies_that_are_not_alike_are_named_with_their_nodes(
    held: dict[tuple[Any, ...], list[int]], wanted: int, said: tuple[str, ...]
) -> None:
    assert differing(held, COLUMNS, 1, wanted) == said


# --- endpoints and scenarios


def test_an_endpoint_may_have_several_hosts() -> None:
    found = TARGET.parse("https://me@a,b:8087,c:8086/db?replicas=2&gzip=1")
    assert found.nodes == (("a", 443), ("b", 8087), ("c", 8086))
    assert (found.user, found.path, found.scheme) == ("me", "db", "https")
    assert TARGET.parse("http://me@a/db").nodes == ()


@pytest.mark.parametrize(
    ("endpoint", "why"),
    [
        ("http://a,b/db?replicas=3", "replicas=3: needs as many nodes, and 'http://a,b/db' names 2"),
        ("http://a/db?replicas=2", "replicas=2: needs as many nodes, and 'http://a/db' names 1"),
        ("http://a,b/db?replicas=0", "write the number of nodes that get each point"),
        ("http://a,b:8086,b,c/db", "'http://a,b:8086,b,c/db' names b:8086 twice"),
        ("http://a/db,http://b/db", "write several nodes as one URL with all hosts"),
        ("http://a,,b/db", "not an endpoint of InfluxDB"),
        ("http://a,b:x/db", "not an endpoint of InfluxDB"),
        ("http://me:geheim@a,b/db", "holds a password"),
        ("http://a,me:geheim@b/db", "holds a password"),
    ],
)
def test_a_wrong_list_of_nodes_is_answered_in_one_line(endpoint: str, why: str) -> None:
    with pytest.raises(UserMistake) as caught:
        TARGET.connect(endpoint, TAGS)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "geheim" not in str(caught.value)


def test_a_secret_for_one_server_is_not_for_a_list_with_that_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(credentials.ENTITLED, "http://me@a:8086/db")
    assert credentials.is_entitled("http://me@a:8086/other")
    assert not credentials.is_entitled("http://me@a:8086,b:8086/db")
    monkeypatch.setenv(credentials.ENTITLED, "http://me@a:8086,b:8086/db?replicas=2")
    assert credentials.is_entitled("http://me@a:8086,b:8086/db")
    assert not credentials.is_entitled("http://me@a:8086,c:8086/db?replicas=2")


LIST = {"name": "influxdb1", "endpoint": "http://a,b/db"}


@pytest.mark.parametrize(
    ("tables", "why"),
    [
        ({"server": {"nodes": 2, "replicas": 3}}, "3 replicas need as many nodes, not 2; set nodes"),
        ({"target": {"name": "influxdb2"}, "server": {"nodes": 2}}, "tsbench starts one node of influxdb2, several of"),
        ({"target": {"name": "influxdb2", "endpoint": "http://a,b/?org=o&bucket=b"}}, "not an endpoint of InfluxDB"),
        ({"target": LIST, "server": {"nodes": 2}}, "server.nodes: needs a server that tsbench starts"),
        ({"target": LIST, "op": [{"query": "raw-one"}]}, "of 2 nodes, none asks the others; take queries out, or give"),
        ({"server": {"nodes": 2}, "op": [{"query": "raw-one"}]}, "take queries out, or set server.nodes = 1"),
        ({"target": LIST, "world": {"use_case": "cpu-only", "duplicate": 0.1}}, "world.duplicate: of 2 nodes, copies"),
        ({"target": {"name": "influxdb1", "cold": True}, "server": {"nodes": 2}}, "target.cold: is not possible of 2"),
        ({"target": {"name": "influxdb1", "settings": {"x": "1"}}, "server": {"nodes": 2}}, "write section.key as in"),
    ],
)
def test_what_several_nodes_cannot_do_is_refused_in_one_line(tmp_path: Path, tables: dict[str, Any], why: str) -> None:
    base = document(op=[{"write": 1}], target={"name": "influxdb1"})
    with pytest.raises(UserMistake) as caught:
        check_spec(Scenario(tmp_path / "x.toml", base | tables).expand()[0], "x.toml")
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


# --- servers

influxdb = getattr(pytest.mark, "influxdb-1.8")
_numbers = itertools.count()


@pytest.fixture(scope="module")
def nodes(
    influxdb_server: Callable[[str], Server], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InfluxCluster1]:
    """Three nodes; what is shared out over two of them is a matter of the endpoint."""
    influxdb_server("1.8")  # which skips where it is not installed
    place = tmp_path_factory.mktemp("cluster")
    place.chmod(0o755)
    server = InfluxCluster1(place / "server", {"version": "1.8"}, None, nodes=3, replicas=2)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        server.remove()
    assert not (place / "server").exists()


def endpoint(server: InfluxCluster1, count: int, replicas: int) -> str:
    """A database of its own on the first nodes."""
    hosts = ",".join(node.address for node in server._nodes[:count])
    return f"http://{hosts}/tsbench_{next(_numbers)}?replicas={replicas}"


def at_node(url: str, number: int) -> str:
    """The endpoint of one of the nodes, for a client that is not ours."""
    hosts, _, path = url.removeprefix("http://").partition("?")[0].partition("/")
    return f"http://{hosts.split(',')[number - 1]}/{path}"


def held(url: str, count: int) -> list[int]:
    """The number of points on each node, by a client that is not ours."""
    found = [ask(at_node(url, number), 'SELECT count("usage_user") FROM "cpu"') for number in range(1, count + 1)]
    return [int(series[0]["values"][0][1]) if series else 0 for series in found]


def filled(server: InfluxCluster1, count: int, replicas: int) -> Stand:
    world = world_of("cpu-only", 12, interval_s=10)
    return Stand(world, TARGET, TAGS, endpoint(server, count, replicas), 30).load()


def verdicts(stand: Stand) -> tuple[Verdict, Verdict]:
    """The verdicts about the number of points, and about the points."""
    gold, answers, notes = stand.gold(), Answers(), list[str]()
    with closing(stand.connect()) as session:
        stored = count_stored(session, TAGS, stand.world.measurements, notes)
        read_back(gold, session, TAGS, 10**9, answers, stand.known)
    answers.compare(gold)
    return account(gold, stored, stand.ledger, stand.loaded_points).verdict(notes=notes), answers.verdict()


COPIES = [(2, 1), (2, 2), (3, 1), (3, 2), (3, 3)]


@influxdb
@pytest.mark.parametrize(("count", "replicas"), COPIES)
def test_what_is_acknowledged_is_stored_on_each_of_its_nodes(
    nodes: InfluxCluster1, count: int, replicas: int, tmp_path: Path
) -> None:
    stand = filled(nodes, count, replicas)
    assert stand.loaded_points == 12 * 30
    assert sum(held(stand.url, count)) == 12 * 30 * replicas
    assert all(held(stand.url, count))
    stand.write(tmp_path, 60, UNSURE)
    assert stand.false_verdicts(stand.gold()) == set()
    with closing(stand.connect()) as session:
        (m,) = stand.world.measurements
        newest = Latest(m, m.field_names)
        rows = session.query(TAGS.compile(newest), newest.columns).records
        assert len({row[1] for row in rows}) == len(rows) == 12
        assert {name.rpartition(" shards")[0] for name in session.sizes([m]) if name.endswith("shards")} == {
            f"node {number}" for number in range(1, count + 1)
        }
        assert session.facts()["replicas"] == str(replicas)
        assert session.counters()["httpd.writeReq"] > 0
        session.run(TAGS.create(stand.world.measurements, {}))
        assert held(stand.url, count) == [0] * count
        session.run(TAGS.drop(stand.world.measurements))
        assert [one.holds for one in session.objects([m])] == [0]


@influxdb
@pytest.mark.parametrize("mode", [WriteMode.SINGLE, WriteMode.MULTI, WriteMode.BULK])
def test_every_write_mode_shares_points_out(nodes: InfluxCluster1, mode: WriteMode) -> None:
    url = endpoint(nodes, 3, 2)
    with closing(TARGET.connect(url, TAGS)) as session:
        session.run(TAGS.create([CPU], data.shared_tags()))
        batch = data.batch(CPU, data.shared_tags(), time_ns=[START_NS + i * S for i in range(40)])
        for payload in TAGS.encode_each(batch, 1 if mode is WriteMode.SINGLE else 20, mode):
            assert session.write(payload) == payload.points
        assert count_stored(session, TAGS, [CPU]) == 40


@influxdb
def test_points_that_lack_fields_are_counted_on_each_node(nodes: InfluxCluster1) -> None:
    world = world_of("iot", 20, interval_s=10, form="peer")
    stand = Stand(world, TARGET, TAGS, endpoint(nodes, 3, 2), 30).load()
    assert all(m.nullable for m in world.measurements)
    assert stand.false_verdicts(stand.gold()) == set()


def one_line(stand: Stand) -> tuple[str, tuple[int, ...]]:
    """The head of a loaded point's line, and its nodes."""
    batch = next(iter(stand.world.mixed(range(2), points=1, first_tick=5, last_tick=6)))
    head = line_protocol.encode_singles(batch)[0].split(b" ")[0].decode()
    found = TARGET.parse(stand.url)
    return head, placement(len(found.nodes), int(found.options["replicas"])).of_line(head.encode() + b" ")


@influxdb
@pytest.mark.parametrize(("count", "replicas"), [(2, 2), (3, 2)])
def test_a_row_that_was_changed_on_one_copy_is_located_with_its_node(
    nodes: InfluxCluster1, count: int, replicas: int
) -> None:
    stand = filled(nodes, count, replicas)
    head, (_, wrong) = one_line(stand)
    write(at_node(stand.url, wrong), f"{head} usage_user=777i {stand.world.time_ns(5)}".encode(), "&rp=tsbench")
    numbers, rows = verdicts(stand)
    assert numbers.valid is True
    assert rows.valid is False
    assert "1 x wrong value; first wrong value: cpu host_" in rows.reason
    assert "stored usage_user=777, expected usage_user=" in rows.reason
    host = head.partition("hostname=")[2].partition(",")[0]
    assert f"1 x copies that differ, first {host} at" in rows.reason
    assert f"node {wrong} has usage_user=777" in rows.reason


@influxdb
@pytest.mark.parametrize(("count", "replicas"), [(2, 2), (3, 2), (3, 1)])
def test_a_copy_that_is_gone_is_a_lost_point_and_its_node_is_named(
    nodes: InfluxCluster1, count: int, replicas: int
) -> None:
    stand = filled(nodes, count, replicas)
    head, numbers = one_line(stand)
    host = head.partition("hostname=")[2].partition(",")[0]
    ask(at_node(stand.url, numbers[-1]), f"DELETE FROM cpu WHERE hostname = '{host}' AND time < {START_NS + 50 * S}")
    counted, rows = verdicts(stand)
    assert counted.valid is False
    assert counted.reason.startswith("5 of 360 acknowledged points are not stored")
    assert (f"node {numbers[-1]} lacks 5 points that others hold" in counted.reason) is (replicas > 1)
    assert rows.valid is (replicas > 1), "of one copy the row is missing, of two the other one is there"


@influxdb
def test_a_point_that_nobody_wrote_is_found_on_whichever_node(nodes: InfluxCluster1) -> None:
    stand = filled(nodes, 3, 2)
    head, _ = one_line(stand)
    for number in (1, 2, 3):
        write(at_node(stand.url, number), f"{head} usage_user=1i {START_NS + number}".encode(), "&rp=tsbench")
    _, rows = verdicts(stand)
    assert rows.valid is False
    assert "partial point" in rows.reason


@influxdb
def test_a_write_that_some_nodes_refuse_is_known_as_far_as_they_say(nodes: InfluxCluster1) -> None:
    payload = Payload(WriteMode.BULK, "cpu", "", b"\n".join(lines(40)), 40, 1)
    for count, replicas in COPIES:
        url = endpoint(nodes, count, replicas)
        with closing(TARGET.connect(url, TAGS)) as session:
            session.run(TAGS.create([CPU], data.shared_tags()))
            ask(at_node(url, 2), f'DROP RETENTION POLICY tsbench ON "{url.rpartition("/")[2].partition("?")[0]}"')
            shares = placement(count, replicas).spread(payload.data, 40)
            with pytest.raises(OpError, match=r"^node 2: .*retention policy not found") as caught:
                session.write(payload)
            error = caught.value
            assert error.cause == "no table"
            without = sum(points for numbers, (_, points) in shares.items() if 2 not in numbers)
            refused = sum(points for numbers, (_, points) in shares.items() if numbers == (2,))
            if without:
                assert isinstance(error, PartialWrite)
                assert (error.acknowledged, error.refused) == (without, refused)
            else:
                assert error.outcome is Outcome.UNKNOWN, "the other node has all of it"
            session.run(TAGS.drop([CPU]))
            with pytest.raises(OpError) as caught:
                session.write(payload)
            assert (caught.value.outcome, caught.value.cause) == (Outcome.FAILED, "no table")


@influxdb
@pytest.mark.parametrize(("count", "replicas"), [(3, 1), (3, 2), (2, 2)])
def test_points_that_all_copies_refuse_in_part_are_counted_where_the_answers_allow(
    nodes: InfluxCluster1, count: int, replicas: int
) -> None:
    now_ns = time.time_ns() // S * S
    with closing(TARGET.connect(endpoint(nodes, count, replicas) + "&retention=1d&shard=1h", TAGS)) as session:
        session.run(TAGS.create([CPU], {}))
        fresh = [b"cpu,host=a,region=eu busy=%d,load=1,count=1i %d" % (i, now_ns - i * 1_000_000) for i in range(20)]
        stale = [b"cpu,host=a,region=eu busy=%d,load=1,count=1i %d" % (i, START_NS + i) for i in range(5)]
        with pytest.raises(PartialWrite, match="dropped=5") as caught:
            session.write(Payload(WriteMode.BULK, "cpu", "", b"\n".join(fresh + stale), 25, 1))
        assert (caught.value.acknowledged, caught.value.refused) == (20, 5)
        assert count_stored(session, TAGS, [CPU]) == 20


@influxdb
def test_nodes_that_are_away_are_made_up_for_by_copies_and_no_more_than_that(
    nodes: InfluxCluster1, tmp_path: Path
) -> None:
    stand = filled(nodes, 3, 2)
    (m,) = stand.world.measurements
    query = Bucketed(m, m.field_names[:1], "mean", 60 * S, Window(START_NS, START_NS + 60 * S), None)
    with closing(stand.connect()) as session:
        with pytest.raises(OpError, match="do not ask each other"):
            session.query(TAGS.compile(query), query.columns)
        try:
            nodes.parts()["node 2"].kill()
            assert nodes.alive()
            assert count_stored(session, TAGS, [m]) == 360
            stand.write(tmp_path, 30)
            assert stand.false_verdicts(stand.gold()) == set()
            assert {Outcome.UNKNOWN, Outcome.OK} & {*map(Outcome, stand.ledger["outcome"].tolist())}
            with pytest.raises(OpError, match=r"^node 2: cannot connect"):
                session.run(TAGS.drop([m]))
            nodes.parts()["node 3"].kill()
            with pytest.raises(OpError, match=r"node 2: .*; node 3: "):
                count_stored(session, TAGS, [m])
        finally:
            for name in ("node 2", "node 3"):
                nodes.parts()[name].start()
        assert stand.false_verdicts(stand.gold()) == set()
        assert count_stored(session, TAGS, [m]) >= 360


@influxdb
@pytest.mark.parametrize("replicas", [1, 2])
def test_what_a_killed_node_has_lost_is_counted(tmp_path: Path, replicas: int, nodes: InfluxCluster1) -> None:
    """It loses its data, as on a disk that was not synced; InfluxDB itself has its log on disk when it acknowledges."""
    tmp_path.chmod(0o755)
    server = InfluxCluster1(tmp_path / "server", {"version": "1.8"}, None, nodes=2, replicas=replicas)
    try:
        server.start()
        stand = Stand(world_of("cpu-only", 12, interval_s=10), TARGET, TAGS, server.endpoint, 30).load()
        lost = held(stand.url, 2)[1]
        node = server._nodes[1]
        node.kill()
        shutil.rmtree(node.place / "data" / "wal" / "tsbench" / "tsbench")
        node.start()
        numbers, rows = verdicts(stand)
    finally:
        server.kill()
        server.remove()
    assert numbers.valid is False
    assert numbers.reason.startswith(f"{lost} of 360 acknowledged points are not stored")
    assert (f"node 2 lacks {lost} points that others hold" in numbers.reason) is (replicas == 2)
    assert rows.valid is (replicas == 2)


def test_a_node_listens_where_its_address_says(tmp_path: Path) -> None:
    server = InfluxServer1(tmp_path)
    assert server.endpoint == f"http://{server.address}/tsbench"
