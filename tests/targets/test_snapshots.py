"""Snapshots of the texts that each target sends, one file per package of targets, with a part for each layout.

`pytest tests/targets/test_snapshots.py --update-snapshots` writes them anew; the diff is for the reviewer.
"""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tsbench.model import (
    Aggregated,
    Condition,
    Count,
    Latest,
    LatestBuckets,
    Query,
    Raw,
    Stored,
    Top,
    Window,
    WriteMode,
)
from tsbench.targets.base import Operation, Unsupported
from tsbench.targets.registry import TARGETS
from tsbench.testing import data
from tsbench.testing.data import CPU, DISK, LAG, START_NS, S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tsbench.targets.base import Command, Schema

SNAPSHOTS = Path(__file__).parent / "snapshots"
HOUR = Window(START_NS, START_NS + 3_600 * S)
TWO = ("host_0", "host_1")
MINUTE = 60 * S

QUERIES: dict[str, Query] = {
    "raw rows": Raw(CPU, ("busy", "load"), HOUR),
    "raw rows of two hosts": Raw(CPU, ("busy",), HOUR, TWO),
    "newest ten rows of a host": Raw(CPU, ("busy",), HOUR, TWO[:1], top=Top("time", 10)),
    "oldest row of two hosts": Raw(CPU, ("busy",), HOUR, TWO, top=Top("time", 1, lowest=True)),
    "raw rows of a measurement without tags": Raw(LAG, ("kb",), HOUR),
    "maximum by minute of two hosts": Aggregated.of(CPU, ("busy", "load"), "max", MINUTE, HOUR, TWO),
    "mean by minute of a measurement without tags": Aggregated.of(LAG, ("kb",), "mean", MINUTE, HOUR),
    "mean by minute and host": Aggregated.of(CPU, ("busy",), "mean", MINUTE, HOUR, None, ("host",)),
    "count by half a second and host, of two hosts": Aggregated.of(
        CPU, ("busy",), "count", S // 2, HOUR, TWO, ("host",)
    ),
    "newest row of every host": Latest(CPU, ("busy", "load")),
    "newest row of two hosts before a time": Latest(CPU, ("busy",), HOUR.end_ns, TWO),
    "newest row of a measurement without tags": Latest(LAG, ("kb",)),
    "rows above a threshold": Raw(CPU, ("busy", "load"), HOUR, None, (Condition("busy", ">", 90.0),)),
    "rows above a threshold of two hosts": Raw(CPU, ("busy",), HOUR, TWO, (Condition("busy", ">", 90.0),)),
    "first and last by minute and host": Aggregated(
        CPU, (("first", "busy"), ("last", "load")), HOUR, MINUTE, ("host",)
    ),
    "percentiles by host": Aggregated(CPU, (("p50", "busy"), ("p95", "busy")), HOUR, None, ("host",)),
    "newest five minutes": LatestBuckets(CPU, ("busy",), "max", MINUTE, HOUR.end_ns, 5),
    "count": Count(CPU),
    "stored points": Stored(DISK, HOUR.start_ns, HOUR.end_ns),
    "a hundred stored points before a time": Stored(CPU, end_ns=HOUR.start_ns, limit=100),
    "stored points of a measurement without tags from a time on": Stored(LAG, HOUR.end_ns),
}


def _layouts() -> dict[str, dict[str, Schema]]:
    """Return the layouts by package and heading; one that several targets share comes once."""
    found: dict[str, dict[str, Schema]] = {}
    for target in TARGETS.values():
        if target.durable:  # what keeps nothing beyond its process has no language of its own
            for layout, schema in target.schemas.items():
                sharing = [other for other, one in TARGETS.items() if one.schemas.get(layout) is schema]
                package = type(schema).__module__.split(".")[2]
                found.setdefault(package, {})[f"===== {', '.join(sharing)}: {layout}"] = schema
    return found


LAYOUTS = _layouts()


def _sections(schema: Schema) -> Iterator[tuple[str, str]]:
    tags = data.shared_tags(2)
    yield "tables", ";\n".join(_shown(s) for s in schema.create([CPU, DISK, LAG], tags))
    yield "rest after a load", ";\n".join(_shown(s) for s in schema.settle([CPU, LAG]))
    for mode in sorted(schema.modes):
        times = [START_NS] if mode is WriteMode.SINGLE else [START_NS, START_NS + S]
        payload = schema.encode(data.batch(DISK, tags, time_ns=times), mode)
        yield f"{mode} write of {len(times)}", payload.text
    for name, query in QUERIES.items():
        try:
            yield name, _shown(schema.compile(query))
        except Unsupported as why:
            yield name, f"unsupported: {why}"


def _shown(statement: Command) -> str:
    if isinstance(statement, Operation):
        return f"[{statement.text}]"
    plain = [p.isoformat(timespec="microseconds") if isinstance(p, datetime) else p for p in statement.params]
    return statement.text + (f"\n    <- {plain}" if plain else "")


def _parts(text: str) -> dict[str, str]:
    """Return the parts of a file by their headings."""
    parts = re.split(r"^(===== .*)\n\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("package", LAYOUTS)
def test_the_texts_that_are_sent_are_those_that_were_reviewed(package: str, pytestconfig: pytest.Config) -> None:
    sent = {
        heading: "\n\n".join(f"-- {name}\n{body}" for name, body in _sections(schema)) + "\n"
        for heading, schema in LAYOUTS[package].items()
    }
    path = SNAPSHOTS / f"{package}.txt"
    if pytestconfig.getoption("--update-snapshots"):
        path.write_text("".join(f"{heading}\n\n{text}" for heading, text in sent.items()), encoding="utf-8")
    assert path.exists(), f"run with --update-snapshots to write {path.name}"
    reviewed = _parts(path.read_text(encoding="utf-8"))
    assert sent.keys() == reviewed.keys()
    for heading, text in sent.items():
        assert text == reviewed[heading], heading


def test_no_snapshot_is_left_of_a_database_that_is_gone() -> None:
    assert {p.name for p in SNAPSHOTS.iterdir()} == {f"{package}.txt" for package in LAYOUTS}
