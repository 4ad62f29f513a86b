from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsbench.errors import UserMistake
from tsbench.model import WriteMode
from tsbench.scenario.spec import RunSpec, Scenario, block_points, select
from tsbench.units import NS_PER_S

PLAIN = """
question = "How fast?"

[world]
use_case = "cpu-only"
scale = 20
interval = "10s"

[drive]
users = 4
duration = "5s"

[[op]]
write = 10
weight = 3

[[op]]
query = "lastpoint"

[target]
name = "sqlite"
schema = "wal"
"""
NUMBERS = st.lists(st.integers(1, 10**6), min_size=1, max_size=5, unique=True)


def load(place: Path, text: str = PLAIN, *overrides: str) -> Scenario:
    path = place / "plain.toml"
    path.write_text(text)
    return Scenario.load(path, overrides=overrides)


def only_cell(place: Path, text: str = PLAIN, *overrides: str) -> RunSpec:
    (cell,) = load(place, text, *overrides).expand()
    return cell


def mistake(place: Path, text: str = PLAIN, *overrides: str) -> str:
    """Return the message for the user, without the file's directory."""
    with pytest.raises(UserMistake) as caught:
        load(place, text, *overrides).expand()
    line = str(caught.value)
    assert "\n" not in line
    return line.replace(f"{place}/", "")


# --- one cell


def test_a_file_without_a_matrix_is_one_cell(tmp_path: Path) -> None:
    cell = only_cell(tmp_path)
    assert (cell.id, cell.scenario, cell.question) == ("sqlite-wal", "plain", "How fast?")
    assert (cell.world.scale, cell.world.interval, cell.drive.duration) == (20, 10 * NS_PER_S, 5 * NS_PER_S)
    assert [(op.name, op.weight) for op in cell.op] == [("write-10", 3), ("lastpoint", 1)]
    assert (cell.target.name, cell.target.schema_) == ("sqlite", "wal")
    assert [op.write_mode for op in cell.writes] == [WriteMode.MULTI]
    assert [op.name for op in cell.queries] == ["lastpoint"]


def test_a_spec_reads_back_from_its_own_json(tmp_path: Path) -> None:
    cell = only_cell(tmp_path, PLAIN, "world.start=now-6h", "drive.wait=10ms", "load.window=90m", "world.late=0.1")
    assert RunSpec.model_validate(json.loads(cell.model_dump_json(by_alias=True))) == cell
    assert RunSpec.model_validate_json(cell.model_dump_json()) == cell


def test_a_world_never_has_more_streams_than_series(tmp_path: Path) -> None:
    assert only_cell(tmp_path, PLAIN, "world.scale=3", "world.streams=8").world.spec().streams == 3


def test_the_quickstart_scenario_expands() -> None:
    path = Path(__file__).parent.parent.parent / "scenarios" / "quickstart.toml"
    cells = Scenario.load(path).expand()
    assert [cell.id for cell in cells] == ["postgres-btree", "postgres-brin", "sqlite-wal", "duckdb-columns"]
    assert len({(cell.world, cell.load, cell.drive, cell.op) for cell in cells}) == 1


def test_every_shipped_scenario_expands() -> None:
    for path in sorted((Path(__file__).parent.parent.parent / "scenarios").rglob("*.toml")):
        assert Scenario.load(path).expand(), path


# --- overrides


