"""A sample of the answers is checked: those with the lowest hashes, whichever process and moment they are from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tsbench.check.answers import Answers, given_answers
from tsbench.check.comparison import canonical
from tsbench.check.sample import part_of, rank, sampled
from tsbench.model import Query, Rows
from tsbench.targets.sqlite import TARGET
from tsbench.testing.stand import SEED, UNSURE, Stand, world_of
from tsbench.workload import queries

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LAST, ALL, ROWS = "lastpoint", "double-groupby-all", "raw-all"


def written(path: Path, numbers: range) -> Path:
    lines = [json.dumps({"op": LAST, "number": number, "rows": []}) for number in numbers]
    path.write_text("\n".join(lines) + '\n{"op": "cut of', encoding="utf-8")
    return path


def test_the_sample_of_several_processes_is_that_of_one(tmp_path: Path) -> None:
    whole = written(tmp_path / "whole", range(900))
    shares = [written(tmp_path / str(index), range(index, 900, 3)) for index in range(3)]
    assert len(sampled([whole], 7, 50)) == 50
    assert sampled(shares, 7, 50) == sampled([whole], 7, 50) != sampled([whole], 8, 50)
    assert sampled(shares, 7, 0) == set()
    assert len(sampled(shares, 7, 10_000)) == 900


def test_the_hashes_are_spread_and_do_not_depend_on_the_process() -> None:
    assert rank(1, "lastpoint", 5) == 17769627311163854680  # Python's own hash differs from process to process
    low = sum(rank(1, "a", number) < 2**63 for number in range(10_000))
    assert 4_700 < low < 5_300


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Stand:
    """Return 13 hours of 40 hosts, and writes after them."""
    place = tmp_path_factory.mktemp("sample")
    world = world_of("cpu-only", 40, interval_s=600)
    schema = TARGET.schemas["wal"]
    return Stand(world, TARGET, schema, f"sqlite://{place / 'x.db'}", 13 * 6).load().write(place, 60, UNSURE)


def checked(stand: Stand, path: Path, kind: str, change: Callable[[dict[str, Any]], None]) -> Answers:
    """Keep about a third of the rows of an answer as a load process does, change them, and check them."""
    gold, answers, session = stand.gold(), Answers(), stand.connect()
    query: Query = queries.make(kind, stand.world, gold.loaded, SEED, 0)
    part, rows = part_of(query, session.query(stand.schema.compile(query), query.columns), 3)
    session.close()
    line = {"op": kind, "number": 0, "count": part.count, "one_in": part.one_in, "rows": canonical(rows)}
    line = json.loads(json.dumps(line))
    assert 0.15 * part.count < len(line["rows"]) < 0.6 * part.count
    change(line)
    path.write_text(json.dumps(line) + "\n", encoding="utf-8")
    given_answers(gold, [path], SEED, answers)
    answers.compare(gold)
    return answers


def drop(line: dict[str, Any]) -> None:
    del line["rows"][3]


def add(line: dict[str, Any]) -> None:
    line["rows"].append(line["rows"][0])


def alter(line: dict[str, Any]) -> None:
    line["rows"][3][2] += 1.5


def miscount(line: dict[str, Any]) -> None:
    line["count"] -= 1


@pytest.mark.parametrize("kind", [LAST, ALL, ROWS])
def test_a_share_of_a_large_answers_rows_is_compared(stand: Stand, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "p0.answers.jsonl"
    sound = checked(stand, path, kind, lambda _: None)
    assert (sound.checked, sound.wrong) == (1, 0), sound.first_wrong
    for change in (drop, add, alter, miscount):
        assert checked(stand, path, kind, change).wrong == 1, change.__name__


def test_which_rows_are_kept_does_not_depend_on_their_order_or_form(stand: Stand) -> None:
    gold, session = stand.gold(), stand.connect()
    query = queries.make(ALL, stand.world, gold.loaded, SEED, 0)
    rows = session.query(stand.schema.compile(query), query.columns)
    session.close()
    backwards = Rows(rows.columns, rows.records[::-1])
    expected = canonical(part_of(query, rows, 5)[1])
    assert canonical(part_of(query, backwards, 5)[1]) == expected
    assert part_of(query, Rows(rows.columns, canonical(rows)), 5)[1].records == expected
