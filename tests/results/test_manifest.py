from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from tsbench.errors import UserMistake
from tsbench.results.manifest import ClockReading, Created, Host, Manifest, check_same_world, check_world
from tsbench.results.rundir import FORMAT, RunDir

if TYPE_CHECKING:
    from pathlib import Path

FULL = Manifest(
    world_version=3,
    tsbench={"version": "0.1.0", "git": "abc"},
    host=Host(cores=2, load_average=(0.1, 0.2, 0.3)),
    python={"version": "3.11"},
    packages={"numpy": "2.0"},
    clock=ClockReading(source="tsc", utc_s=1.5),
    server={"version": "X 1"},
    warnings=("the host was busy",),
)


def run_of(place: Path, name: str, version: int | None) -> RunDir:
    run = RunDir.create(place, name)
    Manifest(world_version=version).write(run)
    return run


def test_a_manifest_is_the_same_after_it_was_written_and_read(tmp_path: Path):
    run = RunDir.create(tmp_path, "a")
    assert Manifest.read(run) is None
    FULL.write(run)
    assert Manifest.read(run) == FULL
    content = run.read_json("env.json")
    assert (content["format"], content["world_version"]) == (FORMAT, 3)
    assert json.loads(json.dumps(FULL.to_json())) == content


def test_what_is_added_leaves_the_manifest_as_it_was():
    more = FULL.with_server({"caps": {"cpu": 1}}).with_warnings(["and another"])
    assert more.server == {"version": "X 1", "caps": {"cpu": 1}}
    assert more.warnings == ("the host was busy", "and another")
    assert (FULL.server, len(FULL.warnings)) == ({"version": "X 1"}, 1)
    with pytest.raises(ValidationError, match="frozen"):
        FULL.world_version = 4


@pytest.mark.parametrize(
    ("version", "may_be_earlier", "cure"),
    [
        (2, False, None),
        (None, False, None),
        (3, False, r"a newer tsbench \(world version 3, now 2\).*; update tsbench"),
        (3, True, "update tsbench"),
        (1, False, "an earlier tsbench .*; run the scenario anew, without --resume"),
        (1, True, None),
    ],
)
def test_data_of_another_version_of_the_worlds_are_refused_with_the_cure(
    tmp_path: Path, version: int | None, may_be_earlier: bool, cure: str | None
):
    run = run_of(tmp_path, "a", version)
    if cure is None:
        check_world(run, 2, may_be_earlier=may_be_earlier)
        return
    with pytest.raises(UserMistake, match=cure) as caught:
        check_world(run, 2, may_be_earlier=may_be_earlier)
    assert str(run.path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_runs_that_did_not_store_the_same_data_are_not_compared(tmp_path: Path):
    runs = [run_of(tmp_path, name, version) for name, version in (("a", 1), ("b", None), ("c", 1))]
    check_same_world([*runs, RunDir.create(tmp_path, "without")])
    with pytest.raises(UserMistake, match=r"a\.partial \(world version 1\) and .*d\.partial \(world version 2\)"):
        check_same_world([*runs, run_of(tmp_path, "d", 2)])


def test_a_damaged_manifest_is_for_the_report_to_note(tmp_path: Path):
    run = run_of(tmp_path, "a", 9)
    (run / "env.json").write_text("{")
    check_world(run, 1)
    check_same_world([run, run_of(tmp_path, "b", 1)])


def test_what_a_server_holds_may_be_more_than_reports_show(tmp_path: Path):
    run = RunDir.create(tmp_path, "one")
    names = tuple(f"disk_{number}" for number in range(2_000))
    letters = "m" * 60_000  # InfluxDB takes names of up to 64 KiB
    created = Created(endpoint="http://127.0.0.1:1", found={}, others=names, made={f"measurement {letters}": ""})
    Manifest(created=created).write(run)
    assert (manifest := Manifest.read(run)) is not None
    assert manifest.created == created