@pytest.mark.parametrize(
    ("override", "found"),
    [
        ("world.scale=7", lambda cell: cell.world.scale == 7),
        ("drive.duration=3s", lambda cell: cell.drive.duration == 3 * NS_PER_S),
        ("drive.duration='3s'", lambda cell: cell.drive.duration == 3 * NS_PER_S),
        ("world.late=0.25", lambda cell: cell.world.late == 0.25),
        ("world.use_case=devops", lambda cell: cell.world.use_case == "devops"),
        ("drive.wait=['1ms', '2ms']", lambda cell: cell.drive.wait == (10**6, 2 * 10**6)),
        ("drive.wait=5ms", lambda cell: cell.drive.wait == (5 * 10**6, 5 * 10**6)),
        ("op=[{write = 1}]", lambda cell: [op.name for op in cell.op] == ["write-1"]),
        ("target={schema = 'clustered'}", lambda cell: cell.id == "sqlite-clustered"),
        ("check.answers = 5", lambda cell: cell.check.answers == 5),
        ("question=a = b", lambda cell: cell.question == "a = b"),
        ("target.settings.cache=1 MB", lambda cell: cell.target.settings == {"cache": "1 MB"}),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_an_override_sets_one_key(tmp_path: Path, override: str, found: Any) -> None:
    assert found(only_cell(tmp_path, PLAIN, override))


def test_the_last_of_two_overrides_wins(tmp_path: Path) -> None:
    assert only_cell(tmp_path, PLAIN, "world.scale=7", "world.scale=8").world.scale == 8


@pytest.mark.parametrize(
    ("axes", "override", "cells"),
    [
        ('target = [{ name = "sqlite" }, { name = "duckdb" }]', 'target={ name = "null" }', [("null", 20, 1)]),
        ('target = [{ name = "null" }, { name = "duckdb" }]', "world.seed=7", [("null", 20, 7), ("duckdb", 20, 7)]),
        (
            'target = [{ name = "null" }]\nworld.seed = [3, 4]',
            "target.name=duckdb",
            [("duckdb", 20, 3), ("duckdb", 20, 4)],
        ),
        ('"world.scale" = [1, 2]\nworld.seed = [3, 4]', "world.scale=9", [("sqlite", 9, 3), ("sqlite", 9, 4)]),
        ('"world.scale" = [1, 2]\nworld.seed = [3, 4]', "world={ scale = 9 }", [("sqlite", 9, 3), ("sqlite", 9, 4)]),
        ('"world.scale" = [1, 2]', "world={ seed = 9, scale = 5 }", [("sqlite", 5, 9)]),
    ],
)
def test_an_override_takes_the_place_of_its_axis(
    tmp_path: Path, axes: str, override: str, cells: list[tuple[str, int, int]]
) -> None:
    (tmp_path / "s.toml").write_text(f"{PLAIN}\n[matrix]\n{axes}\n")
    expanded = Scenario.load(tmp_path / "s.toml", overrides=[override]).expand()
    assert [(cell.target.name, cell.world.scale, cell.world.seed) for cell in expanded] == cells


def test_an_override_of_what_cases_set_is_a_mistake(tmp_path: Path) -> None:
    text = PLAIN + '\n[matrix]\ncase = [{ name = "a", "world.scale" = 3 }, { name = "b" }]\n'
    assert "the cases of the matrix set it" in mistake(tmp_path, text, "world.scale=5")


@pytest.mark.parametrize("override", ["world.scale", "=5", "", "question.inner=1"])
def test_an_override_that_cannot_be_is_a_mistake(tmp_path: Path, override: str) -> None:
    assert mistake(tmp_path, PLAIN, override).startswith("--set")


# --- mistakes


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("world.scal=7", "world.scal: unknown key; did you mean 'scale'?"),
        ("repeats=3", "repeats: unknown key; did you mean 'repeat'?"),
        ("target.shema=wal", "target.shema: unknown key; did you mean 'schema'?"),
        ("check.zzz=1", "check.zzz: unknown key; known are answers, sample, readback, failures"),
        ("drive.steps=[{users = 1, duration = '1s', rampe = true}]", "drive.steps.0.rampe: unknown key"),
        ("world.scale=many", "world.scale: "),
        ("world.scale=0", "world.scale: "),
        ("world.scale=2.5", "world.scale: "),
        ("world.interval=ten", "world.interval: 'ten' is not a duration"),
        ("world.interval=0s", "world.interval: "),
        ("world.form=round", "world.form: "),
        ("drive.duration=0s", "drive.duration: "),
        ("drive.wait=['2s', '1s']", "drive: wait must be [shortest, longest]"),
        ("drive=5", "drive: "),
        ("op=[]", "op: "),
        ("op=[{write = 1, query = 'lastpoint'}]", "op.0: needs either write = POINTS or query = 'KIND'"),
        ("op=[{query = 'lastpoint', mode = 'bulk'}]", "op.0: mode belongs to a write"),
        ("target={name = 5}", "target.name: "),
        ("target=sqlite", 'target: must be a table; write { name = "sqlite" }'),
        ("target=5", "target: must be a table of key = value (given: 5)"),
        ("world=iot", 'world: must be a table; write { use_case = "iot" }'),
        ("matrix=5", "matrix: must be a table of key = [values]"),
        ("matrix.world.scale=5", "matrix.world.scale: must be a list of at least one value"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_file_and_the_key(tmp_path: Path, override: str, said: str) -> None:
    assert mistake(tmp_path, PLAIN, override).startswith(f"plain.toml: {said}")


def test_a_target_without_a_name_is_named(tmp_path: Path) -> None:
    assert mistake(tmp_path, re.sub(r"name = .*?\n", "", PLAIN)).startswith("plain.toml: target.name: is missing")


def test_an_open_loop_has_no_think_time(tmp_path: Path) -> None:
    said = mistake(tmp_path, PLAIN, "drive.loop=open", "drive.rate=5", "drive.wait=1s")
    assert "an open loop takes its times from the rate" in said


def test_a_file_that_is_not_toml_is_a_mistake(tmp_path: Path) -> None:
    assert mistake(tmp_path, "[world").startswith("plain.toml: not TOML: ")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UserMistake, match="not TOML"):
        Scenario.load(tmp_path / "bytes.toml")
    with pytest.raises(UserMistake, match=str(tmp_path)):
        Scenario.load(tmp_path)


@pytest.mark.parametrize("value", ["true", "'4'", "4.0"])
@pytest.mark.parametrize(
    "key",
    ["world.scale", "world.seed", "world.streams", "load.batch", "load.workers", "drive.users", "drive.processes"],
)
def test_nothing_but_a_whole_number_is_one(tmp_path: Path, key: str, value: str) -> None:
    shown = value.replace("'", "'")
    assert mistake(tmp_path, PLAIN, f"{key}={value}") == f"plain.toml: {key}: must be a whole number (given: {shown})"


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("world.late=true", "world.late: must be a number (given: true)"),
        ("world.late='0.1'", "world.late: must be a number (given: '0.1')"),
        ("target.cold='yes'", "target.cold: must be true or false (given: 'yes')"),
        ("target.cold=1", "target.cold: must be true or false (given: 1)"),
        ("drive.steps=[{users=2, duration='1s', ramp='on'}]", "drive.steps.0.ramp: must be true or false"),
        ("op=[{write=true}]", "op.0.write: must be a whole number (given: true)"),
        ("op=[{write=1, weight='4'}]", "op.0.weight: must be a whole number (given: '4')"),
        ("drive.warmup=false", "drive.warmup: must be a duration; write for example '10s' (given: false)"),
        ("server.memory=true", "server.memory: must be a size; write for example '512 MB' (given: true)"),
        ("world.start=true", "world.start: must be a time"),
        ("name=5", "name: must be text in quotes"),
        ("knee='yes'", "knee: must be true or false"),
        ("knee=1", "knee: must be true or false"),
        ("matrix.knee=[true]", "matrix.knee: concerns all cells"),
        ("drive.wait=['1s', '2s', '3s']", "drive.wait: must be a list of at most 2 values"),
    ],
)
def test_a_value_of_another_type_is_a_mistake(tmp_path: Path, override: str, said: str) -> None:
    assert mistake(tmp_path, PLAIN, override).startswith(f"plain.toml: {said}")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["drive.warmup=stedy"], "drive.warmup: 'stedy' is not a duration"),
        (["drive.warmup='1500ms'"], "drive.warmup: must be whole seconds"),
        (["drive.warmup=steady", "target.cold=true"], "drive.warmup: a run with target.cold has none"),
        (["drive.warmup=steady", "drive.loop=open", "drive.rate=5"], "drive: warmup = 'steady' needs loop = 'closed'"),
        (
            ["drive.warmup=steady", "drive.steps=[{users=2, duration='1s'}]"],
            "drive: warmup = 'steady' needs a constant number of users; take steps out, or give a duration",
        ),
        (["drive.warmup=steady", "drive.warmup_limit=39s"], "drive: warmup_limit must be at least 40s"),
        (["drive.warmup=5s", "drive.warmup_limit=60s"], "drive: warmup_limit belongs to warmup = 'steady'; set that"),
    ],
)
def test_a_warm_up_until_the_rate_settles_is_for_a_rate_that_the_database_sets(
    tmp_path: Path, overrides: list[str], said: str
) -> None:
    assert mistake(tmp_path, PLAIN, *overrides).startswith(f"plain.toml: {said}")


