import pytest

from tsbench.drive import exchange


def run_directory(path):
    for name in ("latency", "process"):
        (path / name).mkdir(parents=True)
    return path


def test_a_worker_on_the_same_file_system_writes_into_the_run_directory(tmp_path):
    leader = run_directory(tmp_path / "run")
    token = exchange.mark(leader)
    assert exchange.place_for(leader, token) == (leader, False)


def test_a_worker_that_sees_another_directory_of_that_name_writes_elsewhere_and_sends(tmp_path):
    leader = run_directory(tmp_path / "run")
    exchange.mark(leader)
    place, sends = exchange.place_for(leader, "another token")
    assert sends
    assert place != leader


def test_files_arrive_whole_whatever_their_size(tmp_path):
    worker, leader = run_directory(tmp_path / "worker"), run_directory(tmp_path / "leader")
    content = bytes(range(256)) * 20_000
    (worker / "latency" / "worker-0.hlog").write_bytes(content)
    (worker / "process" / "worker-0.json").write_bytes(b"{}")
    for piece in exchange.pieces(worker):
        exchange.receive(leader, "worker-0", piece)
    assert (leader / "latency" / "worker-0.hlog").read_bytes() == content
    assert (leader / "process" / "worker-0.json").read_bytes() == b"{}"


@pytest.mark.parametrize(
    "name", ["../evil", "process/../../evil", "/etc/passwd", "process/worker-1.json", "spec.json", "process/clock.json"]
)
def test_a_worker_can_only_send_files_of_its_own(tmp_path, name):
    with pytest.raises(ValueError, match="sent a file called"):
        exchange.receive(run_directory(tmp_path), "worker-0", {"name": name, "data": b""})
