"""The user's mistakes before anything is started: one line that names the place and the cure, and exit code 2.

Runs that end before their time are in bad_input/test_stops.py.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.support import TINY, Command, complaint, content, disturbances, nothing_left, only, says, scenario
from tsbench.cli.main import main
from tsbench.results.rundir import FORMAT
from tsbench.workload import WORLD_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.warm import WarmLocust

pytestmark = pytest.mark.slow


ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of every command."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *words: str, code: int = 2) -> str:
    """Return the line with which a command refuses; verify that it wrote no results."""
    assert main([*words]) == code
    return complaint(capsys.readouterr().err)


def sets(*changes: str) -> list[str]:
    return [word for change in changes for word in ("--set", change)]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("scale = 5", "scale = 5\n[wrold]", "wrold: unknown key; did you mean 'world'?"),
        ("users = 2", "uesrs = 2", "drive.uesrs: unknown key; did you mean 'users'?"),
        ("users = 2", "colour = 2", "drive.colour: unknown key; known are loop, users"),
        ("weight = 10", "wieght = 10", "op.0.wieght: unknown key; did you mean 'weight'?"),
        ("question =", "id = 'x'\nquestion =", "id: unknown key; known are question"),
        ('use_case = "cpu-only"', "", "world.use_case: is missing; `tsbench list use-cases`"),
        ('[target]\nname = "sqlite"', "", "target: is missing; add [target]"),
        ("users = 2", 'users = "many"', "drive.users: must be a whole number (given: 'many')"),
        ("users = 2", "users = true", "drive.users: must be a whole number (given: true)"),
        ("users = 2", "users = 0", "drive.users: must be at least 1 (given: 0)"),
        ("users = 2", "users = 2\nprocesses = 4", "drive: 2 users cannot be spread over 4 processes"),
        ("users = 2", "users = 9\nprocesses = 6", "drive.processes: 6 processes cannot share 5 streams; raise"),
        ("scale = 5", "scale = 99_000_000_000", "world.scale: must be at most 10000000"),
        ("users = 2", 'loop = "open"', "drive: loop = 'open' needs a rate in ops per second; add rate"),
        ("users = 2", "rate = 5", "drive: a rate needs loop = 'open'"),
        ("users = 2", "rate = inf", "drive.rate: must be a finite number"),
        ('"1s"', '"1x"', "drive.duration: '1x' is not a duration; write for example 10s"),
        ('"1s"', "1", "drive.duration: needs a unit; write for example '1s'"),
        ('"1s"', '"1.5s"', "drive.duration: must be whole seconds"),
        ('wait = "5ms"', "wait = [10, 30]", "drive.wait.0: needs a unit; write for example '10s'"),
        ("scale = 5", 'scale = 5\nstart = "yesterday"', "world.start: 'yesterday' is not a time; write 2016-01-01T"),
        ("scale = 5", "scale = 5\nlate = 0.9", "world.late: must be at most 0.5 (given: 0.9)"),
        ('"10m"', '"0s"', "load.window: must be above 0"),
        ('"10m"', '"10m"\nmode = "single"', "load.mode: must be 'multi' or 'bulk'"),
        ('"cpu-only"', '"cpu-olny"', "world: there is no use case 'cpu-olny'; did you mean 'cpu-only'?"),
        ('"raw-one"', '"raw-on"', "op: there is no query 'raw-on' in the use case cpu-only; did you mean 'raw-one'?"),
        ('"raw-one"', '"single-groupby-1-1-1"', "op: query 'single-groupby-1-1-1' covers 1 h and 600 s are loaded"),
        ('"raw-one"', '"last-value"', "op: query 'last-value' is for the use case sensors, not for cpu-only"),
        ('query = "raw-one"', "weight = 1", "op.1: needs either write = POINTS or query = 'KIND'"),
        ('query = "raw-one"', "write = 1", "op: 'write-1' occurs twice"),
        ("write = 1", 'write = 250\nmode = "single"', "op.0: mode = 'single' takes one point, not 250; set write = 1"),
        ("write = 1", 'write = 1\nmode = "quick"', "op.0.mode: must be 'single', 'multi' or 'bulk' (given: 'quick')"),
        ('"sqlite"', '"sqllite"', "target.name: no target is called 'sqllite'; did you mean 'sqlite'?"),
        ('"sqlite"', '"sqlite"\nschema = "wall"', "target.schema: sqlite has no schema 'wall'; did you mean 'wal'?"),
        ('"sqlite"', '"sqlite"\nsettings = { fsync = "off" }', "target.settings: fsync: an embedded database has no"),
        ('"sqlite"', '"sqlite"\nsettings = { fsync = false }', "target.settings.fsync: must be text in quotes"),
        ('"sqlite"', '"null"\ncold = true', "target.cold: null keeps nothing on disk"),
        ('"sqlite"', '"sqlite"\ncold = true\nendpoint = "sqlite:////x.db"', "target.cold: needs a server that tsbench"),
        ("[check]", "[matrix]\ndrive.users = []\n[check]", "matrix.drive.users: must be a list of at least one value"),
        ("[check]", '[matrix]\ntarget.schema = ["wal", "wal"]\n[check]', "two cells are called schema=wal"),
        ("[check]", "gates = 3\n[check]", "op.1.gates: unknown key"),
        ("question =", "= question", "not TOML: Invalid statement (at line 2"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_scenario_is_named_with_file_key_and_cure(
    place: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, words: str
) -> None:
    scenario(place, (old, new))
    line = refused(capsys, "run", "tiny.toml")
    assert line.startswith("tsbench: tiny.toml: "), line
    says(line, words)
    assert not (place / "results").exists()


def test_a_scenario_without_a_section_says_what_to_add(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "tiny.toml").write_text(TINY[TINY.index("[load]") :])
    says(refused(capsys, "run", "tiny.toml"), "tiny.toml: world: is missing; add [world] with use_case")
    (place / "tiny.toml").write_text(TINY[: TINY.index("[[op]]")])
    says(refused(capsys, "run", "tiny.toml"), "tiny.toml: op: is missing; add [[op]] tables")


def test_a_file_of_the_other_kind_is_named_as_what_it_is(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "tiny.toml").write_text(TINY)
    says(refused(capsys, "check", "tiny.toml"), "tiny.toml: is a scenario, and a use case is wanted; `tsbench run")
    (place / "own.toml").write_text('about = "own"\n[[measurement]]\nname = "m"\nfields = { x = { walk = 1 } }\n')
    says(refused(capsys, "run", "own.toml"), "own.toml: is a use case, and a scenario is wanted; `tsbench init")


def test_times_without_quotes_are_taken_as_toml_means_them(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario(place, ("scale = 5", "scale = 5\nstart = 2020-02-03T04:05:06Z"))
    says(refused(capsys, "run", "tiny.toml", "--only", "no"), "--only no: no such cell; there are sqlite")


def test_a_file_that_is_not_there_is_answered_with_its_neighbour(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario(place)
    says(refused(capsys, "run", "tinny.toml"), "tinny.toml: no such scenario; did you mean tiny.toml?")
    says(refused(capsys, "run", "other.toml"), "other.toml: no such scenario", "tsbench list scenarios")
    says(refused(capsys, "run", "."), ".: is a directory; choose a scenario file")


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--set", "drive.users"], "--set drive.users: write --set key=value"),
        (["--set", "=3"], "--set =3: write --set key=value"),
        (["--set", "drive.uesrs=3"], "tiny.toml: drive.uesrs: unknown key; did you mean 'users'?"),
        (["--set", "op.0.write=3"], "--set op.0.write: 'op' is not a table"),
        (["--only", "postgres*"], "--only postgres*: no such cell; there are sqlite"),
        (["--onyl", "x"], "No such option: --onyl"),
        (["--resume", "results/no"], "--resume results/no: no such result set"),
        (["--resume", "."], "--resume .: is not a result set (no scenario.toml)"),
    ],
)
def test_a_mistake_on_the_command_line_is_named(
    place: Path, capsys: pytest.CaptureFixture[str], words: list[str], answer: str
) -> None:
    scenario(place)
    says(refused(capsys, "run", "tiny.toml", *words), answer)


@pytest.mark.parametrize(
    "url", ["postgresql://me:geheim@db/bench", "postgresql://me:ge/he@im@db/bench", "postgresql://db/bench?password=geheim"]
)  # fmt: skip
def test_a_password_in_a_url_is_refused_and_neither_repeated_nor_stored(
    place: Path, capsys: pytest.CaptureFixture[str], url: str
) -> None:
    scenario(place)
    line = refused(capsys, "run", "tiny.toml", "--set", "target.name=postgres", "--endpoint", url)
    says(line, "target.endpoint: holds a password", "set TSBENCH_PASSWORD")
    assert "geheim" not in line
    assert "im@" not in line
    assert not (place / "results").exists()


SECRET = "geheim"
LEAKS = [
    f"postgresql://me:{SECRET}@db/bench",
    f"postgresql://db/bench?pass%77ord={SECRET}",
    f"http://db:8086/bench?u=me&p={SECRET}",
    f"http://db:8086/?org=o&bucket=b&TOKEN={SECRET}",
    f"host=db password = '{SECRET}'",
]


@pytest.mark.parametrize("url", LEAKS)
@pytest.mark.parametrize(
    ("changes", "words", "said"),
    [
        ({'name = "sqlite"': 'name = "postgres"\nendpoint = "URL"'}, [], "tiny.toml: target.endpoint: holds a"),
        (
            {'name = "sqlite"': 'name = "postgres"\nendpoint = "URL"'},
            ["--endpoint", "postgresql://me@db/bench"],
            "tiny.toml: target.endpoint: holds a",
        ),
        (
            {"[check]": '[matrix]\ntarget = [{name = "sqlite"}, {name = "postgres", endpoint = "URL"}]\n[check]'},
            ["--only", "sqlite"],
            "tiny.toml: matrix.target.endpoint: holds a",
        ),
        ({}, ["--endpoint", "URL"], "target.endpoint: holds a"),
        ({}, ["--set", "target.endpoint=URL"], "--set target.endpoint: holds a"),
        ({}, ["--set", 'target.endpoint="URL"'], "--set target.endpoint: holds a"),
        ({}, ["--set", "target.endpoint = URL"], "--set target.endpoint: holds a"),
        ({}, ["--set", "endpoint=URL"], "--set endpoint: holds a"),
    ],
    ids=[
        "file",
        "file with another endpoint",
        "cell that is not run",
        "--endpoint",
        "--set",
        "quoted",
        "spaced",
        "wrong",
    ],
)
def test_a_secret_is_refused_wherever_an_endpoint_is_given_before_anything_is_written(
    place: Path, capsys: pytest.CaptureFixture[str], url: str, changes: dict[str, str], words: list[str], said: str
) -> None:
    path = scenario(place, *((old, new.replace("URL", url)) for old, new in changes.items()))
    assert main(["run", "tiny.toml", *(word.replace("URL", url) for word in words)]) == 2
    shown = capsys.readouterr()
    says(complaint(shown.err), said, "take it out and set TSBENCH_PASSWORD or TSBENCH_TOKEN")
    assert SECRET not in shown.err + shown.out
    assert list(place.iterdir()) == [path]


@pytest.mark.parametrize("word", [f"--set=postgresql://me:{SECRET}@db/x", f"--set=postgresql://me:{SECRET}@db/x?a=1"])
def test_a_url_that_is_given_as_a_key_is_not_repeated(
    place: Path, capsys: pytest.CaptureFixture[str], word: str
) -> None:
    scenario(place)
    says(line := refused(capsys, "run", "tiny.toml", word), "--set: holds a password")
    assert SECRET not in line


@pytest.mark.parametrize("url", LEAKS)
def test_a_secret_in_a_comment_is_refused_because_the_file_is_kept_with_the_results(
    place: Path, capsys: pytest.CaptureFixture[str], url: str
) -> None:
    scenario(place, ("[check]", f'# endpoint = "{url}"\n[check]'))
    says(line := refused(capsys, "run", "tiny.toml"), "tiny.toml: line 18: holds a password")
    assert SECRET not in line
    assert not (place / "results").exists()


@pytest.mark.parametrize("url", [LEAKS[0], LEAKS[1], LEAKS[4]])
@pytest.mark.parametrize("how", ["--endpoint", "--host", "TSBENCH_ENDPOINT", "LOCUST_HOST"])
def test_bare_locust_refuses_a_secret_wherever_an_endpoint_is_given(
    place: Path, warm_locust: WarmLocust, url: str, how: str
) -> None:
    locustfile = str(ROOT / "locustfiles" / "postgres.py")
    given = [how, url] if how.startswith("-") else []
    done = warm_locust.run(place, "-f", locustfile, "--headless", "-t", "1s", *given, env={} if given else {how: url})
    assert done.code == 2
    says(done.stderr, "tsbench: --endpoint: holds a password or token")
    assert SECRET not in done.stderr + done.stdout
    assert not (place / "results").exists()


@pytest.mark.parametrize("host", ["0.0.0.0", "*", "", "::"])
def test_a_web_page_that_others_reach_needs_a_password(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.delenv("TSBENCH_WEB_PASSWORD", raising=False)
    monkeypatch.setattr("os.execv", lambda *_: pytest.fail("it was started"))
    says(refused(capsys, "web", "sqlite", "--host", host), "--host: ", "set TSBENCH_WEB_PASSWORD", "or use 127.0.0.1")


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--start", "2016-01-02", "--end", "2016-01-01"], "the end is not after the start"),
        (["--start", "soon"], "--start soon: 'soon' is not a time; write 2016-01-01T00:00:00Z"),
        (["--end", "now+1z"], "--end now+1z: '1z' is not a duration; write for example 10s"),
        (["--interval", "10"], "--interval 10: '10' is not a duration; write for example 10s"),
        (["--interval", "0s"], "--interval 0s: must be above 0"),
        (["--scale", "0"], "'--scale'"),
        (["--scale", "x"], "'--scale'"),
        (["--use-case", "cpuonly"], "there is no use case 'cpuonly'; did you mean 'cpu-only'?"),
        (["--format", "xml"], "there is no format 'xml'; there are influx, csv, pgcopy"),
        (["--form", "peers"], "there is no form 'peers'; there are"),
        (["--use-case", "devops", "--format", "csv"], "a csv file is one table: choose one measurement of cpu, diskio"),
        (["--out", "no/points"], "cannot write 'no/points': No such file or directory"),
        (["--scenario", "tiny.toml", "--seed", "2"], "--seed: the scenario says that; change its key with --set"),
        (["--scenario", "other.toml"], "other.toml"),
        (["--only", "sqlite"], "--only needs --scenario"),
    ],
)
def test_a_mistake_for_generate_is_named_and_the_file_is_left_alone(
    place: Path, capsys: pytest.CaptureFixture[str], words: list[str], answer: str
) -> None:
    (place / "points").write_text("of yesterday")
    says(refused(capsys, "generate", "--out", "points", *words), answer)
    assert (place / "points").read_text() == "of yesterday"


# --- results ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete result set, whose run may be inconclusive; the directory above it holds its scenario."""
    place = tmp_path_factory.mktemp("finished")
    scenario(place)
    with nothing_left():
        Command(place, "tsbench", "run", "tiny.toml").ended_well()
    return only(place, "results/*")