def test_a_warm_up_until_the_rate_settles_has_a_limit(tmp_path: Path) -> None:
    drive = only_cell(tmp_path, PLAIN, "drive.warmup=steady").drive
    assert (drive.warmup, drive.longest_warmup) == ("steady", 600 * 10**9)
    drive = only_cell(tmp_path, PLAIN, "drive.warmup=steady", "drive.warmup_limit=2m").drive
    assert (drive.finds_steady_state, drive.longest_warmup) == (True, 120 * 10**9)
    assert type(drive).model_validate(drive.model_dump(mode="json")) == drive
    drive = only_cell(tmp_path, PLAIN, "drive.warmup=7s").drive
    assert (drive.finds_steady_state, drive.longest_warmup) == (False, 7 * 10**9)


def test_a_whole_number_will_do_where_a_number_is_wanted(tmp_path: Path) -> None:
    assert only_cell(tmp_path, PLAIN, "drive.loop=open", "drive.rate=5", "world.late=0").drive.rate == 5.0


@pytest.mark.parametrize(
    ("key", "unit"),
    [
        ("world.seed", ""), ("world.scale", ""), ("world.streams", ""), ("world.late", ""), ("load.batch", ""),
        ("drive.users", ""), ("drive.rate", ""), ("check.readback", ""), ("server.cpu", ""), ("world.interval", "s"),
        ("world.interval", ""), ("load.window", "d"), ("drive.duration", "s"), ("drive.wait", "ms"),
        ("world.start", ""), ("world.start", "s"), ("timeout.load", "s"),
        ("server.memory", "GB"), ("server.memory", ""),
    ],
)  # fmt: skip
@pytest.mark.parametrize("digits", [25, 400, 5_000])
def test_a_number_of_hundreds_of_digits_is_named_and_shortened(
    tmp_path: Path, key: str, unit: str, digits: int
) -> None:
    line = mistake(tmp_path, PLAIN, f"{key}={'9' * digits}{unit}")
    assert line.startswith(f"plain.toml: {key}"), line
    assert len(line) < 250


