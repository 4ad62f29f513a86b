"""What the contract of targets stands on: what a test class gives, its fixtures, and how its tests write and ask."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import pytest

from tsbench.check.comparison import canonical
from tsbench.model import (
    Aggregated,
    Batch,
    Count,
    Measurement,
    OpError,
    Query,
    Raw,
    WriteMode,
    share_of,
)
from tsbench.targets.registry import TARGETS
from tsbench.testing import data
from tsbench.testing.data import CPU, DISK, LAG, WIDE
from tsbench.testing.schemas import KEEP, REPLACE
from tsbench.testing.session import MemorySession

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tsbench.targets.base import Payload, Schema, Session
    from tsbench.targets.target import Target

Point = tuple[Any, ...]
ALL = (CPU, DISK, LAG, WIDE)
_ELSEWHERE = """
import sys
from tsbench.testing.data import CPU
from tsbench.model import Count
from tsbench.targets.registry import get
name, url, layout = sys.argv[1:]
schema = get(name).schemas[layout]
session = get(name).connect(url, schema)
session.query(schema.compile(Count(CPU)), Count(CPU).columns)
"""


Action: TypeAlias = Literal["delete", "duplicate", "change", "tag", "more", "part"]


@dataclass(frozen=True)
class Alteration:
    """What is done to one stored point; `tags` are all tags of its series, the first is the key.

    `tag` gives the last tag another value, `more` adds a field, and `part` stores a point with one field only.
    """

    action: Action
    measurement: str
    time_ns: int
    series: int
    tags: Mapping[str, str]
    field: str
    value: int
    """The field's new value, for a change; the field is one of integers."""

    def sql(self, time: str, *, within: str = "") -> tuple[str, ...]:
        """The statements, with the time and a prefix of the tables' names as the database has them."""
        table, tags = within + self.measurement, f"{within}tags"
        where = f"WHERE time = {time} AND tags_id = {self.series}"
        *_, last_tag = self.tags
        return {
            "delete": (f"DELETE FROM {table} {where}",),
            "duplicate": (f"INSERT INTO {table} SELECT * FROM {table} {where}",),
            "change": (f"UPDATE {table} SET {self.field} = {self.value} {where}",),
            "tag": (f"UPDATE {tags} SET {last_tag} = 'elsewhere' WHERE id = {self.series}",),
            "more": (f"ALTER TABLE {table} ADD COLUMN more INTEGER", f"UPDATE {table} SET more = 1 {where}"),
            "part": (
                f"INSERT INTO {table} (time, tags_id, {self.field}) VALUES ({time}, {self.series}, {self.value})",
            ),
        }[self.action]


of_every_layout = pytest.mark.every_layout
"""Marks a test of the contract that is run with the `variants` of a layout, too: it depends on tables and indexes."""


def form_of(query: Query) -> type | str:
    """Return the class of a query, or what is particular to it: its aggregates, its first rows, or its conditions."""
    if isinstance(query, Aggregated) and query.aggregates & {"first", "last"}:
        return "ends where" if query.where else "ends"
    if isinstance(query, Aggregated) and any(share_of(how) is not None for how in query.aggregates):
        return "percentiles of series" if query.by == (query.measurement.key,) else "percentiles"
    if isinstance(query, Aggregated) and query.top is not None:
        return "top"
    if isinstance(query, Raw) and query.top is not None:
        return "first rows"
    return "where" if isinstance(query, Raw | Aggregated) and query.where else type(query)


