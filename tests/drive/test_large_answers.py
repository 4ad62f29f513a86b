"""A large answer has three times: when it began to arrive, when all had come, and when its values were Python's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.drive.support import document, run
from tsbench.model import OpError
from tsbench.report.html import write_report
from tsbench.targets.base import Statement
from tsbench.targets.postgres import TARGET
from tsbench.targets.postgres.schemas import BTREE

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 300_000


def large(**target: Any) -> dict[str, Any]:
    return document(
        world={"use_case": "replication", "scale": 1, "streams": 1},
        load={"window": f"{ROWS * 10}s", "batch": 10_000},
        drive={"users": 1, "duration": "4s", "wait": "0s"},
        op=[{"query": "raw-all"}],
        check={"answers": 1},
        target=target,
    )


def text_of_report(results: Path) -> str:
    return re.sub(r"<[^>]+>", " ", write_report(results).read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.nightly
def test_an_answer_of_a_server_begins_arrives_and_is_converted(tmp_path: Path, postgres_endpoint: str) -> None:
    summary = run(tmp_path, large(name="postgres", endpoint=postgres_endpoint))
    assert (summary["answers"]["wrong"], summary["answers"]["checked"] > 1) == (0, True)
    found = summary["measured"]["ops"]["raw-all"]
    times = [found[name]["p50"] for name in ("first_bytes_ns", "service_ns", "converted_ns")]
    assert times[0] < times[1] < times[2]
    row = r"Large answers.*all arrived.*raw-all(\s+[\d.]+ [mu]?s){3}"
    assert re.search(row, text_of_report(tmp_path), re.DOTALL)


@pytest.mark.nightly
def test_a_call_in_the_process_has_no_first_bytes(tmp_path: Path) -> None:
    summary = run(tmp_path, large(name="sqlite"))
    found = summary["measured"]["ops"]["raw-all"]
    assert found["first_bytes_ns"] == {}
    assert found["service_ns"]["p50"] <= found["converted_ns"]["p50"]


@pytest.mark.slow
def test_small_answers_have_no_such_times(tmp_path: Path) -> None:
    found = run(tmp_path, document())["measured"]["ops"]["raw-one"]
    assert (found["first_bytes_ns"], found["converted_ns"]) == ({}, {})
    assert "Large answers" not in text_of_report(tmp_path)


@pytest.mark.postgres
def test_rows_of_a_large_result_are_those_of_a_list_and_a_value_that_python_lacks_is_an_error(
    postgres_endpoint: str,
) -> None:
    session = TARGET.connect(postgres_endpoint, BTREE)
    columns = ("number", "half")
    found = session.query(Statement(f"SELECT n, n / 2.0::float8 FROM generate_series(1, {ROWS}) n"), columns).records
    assert len(found) == ROWS
    rows = [(n, n / 2) for n in range(1, ROWS + 1)]
    assert list(found) == rows
    assert (found[0], found[-1], found[260_000]) == (rows[0], rows[-1], rows[260_000])
    for part in (slice(249_999, 250_002), slice(-3, None), slice(10, 5), slice(None, 9, 4)):
        assert found[part] == rows[part]
    with pytest.raises(IndexError):
        found[ROWS]
    late = f"CASE n WHEN {ROWS} THEN 'infinity'::timestamptz ELSE now() END"
    with_one = session.query(Statement(f"SELECT {late}, 1 FROM generate_series(1, {ROWS}) n"), columns).records
    with pytest.raises(OpError, match="PostgreSQL"):
        list(with_one)
    session.close()