def test_a_number_of_5_000_digits_in_a_file_is_a_mistake(tmp_path: Path) -> None:
    text = PLAIN.replace("scale = 20", f"scale = {'9' * 5_000}")
    assert mistake(tmp_path, text) == "plain.toml: not TOML: a number has more than 4,300 digits"


@pytest.mark.parametrize("start", ["0001-01-01", "1969-12-31", "2200-01-02", "2500-01-01", "now-99999d"])
def test_a_time_that_databases_cannot_store_is_a_mistake(tmp_path: Path, start: str) -> None:
    said = mistake(tmp_path, PLAIN, f"world.start={start}")
    assert re.search(r"world\.start: '.*' is (out of range; times are from 1970 to 2200|too long)", said), said


@pytest.mark.parametrize("depth", [30, 2_000, 50_000])
@pytest.mark.parametrize("form", ["[{open}{close}]", "{tables}1{ends}", "keys"])
def test_deep_nesting_is_a_mistake(tmp_path: Path, form: str, depth: int) -> None:
    value = form.format(open="[" * depth, close="]" * depth, tables="{a=" * depth, ends="}" * depth)
    line = f"{'.'.join('a' * depth)} = 1" if form == "keys" else f"scale = {value}"
    started = time.monotonic()
    assert "at most 20 deep" in mistake(tmp_path, PLAIN.replace("scale = 20", line))
    if form == "keys":
        assert "a key has at most 20 parts" in mistake(tmp_path, PLAIN, f"world.{'.'.join('a' * depth)}=1")
    else:
        assert "world.scale: must be" in mistake(tmp_path, PLAIN, f"world.scale={value}")
    assert time.monotonic() - started < 5


def test_a_file_that_is_far_too_large_is_not_read_whole(tmp_path: Path) -> None:
    assert "larger than 1,000,000 bytes" in mistake(tmp_path, "# much\n" * 200_000)
    with pytest.raises(UserMistake, match="is a device; choose a scenario file"):
        Scenario.load(Path("/dev/zero"))


