"""Points of a measurement in DuckDB, and the answers to `gold` about them."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa

from tsbench.check.comparison import NotAnAnswer, canonical, forms_of
from tsbench.encode.sql import ceil_datetime
from tsbench.errors import one_line
from tsbench.model import Kind, Rows
from tsbench.targets.sql import quoted
from tsbench.workload.own_text import filled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tsbench.check.comparison import Row
    from tsbench.check.points import Slab
    from tsbench.model import Codes, Measurement, Text

_POINTS, _TAGS = '"tsbench points"', '"tsbench tags"'


class GoldSql:
    """Points of one measurement in a temporary file of DuckDB, and the answers to `gold` about them."""

    def __init__(self, measurement: Measurement, tags: Mapping[str, Codes]) -> None:
        self._measurement, self._place = measurement, TemporaryDirectory()
        settings: dict[str, Any] = {"enable_external_access": "false", "memory_limit": "500MB", "threads": "1"}
        self._connection = connection = duckdb.connect(str(Path(self._place.name) / "points.duckdb"), config=settings)
        connection.execute("SET TimeZone = 'UTC'")
        types = {Kind.FLOAT: "DOUBLE", Kind.INT: "BIGINT", Kind.TEXT: "VARCHAR", Kind.BOOL: "BOOLEAN"}
        fields = "".join(f", {quoted(field.name)} {types[field.kind]}" for field in measurement.fields)
        connection.execute(f"CREATE TABLE {_POINTS} (time BIGINT, series BIGINT{fields})")
        of_series = {name: pa.array([text or None for text in codes.tolist()]) for name, codes in tags.items()}
        count = len(next(iter(tags.values()))) if tags else 1
        connection.register("of_series", pa.table({"series": np.arange(count), **of_series}))
        connection.execute(f"CREATE TABLE {_TAGS} AS SELECT * FROM of_series")  # noqa: S608 - our own text
        connection.unregister("of_series")

    def add(self, slab: Slab, low: int, high: int) -> None:
        """Add rows of a slab."""
        columns = [pa.array(slab.time_ns[low:high]), pa.array(slab.series[low:high].astype(np.int64))]
        for field in self._measurement.fields:
            values = slab.fields[field.name][low:high]
            if field.labels:
                columns.append(pa.DictionaryArray.from_arrays(pa.array(values), pa.array(field.labels)))
            else:
                columns.append(pa.array(values, from_pandas=True))
        self._connection.register("slab", pa.Table.from_arrays(columns, [str(i) for i in range(len(columns))]))
        self._connection.execute(f"INSERT INTO {_POINTS} SELECT * FROM slab")  # noqa: S608 - our own text
        self._connection.unregister("slab")

    def ask(self, query: Text) -> list[Row]:
        """Return the answer to a query's gold, whose table has the points of its window, in canonical form.

        Raises
        ------
        NotAnAnswer
            If the gold is no query about them, has other columns than the query says, or values of other types.
        """
        m, window = self._measurement, query.window
        names = ", ".join(map(quoted, (*m.tags, *m.field_names)))
        bounds = f"time >= {window.start_ns} AND time < {window.end_ns}"
        self._connection.execute(
            f"CREATE OR REPLACE TEMP VIEW {quoted(m.name)} AS SELECT make_timestamp(p.time // 1000) AS time, {names} "  # noqa: S608 - names are quoted
            f"FROM (SELECT * FROM {_POINTS} WHERE {bounds}) p JOIN {_TAGS} t ON t.series = p.series"
        )
        values: list[Any] = []

        def argument(value: Any) -> str:
            values.append(value)
            return "?"

        def moment(time_ns: int) -> str:
            return argument(ceil_datetime(time_ns).replace(tzinfo=None))

        text = filled(query.gold, query.arguments(moment, argument), _bucket)
        try:
            answer = self._connection.execute(text, values)
        except duckdb.Error as error:
            raise NotAnAnswer(one_line(error)[:300]) from None
        columns = tuple(column[0] for column in answer.description or ())
        if len(columns) != len(query.columns):
            raise NotAnAnswer(f"it has {len(columns)} columns ({', '.join(columns)}) instead of {len(query.columns)}")
        return canonical(Rows(query.columns, answer.fetchall()), forms_of(query))

    def close(self) -> None:
        """Delete the file."""
        self._connection.close()
        self._place.cleanup()


def _bucket(column: str, bucket_ns: int) -> str:
    return f"epoch_ns({column}) // {bucket_ns} * {bucket_ns}"
