"""The table of right answers has every kind of query, and a wrong answer is in it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests import validation
from tests.validation import column, worlds
from tests.validation_page import KINDS, Column, page, read
from tsbench.model import Aggregated, Raw, Window
from tsbench.targets.base import Unsupported
from tsbench.targets.registry import TARGETS

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tsbench.model import Query
    from tsbench.targets.base import Schema, Statement


class Defective:
    """A layout that moves the windows of raw rows, and refuses buckets."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def __getattr__(self, name: str) -> object:
        return getattr(self._schema, name)

    def compile(self, query: Query) -> Statement:
        if isinstance(query, Aggregated):
            raise Unsupported("it has no buckets")
        if isinstance(query, Raw):
            query = replace(
                query, window=Window(query.window.start_ns + 600 * 10**9, query.window.end_ns + 600 * 10**9)
            )
        return self._schema.compile(query)


def test_wrong_and_unsupported_answers_are_in_the_table_beside_right_ones(
    sqlite_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = TARGETS["sqlite"]
    kinds = ["raw-tenth", "single-groupby-1-1-1", "lastpoint"]
    ((world, _),) = (found for found in worlds() if "lastpoint" in found[1])
    monkeypatch.setattr(validation, "worlds", lambda: [(world, kinds)])
    schema = Defective(next(iter(target.schemas.values())))
    found = column("sqlite<br>wal", target, schema, sqlite_endpoint, tmp_path, 3)  # type: ignore[arg-type]
    assert (found.cells["lastpoint"], found.cells["raw-tenth"]) == ("3", "**3 of 3 wrong**")
    assert found.cells["single-groupby-1-1-1"] == "unsupported: it has no buckets"
    assert [*found.wrong] == ["raw-tenth"]
    text = page([found, Column("elsewhere", "not asked: it is not installed")])
    assert "| lastpoint | 3 |" in text
    assert "| single-groupby-1-1-1 | unsupported (1) |" in text
    assert "\n1. it has no buckets\n" in text
    assert "elsewhere" not in text


def test_columns_that_are_not_asked_anew_stay_with_their_reasons_versions_and_days() -> None:
    cells = dict.fromkeys(KINDS, "100")
    refused = dict.fromkeys(KINDS, "unsupported: no such engine")
    places = [(name, layout) for name, target in TARGETS.items() if target.durable for layout in target.schemas]
    columns = [
        Column(
            f"{name}<br>{layout}",
            *(("", refused) if name == "mysql" else (f"{name} 1.0", cells)),
            {},
            "2026-01-02",
            100,
        )
        for name, layout in places
    ]
    first = page(columns)
    assert "mysql<br>" not in first  # a column of one reason is a line
    assert page(read(first).values()) == first
    some = {**cells, "lastpoint": "**1 of 7 wrong**"}
    anew = Column("mongodb<br>bucketed", "FerretDB (9; new)", some, day="2026-03-04", queries=7)
    merged = read(page((read(first) | {anew.name: anew}).values()))
    assert len(merged) == len(columns)
    assert merged[anew.name] == anew
    assert [one.name for one in columns if merged[one.name] != one] == [anew.name]