# --- the matrix


def test_a_matrix_of_more_cells_than_anybody_runs_is_refused_at_once(tmp_path: Path) -> None:
    text = f"{PLAIN}[matrix]\ndrive.users = {list(range(1, 201))}\nworld.seed = {list(range(200))}\n"
    started = time.monotonic()
    assert "matrix: 40,000 combinations are more runs than the 1,000" in mistake(tmp_path, text)
    assert time.monotonic() - started < 5


def test_names_that_no_directory_can_have_are_refused(tmp_path: Path) -> None:
    assert "name: must have at most 100 characters" in mistake(tmp_path, PLAIN, f"name={'x' * 300}")
    text = f"{PLAIN}[matrix]\nquestion = ['{'x' * 300}', 'y']\n"
    assert "a cell's name would have 320 characters, more than 200; use case" in mistake(tmp_path, text)


def test_the_cells_are_every_combination_in_order(tmp_path: Path) -> None:
    text = PLAIN + '[matrix]\ntarget = [{name = "sqlite", schema = "wal"}, {name = "null"}]\ndrive.users = [2, 8]\n'
    cells = load(tmp_path, text).expand()
    assert [cell.id for cell in cells] == [
        "sqlite-wal-users=2", "sqlite-wal-users=8", "null-users=2", "null-users=8",
    ]  # fmt: skip
    assert [(cell.target.name, cell.drive.users) for cell in cells] == [
        ("sqlite", 2), ("sqlite", 8), ("null", 2), ("null", 8),
    ]  # fmt: skip
    assert cells[1].labels == {"target": "sqlite-wal", "drive.users": "8"}


def test_cells_of_several_databases_have_their_names(tmp_path: Path) -> None:
    text = PLAIN + '[matrix]\ntarget.name = ["sqlite", "null"]\ndrive.users = [2, 8]\n'
    cells = load(tmp_path, text).expand()
    assert [cell.id for cell in cells] == [f"users={n}-{name}-wal" for name in ("sqlite", "null") for n in (2, 8)]
    assert cells[0].target.schema_ == "wal"
    cells = load(tmp_path, text.replace('schema = "wal"', "")).expand()
    assert [cell.id for cell in cells] == ["sqlite-users=2", "sqlite-users=8", "null-users=2", "null-users=8"]


def test_a_table_of_the_matrix_is_merged_into_the_files_own(tmp_path: Path) -> None:
    text = PLAIN + '[matrix]\ntarget = [{schema = "wal"}, {schema = "clustered"}]\nworld = [{late = 0.1}]\n'
    with pytest.raises(UserMistake, match=r"two cells|must be"):
        load(tmp_path, text.replace("world = [{late = 0.1}]", "world = [{late = 0.1}, {late = 0.2}]")).expand()
    cells = load(tmp_path, text).expand()
    assert [(cell.target.name, cell.target.schema_) for cell in cells] == [("sqlite", "wal"), ("sqlite", "clustered")]
    assert all((cell.world.late, cell.world.scale) == (0.1, 20) for cell in cells)


def test_cells_do_not_share_what_one_of_them_changes(tmp_path: Path) -> None:
    text = PLAIN + '[matrix]\ntarget.settings.cache = ["1", "2"]\n'
    assert [cell.target.settings for cell in load(tmp_path, text).expand()] == [{"cache": "1"}, {"cache": "2"}]


def test_an_override_may_change_the_matrix(tmp_path: Path) -> None:
    text = PLAIN + "[matrix]\ndrive.users = [2, 8]\n"
    assert [c.drive.users for c in load(tmp_path, text, "matrix.drive.users=[5]").expand()] == [5]


def test_two_cells_of_one_name_are_a_mistake(tmp_path: Path) -> None:
    assert "two cells are called" in mistake(tmp_path, PLAIN + '[matrix]\nquestion = ["a b", "a/b"]\n')


