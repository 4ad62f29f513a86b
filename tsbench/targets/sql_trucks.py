# ruff: noqa: S608 - names are quoted, values are parameters
"""The SQL of the questions about trucks (`workload.use_cases.iot` says what each means), the same in all dialects.

What they need of a dialect is in `Dialect`; `sql.SqlText` has the rest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from tsbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from tsbench.model import Analysis, Window

BUCKET_NS = 600 * NS_PER_S
_BUCKETS_A_DAY = 144


class Dialect(ABC):
    """Base of a dialect's compiler. Parameters are collected in the order of their placeholders in the text."""

    def __init__(self) -> None:
        self.params: list[Any] = []

    def arg(self, value: Any) -> str:
        """Add a parameter and return its placeholder."""
        self.params.append(value)
        return self.mark(len(self.params))

    def mark(self, number: int) -> str:
        """Return the placeholder for a parameter by its number, from 1."""
        return "?"

    @abstractmethod
    def bound(self, time_ns: int) -> Any:
        """Return the parameter for a bound of a window."""

    @abstractmethod
    def number_of(self, bucket_ns: int) -> str:
        """Return the expression for the number of the bucket that contains the column `m.time`, from the epoch on."""

    def window(self, window: Window, table: str = "m") -> str:
        """Return the condition that a row's time is in a window."""
        start = self.arg(self.bound(window.start_ns))
        return f'{table}."time" >= {start} AND {table}."time" < {self.arg(self.bound(window.end_ns))}'

    def number(self, column: str) -> str:
        """Return the expression for a text as a double precision number."""
        return f"CAST({column} AS DOUBLE PRECISION)"


def compile_analysis(text: Dialect, query: Analysis) -> str:
    """Return the text of an analysis; its parameters are added to `text` in the order of their placeholders."""
    return _COMPILE[query.name](text, query)


def _newest(fields: str, of: str, condition: str = "") -> Callable[[Dialect, Analysis], str]:
    """Return the compiler for the newest point of each truck that has all these fields."""
    names = fields.split()

    def compiled(text: Dialect, query: Analysis) -> str:
        table = f'"{query.measurement.name}"'
        columns = ('m."time", ' if query.columns[0] == "time" else "") + 't."name"'
        values = ", ".join(f'm."{name}"' for name in names)
        there, there_too = (" AND ".join(f'{one}."{name}" IS NOT NULL' for name in names) for one in "xm")
        above = condition.format(capacity=text.number('t."load_capacity"'))
        # DISTINCT: a point that is stored twice is one newest point.
        return (
            f"SELECT DISTINCT {columns}, {values}\n"
            f'FROM "tags" t JOIN {table} m ON m."tags_id" = t."id" AND m."time" = (\n'
            f'  SELECT max(x."time") FROM {table} x\n'
            f'  WHERE x."tags_id" = t."id" AND {text.window(query.window, "x")} AND {there}\n'
            f')\nWHERE t."{of}" = {text.arg(query.of)} AND {there_too}{above}'
        )

    return compiled


def _stationary(text: Dialect, query: Analysis) -> str:
    return (
        'SELECT t."name", avg(m."velocity") AS "velocity"\n'
        'FROM "readings" m JOIN "tags" t ON t."id" = m."tags_id"\n'
        f'WHERE {text.window(query.window)} AND t."fleet" = {text.arg(query.of)}\n'
        'GROUP BY t."name" HAVING avg(m."velocity") < 1'
    )


def _buckets(text: Dialect, query: Analysis, field: str, state: str, *, of: str = "") -> str:
    """Return the subquery for buckets of ten minutes of each truck: its number `n`, and 1 if `state` holds, or 0."""
    fleet = ' AND m."tags_id" IN (SELECT "id" FROM "tags" WHERE "fleet" = {})' if of else ""
    where = text.window(query.window)
    return (
        f'SELECT {text.number_of(BUCKET_NS)} AS n, m."tags_id", CASE WHEN {state} THEN 1 ELSE 0 END AS state\n'
        f'  FROM "{query.measurement.name}" m\n'
        f'  WHERE {where} AND m."{field}" IS NOT NULL{fleet.format(text.arg(of)) if of else ""}\n'
        "  GROUP BY 1, 2"
    )


def _long(above: int) -> Callable[[Dialect, Analysis], str]:
    def compiled(text: Dialect, query: Analysis) -> str:
        buckets = _buckets(text, query, "velocity", 'avg(m."velocity") > 1', of=query.of)
        return (
            f'SELECT t."name", sum(b.state) AS "buckets"\nFROM (\n  {buckets}\n'
            ') b JOIN "tags" t ON t."id" = b."tags_id"\n'
            f'GROUP BY t."name" HAVING sum(b.state) > {above}'
        )

    return compiled


def _projected(text: Dialect, query: Analysis) -> str:
    return (
        'SELECT t."fleet", avg(m."fuel_consumption") AS "fuel_consumption",\n'
        f'  avg({text.number(_NOMINAL)}) AS "nominal_fuel_consumption"\n'
        'FROM "readings" m JOIN "tags" t ON t."id" = m."tags_id"\n'
        f'WHERE {text.window(query.window)} AND m."velocity" > 1 AND m."fuel_consumption" IS NOT NULL\n'
        f'  AND t."fleet" IS NOT NULL AND {_NOMINAL} IS NOT NULL\n'
        'GROUP BY t."fleet"'
    )


