"""Caps apply from a server's first instruction, to it and its children, and end with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.drive import support
from tests.servers.test_process import when
from tsbench.errors import Broken, UserMistake
from tsbench.results.rundir import RunDir
from tsbench.run import server_limits
from tsbench.scenario.parts import ServerPart
from tsbench.scenario.spec import Scenario
from tsbench.scenario.validation import check_spec
from tsbench.servers import cgroup, unprivileged
from tsbench.servers.cgroup import Caps
from tsbench.servers.process import ServerProcess
from tsbench.targets.influxdb.server import InfluxServer1

if TYPE_CHECKING:
    from collections.abc import Callable

    from tsbench.servers.base import Server

pytestmark = pytest.mark.every_user

MB = 1_000_000


@pytest.fixture
def _groups() -> None:
    if missing := cgroup.missing():
        pytest.skip(missing)


needs_groups = [pytest.mark.cgroup, pytest.mark.usefixtures("_groups")]


def server(tmp_path: Path, program: str, **more: object) -> ServerProcess:
    command = [sys.executable, "-u", "-c", textwrap.dedent(program)]
    return ServerProcess(command, log=tmp_path / "log", **more)  # type: ignore[arg-type]


class TestHeld:
    pytestmark = needs_groups

    def test_a_capped_server_gets_its_share_of_cpu_with_all_its_children(self, tmp_path: Path) -> None:
        program = """
        import os
        print("ready")
        os.fork(); os.fork()
        while True: pass
        """
        process = server(tmp_path, program)
        group = cgroup.create(Caps(cpu=0.5))
        process.start(when(lambda: "ready" in process.tail()), group=group)
        group.mark()
        begun = time.monotonic()
        time.sleep(2)
        used = group.summary()["measured"]
        passed_s = time.monotonic() - begun
        family = group.pids()
        for pid in family:
            os.kill(pid, signal.SIGKILL)
        process.kill()
        group.remove()
        assert len(family) == 4
        share = used["cpu_s"] / passed_s
        assert share < 0.65
        if used["nr_throttled"] > 0.5 * used["nr_periods"]:  # else others left it less than its cap
            assert share > 0.35
        assert not any(path.exists() for path in group.directories)

    def test_lifted_caps_hold_no_more_and_the_summary_ends_with_them(self, tmp_path: Path) -> None:
        program = "print('ready'); x = b'x' * 30_000_000\nwhile len(x) < 10**9 and not input(): x += b'x' * 80_000_000"
        process = server(tmp_path, "import os; os.dup2(os.open('go', os.O_RDWR), 0)\n" + program, directory=tmp_path)
        os.mkfifo(tmp_path / "go")
        group = cgroup.create(Caps(0.3, 64 * MB))
        process.start(when(lambda: "ready" in process.tail()), group=group)
        group.mark()
        group.lift()
        before = group.summary()
        with (tmp_path / "go").open("w") as file:
            file.write("\n")
        _until(lambda: group.counters()["memory_bytes"] > 80 * MB)
        assert (process.alive(), group.killed()) == (True, "")
        assert group.summary() == before
        assert before["lifted_for_checks"]
        assert before["in_all"]["memory_peak_bytes"] <= 64 * MB
        limits = [path / name for path in group.directories for name in ("cpu.cfs_quota_us", "cpu.max")]
        assert {limit.read_text().split()[0] for limit in limits if limit.exists()} <= {"-1", "max"}
        process.kill()
        group.remove()

    def test_a_server_that_needs_too_much_memory_is_killed_and_told_apart(self, tmp_path: Path) -> None:
        program = "print('ready'); import time; time.sleep(0.2); x = b'x' * 200_000_000; time.sleep(60)"
        process = server(tmp_path, program)
        run = RunDir.create(tmp_path, "cell")
        run.write_json("env.json", {"server": {"version": "1"}})
        said = r"killed for lack of memory \(cap 64.0 MB\); the error that followed: it is gone"
        with pytest.raises(Broken, match=said), server_limits.capped(ServerPart(memory=64 * MB), run) as group:  # noqa: PT012
            process.start(when(lambda: "ready" in process.tail()), group=group)
            assert server_limits.killed(group) == ""
            _until(lambda: not process.alive())
            assert server_limits.killed(group) == "the server was killed for lack of memory (cap 64.0 MB)"
            raise Broken("it is gone")
        assert group is not None
        told = run.read_json("env.json")["server"]
        assert told["version"] == "1"
        assert told["caps"]["in_all"]["oom_kills"] >= 1
        assert 55 * MB < told["caps"]["in_all"]["memory_peak_bytes"] <= 64 * MB
        assert not any(path.exists() for path in group.directories)

    def test_a_death_for_another_reason_is_not_told_as_one_of_memory(self, tmp_path: Path) -> None:
        process = server(tmp_path, "print('ready'); import time; time.sleep(60)")
        run = RunDir.create(tmp_path, "cell")
        with pytest.raises(Broken, match=r"^gone$"), server_limits.capped(ServerPart(memory=64 * MB), run) as group:  # noqa: PT012
            process.start(when(lambda: "ready" in process.tail()), group=group)
            process.kill()
            raise Broken("gone")

    def test_each_server_is_in_the_group_that_it_was_given(self, tmp_path: Path) -> None:
        program = "print('ready'); import time; time.sleep(60)"
        groups = [cgroup.create(Caps(cpu=share)) for share in (0.5, 0.7)]
        members = []
        for group in groups:
            (tmp_path / group.directories[0].name).mkdir()
            process = server(tmp_path / group.directories[0].name, program)
            process.start(when(partial(_is_ready, process)), group=group)
            members.append((process, list(process.pids()), list(group.pids())))
        for process, own, inside in members:
            process.kill()
            assert own == inside
        for group in groups:
            group.remove()

    @pytest.mark.root
    def test_a_server_that_runs_as_another_user_is_in_the_group_from_the_start(self, tmp_path: Path) -> None:
        own = "import sys; print(open('/proc/self/cgroup').read(), flush=True); import time; time.sleep(60)"
        (tmp_path / "log").touch()
        process = ServerProcess(["/usr/bin/env", "python3", "-c", own], log=tmp_path / "log", user=unprivileged.user())
        group = cgroup.create(Caps(0.5, 64 * MB))
        process.start(when(lambda: "cpu" in process.tail(99)), group=group)
        text = process.tail(99)
        process.kill()
        group.remove()
        assert text.count(group.directories[0].name) >= len(group.directories)

    @getattr(pytest.mark, "influxdb-1.8")
    def test_an_influxdb_that_root_starts_as_nobody_is_in_the_group_from_the_start(
        self, tmp_path: Path, influxdb_server: Callable[[str], Server]
    ) -> None:
        influxdb_server("1.8")
        group = cgroup.create(Caps(1.0, 256 * MB))
        server = InfluxServer1(tmp_path / "i", {"version": "1.8"}, group)
        server.start()
        try:
            assert list(server.pids()) == list(group.pids())
            server.cold()
            assert list(server.pids()) == list(group.pids())
        finally:
            server.kill()
            server.remove()
            group.remove()

    def test_servers_started_outside_are_not_in_any_group(self, tmp_path: Path) -> None:
        process = server(tmp_path, "print(open('/proc/self/cgroup').read()); import time; time.sleep(60)")
        process.start(when(lambda: "\n" in process.tail(99)))
        assert "tsbench-" not in process.tail(99)
        process.kill()

    def test_what_a_killed_tsbench_left_is_removed_by_the_next(self) -> None:
        program = """
        from tsbench.servers.cgroup import Caps, create
        print(*create(Caps(0.5, 64_000_000)).directories)
        """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True
        )
        left = [Path(word) for word in done.stdout.split()]
        assert left  # until another test makes a group at the same time
        cgroup.create(Caps(0.5, 64 * MB)).remove()
        assert not any(path.exists() for path in left)

    @pytest.mark.postgres
    def test_a_run_with_a_capped_postgres_notes_its_caps(self, tmp_path: Path) -> None:
        document = support.document(
            target={"name": "postgres", "settings": {"shared_buffers": "32MB"}},
            load={"window": "2m", "batch": 1_000},
            drive={"users": 2, "warmup": "0s", "duration": "1s", "wait": "5ms"},
        )
        document["server"] = {"cpu": 1.5, "memory": "300 MB"}
        summary = support.run(tmp_path, document)
        assert summary["validity"]["state"] != "invalid", summary["validity"]
        assert summary["caps"]["cpu"] == 1.5
        assert summary["caps"]["memory_bytes"] == 300 * MB
        assert 0 < summary["caps"]["cpu_s"] < 1.5 * 20
        assert summary["caps"]["oom_kills"] == 0
        (run,) = [RunDir(path) for path in tmp_path.iterdir() if path.is_dir()]
        assert run.read_json("env.json")["server"]["caps"]["in_all"]["memory_peak_bytes"] > 10 * MB
        assert run.read_json("env.json")["server"]["caps"]["lifted_for_checks"] is True
        assert run.has("counters.parquet")

    @pytest.mark.postgres
    def test_a_run_whose_postgres_lacks_memory_says_so(self, tmp_path: Path) -> None:
        document = support.document(target={"name": "postgres"}, load={"window": "12h", "batch": 10_000})
        document["server"] = {"memory": "40 MB"}
        summary = support.run(tmp_path, document)
        (gate,) = (gate for gate in summary["gates"] if gate["gate"] == "server deaths<=0")
        assert gate["state"] == "fail"
        assert "the server was killed for lack of memory (cap 40.0 MB)" in gate["text"]


def _is_ready(process: ServerProcess) -> bool:
    return "ready" in process.tail()


def _until(condition: object, within_s: float = 60) -> None:
    give_up = time.monotonic() + within_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < give_up
        time.sleep(0.02)


# --- without rights, and elsewhere ------------------------------------------------------------------------------------


@pytest.fixture
def second(tmp_path: Path) -> Path:
    """Make a simulated system with cgroups 2: this process is in user.slice/app.slice/run.scope."""
    proc, top = tmp_path / "proc", tmp_path / "fs"
    own = top / "user.slice" / "app.slice" / "run.scope"
    own.mkdir(parents=True)
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text("0::/user.slice/app.slice/run.scope\n")
    (proc / "self" / "mountinfo").write_text(f"30 23 0:26 / {top} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n")
    (top / "user.slice" / "app.slice" / "cgroup.subtree_control").write_text("cpu memory pids\n")
    (own / "cgroup.subtree_control").write_text("\n")
    return proc


def test_under_cgroups_2_the_group_is_made_beside_its_own_where_controllers_are_handed_down(second: Path) -> None:
    group = cgroup.create(Caps(0.25, 64 * MB), proc=second)
    (path,) = group.directories
    assert path.parent.name == "app.slice"
    assert (path / "cpu.max").read_text() == "25000 100000"
    assert (path / "memory.max").read_text() == "64000000"
    (path / "cpu.stat").write_text("usage_usec 2500000\nnr_periods 30\nnr_throttled 20\nthrottled_usec 1500000\n")
    (path / "memory.events").write_text("low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\n")
    (path / "memory.peak").write_text("64000000\n")
    (path / "memory.current").write_text("1000\n")
    assert group.counters() == {
        "nr_periods": 30,
        "nr_throttled": 20,
        "throttled_s": 1.5,
        "cpu_s": 2.5,
        "memory_bytes": 1_000,
        "memory_peak_bytes": 64 * MB,
        "memory_failcnt": 12,
        "oom_kills": 1,
    }
    assert "cap 64.0 MB" in group.killed()
    group.lift()
    assert ((path / "cpu.max").read_text(), (path / "memory.max").read_text()) == ("max", "max")
    assert group.summary()["lifted_for_checks"] is True


def test_where_nobody_hands_controllers_down_the_cure_is_told(second: Path) -> None:
    (second.parent / "fs" / "user.slice" / "app.slice" / "cgroup.subtree_control").write_text("pids\n")
    with pytest.raises(
        UserMistake,
        match=r"no control group for cpu .*; run tsbench as root, or as `systemd-run --user",
    ):
        cgroup.create(Caps(cpu=0.5), proc=second)


def test_without_the_right_to_make_groups_the_cure_is_told(second: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(
        UserMistake, match=r"needs the right to create control groups \(.*Permission denied\); run tsbench"
    ):
        cgroup.create(Caps(cpu=0.5), proc=second)


def test_first_versions_hierarchies_are_found_by_controller_also_in_a_container(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (tmp_path / "cpu").mkdir()
    (tmp_path / "memory" / "inner").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text("4:memory:/docker/abc/inner\n2:cpu,cpuacct:/docker/abc\n")
    (proc / "self" / "mountinfo").write_text(
        f"31 30 0:28 /docker/abc {tmp_path / 'cpu'} rw - cgroup cgroup rw,cpu,cpuacct\n"
        f"32 30 0:29 /docker/abc {tmp_path / 'memory'} rw - cgroup cgroup rw,memory\n"
    )
    group = cgroup.create(Caps(0.5, 64 * MB), proc=proc)
    assert [path.parent for path in group.directories] == [tmp_path / "cpu", tmp_path / "memory" / "inner"]
    assert (group.directories[0] / "cpu.cfs_quota_us").read_text() == "50000"
    assert (group.directories[1] / "memory.limit_in_bytes").read_text() == "64000000"


@pytest.mark.parametrize(
    ("table", "target", "said"),
    [
        ({"cpu": 0.5}, {"name": "sqlite"}, "server.cpu: sqlite runs inside the load processes"),
        ({"memory": "64 MB"}, {"name": "null"}, "server.memory: null runs inside"),
        (
            {"cpu": 1},
            {"name": "postgres", "endpoint": "postgresql://h/d"},
            "server.cpu: needs a server that tsbench starts",
        ),
        ({"cpus": 1}, {"name": "postgres"}, "server.cpus: unknown key; did you mean 'cpu'"),
        ({"memory": 512}, {"name": "postgres"}, "server.memory: needs a unit; write for example '512 MB'"),
        ({"memory": "1 MB"}, {"name": "postgres"}, "server.memory: must be at least"),
        ({"cpu": 0}, {"name": "postgres"}, "server.cpu: must be at least"),
        ({"cpu": "half"}, {"name": "postgres"}, "server.cpu: must be a number"),
    ],
)
def test_caps_that_would_not_hold_are_refused_before_anything_starts(
    tmp_path: Path, table: dict[str, object], target: dict[str, object], said: str
) -> None:
    document = {**support.document(target={}), "target": target, "server": table}
    with pytest.raises(UserMistake, match=said):
        check_spec(Scenario(tmp_path / "s.toml", document).expand()[0], "s.toml")
