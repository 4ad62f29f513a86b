"""Points of measurements in DuckDB, and the answers to `gold` about them."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa

from tsbench.check.comparison import NotAnAnswer, canonical, forms_of
from tsbench.encode.parquet import arrow_values
from tsbench.encode.sql import ceil_datetime
from tsbench.errors import one_line
from tsbench.model import Kind, Rows, Window
from tsbench.targets.sql import quoted
from tsbench.workload.own_text import arguments, filled, parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tsbench.check.comparison import Row
    from tsbench.check.points import Slab
    from tsbench.model import Codes, Measurement, Text

_TYPES = {Kind.FLOAT: "DOUBLE", Kind.INT: "BIGINT", Kind.TEXT: "VARCHAR", Kind.BOOL: "BOOLEAN"}


class GoldSql:
    """Points of some measurements in a temporary file of DuckDB, and the answers to `gold` about them.

    `tags_of` returns all tags of a measurement's series.
    """

    def __init__(self, measurements: Sequence[Measurement], tags_of: Callable[[str], Mapping[str, Codes]]) -> None:
        self._measurements, self._place = measurements, TemporaryDirectory()
        self._seen: Window | None = None
        settings: dict[str, Any] = {"enable_external_access": "false", "memory_limit": "500MB", "threads": "1"}
        self._connection = connection = duckdb.connect(str(Path(self._place.name) / "points.duckdb"), config=settings)
        connection.execute("SET TimeZone = 'UTC'")
        for measurement in measurements:
            fields = "".join(f", {quoted(field.name)} {_TYPES[field.kind]}" for field in measurement.fields)
            points, series = _tables(measurement.name)
            connection.execute(f"CREATE TABLE {points} (time BIGINT, series BIGINT{fields})")
            tags = tags_of(measurement.name)
            of_series = {
                name: pa.array([text or None for text in codes.tolist()], pa.string()) for name, codes in tags.items()
            }
            count = len(next(iter(tags.values()))) if tags else 1
            connection.register("of_series", pa.table({"series": np.arange(count), **of_series}))
            connection.execute(f"CREATE TABLE {series} AS SELECT * FROM of_series")  # noqa: S608 - our own text
            connection.unregister("of_series")

    def add(self, slab: Slab, low: int, high: int) -> None:
        """Add rows of a slab."""
        columns = [pa.array(slab.time_ns[low:high]), pa.array(slab.series[low:high].astype(np.int64))]
        columns += [arrow_values(pa, one, slab.fields[one.name][low:high]) for one in slab.measurement.fields]
        self._connection.register("slab", pa.Table.from_arrays(columns, [str(i) for i in range(len(columns))]))
        points, _ = _tables(slab.measurement.name)
        self._connection.execute(f"INSERT INTO {points} SELECT * FROM slab")  # noqa: S608 - our own text
        self._connection.unregister("slab")

    def ask(self, query: Text) -> list[Row]:
        """Return the answer to a query's gold, whose tables have the points of its window, in canonical form.

        Raises
        ------
        NotAnAnswer
            If the gold is no query about them, has other columns than the query says, or values of other types.
        """
        self._see(query.window)
        values: list[Any] = []

        def argument(value: Any) -> str:
            values.append(value)
            return "?"

        def moment(time_ns: int) -> str:
            return argument(ceil_datetime(time_ns).replace(tzinfo=None))

        text = filled(query.gold, arguments(query, moment, argument), _bucket)
        try:
            answer = self._connection.execute(text, values)
        except duckdb.Error as error:
            raise NotAnAnswer(one_line(error)[:300]) from None
        columns = tuple(column[0] for column in answer.description or ())
        if len(columns) != len(query.columns):
            raise NotAnAnswer(f"it has {len(columns)} columns ({', '.join(columns)}) instead of {len(query.columns)}")
        return canonical(Rows(query.columns, answer.fetchall()), forms_of(query))

    def columns(self, text: str) -> list[tuple[str, str]]:
        """Return the names of the columns of an SQL query's answer, and their kinds.

        Raises
        ------
        ValueError
            If it is no query about the measurements, or has values of another kind.
        """
        self._see(Window(0, 1))
        nothing = {name: (lambda: "NULL") for name in parameters(text)}
        moment = {"start": lambda: "TIMESTAMP '2020-01-01'", "end": lambda: "TIMESTAMP '2020-01-01'"}
        asked = filled(text, nothing | moment, lambda column, _: f"date_trunc('hour', {column})")
        try:
            described = self._connection.execute(f"DESCRIBE {asked}").fetchall()
        except duckdb.Error as error:
            raise ValueError(one_line(error)[:200]) from None
        if odd := [f"{name} is a {of}" for name, of, *_ in described if _kind(of) is None]:
            raise ValueError(f"its column {odd[0]}")
        return [(name, _kind(of) or "") for name, of, *_ in described]

    def _see(self, window: Window) -> None:
        """Make views of the measurements with the points of a window; none for the last one again."""
        if window == self._seen:
            return
        self._seen = window
        bounds = f"time >= {window.start_ns} AND time < {window.end_ns}"
        for m in self._measurements:
            names = ", ".join(map(quoted, (*m.tags, *m.own_tags, *m.field_names)))
            points, series = _tables(m.name)
            self._connection.execute(
                f"CREATE OR REPLACE TEMP VIEW {quoted(m.name)} AS "  # noqa: S608 - names are quoted
                f"SELECT make_timestamp(p.time // 1000) AS time, {names} "
                f"FROM (SELECT * FROM {points} WHERE {bounds}) p JOIN {series} t ON t.series = p.series"
            )

    def close(self) -> None:
        """Delete the file."""
        self._connection.close()
        self._place.cleanup()


def _kind(of: str) -> str | None:
    """Return the kind of a column by its type in DuckDB; None if no answer may have it."""
    kinds = {
        "TIMESTAMP": "time",
        "DATE": "time",
        "VARCHAR": "text",
        "BOOLEAN": "bool",
        "DOUBLE": "float",
        "FLOAT": "float",
    }
    kinds |= {"DECIMAL": "float", '"NULL"': "float"}
    return next((kind for name, kind in kinds.items() if of.startswith(name)), "int" if "INT" in of[:8] else None)


def _tables(measurement: str) -> tuple[str, str]:
    """Return the names of the tables of a measurement's points and of its series."""
    return quoted(f"{measurement} points"), quoted(f"{measurement} series")


def _bucket(column: str, bucket_ns: int) -> str:
    return f"epoch_ns({column}) // {bucket_ns} * {bucket_ns}"
