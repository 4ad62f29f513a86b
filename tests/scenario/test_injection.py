"""Sixty attempts at injection: as values and parameters, and as names, on every database."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.cli.support import complaint
from tests.scenario.test_own_words import EACH, SQLITE_FIRST
from tsbench.cli.main import main
from tsbench.targets import registry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tsbench.servers.base import Server

ATTEMPTS = [
    "'; DROP TABLE pump; --", '"; DROP TABLE pump; --', "`; DROP TABLE pump; -- ", "' OR '1'='1", '" OR "1"="1',
    "\\'; DROP TABLE pump; -- ", "') UNION SELECT 1, 2; --", "$1", "?", "%s %(x)s %%", ":start", "{key}",
    "$$; DROP TABLE pump; $$", "/* */ x", "-- x", "x # y", "temp=1,rpm=2 1", "a,b=c d", '{"$gt": ""}', "$where",
]  # fmt: skip
USE_CASE = """
about = "attempts"
[tags]
pump = {{ number = "p-{{}}" }}
site = {{ of = {texts} }}
[[measurement]]
name = "pump"
fields = {{ temp = {{ walk = 0.1, decimals = 1 }}, state = {{ of = {texts}, stays = "20s" }} }}
[[query]]
name = "site"
select = ["temp", "state"]
window = "2m"
draw = {{ site = 2 }}
[[query]]
name = "states"
select = ["temp"]
where = [{condition}]
window = "2m"
[[query]]
name = "text"
window = "2m"
draw = {{ site = 1 }}
answer = ["n:int"]
text.sql = "SELECT count(*) FROM pump m JOIN tags t ON t.id = m.tags_id WHERE {inside} AND t.site = :site"
text.influxql = "SELECT count(temp) AS n FROM pump WHERE {inside} AND site = :site"
gold = "SELECT count(*) FROM pump WHERE site = :site"
"""
SCENARIO = """
world = {{ use_case = "own.toml", scale = 60 }}
load.window = "20m"
drive = {{ users = 1, duration = "1s", warmup = "0s" }}
target.name = "{target}"
check = {{ answers = 60, readback = 100_000 }}
op = [{{ write = 60 }}, {{ query = "site" }}{more}]
"""
NO_TEXT = {"mongodb", "influxdb2", "questdb", "victoriametrics"}
"""Databases whose languages the text is not written in."""


@pytest.mark.slow
@pytest.mark.parametrize("target", EACH)
def test_values_are_stored_and_asked_literally(target: str, tmp_path: Path) -> None:
    condition = json.dumps(f"state = '{ATTEMPTS[1]}'")
    texts = json.dumps([one.strip() for one in ATTEMPTS if target != "questdb" or "\\" not in one])  # it says so
    use_case = USE_CASE.format(texts=texts, condition=condition, inside="time >= :start AND time < :end")
    more = ', { query = "states" }' + ', { query = "text" }' * (target not in NO_TEXT)
    if target == "victoriametrics":  # which holds no texts
        more = ""
        use_case = re.sub(r", state = .*", " }", use_case.replace(', "state"', "")).replace(condition, '"temp > 0"')
    (tmp_path / "own.toml").write_text(use_case)
    (tmp_path / "s.toml").write_text(SCENARIO.format(target=target, more=more))
    assert main(["run", str(tmp_path / "s.toml"), "--out", str(tmp_path / "results")]) == 0


def escaped(name: str) -> str:
    """A name in line protocol."""
    return "".join("\\" + sign if sign in ", =" else sign for sign in name)


@pytest.mark.slow
@pytest.mark.parametrize("target", SQLITE_FIRST)
def test_names_are_stored_or_refused(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], own_server: Callable[[Server], Server]
) -> None:
    server = own_server(registry.get(target).new_server(tmp_path / "server"))
    lines = [f"pump,pump=p-{i} temp={i} {1_700_000_000 + i}000000000" for i in range(9)]
    stored = 0
    for name in ATTEMPTS:
        odd = f"{escaped(name)},{escaped(name)}=x {escaped(name)}_f=1 1700000000000000000"
        (tmp_path / "points.lp").write_text("\n".join([*lines, odd, ""]))
        words = ["load", target, str(tmp_path / "points.lp"), "--endpoint", server.endpoint]
        code = main([*words, "--yes", "--out", str(tmp_path / "results")])
        said = capsys.readouterr()
        if code:
            assert code == 2, (name, said)
            complaint(said.err)
        else:
            assert "loaded 10 points" in said.out, (name, said)
            stored += 1
    assert stored >= 5, stored  # QuestDB has no quotes, brackets or commas in names
