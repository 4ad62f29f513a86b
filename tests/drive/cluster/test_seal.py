"""Messages of an attacker, who reads and sends on the connections between a master and its workers, are refused."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tsbench.drive.cluster.seal import WAITING, MasterEnd, Seal, WorkerEnd

SEAL = Seal(b"a secret of sixteen characters at least")
NODE = b"worker-on-a-pi"


def connected(seal: Seal = SEAL, node: bytes = NODE) -> tuple[WorkerEnd, MasterEnd, list[bytes]]:
    """Return a connected worker and master, and their bytes: hello, welcome, first message."""
    worker, master = WorkerEnd(seal, node), MasterEnd(seal)
    (hello,) = worker.send(b"ready")
    (welcome,) = master.receive(node, hello)[2]
    (first,) = worker.receive(welcome)[2]
    assert master.receive(node, first) == (True, b"ready", [])
    return worker, master, [hello, welcome, first]


def to_worker(master: MasterEnd, payload: bytes) -> bytes:
    (data,) = master.send(NODE, payload)
    return data


def test_messages_arrive_as_they_were_sent_in_both_directions():
    worker, master, _ = connected()
    for payload in (b"", b"spawn", bytes(range(256)) * 5_000):
        assert worker.receive(to_worker(master, payload)) == (True, payload, [])
        (data,) = worker.send(payload)
        assert master.receive(NODE, data) == (True, payload, [])


def test_what_a_worker_sends_before_the_masters_answer_arrives_after_it_in_order():
    worker, master = WorkerEnd(SEAL, NODE), MasterEnd(SEAL)
    hellos = [worker.send(payload)[0] for payload in (b"1", b"2", b"3")]
    (welcome,) = master.receive(NODE, hellos[0])[2]
    sent = worker.receive(welcome)[2]
    assert [master.receive(NODE, data)[1] for data in sent] == [b"1", b"2", b"3"]
    second = master.receive(NODE, hellos[1])[2][0]
    assert worker.receive(second) == (True, None, [])


def test_a_worker_that_waits_for_its_master_does_not_collect_messages_without_end():
    worker, master = WorkerEnd(SEAL, NODE), MasterEnd(SEAL)
    for number in range(WAITING + 10):
        (hello,) = worker.send(b"%d" % number)
    (welcome,) = master.receive(NODE, hello)[2]
    assert len(worker.receive(welcome)[2]) == WAITING


def test_another_secret_opens_nothing():
    stranger, master = WorkerEnd(Seal(b"another secret, as long as the first"), NODE), MasterEnd(SEAL)
    (hello,) = stranger.send(b"ready")
    assert master.receive(NODE, hello) == (False, None, [])
    _, _, (_, _, first) = connected(Seal(b"another secret, as long as the first"))
    assert master.receive(NODE, first) == (False, None, [])
    assert master.send(NODE, b"spawn") == [], "it has never been heard of"


@given(st.binary(max_size=300))
def test_bytes_of_strangers_are_taken_by_neither(data: bytes):
    worker, master, _ = connected()
    assert master.receive(NODE, data) == (False, None, [])
    assert worker.receive(data) == (False, None, [])


@given(st.data())
def test_a_message_that_was_changed_anywhere_is_dropped(data: st.DataObject):
    worker, master, seen = connected()
    (up,) = worker.send(b"statistics")
    down = to_worker(master, b"spawn")
    original = data.draw(st.sampled_from([*seen, up, down]))
    place = data.draw(st.integers(0, len(original) - 1))
    flipped = bytes([original[place] ^ data.draw(st.integers(1, 255))])
    changed = original[:place] + flipped + original[place + 1 :]
    assert master.receive(NODE, changed) == (False, None, [])
    assert worker.receive(changed) == (False, None, [])
    for cut in (original[:-1], original + b"\0"):
        assert master.receive(NODE, cut) == (False, None, [])
        assert worker.receive(cut) == (False, None, [])


def test_nothing_is_taken_twice_or_after_a_later_one():
    worker, master, (_, _, first) = connected()
    (second,), (third,) = worker.send(b"2"), worker.send(b"3")
    assert master.receive(NODE, third)[1] == b"3"
    for late in (first, second, third):
        assert master.receive(NODE, late) == (False, None, [])
    one, two = to_worker(master, b"1"), to_worker(master, b"2")
    assert worker.receive(two)[1] == b"2"
    for late in (one, two):
        assert worker.receive(late) == (False, None, [])


def test_a_message_is_for_one_direction_and_one_worker():
    worker, master, _ = connected()
    (up,), down = worker.send(b"up"), to_worker(master, b"down")
    assert worker.receive(up) == (False, None, [])
    assert master.receive(NODE, down) == (False, None, [])
    assert master.receive(b"worker-on-another-pi", up) == (False, None, [])
    assert master.receive(NODE, up)[1] == b"up"


def test_what_was_recorded_of_an_earlier_test_makes_no_worker_and_commands_none():
    worker, master, recorded = connected()
    (up,), down = worker.send(b"statistics"), to_worker(master, b"spawn")
    later_worker, later_master, _ = connected()
    for data in (*recorded, up):
        payload = later_master.receive(NODE, data)[1]
        assert payload is None, "at most a hello is answered, which says nothing"
    for data in (*recorded, down):
        assert later_worker.receive(data) == (False, None, [])
    assert later_master.receive(NODE, later_worker.send(b"next")[0])[1] == b"next", "its own connection still stands"


def test_a_worker_that_connects_again_is_taken_and_its_earlier_messages_are_not():
    worker, master, (_, _, first) = connected()
    (unsent,) = worker.send(b"late")
    again = WorkerEnd(SEAL, NODE)
    (welcome,) = master.receive(NODE, again.send(b"ready")[0])[2]
    (ready,) = again.receive(welcome)[2]
    assert master.receive(NODE, ready)[1] == b"ready"
    assert master.receive(NODE, first) == (False, None, [])
    assert again.receive(to_worker(master, b"spawn"))[1] == b"spawn"
    assert worker.receive(to_worker(master, b"spawn")) == (False, None, []), "messages go to the newest connection"
    assert master.receive(NODE, unsent)[1] == b"late", "what was never delivered is still signed, once"


def test_a_worker_finds_a_master_that_was_started_again():
    worker, _, _ = connected()
    master = MasterEnd(SEAL)
    taken, payload, answers = master.receive(NODE, worker.send(b"heartbeat")[0])
    assert (taken, payload) == (True, None)
    assert worker.receive(answers[0])[0]
    assert master.receive(NODE, worker.send(b"heartbeat")[0])[1] == b"heartbeat"