class ContractBase:
    name: str
    wrong_endpoints: tuple[str, ...] = ("nonsense", "http://127.0.0.1:1/x")
    holds_anything: bool = True
    """Whether the bare driver can store tags and fields that the measurement does not have."""
    absent: ClassVar[frozenset[str]] = frozenset()
    variants: ClassVar[Mapping[str, str]] = {}
    """Layouts with the statements and payloads of another one, by name; only their tables and indexes differ."""
    unsupported: ClassVar[Mapping[str, tuple[type | str, ...]]] = {}
    not_made: tuple[str, str] | None = None
    """Cause of the error with which the server may refuse a layout, and the mark of tests that need another server."""

    @pytest.fixture(autouse=True)
    def _layout_that_the_server_can_make(self, request: pytest.FixtureRequest, target: Target) -> None:
        if self.not_made is None or not {"schema", "url"} <= set(request.fixturenames):
            return
        (cause, mark), schema = self.not_made, request.getfixturevalue("schema")
        with closing(target.connect(request.getfixturevalue("url"), schema)) as session:
            try:
                session.run(schema.create([CPU], data.shared_tags()))
            except OpError as error:
                if error.cause != cause:
                    raise
                request.node.add_marker(mark)
                pytest.skip(f"{error}; one that does is taken from TSBENCH_TEST_{self.name.upper()}")

    @staticmethod
    def stored(url: str, measurement: Measurement) -> Sequence[Point]:
        """Every stored point, read without our session; own tags as a mapping, None where there are none."""
        raise NotImplementedError

    @staticmethod
    def alter(url: str, alteration: Alteration) -> None:
        """Do that to a stored point without our session."""
        raise NotImplementedError

    def refused_in_part(
        self, session: Session, target: Target, url: str, schema: Schema, mode: WriteMode
    ) -> tuple[Session, Payload, int] | None:
        """A session and a payload of which the database will not take so many points; None if it takes any."""
        return None

    @classmethod
    def the_target(cls) -> Target:
        """The target; one that is not registered is returned by a method of its own."""
        return TARGETS[cls.name]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        everywhere = metafunc.definition.get_closest_marker("every_layout") is not None
        left_out = {*self.absent, *(() if everywhere else self.variants)}
        schemas = [s for s in self.the_target().schemas.values() if s.name not in left_out]
        if {"schema", "mode"} <= set(metafunc.fixturenames):
            both = [(s, m) for s in schemas for m in sorted(s.modes)]
            metafunc.parametrize(("schema", "mode"), both, ids=[f"{s.name}-{m}" for s, m in both])
        elif "schema" in metafunc.fixturenames:
            metafunc.parametrize("schema", schemas, ids=[s.name for s in schemas])

    @pytest.fixture
    def target(self) -> Target:
        return self.the_target()

    @pytest.fixture
    def session(self, target: Target, url: str, schema: Schema) -> Iterator[Session]:
        session = target.connect(url, schema)
        session.run(schema.create(ALL, data.shared_tags()))
        yield session
        session.close()

    # --- helpers

    @staticmethod
    def write(session: Session, schema: Schema, batches: list[Batch], mode: WriteMode | None = None) -> int:
        """Write batches, and return the number of points acknowledged; queries see them then."""
        how = mode or (WriteMode.BULK if WriteMode.BULK in schema.modes else WriteMode.MULTI)
        return sum(
            session.write(payload)
            for batch in batches
            for payload in schema.encode_each(batch, 1 if how is WriteMode.SINGLE else len(batch), how)
        )

    def scattered(self, measurement: Measurement, points: int, seed: int) -> list[Batch]:
        """Batches of points as close in time as the target tells apart."""
        step_ns = self.the_target().resolution_ns
        return data.scattered(measurement, data.shared_tags(), points, seed, step_ns=step_ns)

    def opens_elsewhere(self, url: str, schema: Schema) -> bool:
        """Another process can open the database and find the table there."""
        command = [sys.executable, "-c", _ELSEWHERE, self.name, url, schema.name]
        return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0

    @staticmethod
    def ask(session: Session, schema: Schema, query: Query) -> Any:
        return session.query(schema.compile(query), query.columns)

    def count(self, session: Session, schema: Schema, measurement: Measurement) -> int:
        return int(self.ask(session, schema, Count(measurement)).records[0][0])

    @staticmethod
    def key(schema: Schema, batches: list[Batch]) -> MemorySession:
        """The answer key for these points."""
        key = MemorySession(KEEP if schema.keeps_duplicates else REPLACE)
        for batch in batches:
            key.add(batch)
        return key

    def agrees(self, session: Session, schema: Schema, query: Query, key: MemorySession, name: str = "") -> None:
        """The target's answer is the answer key's."""
        if form_of(query) in self.unsupported.get(schema.name, ()):
            return
        expected, actual = key.answer(query), self.ask(session, schema, query)
        difference = data.difference(query, expected, actual)
        assert difference is None, f"{name}: {difference}\n{schema.compile(query).text}\n{canonical(actual)[:3]}"
