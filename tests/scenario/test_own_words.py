# ruff: noqa: E501 - a line for each text
"""Queries in databases' own languages: their answers against gold, and texts that are wrong, odd or not only reads."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import complaint, says
from tests.scenario.test_use_case import MARKS, SCENARIO, answers_of_a_run, expect_one_line, world
from tests.targets.mysql.support import new_database
from tsbench.cli.main import main
from tsbench.errors import UserMistake
from tsbench.model import OpError
from tsbench.results.summary import SetSummary
from tsbench.study.agreeing import Witnesses
from tsbench.study.campaign import planned
from tsbench.study.request import RunRequest
from tsbench.targets.registry import TARGETS as TARGETS_BY_NAME
from tsbench.testing.stand import Stand
from tsbench.workload.own_text import expect_read, filled, parameters

WORKS = Path(__file__).parent / "data" / "works.toml"
TEXT = WORKS.read_text(encoding="utf-8")
OF_WORKS = SCENARIO.replace("pumps.toml", "works.toml")
OF_WORKS = OF_WORKS[: OF_WORKS.index('[[op]]\nquery = "hot-pumps"')]
OF_WORKS += '[[op]]\nquery = "site-minutes"\n[[op]]\nquery = "fastest"\n'


def each(*at_once: str) -> list[Any]:
    """Return the names of all databases as parameters: the first ones at each submission, the others nightly."""
    return [
        pytest.param(name, marks=[*([getattr(pytest.mark, MARKS[name])] if name in MARKS else []),
                                  *([] if name in at_once else [pytest.mark.nightly])])
        for name in ("sqlite", "duckdb", *MARKS)
    ]  # fmt: skip


EACH, SQLITE_FIRST = each("sqlite", "postgres"), each("sqlite")


@pytest.mark.slow
@pytest.mark.parametrize("target", EACH)
def test_own_words_are_answered_and_checked_on_every_database(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = OF_WORKS.replace('"sqlite"', f'"{target}"')
    if target == "victoriametrics":
        (tmp_path / "works.toml").write_text(TEXT)
        (tmp_path / "s.toml").write_text(text)
        assert main(["run", str(tmp_path / "s.toml"), "--out", str(tmp_path / "results")]) == 2
        says(
            complaint(capsys.readouterr().err),
            "query.site-minutes: ",
            "at the end of its window",
            "labels and one number",
        )
        text = text.replace('[[op]]\nquery = "site-minutes"\n', "")
    assert answers_of_a_run(text, tmp_path, capsys)["counts"]["checked"] >= 60


@pytest.mark.slow
def test_answers_without_gold_are_said_to_be_unchecked_and_empty_ones_to_be_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gold = 'gold = "SELECT site, max(rpm) FROM pump GROUP BY site"\n'
    assert gold in TEXT
    (tmp_path / "works.toml").write_text(TEXT.replace(gold, ""))
    (tmp_path / "s.toml").write_text(OF_WORKS + '[[op]]\nquery = "stopped"\n')
    main(["run", str(tmp_path / "s.toml"), "--out", str(tmp_path / "results")])
    out = capsys.readouterr().out
    says(out, "sqlite: the answers to 'fastest' have no gold: they were the same when asked again, which does not")
    says(out, "every answer to 'stopped' was empty")
    (page,) = (tmp_path / "results").glob("*/report.html")
    text = page.read_text(encoding="utf-8")
    assert re.search(r"of which stopped\D*([\d,]+), \1 of them empty", text)
    says(text, "Evidence for the answers", "20 answers under load were the same when asked again")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "text", "why"),
    [
        ("sqlite", "SELECT max(m.rpms) FROM pump m", "no such column: m.rpms"),
        pytest.param("postgres", "SELECT lo_creat(-1)", "read only: ", marks=pytest.mark.postgres),
        ("duckdb", "SELECT nextval('numbers')", "numbers"),
    ],
)
def test_a_text_that_fails_or_writes_ends_the_run_before_the_measured_load(
    target: str, text: str, why: str, tmp_path: Path
) -> None:
    query = f'[[query]]\nname = "odd"\nwindow = "5m"\nanswer = ["n:int"]\ntext.sql = "{text}"\n'
    (tmp_path / "works.toml").write_text(TEXT + query + query.replace("odd", "too"))
    scenario = OF_WORKS[: OF_WORKS.index("[[op]]")].replace('"sqlite"', f'"{target}"')
    (tmp_path / "s.toml").write_text(scenario + '[[op]]\nquery = "odd"\n[[op]]\nquery = "too"\n')
    assert main(["run", str(tmp_path / "s.toml"), "--out", str(tmp_path / "results")]) == 1
    (path,) = (tmp_path / "results").glob("*/*/summary.json")
    reason = json.loads(path.read_text())["validity"]["checks"]["run"]["reason"]
    assert reason.count(why) == 2, reason
    says(reason, "query 'odd' fails: ", "; query 'too' fails: ")
    assert not [*(tmp_path / "results").glob("*/*/ops.parquet")]


def in_two_databases(
    place: Path, capsys: pytest.CaptureFixture[str], *texts: str, gold: str = ""
) -> tuple[int, str, dict[str, Any]]:
    """Run a scenario with a query for each of DuckDB's texts; return the exit code, the output, the set's summary."""
    right = f"SELECT t.site, count(*) {JOIN} WHERE {INSIDE} GROUP BY 1"
    asked = [
        f'[[query]]\nname = "q{number}"\nwindow = "7m"\nanswer = ["site:text", "n:int"]\n'
        f'text.sql = "{right}"\ntext.duckdb = "{text}"\ngold = "{gold}"\n'
        for number, text in enumerate(texts)
    ]
    (place / "ways.toml").write_text(HEAD + "".join(asked))
    head = 'question = "?"\nworld = { use_case = "ways.toml", scale = 12 }\nload.window = "20m"\n'
    head += 'check = { answers = 20, evidence = "agreed" }\ndrive = { users = 2, warmup = "0s", duration = "2s" }\n'
    head += "".join(f'[[op]]\nquery = "q{number}"\n' for number in range(len(texts)))
    (place / "s.toml").write_text(head + '[[op]]\nwrite = 10\n[matrix]\ntarget.name = ["sqlite", "duckdb"]\n')
    code = main(["run", str(place / "s.toml"), "--out", str(place / "results"), "--junit", str(place / "junit.xml")])
    said = capsys.readouterr()
    (path,) = (place / "results").glob("*/summary.json")
    return code, said.out + said.err, json.loads(path.read_text())


@pytest.mark.slow
def test_answers_without_gold_are_compared_between_the_databases_of_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same = f"SELECT site, sum(1) {JOIN} WHERE {INSIDE} GROUP BY ALL"
    code, said, of_set = in_two_databases(tmp_path, capsys, same, same.replace("< :end", "<= :end"))
    assert code == 1
    agreed, differs = of_set["agreements"]
    assert (agreed["kind"], agreed["asked"], agreed["differ"], agreed["families"]) == ("q0", 10, 0, 2)
    assert (differs["kind"], differs["asked"]) == ("q1", 10)
    assert 3 <= differs["differ"] < 10  # those windows that end on a point's time
    says(said, "Answers:      those to 'q0' have no gold; sqlite and duckdb agree on all 10 that were compared.")
    says(said, f"Differ:       {differs['differ']} of 10 answers to 'q1' on sqlite and duckdb: nobody knows which is")
    says(
        said, f"tsbench: 'q1' has no gold: {10 - differs['differ']} of 10 answers of sqlite, duckdb agree; first query "
    )
    assert [cell["validity"]["state"] for cell in of_set["cells"]] == ["valid", "valid"]
    weak = "evidence for the answers to 'q1' is 'differs', and check.evidence asks for 'agreed'"
    assert of_set["weak"] == [f"sqlite: {weak}", f"duckdb: {weak}"]
    says(said, f"Evidence:     sqlite: {weak}.")
    (page,) = (tmp_path / "results").glob("*/report.html")
    says(page.read_text(encoding="utf-8"), "Evidence for the answers", ">agreed<", ">differs<")
    cases = {case.get("name"): [*case] for case in ET.parse(tmp_path / "junit.xml").iter("testcase")}
    assert cases["answers to q0 agree"] == []
    (failure,) = cases["answers to q1 agree"]
    assert (failure.tag, "of 10 answers of sqlite, duckdb agree" in str(failure.get("message"))) == ("failure", True)
    (kept,) = (tmp_path / "results").glob("*/sqlite/unproven.jsonl")
    kept.write_text('{"op": "q0", "number": 1, "columns": 5, "rows": []}\n')
    with pytest.raises(UserMistake, match=r"unproven\.jsonl.*a line is no answer"):
        Witnesses(kept.parent.parent).agreed(SetSummary.read(kept.parent.parent).cells)


ALARMS = """
[[measurement]]
name = "alarm"
[measurement.fields]
level = { of = [1, 2, 3], type = "int" }
[[query]]
name = "hot-alarms"
window = "7m"
answer = ["site:text", "n:int", "hottest:float"]
text.sql = "SELECT t.site, count(*), max(m.temp) FROM alarm a JOIN tags t ON t.id = a.tags_id JOIN pump m ON m.tags_id = a.tags_id AND m.time = a.time WHERE a.time >= :start AND a.time < :end AND a.level > 2 GROUP BY 1"
gold = "SELECT a.site, count(*), max(temp) FROM alarm a JOIN pump USING (time, pump) WHERE level > 2 GROUP BY a.site"
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("", "", False),
        pytest.param("AND m.time = a.time", "", True, marks=pytest.mark.nightly),
        ("> 2 G", ">= 2 G", True),
    ],
)
def test_gold_joins_measurements(
    old: str, new: str, wrong: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ways.toml").write_text(HEAD + (ALARMS.replace(old, new, 1) if old else ALARMS))
    head = 'question = "?"\nworld = { use_case = "ways.toml", scale = 12, out_of_order = 0.1 }\nload.window = "20m"\n'
    head += 'check.answers = 20\ndrive = { users = 2, warmup = "0s", duration = "2s" }\ntarget.name = "sqlite"\n'
    (tmp_path / "s.toml").write_text(head + '[[op]]\nquery = "hot-alarms"\n[[op]]\nwrite = 10\n')
    assert main(["run", str(tmp_path / "s.toml"), "--out", str(tmp_path / "results")]) == wrong
    (path,) = (tmp_path / "results").glob("*/summary.json")
    (cell,) = json.loads(path.read_text())["cells"]
    answers = cell["answers"]
    assert answers["by_kind"]["hot-alarms"] > 20
    assert (answers["wrong"] > 10) == wrong, capsys.readouterr().out
    kept = path.parent / "sqlite" / "wrong.jsonl"
    assert kept.exists() == wrong
    if wrong:  # the first wrong one, asked again of data that are loaded again
        says(answers["first_wrong"]["statement"], "FROM alarm", "\n-- (")
        again = ["--endpoint", f"sqlite:///{tmp_path}/again.db"]
        assert (
            main(["load", "sqlite", "--scenario", str(tmp_path / "s.toml"), *again, "--out", str(tmp_path / "r")]) == 0
        )
        assert main(["validate", "sqlite", str(kept), *again]) == 1
        says(capsys.readouterr().out, "sqlite wal: 0 of 1 answers are right", answers["first_wrong"]["query"])


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize(("count", "are_same"), [("sum(1)", True), ("sum(2)", False)])
def test_gold_that_differs_from_all_databases_is_suspected_if_these_agree(
    count: str, are_same: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"SELECT site, {count} {JOIN} WHERE {INSIDE} GROUP BY ALL"
    gold = "SELECT site, count(*) + 1 FROM pump GROUP BY site"
    code, said, of_set = in_two_databases(tmp_path, capsys, text, gold=gold)
    assert (code, len(of_set.get("agreements", []))) == (1, are_same)
    says(said, "Invalid:      sqlite does not count", "Invalid:      duckdb does not count")
    of_all = (
        "Gold:         20 answers to 'q0' differ from gold on all of sqlite and duckdb, which agree with each other"
    )
    assert (of_all in said) == are_same


@pytest.mark.nightly
@pytest.mark.slow
def test_an_answer_that_is_another_one_when_asked_again_is_checked_by_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said, _ = in_two_databases(tmp_path, capsys, "SELECT 'a', CAST(random() * 1e9 AS BIGINT)")
    assert code == 1
    says(
        said,
        "duckdb: inconclusive: an answer to 'q0': asked again, it was another one: row 1 of 1, n: ",
        "with LIMIT, order",
    )


@pytest.mark.slow
@pytest.mark.parametrize(("end", "code"), [("<", 0), ("<=", 1)])
def test_without_gold_a_point_that_both_halves_of_a_window_count_is_found(
    end: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gold = 'gold = "SELECT site, max(rpm) FROM pump GROUP BY site"\n'
    query = (
        '[[query]]\nname = "busy"\nwindow = "7m"\nhalves = { n = "sum", hot = "max" }\n'
        'answer = ["site:text", "n:int", "warm:float", "hot:float"]\n'
        f'text.sql = "SELECT t.site, count(*), avg(m.temp), max(m.temp) {JOIN} WHERE {INSIDE} GROUP BY 1"\n'
    )
    (tmp_path / "works.toml").write_text(TEXT.replace(gold, "") + query.replace("< :end", f"{end} :end"))
    (tmp_path / "s.toml").write_text(OF_WORKS[: OF_WORKS.index("[[op]]")] + '[[op]]\nquery = "busy"\n')
    assert main(["run", str(tmp_path / "s.toml"), "--out", str(tmp_path / "results")]) == code
    said = capsys.readouterr().out
    word = "differs" if code else "halves"
    says(said, word)
    if code:
        says(said, "an answer to 'busy': it is not what those about the halves of its window come to: ", "n: ")


def test_own_words_go_through_a_file_of_queries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "works.toml").write_text(TEXT)
    of_world = ["--use-case", str(tmp_path / "works.toml"), "--scale", "10", "--end", "2016-01-01T01:00:00Z"]
    kinds = ["--type", "site-minutes", "--type", "fastest"]
    place, asked = ["--endpoint", f"sqlite://{tmp_path / 'x.db'}"], str(tmp_path / "q.jsonl")
    for words in (
        ["generate", *of_world, "--out", str(tmp_path / "points.zst")],
        ["load", "sqlite", str(tmp_path / "points.zst"), *place, "--out", str(tmp_path / "r")],
        ["queries", *of_world, *kinds, "--count", "20", "--out", asked],
        ["query", "sqlite", asked, *place, "--out", str(tmp_path / "r")],
        ["validate", "sqlite", asked, *place],
    ):
        assert main(words) == 0, (words, capsys.readouterr().err)
    says(capsys.readouterr().out, "20 of 20 answers are right")
    for end, code, said in (("<", 0, "20 answers without gold are what"), ("<=", 1, "it is not what those about the")):
        text = f"SELECT count(*) FROM pump m WHERE {INSIDE.replace('<', end)}"
        rows = f'name = "rows"\nwindow = "9m"\nhalves = {{ n = "sum" }}\nanswer = ["n:int"]\ntext.sql = "{text}"\n'
        (tmp_path / "works.toml").write_text(f"{TEXT}\n[[query]]\n{rows}")
        assert main(["queries", *of_world, "--type", "rows", "--count", "25", "--out", asked, "--force"]) == 0
        assert main(["validate", "sqlite", asked, *place]) == code
        says(capsys.readouterr().out, f"sqlite wal: rows: {said}")
    assert main(["queries", *of_world, *kinds, "--count", "20", "--out", asked, "--force"]) == 0
    assert main(["queries", *of_world, *kinds, "--show", "duckdb"]) == 0
    says(capsys.readouterr().out, "duckdb columns, fastest", "SELECT t.site, max(m.rpm)")
    lines = Path(asked).read_text().splitlines()
    Path(asked).write_text("\n".join([lines[0], lines[1].replace("SELECT", "DELETE"), *lines[2:]]))
    assert main(["query", "sqlite", asked, *place, "--out", str(tmp_path / "r")]) == 2
    says(complaint(capsys.readouterr().err), "q.jsonl", "line 2", "it begins with DELETE")


# --- texts that are wrong, and texts that only look different ---------------------------------------------------------

HEAD = """
about = "a question asked in many ways"
[tags]
pump = { number = "p-{}" }
site = { of = ["a", "b", "c"], weights = [5, 2, 1] }
[[measurement]]
name = "pump"
[measurement.fields]
temp = { walk = 1.0, first = 40, decimals = 2 }
rpm  = { normal = [1450, 20], type = "int" }
gap  = { uniform = [0, 9], decimals = 1, null = 0.3 }
state = { of = ["run", "idle"] }
open = { of = [true, false] }
"""
STATES = (
    '["state:text", "open:bool", "n:int", "hot:bool"]',
    "SELECT state, open, count(*), max(temp) > 40 FROM pump GROUP BY state, open",
)
SITES = ('["site:text", "warm:float", "n:int"]', "SELECT site, avg(temp), count(*) FROM pump GROUP BY site")
OVERALL = ('["warm:float", "fast:int"]', "SELECT avg(temp), max(rpm) FROM pump")
GAPS = ('["n:int", "mean:float"]', "SELECT count(gap), avg(gap) FROM pump")
DIFFERENT = ('["n:int"]', "SELECT count(DISTINCT rpm) FROM pump")
MINUTES = (
    '["minute:int", "most:float"]',
    "SELECT :bucket(time, 1m) // 60000000000, max(temp) FROM pump GROUP BY ALL",
)
JOIN = "FROM pump m JOIN tags t ON t.id = m.tags_id"
INSIDE = "m.time >= :start AND m.time < :end"
MINUTE = ":bucket(m.time, 60s) / 60000000000"
NEWEST = ('["pump:text", "temp:float"]', "SELECT pump, arg_max(temp, time) FROM pump GROUP BY pump")
TOP = ('["pump:text", "hot:float"]', "SELECT pump, max(temp) FROM pump GROUP BY pump ORDER BY 2 DESC, 1 LIMIT 3")
SHARE = (
    '["site:text", "share:float"]',
    "SELECT site, count(*) FILTER (rpm > 1450) * 1.0 / count(*) FROM pump GROUP BY site",
)
FASTEST_FOUR = (
    '["pump:text", "fast:int"]\norder = "fast desc"\nlimit = 4',
    "SELECT pump, count(*) FILTER (rpm > 1450) FROM pump GROUP BY pump",
)
RANGE = ('["time:time", "n:int"]', "SELECT min(time), count(*) FROM pump")
QUESTIONS = {
    "sites": SITES, "overall": OVERALL, "gaps": GAPS, "different": DIFFERENT, "minutes": MINUTES, "states": STATES,
    "newest": NEWEST, "top": TOP, "share": SHARE, "range": RANGE,
    "fastest": FASTEST_FOUR,
}  # fmt: skip
FAST = f"SELECT t.pump, sum(CASE WHEN m.rpm > 1450 THEN 1 ELSE 0 END) {JOIN} WHERE {INSIDE} GROUP BY t.pump"
LAST = "SELECT tags_id, max(time) AS time FROM pump m WHERE {} GROUP BY tags_id"
RIGHT = [
    ("sites", f"SELECT t.site, avg(m.temp), count(*) {JOIN} WHERE {INSIDE} GROUP BY t.site"),
    ("sites", f"SELECT t.site, sum(m.temp) / count(*), count(m.rpm) {JOIN} WHERE {INSIDE} GROUP BY 1 ORDER BY 3 DESC"),
    (
        "sites",
        f"WITH x AS (SELECT * {JOIN}) SELECT site AS s, avg(temp), count(*) * 1.0 FROM x m WHERE {INSIDE} GROUP BY 1",
    ),
    ("sites", f"SELECT t.site, avg(m.temp) * 1.00000000001, count(*) {JOIN} WHERE {INSIDE} GROUP BY 1 -- until :never"),
    ("sites", f"SELECT t.site, avg(m.temp), count(*) {JOIN} WHERE {INSIDE} AND t.site <> ':start; x' GROUP BY t.site;"),
    ("overall", f"SELECT avg(m.temp), max(m.rpm) FROM pump m WHERE {INSIDE}"),
    ("gaps", f"SELECT count(m.gap), avg(m.gap) FROM pump m WHERE {INSIDE} AND m.gap IS NOT NULL"),
    ("minutes", f"SELECT MINUTE, max(m.temp) FROM pump m WHERE {INSIDE} GROUP BY 1"),
    ("states", f"SELECT m.state, m.open, count(*), max(m.temp) > 40 FROM pump m WHERE {INSIDE} GROUP BY 1, 2"),
    ("states", f"SELECT m.state, m.open = true, count(*), max(m.temp) > 40 FROM pump m WHERE {INSIDE} GROUP BY 1, 2"),
    ("sites", "SELECT T.SITE, AVG(M.TEMP), COUNT(*) FROM pump M, tags T WHERE T.ID = M.TAGS_ID AND M.time >= :start AND M.time < :end GROUP BY T.SITE"),
    ("sites", f"SELECT t.site AS place, avg(m.temp) AS average, count(m.temp) AS c {JOIN} WHERE {INSIDE} GROUP BY t.site HAVING count(*) > 0"),
    ("sites", f"SELECT t.site, avg(0 + m.temp), count(*) {JOIN} WHERE NOT (m.time < :start OR m.time >= :end) GROUP BY t.site"),
    ("sites", f"SELECT t.site, max(x.w), sum(x.n) FROM (SELECT t.site AS site, avg(m.temp) AS w, count(*) AS n {JOIN} WHERE {INSIDE} GROUP BY t.site) x JOIN tags t ON t.site = x.site WHERE t.id = (SELECT min(u.id) FROM tags u WHERE u.site = x.site) GROUP BY t.site"),
    ("sites", f"SELECT t.site, sum(m.temp) / sum(1), sum(1) {JOIN} WHERE {INSIDE} GROUP BY t.site ORDER BY t.site DESC"),
    ("sites", f"SELECT t.site, avg(m.temp), count(*) FROM tags t JOIN pump m ON m.tags_id = t.id AND {INSIDE} GROUP BY t.site"),
    ("overall", f"SELECT sum(m.temp) / count(m.temp), max(m.rpm) FROM pump m WHERE {INSIDE}"),
    ("overall", f"SELECT avg(m.temp), max(m.rpm) {JOIN} WHERE {INSIDE}"),
    ("overall", f"SELECT avg(m.temp) + 0, -min(-m.rpm) FROM pump m WHERE {INSIDE}"),
    ("overall", f"SELECT avg(m.temp), (SELECT max(n.rpm) FROM pump n WHERE n.time >= :start AND n.time < :end) FROM pump m WHERE {INSIDE}"),
    ("gaps", f"SELECT count(m.gap), sum(m.gap) / count(m.gap) FROM pump m WHERE {INSIDE}"),
    ("gaps", f"SELECT sum(CASE WHEN m.gap IS NULL THEN 0 ELSE 1 END), avg(m.gap) FROM pump m WHERE {INSIDE}"),
    ("different", f"SELECT count(*) FROM (SELECT DISTINCT m.rpm FROM pump m WHERE {INSIDE}) x"),
    ("different", f"SELECT count(*) FROM (SELECT m.rpm FROM pump m WHERE {INSIDE} GROUP BY m.rpm) x"),
    ("minutes", f"SELECT MINUTE, max(m.temp) FROM pump m WHERE {INSIDE} GROUP BY 1 ORDER BY 2"),
    ("minutes", f"SELECT MINUTE AS x, -min(-m.temp) FROM pump m WHERE {INSIDE} GROUP BY 1 ORDER BY 1 DESC"),
    ("states", f"SELECT m.state, m.open, sum(1), max(m.temp) > 40.0 FROM pump m WHERE {INSIDE} GROUP BY m.state, m.open ORDER BY 3"),
    ("newest", f"SELECT t.pump, m.temp {JOIN} JOIN ({LAST.format(INSIDE)}) x ON x.tags_id = m.tags_id AND x.time = m.time"),
    ("newest", f"SELECT t.pump, m.temp {JOIN} WHERE {INSIDE} AND m.time = (SELECT max(n.time) FROM pump n WHERE n.tags_id = m.tags_id AND n.time >= :start AND n.time < :end) ORDER BY 2"),
    ("newest", f"SELECT pump, temp FROM (SELECT t.pump AS pump, m.temp AS temp, row_number() OVER (PARTITION BY m.tags_id ORDER BY m.time DESC) AS n {JOIN} WHERE {INSIDE}) x WHERE n = 1"),
    ("top", f"SELECT t.pump, max(m.temp) {JOIN} WHERE {INSIDE} GROUP BY t.pump ORDER BY 2 DESC, 1 LIMIT 3"),
    ("top", f"SELECT t.pump, max(m.temp) AS hot {JOIN} WHERE {INSIDE} GROUP BY t.pump ORDER BY hot DESC, t.pump ASC LIMIT 3"),
    ("top", f"SELECT pump, hot FROM (SELECT t.pump AS pump, max(m.temp) AS hot {JOIN} WHERE {INSIDE} GROUP BY t.pump) x ORDER BY hot DESC, pump LIMIT 3"),
    ("share", f"SELECT t.site, avg(CASE WHEN m.rpm > 1450 THEN 1e0 ELSE 0e0 END) {JOIN} WHERE {INSIDE} GROUP BY t.site"),
    ("share", f"SELECT t.site, sum(CASE WHEN m.rpm > 1450 THEN 1e0 ELSE 0e0 END) / count(*) {JOIN} WHERE {INSIDE} GROUP BY t.site"),
    ("share", f"SELECT t.site, 1e0 - sum(CASE WHEN m.rpm <= 1450 THEN 1e0 ELSE 0e0 END) / count(*) {JOIN} WHERE {INSIDE} GROUP BY t.site"),
    ("range", f"SELECT min(m.time), count(*) FROM pump m WHERE {INSIDE}"),
    ("range", f"SELECT m.time, (SELECT count(*) FROM pump n WHERE n.time >= :start AND n.time < :end) FROM pump m WHERE {INSIDE} ORDER BY m.time LIMIT 1"),
    ("range", f"SELECT min(x.time), sum(x.n) FROM (SELECT m.time AS time, count(*) AS n FROM pump m WHERE {INSIDE} GROUP BY m.time) x"),
    ("range", "SELECT min(m.time), count(m.tags_id) FROM pump m WHERE m.time >= :start AND m.time < :end AND m.temp = m.temp"),
]  # fmt: skip
RIGHT += [("fastest", f"{FAST} ORDER BY 2 DESC{then} LIMIT 4") for then in ("", ", t.pump", ", t.pump DESC")]
WRONG = [
    *(("fastest", f"{FAST} ORDER BY {order}") for order in ("2 LIMIT 4", "2 DESC LIMIT 3", "2 DESC", "t.pump LIMIT 4")),
    ("fastest", f"SELECT pump, 1 + fast FROM ({FAST.replace('THEN 1 ELSE 0 END)', 'THEN 1 ELSE 0 END) AS fast')}) x ORDER BY 2 DESC LIMIT 4"),
    ("fastest", f"{FAST.replace('> 1450', '> 1440')} ORDER BY 2 DESC LIMIT 4"),
    ("sites", f"SELECT t.site, avg(m.temp), count(*) {JOIN} WHERE m.time >= :start AND m.time <= :end GROUP BY t.site"),
    ("sites", f"SELECT t.site, avg(m.temp), count(*) {JOIN} WHERE m.time > :start AND m.time < :end GROUP BY t.site"),
    ("sites", f"SELECT t.site, avg(m.temp), count(*) {JOIN} WHERE m.time < :end AND (m.time >= :start OR m.temp > 25) GROUP BY t.site"),
    ("sites", f"SELECT t.site, avg(m.temp), count(*) {JOIN} AND t.pump <> 'p-0' WHERE {INSIDE} GROUP BY t.site"),
    ("sites", f"SELECT t.site, avg(m.temp), count(*) {JOIN} JOIN tags u ON u.site = t.site WHERE {INSIDE} GROUP BY t.site"),
    ("sites", f"SELECT t.site, avg(m.temp), count(*) {JOIN} WHERE {INSIDE} GROUP BY t.site ORDER BY 3 LIMIT 2"),
    ("sites", f"SELECT upper(t.site), avg(m.temp), count(*) {JOIN} WHERE {INSIDE} GROUP BY t.site"),
    ("sites", f"SELECT t.site, round(avg(m.temp), 3), count(*) {JOIN} WHERE {INSIDE} GROUP BY t.site"),
    ("sites", f"SELECT t.site, avg(m.rpm), count(*) {JOIN} WHERE {INSIDE} GROUP BY t.site"),
    ("sites", f"SELECT t.site, avg(m.temp), count(m.gap) {JOIN} WHERE {INSIDE} GROUP BY t.site"),
    ("sites", f"SELECT t.site, avg(m.temp), count(*) {JOIN} WHERE {INSIDE} GROUP BY t.site, t.pump"),
    ("sites", f"SELECT t.site, avg(DISTINCT m.temp), count(*) {JOIN} WHERE {INSIDE} GROUP BY t.site"),
    ("sites", f"SELECT t.site, NULL, count(*) {JOIN} WHERE {INSIDE} GROUP BY t.site"),
    ("sites", f"SELECT count(*), avg(m.temp), t.site {JOIN} WHERE {INSIDE} GROUP BY t.site"),
    ("sites", f"SELECT t.site, avg(m.temp) {JOIN} WHERE {INSIDE} GROUP BY t.site"),
    ("overall", f"SELECT avg(w), max(r) FROM (SELECT avg(m.temp) w, max(m.rpm) r {JOIN} WHERE {INSIDE} GROUP BY t.site) x"),
    ("overall", f"SELECT avg(m.temp), min(m.rpm) FROM pump m WHERE {INSIDE}"),
    ("overall", f"SELECT avg(m.temp), max(m.rpm) FROM pump m WHERE {INSIDE} AND m.temp > 39"),
    ("overall", f"SELECT CAST(avg(m.temp) AS INTEGER), max(m.rpm) FROM pump m WHERE {INSIDE}"),
    ("gaps", f"SELECT count(*), avg(m.gap) FROM pump m WHERE {INSIDE}"),
    ("gaps", f"SELECT count(m.gap), avg(coalesce(m.gap, 0)) FROM pump m WHERE {INSIDE}"),
    ("gaps", f"SELECT count(m.gap), sum(m.gap) / count(*) FROM pump m WHERE {INSIDE}"),
    ("different", f"SELECT count(m.rpm) FROM pump m WHERE {INSIDE}"),
    ("minutes", f"SELECT (MINUTE) + 1, max(m.temp) FROM pump m WHERE {INSIDE} GROUP BY 1"),
    ("minutes", f"SELECT (MINUTE) - (MINUTE) % 2, max(m.temp) FROM pump m WHERE {INSIDE} GROUP BY 1"),
    ("minutes", f"SELECT MINUTE, max(m.temp) FROM pump m WHERE {INSIDE} AND m.gap > 1 GROUP BY 1"),
    ("minutes", f"SELECT MINUTE, max(m.temp) FROM pump m WHERE {INSIDE} GROUP BY 1 HAVING count(*) > 60"),
    ("states", f"SELECT m.state, NOT m.open, count(*), max(m.temp) > 40 FROM pump m WHERE {INSIDE} GROUP BY 1, 2"),
    ("states", f"SELECT m.state, m.open, count(*), max(m.temp) < 40 FROM pump m WHERE {INSIDE} GROUP BY 1, 2"),
    ("states", f"SELECT upper(m.state), m.open, count(*), max(m.temp) > 40 FROM pump m WHERE {INSIDE} GROUP BY 1, 2"),
    ("states", f"SELECT m.state, m.open, count(*), NULL FROM pump m WHERE {INSIDE} GROUP BY 1, 2"),
    ("states", f"SELECT m.state, 'true', count(*), max(m.temp) > 40 FROM pump m WHERE {INSIDE} GROUP BY 1, 2"),
    ("sites", f"SELECT t.site, avg(m.temp), count(*) {JOIN} WHERE {INSIDE} AND t.site > 'a' GROUP BY t.site"),
    ("sites", f"SELECT t.site, avg(m.temp), count(DISTINCT m.tags_id) {JOIN} WHERE {INSIDE} GROUP BY t.site"),
    ("sites", f"SELECT t.site, max(m.temp), count(*) {JOIN} WHERE {INSIDE} GROUP BY t.site"),
    ("sites", f"SELECT 'all', avg(m.temp), count(*) {JOIN} WHERE {INSIDE}"),
    ("sites", f"SELECT t.site, avg(m.temp), count(*) FROM pump m LEFT JOIN tags t ON t.id = m.tags_id AND t.site <> 'b' WHERE {INSIDE} GROUP BY t.site"),
    ("sites", f"SELECT x.site, avg(x.temp), count(*) FROM (SELECT DISTINCT t.site AS site, m.temp AS temp {JOIN} WHERE {INSIDE}) x GROUP BY x.site"),
    ("overall", f"SELECT (min(m.temp) + max(m.temp)) / 2, max(m.rpm) FROM pump m WHERE {INSIDE}"),
    ("overall", f"SELECT avg(m.temp), avg(m.rpm) FROM pump m WHERE {INSIDE}"),
    ("overall", "SELECT avg(m.temp), max(m.rpm) FROM pump m WHERE m.time >= :start AND (m.time < :end OR m.temp > 25)"),
    ("overall", f"SELECT sum(m.temp), max(m.rpm) FROM pump m WHERE {INSIDE}"),
    ("gaps", f"SELECT count(DISTINCT m.gap), avg(m.gap) FROM pump m WHERE {INSIDE}"),
    ("gaps", f"SELECT count(m.gap), avg(m.gap) FROM pump m WHERE {INSIDE} AND m.gap > 0.05"),
    ("different", f"SELECT count(DISTINCT m.rpm) + 1 FROM pump m WHERE {INSIDE}"),
    ("different", f"SELECT count(*) FROM (SELECT DISTINCT m.rpm, m.tags_id FROM pump m WHERE {INSIDE}) x"),
    ("minutes", f"SELECT MINUTE, min(m.temp) FROM pump m WHERE {INSIDE} GROUP BY 1"),
    ("minutes", f"SELECT MINUTE, max(m.temp) FROM pump m WHERE {INSIDE} GROUP BY 1 ORDER BY 1 LIMIT 5"),
    ("newest", f"SELECT t.pump, m.temp {JOIN} JOIN ({LAST.format('m.time < :end')}) x ON x.tags_id = m.tags_id AND x.time = m.time AND x.time < :start"),
    ("newest", f"SELECT t.pump, max(m.temp) {JOIN} WHERE {INSIDE} GROUP BY t.pump"),
    ("newest", f"SELECT pump, temp FROM (SELECT t.pump AS pump, m.temp AS temp, row_number() OVER (PARTITION BY m.tags_id ORDER BY m.time) AS n {JOIN} WHERE {INSIDE}) x WHERE n = 1"),
    ("newest", f"SELECT pump, temp FROM (SELECT t.pump AS pump, m.temp AS temp, row_number() OVER (PARTITION BY m.tags_id ORDER BY m.time DESC) AS n {JOIN} WHERE {INSIDE}) x WHERE n <= 2"),
    ("newest", f"SELECT pump, temp FROM (SELECT t.pump AS pump, m.temp AS temp, row_number() OVER (ORDER BY m.time DESC, m.tags_id) AS n {JOIN} WHERE {INSIDE}) x WHERE n = 1"),
    ("top", f"SELECT t.pump, max(m.temp) {JOIN} WHERE {INSIDE} GROUP BY t.pump ORDER BY 2, 1 LIMIT 3"),
    ("top", f"SELECT t.pump, max(m.temp) {JOIN} WHERE {INSIDE} GROUP BY t.pump ORDER BY 2 DESC, 1 LIMIT 2"),
    ("top", f"SELECT t.pump, m.temp {JOIN} WHERE {INSIDE} ORDER BY 2 DESC, 1 LIMIT 3"),
    ("top", f"SELECT t.pump, avg(m.temp) {JOIN} WHERE {INSIDE} GROUP BY t.pump ORDER BY 2 DESC, 1 LIMIT 3"),
    ("share", f"SELECT t.site, round(avg(CASE WHEN m.rpm > 1450 THEN 1e0 ELSE 0e0 END)) {JOIN} WHERE {INSIDE} GROUP BY t.site"),
    ("share", f"SELECT t.site, avg(CASE WHEN m.rpm >= 1440 THEN 1e0 ELSE 0e0 END) {JOIN} WHERE {INSIDE} GROUP BY t.site"),
    ("range", f"SELECT max(m.time), count(*) FROM pump m WHERE {INSIDE}"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "server"),
    [
        ("sqlite", ""),
        pytest.param("duckdb", "", marks=pytest.mark.nightly),
        pytest.param("postgres", "postgres_endpoint", marks=[pytest.mark.postgres, pytest.mark.nightly]),
        pytest.param("mariadb", "mysql_server", marks=[pytest.mark.mariadb, pytest.mark.nightly]),
    ],
)
def test_wrong_texts_are_found_and_those_that_only_look_different_are_not(
    name: str, server: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    texts = {f"{of}-{number}": (of, text) for number, (of, text) in enumerate([*RIGHT, *WRONG])}
    asked = [
        f'[[query]]\nname = "{kind}"\nwindow = "7m"\nanswer = {QUESTIONS[of][0]}\n'
        f'text.sql = """{text.replace("MINUTE", MINUTE)}"""\ngold = "{QUESTIONS[of][1]}"\n'
        for kind, (of, text) in texts.items()
    ]
    (tmp_path / "ways.toml").write_text(HEAD + "".join(asked))
    of_file = world(tmp_path / "ways.toml", scale=12, seed=7)
    target = TARGETS_BY_NAME[name]
    place = request.getfixturevalue(server) if server else f"{name}://{tmp_path}/x.db"
    with nullcontext(place) if isinstance(place, str) else new_database(place(name).endpoint) as url:
        on = Stand(of_file, target, next(iter(target.schemas.values())), url, 90).load()
        found = {}
        for kind, (_, text) in texts.items():
            try:
                answers = on.asked(on.gold(), [kind], 3)
            except OpError:  # the database refuses it, which nobody overlooks
                found[text] = 3
                continue
            assert answers.checked == 3
            found[text] = answers.wrong
    assert {text for _, text in RIGHT if found[text]} == set(), "right texts that are accused"
    assert {text for _, text in WRONG if not found[text]} == set(), "wrong texts that are not found"


NOT_SEEN = {  # only a window that begins or ends on a point's time shows these
    text for _, text in WRONG if "m.time <= :end" in text or "m.time > :start" in text
}


@pytest.mark.slow
def test_without_gold_databases_are_compared_with_one_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    right = dict(reversed(RIGHT))
    right["different"] = f"SELECT count(DISTINCT m.rpm) FROM pump m WHERE {INSIDE}"
    asked = {f"{name}-{number}": (name, text) for number, (name, text) in enumerate([*RIGHT, *WRONG])}
    of_file = [
        f'[[query]]\nname = "{kind}"\nwindow = "7m"\nanswer = {QUESTIONS[name][0]}\n'
        f'text.sql = """{right[name].replace("MINUTE", MINUTE)}"""\ntext.duckdb = """{text.replace("MINUTE", MINUTE)}"""\n'
        for kind, (name, text) in asked.items()
    ]
    Path("ways.toml").write_text(HEAD + "".join(of_file))
    of_world = ["--use-case", "ways.toml", "--scale", "12", "--seed", "7", "--end", "2016-01-01T00:20:00Z"]
    urls = {"sqlite": [f"sqlite:///{tmp_path}/{name}.db" for name in "ab"], "duckdb": [f"duckdb:///{tmp_path}/c.db"]}
    kinds = [word for kind in asked for word in ("--type", kind)]
    assert main(["queries", *of_world, *kinds, "--count", str(2 * len(asked)), "--out", "q.jsonl"]) == 0
    for target, url in [(target, url) for target, some in urls.items() for url in some]:
        assert main(["load", target, *of_world, "--endpoint", url, "--out", "r"]) == 0
    capsys.readouterr()
    two = ["--endpoint", urls["sqlite"][0], "--endpoint", urls["duckdb"][0]]
    assert main(["validate", "sqlite", "duckdb", "q.jsonl", *two]) == 1
    said = {m[1]: int(m[2]) for m in re.finditer(r"'(\S+)' has no gold: (\d) of 2 answers of", capsys.readouterr().out)}
    assert said.keys() == asked.keys()
    assert {asked[kind][1] for kind, alike in said.items() if alike < 2} == {text for _, text in WRONG} - NOT_SEEN
    assert main(["validate", "sqlite", "duckdb", "sqlite", "q.jsonl", *two, "--endpoint", urls["sqlite"][1]]) == 1
    says(capsys.readouterr().out, "'gaps-68' has no gold: 0 of 2", "duckdb columns differs from most others in 2")
    assert main(["validate", "sqlite", "q.jsonl", *two[:2]]) == 1
    out, err = capsys.readouterr()
    says(out, "'sites-0' has no gold: its 2 answers are not checked; name a second database")
    says(err, "no answer could be checked")
    assert main(["validate", "sqlite", "sqlite", "q.jsonl", *two[:2], "--endpoint", urls["sqlite"][1]]) == 0
    says(capsys.readouterr().out, "2 of 2 answers of sqlite wal, sqlite wal agree (they are of one family, whose")


HIDDEN = [  # each is one or two statements that write, for the database that has such quotes or comments
    ("sql", r"SELECT '\'' ; DROP TABLE pump; -- '"),
    ("postgres", r'SELECT 1 AS "a\" ; DROP TABLE pump; -- "'),
    ("influxql", r"SELECT max(rpm) FROM pump WHERE a = '\'' ; DROP MEASUREMENT pump -- '"),
    ("sql", "SELECT 1 /*! INTO OUTFILE '/tmp/x' */ FROM pump"),
    ("mysql", "SELECT 1 /*M!100100 INTO OUTFILE '/tmp/x' */ FROM pump"),
    ("postgres", "SELECT $$'$$ ; DROP TABLE pump; -- '"),
    ("postgres", "SELECT $a$'$a$ ; DROP TABLE pump; -- '"),
    ("postgres", "SELECT 1 /* /* */ ' */ ; DROP TABLE pump; -- '"),
    ("mysql", "SELECT 1 --1 ; DROP TABLE pump"),
    ("mysql", "SELECT 1 # '\n ; DROP TABLE pump -- '"),
    ("mysql", "SELECT 1 AS `'` ; DROP TABLE pump; -- '"),
    ("sqlite", "WITH x AS (SELECT 1 AS [']) DELETE FROM pump --'"),
    ("sql", "WITH x AS (SELECT 1 AS ['], 2 AS [']) DELETE FROM pump"),
]
PLAIN = [
    ("sql", "SELECT 'it''s' -- don't\n, \"a\" FROM pump /* it's */ WHERE x = ':y'"),
    ("sql", "SELECT '--', 1-1, '[', '#' FROM pump WHERE a LIKE '%[%'"),
    ("duckdb", "SELECT ['a', 'b'], x::INT FROM pump"),
    ("postgres", "SELECT ARRAY['a'], E'x' FROM pump"),
    ("mysql", "SELECT `a` FROM pump"),
]


def test_writes_do_not_hide_in_quotes_and_comments_that_only_some_databases_have() -> None:
    for language, text in HIDDEN:
        with pytest.raises(ValueError, match=r"databases differ on|more than one statement|may write"):
            expect_read(language, text, [])
    for language, text in PLAIN:
        expect_read(language, text, [])


def test_parameters_are_found_outside_of_quotes_and_comments() -> None:
    text = """select ':a', "b:c", x::text, :one /* :no */ -- :never
        , ':it''s :x' from t where y > :two and z = :one"""
    assert parameters(text) == ["one", "two", "one"]
    assert filled(text, {"one": lambda: "1", "two": lambda: "$2"}).count("1") == 2
    assert filled("x, ':bucket(a, 1m)', :bucket( t.a, 10m)", {}, lambda *what: str(what)).endswith(
        "':bucket(a, 1m)', ('t.a', 600000000000)"
    )
    assert "y > $2 and z = 1" in filled(text, {"one": lambda: "1", "two": lambda: "$2"})


# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_differences_that_are_known_are_counted_apart_and_others_are_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gold, known = (
        'gold = "SELECT site, max(rpm) FROM pump GROUP BY site"\n',
        '[[query.known]]\ntarget = "{}"\nreason = "as asked"\n',
    )
    (tmp_path / "s.toml").write_text(OF_WORKS)
    counts = []
    for target, expected in (("duckdb", 1), ("sqlite", 0)):
        changed = gold.replace("max(rpm)", "max(rpm) + 1")
        (tmp_path / "works.toml").write_text(TEXT.replace(gold, changed + known.format(target)))
        assert main(["run", str(tmp_path / "s.toml"), "--out", str(tmp_path / target)]) == expected
        (path,) = (tmp_path / target).glob("*/*/summary.json")
        answers = json.loads(path.read_text())["answers"]
        counts.append((answers["wrong"], answers.get("known", {}).get("fastest", {}).get("count", 0)))
    (wrong, none), (right, apart) = counts
    assert (none, right) == (0, 0)
    assert min(wrong, apart) > 30
    says(
        capsys.readouterr().out,
        f"sqlite: {apart} of {apart} answers to 'fastest' differ from gold, which is known: as asked",
    )
    (page,) = (tmp_path / "sqlite").glob("*/report.html")
    assert f"{apart} of them differ as is known" in page.read_text(encoding="utf-8")


FASTEST = 'text.sql = """\nSELECT t.site'


GOLD = 'gold = "SELECT site, max(rpm) FROM pump GROUP BY site"\n'


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("t.site = :site\nGROUP BY 1 ORDER", "t.site = :sight\nGROUP BY 1 ORDER", "text.sql: there is no parameter :sight; there are :start, :end, :site"),
        (":bucket(m.time, 5m)", ":bucket(m.time, 5 minutes)", "text.sql: there is no parameter :bucket; there are :start, :end, :site and :bucket(COLUMN, 10m)"),
        (":bucket(m.time, 5m)", ":bucket(m.time, 5x)", "text.sql: "),
        (":bucket(m.time, 5m)", ":bucket(m.time, 0s)", "text.sql: :bucket(m.time, 0s): needs a duration above 0"),
        (":bucket(m.time, 5m)", ":bucket(m.time, 1500ns)", "text.sql: :bucket(m.time, 1500ns): needs whole microseconds"),
        ('text.influxql = """\nSELECT', 'text.influxql = """\nSELECT :bucket(time, 5m),', "text.influxql: :bucket(time, 5m) is for SQL; this language has buckets of its own"),
        (FASTEST, 'text.sql = """\nDELETE FROM pump; SELECT t.site', "query.fastest.text.sql: it is more than one statement"),
        (FASTEST, 'text.sql = """\nDROP TABLE pump -- SELECT t.site', "it begins with DROP; a query begins with SELECT"),
        (FASTEST, 'text.sql = """\nWITH x AS (DELETE FROM pump m RETURNING *) SELECT t.site', "it may write (DELETE)"),
        (FASTEST, 'text.sql = """\nSELECT 1 INTO other --', "it may write (INTO)"),
        (FASTEST, 'text.sql = """\n/* SELECT */ UPDATE tags SET site = 1 --', "it begins with UPDATE"),
        (FASTEST, 'text.sql = """\nEXPLAIN ANALYZE DELETE FROM pump --', "it begins with EXPLAIN"),
        (FASTEST, 'text.sql = """\nCOPY pump TO PROGRAM \'x\' --', "it begins with COPY"),
        (FASTEST, 'text.sql = """\nPRAGMA writable_schema = 1 --', "it begins with PRAGMA"),
        (FASTEST, 'text.sql = """\n-- nothing', "it begins with"),
        ('text.influxql = "SELECT max', 'text.influxql = "SELECT max(rpm) INTO other FROM x; SELECT max', "text.influxql: it is more"),
        ('text.influxql = "SELECT max', 'text.influxql = "DROP MEASUREMENT pump --', "it begins with DROP"),
        ('|> group(columns: ["site"]) |> max()', '|> to(bucket: "other") |> max()', "text.flux: it may write (to())"),
        ('text.flux = """\nfrom', 'text.flux = """\nimport "http"\nfrom', "text.flux: it may write (import http)"),
        ('{"$project": {"_id": 0, "site"', '{"$out": "x"}, {"$project": {"_id": 0, "site"', "text.mongodb: it would write ($out)"),
        ('[{"$match": {"time": {"$gte": ":start", "$lt": ":end"}}}', '[{"$match": {"time"', "query.fastest.text.mongodb: "),
        ("AND m.time < :end GROUP BY t.site", "GROUP BY t.site", "query.fastest.text.sql: has no :end, and the right answer is of a window's points"),
        ("FROM tsbench_pump WHERE time >= :start AND", "FROM tsbench_pump WHERE", "query.fastest.text.questdb: has no :start, and"),
        ("range(start: :start, stop: :end)", "range(start: 0, stop: :end)", "text.flux: has no :start, and"),
        ('{"time": {"$gte": ":start", "$lt": ":end"}}', '{"time": {"$gte": ":start"}}', "query.fastest.text.mongodb: has no :end, and"),
        ('["site:text", "rpm:int"]', "[]", "query.1: answer: is missing; say what the text returns"),
        ('"rpm:int"', '"rpm:number"', "'rpm:number' is not NAME:KIND, with the kind time, text, int, float or bool"),
        ('"rpm:int"', '"site:int"', "answer: a column stands twice"),
        ('"rpm:int"', '"time:int"', "'time:int' has a name that stands for a time"),
        ('"time:time", "warm', '"at:time", "warm', "InfluxQL and Flux call a time 'time'; rename 'at:time' to 'time:time'"),
        ('share = 1.0\nanswer', 'share = 1.0\nselect = ["temp"]\nanswer', "select: a query has either select or text"),
        ('share = 1.0\nanswer', 'share = 1.0\nby = ["site"]\nanswer', "by: belongs to select; a text says it itself"),
        ("text.sql", "text.sqll", "text.sqll"),
        ('gold = "SELECT site, max(rpm)', 'gold = "SELECT site; SELECT max(rpm)', "query.fastest.gold: it is more than one"),
        (GOLD, GOLD + '[[query.known]]\ntarget = "mysqll"\nreason = "x"\n', "query.1.known.0.target: no target is called 'mysqll'; did you mean 'mysql'?"),
        (GOLD, GOLD + '[[query.known]]\ntarget = "mysql"\n', "query.1.known.0.reason: is missing"),
        (GOLD, GOLD + '[[query.known]]\ntarget = "mysql"\nreason = "x"\nreasons = "x"\n', "reasons: unknown key; did you mean 'reason'?"),
        (GOLD, GOLD + '[[query.known]]\ntarget = "mysql"\nreason = ""\n', "query.1.known.0.reason"),
        (GOLD, GOLD + 2 * '[[query.known]]\ntarget = "mysql"\nreason = "x"\n', "known: a target stands twice"),
        (GOLD, 'halves = { rpms = "max" }\n', "halves: 'rpms' is no column of numbers; did you mean 'rpm'?"),
        (GOLD, 'halves = { site = "max" }\n', "halves: 'site' is no column of numbers"),
        (GOLD, 'halves = { rpm = "mean" }\n', "query.1.halves.rpm: "),
        (GOLD, GOLD + 'halves = { rpm = "max" }\n', "halves: gold says more; take one of the two out"),
        (GOLD, '[[query.known]]\ntarget = "mysql"\nreason = "x"\n', "known: needs gold, from which the answers differ"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_text_is_one_line_with_key_and_cure(old: str, new: str, why: str, tmp_path: Path) -> None:
    expect_one_line(TEXT, (old, new), why, tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("max(rpm) FROM pump", "max(rps) FROM pump", "query.fastest.gold: Binder Error: Referenced column \"rps\" not found"),
        ("SELECT site, max(rpm) FROM pump", "SELECT site, FROM, max(rpm) FROM pump", "query.fastest.gold: Parser Error"),
        ("SELECT site, max(rpm) FROM pump", "SELECT max(rpm) FROM pump", "gold: it has 1 columns (max(rpm)) instead of 2"),
        ("SELECT site, max(rpm) FROM pump", "SELECT site, max(rpm) FROM read_csv('/etc/passwd')", "query.fastest.gold: "),
        ("text.sql", "text.duckdb2", "text.duckdb2"),
        (FASTEST, 'text.questdb2 = """\nSELECT t.site', "text.questdb2"),
        ("text.sql = ", "text.postgres = ", "query.site-minutes: sqlite: it has no text.sqlite or text.sql"),
        ("WHERE site = :site ", "", "query.site-minutes.gold: has no :site, by which its text chooses rows"),
        (GOLD, GOLD + "limit = 3\n", "order: is missing; the first rows of a text have both"),
        (GOLD, GOLD + 'limit = 3\norder = "site"\n', "order: 'site' is no column of answer with asc or"),
        (GOLD, GOLD + 'limit = 3\norder = "hot asc"\n', "order: 'hot asc' is no column of answer with"),
        (GOLD, 'gold = "SELECT site, max(rpm) FROM pump GROUP BY site LIMIT 3"\nlimit = 3\norder = "site asc"\n', "gold: take its LIMIT out"),
    ],
)  # fmt: skip
def test_gold_and_texts_are_tried_before_anything_starts(old: str, new: str, why: str, tmp_path: Path) -> None:
    assert old in TEXT
    (tmp_path / "works.toml").write_text(TEXT.replace(old, new))
    (tmp_path / "s.toml").write_text(OF_WORKS)

    with pytest.raises(UserMistake) as caught:
        planned(RunRequest(tmp_path / "s.toml"))
    says(str(caught.value), "s.toml: ", why)
    assert "\n" not in str(caught.value)