_NOMINAL = 't."nominal_fuel_consumption"'
_DAY = f"b.n - b.n % {_BUCKETS_A_DAY} AS d"
"""The number of the first bucket of a bucket's day."""


def _duration(text: Dialect, query: Analysis) -> str:
    buckets = _buckets(text, query, "velocity", 'avg(m."velocity") > 1')
    return (
        'SELECT t."name", avg(c.driving * 1e0) / 6 AS "hours"\nFROM (\n'
        f'  SELECT {_DAY}, b."tags_id", sum(b.state) AS driving\n  FROM (\n  {buckets}\n  ) b\n  GROUP BY 1, 2\n'
        ') c JOIN "tags" t ON t."id" = c."tags_id"\nGROUP BY t."name"'
    )


def _changes(text: Dialect, query: Analysis, field: str, state: str) -> str:
    """Return the subquery for the buckets in which a truck's state is another one than in its bucket before."""
    return (
        'SELECT s.n, s."tags_id", s.state FROM (\n'
        '  SELECT b.n, b."tags_id", b.state,\n'
        '    lag(b.state) OVER (PARTITION BY b."tags_id" ORDER BY b.n) AS earlier\n'
        f"  FROM (\n  {_buckets(text, query, field, state)}\n  ) b\n"
        ") s WHERE s.state <> s.earlier"
    )


def _session(text: Dialect, query: Analysis) -> str:
    changes = _changes(text, query, "velocity", 'avg(m."velocity") > 5')
    day = f"(r.n - r.n % {_BUCKETS_A_DAY}) * {BUCKET_NS}"
    return (
        f'SELECT {day} AS "time", t."name", avg((r.next_n - r.n) * 1e1) AS "minutes"\nFROM (\n'
        '  SELECT c.n, c."tags_id", c.state,\n'
        '    lead(c.n) OVER (PARTITION BY c."tags_id" ORDER BY c.n) AS next_n\n'
        f"  FROM (\n  {changes}\n  ) c\n"
        ') r JOIN "tags" t ON t."id" = r."tags_id"\n'
        'WHERE r.state = 1 AND r.next_n IS NOT NULL\nGROUP BY 1, t."name"'
    )


def _load(text: Dialect, query: Analysis) -> str:
    return (
        f'SELECT t."fleet", t."model", avg(b.mean / {text.number(_CAPACITY)}) AS "load"\nFROM (\n'
        '  SELECT m."tags_id", avg(m."current_load") AS mean FROM "diagnostics" m\n'
        f'  WHERE {text.window(query.window)} AND m."current_load" IS NOT NULL\n  GROUP BY m."tags_id"\n'
        ') b JOIN "tags" t ON t."id" = b."tags_id"\n'
        f'WHERE t."fleet" IS NOT NULL AND t."model" IS NOT NULL AND {_CAPACITY} IS NOT NULL\n'
        'GROUP BY t."fleet", t."model"'
    )


_CAPACITY = 't."load_capacity"'


def _activity(text: Dialect, query: Analysis) -> str:
    buckets = _buckets(text, query, "status", 'avg(m."status") < 1')
    return (
        f'SELECT c.d * {BUCKET_NS} AS "time", t."fleet", t."model",\n'
        f'  avg(c.active * 1e0) / {_BUCKETS_A_DAY} AS "share"\nFROM (\n'
        f'  SELECT {_DAY}, b."tags_id", sum(b.state) AS active\n  FROM (\n  {buckets}\n  ) b\n  GROUP BY 1, 2\n'
        ') c JOIN "tags" t ON t."id" = c."tags_id"\n'
        'WHERE t."fleet" IS NOT NULL AND t."model" IS NOT NULL\nGROUP BY 1, t."fleet", t."model"'
    )


def _breakdowns(text: Dialect, query: Analysis) -> str:
    broken = 'sum(CASE WHEN m."status" > 0 THEN 1 ELSE 0 END) * 2 >= count(*)'
    changes = _changes(text, query, "status", broken)
    return (
        f'SELECT t."model", count(*) AS "breakdowns"\nFROM (\n  {changes}\n) c JOIN "tags" t ON t."id" = c."tags_id"\n'
        'WHERE c.state = 1 AND t."model" IS NOT NULL\nGROUP BY t."model"'
    )


_COMPILE: dict[str, Callable[[Dialect, Analysis], str]] = {
    "single-last-loc": _newest("latitude longitude", "name"),
    "last-loc": _newest("latitude longitude", "fleet"),
    "low-fuel": _newest("fuel_state", "fleet", ' AND m."fuel_state" < 0.1'),
    "high-load": _newest("current_load", "fleet", ' AND m."current_load" > 0.9 * {capacity}'),
    "stationary-trucks": _stationary,
    "long-driving-sessions": _long(22),
    "long-daily-sessions": _long(60),
    "avg-vs-projected-fuel-consumption": _projected,
    "avg-daily-driving-duration": _duration,
    "avg-daily-driving-session": _session,
    "avg-load": _load,
    "daily-activity": _activity,
    "breakdown-frequency": _breakdowns,
}