@given(users=NUMBERS, scale=NUMBERS, seeds=NUMBERS)
def test_the_ids_of_cells_are_distinct_and_fit_to_be_names_of_directories(
    tmp_path_factory: pytest.TempPathFactory, users: list[int], scale: list[int], seeds: list[int]
) -> None:
    place = tmp_path_factory.mktemp("scenario")
    text = f"{PLAIN}[matrix]\ndrive.users = {users}\nworld.scale = {scale}\nworld.seed = {seeds}\n"
    cells = load(place, text).expand()
    ids = [cell.id for cell in cells]
    assert len(ids) == len(set(ids)) == len(users) * len(scale) * len(seeds)
    assert all(re.fullmatch(r"[A-Za-z0-9_.=-]+", name) for name in ids)
    assert ids == [cell.id for cell in load(place, text).expand()], "the same every time, so that a campaign resumes"


@given(st.lists(st.text(max_size=8), min_size=1, max_size=4, unique=True))
def test_any_text_gives_distinct_ids_or_a_mistake(
    tmp_path_factory: pytest.TempPathFactory, questions: list[str]
) -> None:
    scenario = load(tmp_path_factory.mktemp("scenario"))
    scenario._document["matrix"] = {"question": questions}
    try:
        ids = [cell.id for cell in scenario.expand()]
    except UserMistake as told:
        assert re.search("two cells|cannot be shown", str(told))  # noqa: PT017 - either is right
    else:
        assert len(set(ids)) == len(questions)
        assert all(re.fullmatch(r"[A-Za-z0-9_.=-]+", name) for name in ids)


def test_cells_are_selected_by_pattern_or_part(tmp_path: Path) -> None:
    cells = load(tmp_path, PLAIN + "[matrix]\ndrive.users = [2, 8, 28]\n").expand()
    assert [c.drive.users for c in select(cells, [])] == [2, 8, 28]
    assert [c.drive.users for c in select(cells, ["=2"])] == [2, 28]
    assert [c.drive.users for c in select(cells, ["users=?8-*"])] == [28]
    with pytest.raises(
        UserMistake, match=r"--only nothing: no such cell; there are users=2-sqlite-wal, users=8-sqlite-wal"
    ):
        select(cells, ["nothing"])


# --- blocks


@given(st.lists(st.integers(1, 200), max_size=4), st.sampled_from([512, 4_096]))
def test_every_write_fits_a_block_without_a_remainder(sizes: list[int], least: int) -> None:
    try:
        block = block_points(sizes, least)
    except ValueError as error:
        assert "no common multiple" in str(error)  # noqa: PT017
    else:
        assert block >= least
        assert all(block % size == 0 for size in sizes)


@pytest.mark.parametrize(("use_case", "block", "bare"), [("cpu-only", 4_100, 10_000), ("devops", 520, 1_000)])
def test_blocks_are_small_where_slow_writers_have_to_come_to_several_measurements(
    tmp_path: Path, use_case: str, block: int, bare: int
) -> None:
    spec = only_cell(tmp_path, PLAIN.replace("cpu-only", use_case).replace("write = 10", "write = 20"))
    assert spec.block_points == block
    assert spec.model_copy(update={"op": ()}).block_points == bare
    assert spec.model_copy(update={"block": 60}).block_points == 60


TWO = PLAIN.replace('[target]\nname = "sqlite"\nschema = "wal"\n', "") + (
    '[matrix]\ntarget = [{name = "sqlite", schema = "wal"}, {name = "sqlite", schema = "clustered"}]\n'
)


def test_repeats_are_rounds_of_all_cells_each_in_an_order_of_its_own(tmp_path: Path) -> None:
    asked = load(tmp_path, f"repeat = 8\n{TWO}")
    cells = asked.repeated(asked.expand())
    rounds = [[cell.id for cell in cells[at : at + 2]] for at in range(0, 16, 2)]
    for number, of_round in enumerate(rounds, 1):
        assert sorted(of_round) == [f"sqlite-clustered-round={number}", f"sqlite-wal-round={number}"]
    assert len({of_round[0].partition("-round")[0] for of_round in rounds}) == 2, "none is always first"
    assert {cell.labels["round"] for cell in cells} == set("12345678")
    assert {cell.labels["target"] for cell in cells} == {"sqlite-wal", "sqlite-clustered"}
    longer = load(tmp_path, f"repeat = 9\n{TWO}")
    assert [cell.id for cell in longer.repeated(longer.expand())][:16] == [cell.id for cell in cells]
    other = load(tmp_path, f"repeat = 8\n{TWO}", "world.seed=2")
    assert [cell.id for cell in other.repeated(other.expand())] != [cell.id for cell in cells]


