"""Edited and damaged JSON files are named in one line, and their texts cannot command a terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.report.synthetic import Shape, make_results
from tsbench.errors import UserMistake
from tsbench.results.json_files import read_json, read_part
from tsbench.results.summary import SetSummary, Summary
from tsbench.text import MARK

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 100_000, "nests too deep"),
        ('{"a":' * 900 + "1" + "}" * 900, "it nests too deep"),
        ('{"gates": 5}', "gates is not a list"),
        ('{"gates": [{"gate": 5}]}', "gates.0.gate is not a text"),
        ('{"failures": {"x": "often"}}', "failures.x is not a number"),
        ('{"measured": {"duration_s": "long"}}', "measured.duration_s is not a number"),
        ('{"settled_s": 4.2}', "settled_s is not a key of this version"),
        ('{"steadiness": {"write": {"stalls": 5}}}', "is not a list"),
        (f'{{"failures": {json.dumps(dict.fromkeys(map(str, range(2_000)), 1))}}}', "failures has 2,000 entries"),
        ('{"scenario": null}', "scenario is not a text"),
        ('{"measured": 5}', "measured is not an object"),
        ('{"users": true}', "users is not a number"),
        ('{"users": NaN}', "users is not a number"),
        (f'{{"users": {"9" * 400}}}', "a number of 400 digits"),
        ('{"cells": [{"validity": {"reason": 5}}]}', "cells.0.validity.reason is not a text"),
    ],
)
def test_a_summary_of_another_shape_is_damaged(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "summary.json").write_text(text)
    with pytest.raises(UserMistake, match=r"summary.json is damaged \(.*run the cell again with --resume") as caught:
        read_part(tmp_path / "summary.json", SetSummary if '"cells"' in text else Summary)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 300 + len(str(tmp_path))


def test_summaries_that_runs_write_have_the_shape(tmp_path: Path) -> None:
    results = make_results(tmp_path / "r", [Shape(seconds=1, warmup=0, rate=2)])
    assert read_json(results / "summary.json")["cells"][0] == read_json(results / "postgres-btree" / "summary.json")


def test_control_characters_in_a_file_become_marks_however_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    texts = {"reason": "\x1b[31m\u202e", "back": "\\u001b", "emoji": "\U0001f4a5", "tab": "\ta\n"}
    for ascii_only in (True, False):
        path.write_text(json.dumps(texts, ensure_ascii=ascii_only))
        assert read_json(path) == {**texts, "reason": f"{MARK}[31m{MARK}"}
    path.write_text('{"half": "\\ud800"}')
    assert read_json(path) == {"half": MARK}