@pytest.fixture
def results(finished: Path, place: Path) -> Path:
    """A copy of it, to be damaged."""
    shutil.copy(finished.parent.parent / "tiny.toml", place)
    return shutil.copytree(finished, place / "set")


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def noise(path: Path) -> None:
    """Overwrite the middle third; lines stay lines."""
    whole = path.read_bytes()
    third = len(whole) // 3
    spoilt = bytes(byte if byte == 10 else 0xFF for byte in whole[third:-third])
    path.write_bytes(whole[:third] + spoilt + whole[-third:])


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("summary.json", half),
        ("summary.json", noise),
        ("spec.json", half),
        ("env.json", half),
        ("ops.parquet", half),
        ("ops.parquet", noise),
        ("host.parquet", half),
        ("local.hlog", noise),  # a log of which the end is missing is what a killed process leaves: not a damaged one
    ],
)
def test_a_damaged_file_is_named_in_the_report_and_the_rest_is_shown(
    results: Path, capsys: pytest.CaptureFixture[str], name: str, damage: Callable[[Path], None]
) -> None:
    damage(only(results, f"sqlite/**/{name}"))
    code, said = main(["report", str(results)]), capsys.readouterr()
    assert "Traceback" not in said.err
    if code == 0:
        assert name in (results / "report.html").read_text()
    else:
        assert code == 2
        says(complaint(said.err), name, "--resume")