def test_one_run_has_no_round_and_a_single_cell_is_repeated_by_its_target(tmp_path: Path) -> None:
    assert [cell.id for cell in load(tmp_path).repeated(load(tmp_path).expand())] == ["sqlite-wal"]
    asked = load(tmp_path, f"repeat = 2\n{PLAIN}")
    assert [cell.labels for cell in asked.repeated(asked.expand())] == [
        {"target": "sqlite-wal", "round": "1"},
        {"target": "sqlite-wal", "round": "2"},
    ]


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("repeat = 0\n", "repeat: must be a whole number from 1 to 200"),
        ("repeat = true\n", "repeat: must be a whole number from 1 to 200"),
        ("repeat = '8'\n", "repeat: must be a whole number from 1 to 200"),
        ("repeat = 2\nknee = true\n", "repeat: a ramp ends at its first failure; repeat a scenario without knee"),
    ],
)
def test_repeats_that_make_no_sense_are_refused(tmp_path: Path, head: str, said: str) -> None:
    assert said in mistake(tmp_path, head + PLAIN)


def test_a_set_has_room_for_a_thousand_runs_and_not_for_more(tmp_path: Path) -> None:
    asked = load(tmp_path, f"repeat = 200\n{TWO}".replace("[matrix]", '[matrix]\n"drive.users" = [1, 2, 3]'))
    with pytest.raises(UserMistake, match="6 cells can be repeated up to 166 times"):
        asked.repeated(asked.expand())


def test_a_case_that_sets_a_key_of_the_target_leaves_the_other_cells_alone(tmp_path: Path) -> None:
    text = (
        PLAIN
        + """
[matrix]
target = [{ name = "sqlite" }]
case = [{ name = "cold", "target.cold" = true, drive = { warmup = 0 } }, { name = "warm" }]
"""
    )
    (tmp_path / "s.toml").write_text(text.replace('name = "sqlite"\n', "", 1))
    assert [cell.target.cold for cell in Scenario.load(tmp_path / "s.toml").expand()] == [True, False]


SHORT = """
[short]
"drive.duration" = "2s"
"world.scale" = 3
only = ["users=1"]
"""


def test_a_short_look_changes_what_the_file_says_and_choices_of_the_command_win(tmp_path: Path) -> None:
    text = PLAIN + SHORT
    assert only_cell(tmp_path, text).drive.duration == 5 * NS_PER_S
    asked = load(tmp_path, text, "drive.duration=3s", "short=true")
    (cell,) = asked.expand()
    assert (cell.drive.duration, cell.world.scale) == (3 * NS_PER_S, 3)
    assert (asked.name, asked.only) == ("plain-short", ["users=1"])
    assert load(tmp_path, text).name == "plain"


@pytest.mark.parametrize(
    ("text", "asked", "said"),
    [
        (PLAIN, "short=true", "has no [short]; change its keys one by one"),
        (PLAIN, "short=yes", "--set short: write --set short=true, or leave it out"),
        (PLAIN.replace("[world]", "short = 3\n[world]", 1), "drive.users=1", "short: must be a table of the keys that"),
        (PLAIN + "[short]\nonly = 'a'\n", "drive.users=1", "short.only: must be a list of patterns of cells"),
        (PLAIN + "[short]\n'question.a' = 'b'\n", "short=true", "short.question.a: 'question' is not a table"),
        (PLAIN + "[short]\n'drive.durtion' = '2s'\n", "short=true", "drive.durtion"),
    ],
)
def test_a_short_look_that_cannot_be_is_refused(tmp_path: Path, text: str, asked: str, said: str) -> None:
    assert said in mistake(tmp_path, text, asked)


@pytest.mark.parametrize("path", sorted(Path("scenarios/studies").glob("*.toml")), ids=lambda path: path.stem)
def test_each_study_has_a_short_look_at_its_own_cells(path: Path) -> None:
    asked = Scenario.load(path, overrides=["short=true"])
    assert {cell.id for cell in asked.expand()} <= {cell.id for cell in Scenario.load(path).expand()}
    assert select(asked.expand(), asked.only)
