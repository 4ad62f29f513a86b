"""Lines of query files: those of every use case are read as they were written, and each part that is odd is refused."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tsbench.model import Window
from tsbench.scenario.spec import world
from tsbench.workload import queries
from tsbench.workload.query_files import FORMAT, MS, Parser, head_line, in_turn, line_of, parse_head

WORLDS = {name: world(name, scale=40, interval="60s") for name in ("cpu-only", "sensors", "stocks", "iot")}


@pytest.mark.parametrize("use_case", [*WORLDS])
def test_a_query_is_read_as_it_was_written(use_case: str) -> None:
    made = WORLDS[use_case]
    loaded = Window(made.time_ns(0), made.time_ns(4_000))
    known = queries.kinds_of(made)
    kinds = [*known]
    assert len(kinds) > 3
    parser = Parser(made.measurements)
    for kind, query in in_turn(kinds, 5 * len(kinds), made, loaded, 3):
        found = parser.parse(line_of(kind, query), 7)
        assert (found.kind, found.number, found.query) == (kind, 7, query)


def line(use_case: str, kind: str, **change: Any) -> bytes:
    """The line of a query with parts that are another's, or gone (`...`)."""
    made = WORLDS[use_case]
    query = queries.make(kind, made, Window(made.time_ns(0), made.time_ns(4_000)), 3, 0)
    parts = {**orjson.loads(line_of(kind, query)), **change}
    return orjson.dumps({name: part for name, part in parts.items() if part is not ...})


WHERE = "where has conditions of a field"


TOP = {"column": "usage_user", "limit": 3, "lowest": False}


@pytest.mark.parametrize(
    ("use_case", "kind", "change", "words"),
    [
        ("iot", "last-loc", {"answer": [["place", "point"]]}, "answer has names and kinds"),
        ("iot", "last-loc", {"values": [["flet", ["East"]]]}, "readings has no tag 'flet'"),
        ("iot", "last-loc", {"texts": [["sql", "DROP TABLE tags"]]}, "it begins with DROP"),
        ("iot", "last-loc", {"gold": ...}, "it needs "),
        (
            "cpu-only",
            "high-cpu-1",
            {"where": [{"field": "usage_user", "comparison": ">", "value": "9"}]},
            "where has conditions of a field",
        ),
        (
            "cpu-only",
            "high-cpu-1",
            {"where": [{"field": "usage_user", "comparison": "~", "value": 9}]},
            "where has conditions of a field",
        ),
        ("cpu-only", "high-cpu-1", {"where": [{"field": "usage_user"}]}, "it is no query of this world"),
        ("cpu-only", "high-cpu-1", {"where": 5}, "it is no query of this world"),
        ("cpu-only", "high-cpu-1", {"where": [5]}, "it is no query of this world"),
        ("cpu-only", "double-groupby-1", {"bucket_ns": None, "top": {**TOP, "column": "max_usage_user"}}, "no column"),
        ("cpu-only", "double-groupby-1", {"bucket_ns": None, "top": {**TOP, "limit": 0}}, "above 0"),
        ("cpu-only", "double-groupby-1", {"top": TOP}, "of rows by tags alone"),
        ("cpu-only", "double-groupby-1", {"bucket_ns": None, "top": {**TOP, "first": 1}}, "no query of this world"),
        (
            "cpu-only",
            "high-cpu-1",
            {"where": [{"field": None, "comparison": ">", "value": 9}]},
            "where has conditions of a field",
        ),
        ("cpu-only", "groupby-orderby-limit", {"limit": 0}, "bucket_ns and limit are above 0"),
        ("cpu-only", "groupby-orderby-limit", {"before_ns": 2**64 - 1}, "no whole number of ns"),
        ("cpu-only", "lastpoint", {"before_ns": 0.5}, "no whole number of ns"),
        ("cpu-only", "lastpoint", {"fields": 5}, "it is no query of this world"),
        ("cpu-only", "lastpoint", {"type": 5}, "it needs "),
        ("sensors", "last-value", {"measurement": "cpu"}, "it is no query of this world"),
    ],
)
def test_a_part_that_is_odd_is_named(use_case: str, kind: str, change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        Parser(WORLDS[use_case].measurements).parse(line(use_case, kind, **change), 0)


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"", "no file of"),
        (b"[]", "no file of"),
        (b'{"tsbench": "queries"', "no file of"),
        (orjson.dumps({"tsbench": "queries", "format": FORMAT, "world": 5, "window_ns": 1}), "no file of"),
        (
            orjson.dumps({"tsbench": "queries", "format": FORMAT + 1, "world": {}, "window_ns": 1}),
            f"its format is {FORMAT + 1}, not {FORMAT}",
        ),
        (head_line({}, 0), "its window_ns is no number above 0"),
        (orjson.dumps({"tsbench": "queries", "format": FORMAT, "world": {}, "window_ns": True}), "no number above 0"),
        (orjson.dumps({"tsbench": "queries", "format": FORMAT, "world": {}, "window_ns": 2**63}), "no number above 0"),
    ],
)
def test_a_first_line_of_something_else_is_refused(head: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_head(head)
    assert parse_head(head_line({"scale": 3}, MS)) == ({"scale": 3}, MS)
