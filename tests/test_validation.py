"""The table of right answers has every kind of query, and a wrong answer is in it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests import validation
from tests.validation import Column, column, table, worlds
from tsbench.model import Bucketed, Raw, Window
from tsbench.targets.base import Unsupported
from tsbench.targets.registry import TARGETS
from tsbench.workload.queries import QUERIES

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
        if isinstance(query, Bucketed):
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
    found = column("sqlite", target, schema, sqlite_endpoint, tmp_path, 3)  # type: ignore[arg-type]
    assert (found.cells["lastpoint"], found.cells["raw-tenth"]) == ("3", "**3 of 3 wrong**")
    assert found.cells["single-groupby-1-1-1"] == "unsupported: it has no buckets"
    assert [*found.wrong] == ["raw-tenth"]
    page = table([found, Column("other", "not asked: it is not installed")])
    assert "| lastpoint | 3 |" in page
    assert "| single-groupby-1-1-1 | unsupported (1) |" in page
    assert "\n1. it has no buckets\n" in page
    assert "other" in page


def test_every_kind_of_query_has_a_world() -> None:
    assert sorted(kind for _, kinds in worlds() for kind in kinds) == sorted(QUERIES)