@pytest.mark.parametrize("damage", [half, noise, lambda path: path.write_text("[]")])
def test_a_damaged_status_is_named_with_the_cure(
    results: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None]
) -> None:
    damage(results / "sqlite" / "status.json")
    says(refused(capsys, "report", "set"), "set/sqlite/status.json is damaged", "run the cell again with --resume")


def test_what_is_no_result_is_told_from_one(results: Path, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (results / "sqlite" / "spec.json").unlink()
    says(refused(capsys, "report", "set"), "set holds no run of tsbench (no spec.json)", "results/<date>-<scenario>")
    says(refused(capsys, "report", "no"), "no is not a directory", "results/<date>-<scenario>")
    says(refused(capsys, "report", "tiny.toml"), "tiny.toml is not a directory")


def test_results_of_a_newer_version_are_left_to_it(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = results / "sqlite" / "status.json"
    status.write_text(status.read_text().replace(f'"format": {FORMAT}', '"format": 99'))
    says(refused(capsys, "report", "set"), f"written by a newer tsbench (format 99 > {FORMAT})", "update tsbench")


@pytest.mark.parametrize("file", ["summary.json", "sqlite/summary.json", "sqlite/env.json"])
def test_every_file_of_a_newer_version_is_left_to_it(
    results: Path, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = results / file
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": FORMAT + 1}))
    for words in (["report", "set"], ["run", "tiny.toml", "--resume", "set"]):
        says(refused(capsys, *words), f"written by a newer tsbench (format {FORMAT + 1} > {FORMAT})", "update tsbench")


@pytest.mark.parametrize(("version", "reported"), [(WORLD_VERSION + 1, False), (WORLD_VERSION - 1, True)])
def test_a_result_set_with_other_data_is_not_resumed_and_reported_only_if_they_are_earlier(
    results: Path, version: int, reported: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    path = results / "sqlite" / "env.json"
    manifest = json.loads(path.read_text())
    assert manifest["world_version"] == WORLD_VERSION
    path.write_text(json.dumps({**manifest, "world_version": version}))
    other = f"world version {version}, now {WORLD_VERSION}"
    says(refused(capsys, "run", "tiny.toml", "--resume", "set"), "set/sqlite", other)
    if reported:
        assert main(["report", "set"]) == 0
    else:
        says(refused(capsys, "report", "set"), "set/sqlite", other, "update tsbench")


def test_runs_with_different_data_are_not_reported_together(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(results / "sqlite", results / "other")
    path = results / "other" / "env.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "world_version": WORLD_VERSION - 1}))
    says(refused(capsys, "report", "set"), "set/other", "set/sqlite", "did not store the same data", "one by one")
    assert main(["report", "set/other"]) == 0


@pytest.mark.parametrize("file", ["summary.json", "sqlite/summary.json", "sqlite/status.json"])
def test_results_of_an_earlier_version_are_neither_reported_nor_resumed(
    results: Path, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = results / file
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": FORMAT - 1}))
    for words in (["report", "set"], ["run", "tiny.toml", "--resume", "set"]):
        line = refused(capsys, *words)
        says(line, f"written by an earlier tsbench (format {FORMAT - 1}, now {FORMAT})", "without --resume")


def test_a_result_set_is_not_resumed_with_another_scenario(
    results: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "tiny.toml", "--resume", "set"]
    says(refused(capsys, *words, *sets("world.seed=2")), "set/sqlite was made from another version", "undo the change")
    says(refused(capsys, *words, *sets("name=other")), "holds the scenario 'tiny', not 'other'")
    says(refused(capsys, "run", "tiny.toml", "--resume", "sets"), "no such result set; did you mean set?")


@pytest.mark.usefixtures("unpainted")
def test_resuming_a_run_whose_world_began_before_now_keeps_what_is_complete(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario(place)
    run = ["run", "tiny.toml", *sets("world.start=now-1h")]
    code = main(run)
    (results,) = (place / "results").iterdir()
    assert code == (1 if disturbances(content(results / "sqlite" / "summary.json")) else 0)
    before = (results / "sqlite" / "status.json").read_bytes()
    capsys.readouterr()
    assert main([*run, "--resume", str(results)]) == code
    assert (capsys.readouterr().err == "") == (code == 0)
    assert (results / "sqlite" / "status.json").read_bytes() == before
    words = ["run", "tiny.toml", *sets("world.start=2024-01-01"), "--resume", str(results)]
    says(refused(capsys, *words), "sqlite was made from another version")


@pytest.mark.usefixtures("unpainted")
def test_resuming_what_is_complete_does_nothing_and_keeps_cells_that_were_not_asked_for(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = content(results / "summary.json")
    summary["cells"].append({**summary["cells"][0], "cell": "earlier"})
    (results / "summary.json").write_text(json.dumps(summary))
    before = (results / "sqlite" / "status.json").read_bytes()
    code = 1 if disturbances(content(results / "sqlite" / "summary.json")) else 0
    assert main(["run", "tiny.toml", "--resume", "set"]) == code
    assert (capsys.readouterr().err == "") == (code == 0)
    assert (results / "sqlite" / "status.json").read_bytes() == before
    assert [cell["cell"] for cell in content(results / "summary.json")["cells"]] == ["sqlite", "earlier"]


def test_a_warm_up_of_a_cold_run_is_refused_in_one_line(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario(place, ('warmup = "0s"', 'warmup = "1s"'), ('"sqlite"', '"sqlite"\ncold = true'))
    line = refused(capsys, "run", "tiny.toml")
    says(line, "tsbench: tiny.toml: drive.warmup: a run with target.cold has none")
    says(line, "take it out")
