import tracemalloc
import zlib

import pytest

from tsbench.drive.cluster import files


def run_directory(path):
    for name in ("latency", "process"):
        (path / name).mkdir(parents=True)
    return path


def test_a_worker_on_the_same_file_system_writes_into_the_run_directory(tmp_path):
    leader = run_directory(tmp_path / "run")
    token = files.mark(leader)
    assert files.place_for(leader, token) == (leader, False)


def test_a_worker_that_sees_another_directory_of_that_name_writes_elsewhere_and_sends(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    leader = run_directory(tmp_path / "run")
    files.mark(leader)
    place, sends = files.place_for(leader, "another token")
    assert sends
    assert place != leader


def test_files_arrive_whole_whatever_their_size(tmp_path):
    worker, leader = run_directory(tmp_path / "worker"), run_directory(tmp_path / "leader")
    content = bytes(range(256)) * 20_000
    (worker / "latency" / "worker-0.hlog").write_bytes(content)
    (worker / "process" / "worker-0.json").write_bytes(b"{}")
    inbox = files.FileInbox(leader)
    for piece in files.pieces(worker):
        inbox.receive("worker-0", piece)
    assert (leader / "latency" / "worker-0.hlog").read_bytes() == content
    assert (leader / "process" / "worker-0.json").read_bytes() == b"{}"


@pytest.mark.parametrize(
    "name", ["../evil", "process/../../evil", "/etc/passwd", "process/worker-1.json", "spec.json", "process/clock.json"]
)
def test_a_worker_can_only_send_files_of_its_own(tmp_path, name):
    with pytest.raises(files.RefusedFile, match="worker-0 sent a file called"):
        files.FileInbox(run_directory(tmp_path)).receive("worker-0", {"name": name, "data": zlib.compress(b"x")})


def piece(name, content):
    return {"name": name, "data": zlib.compress(content)}


def test_a_worker_that_sends_too_much_is_named_once_and_its_files_are_deleted(tmp_path):
    leader = run_directory(tmp_path)
    inbox = files.FileInbox(leader, file_bytes=2_000, total_bytes=3_000)
    inbox.receive("worker-0", piece("process/worker-0.json", b"x" * 500))
    inbox.receive("worker-1", piece("process/worker-1.ledger", b"x" * 1_500))
    with pytest.raises(files.RefusedFile, match=r"worker-1 sent more than 2.00 kB of process/worker-1.ledger"):
        inbox.receive("worker-1", piece("process/worker-1.ledger", b"x" * 501))
    inbox.receive("worker-1", piece("process/worker-1.json", b"x"))
    assert [path.name for path in leader.glob("*/*")] == ["worker-0.json"]
    with pytest.raises(files.RefusedFile, match=r"worker-0 sent .*ledger after 3.00 kB of all workers' files"):
        inbox.receive("worker-0", piece("process/worker-0.ledger", b"x" * 1_001))


def test_what_grows_when_it_is_unpacked_is_refused_before_it_has_grown(tmp_path):
    bomb = piece("process/worker-0.ledger", bytes(200_000_000))
    assert len(bomb["data"]) < files.PIECE_BYTES
    tracemalloc.start()
    try:
        with pytest.raises(
            files.RefusedFile, match=r"worker-0 sent a piece of process/worker-0.ledger with more than 1.00 MB"
        ):
            files.FileInbox(run_directory(tmp_path)).receive("worker-0", bomb)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 20_000_000


@pytest.mark.parametrize("data", [b"no zlib", b"", zlib.compress(b"x" * 100)[:-5], None, 7])
def test_a_piece_that_cannot_be_unpacked_is_refused_in_one_line(tmp_path, data):
    with pytest.raises(files.RefusedFile, match=r"worker-0 sent a piece of process/worker-0.json") as caught:
        files.FileInbox(run_directory(tmp_path)).receive("worker-0", {"name": "process/worker-0.json", "data": data})
    assert "\n" not in str(caught.value)
