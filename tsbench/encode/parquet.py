"""Points as a Parquet file: `time` (ns, UTC), the tags, and the fields of one measurement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tsbench.encode.number_text import label_codes
from tsbench.errors import require
from tsbench.model import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tsbench.model import Batch, Field, Measurement


class _Sink:
    """A file that is written from the beginning to the end, and handed on piece by piece."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.closed = False
        self._written = 0

    def write(self, piece: Any) -> int:
        self.pieces.append(bytes(piece))
        self._written += len(self.pieces[-1])
        return len(self.pieces[-1])

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def take(self) -> bytes:
        taken, self.pieces = b"".join(self.pieces), []
        return taken


def chunks(measurement: Measurement, batches: Iterable[Batch]) -> Iterator[bytes]:
    """Yield a Parquet file with the points of batches of a measurement, a row group for each.

    Raises
    ------
    UserMistake
        If pyarrow is not installed.
    """
    require("pyarrow", "files")
    import pyarrow as pa  # noqa: PLC0415 - of an extra
    import pyarrow.parquet as pq  # noqa: PLC0415

    text = pa.dictionary(pa.int32(), pa.string())
    types = {Kind.FLOAT: pa.float64(), Kind.INT: pa.int64(), Kind.BOOL: pa.bool_(), Kind.TEXT: text}
    tags = [(tag, text) for tag in (*measurement.tags, *measurement.own_tags)]
    schema = pa.schema(
        [
            ("time", pa.timestamp("ns", tz="UTC")),
            *tags,
            *((field.name, types[field.kind]) for field in measurement.fields),
        ]
    )
    sink = _Sink()
    with pq.ParquetWriter(pa.PythonFile(sink, mode="w"), schema, compression="zstd") as writer:
        for batch in batches:
            columns = [pa.array(batch.time_ns).cast(schema.field("time").type)]
            for tag, _ in tags:
                codes = batch.tags[tag]
                own, lacks = codes.codes[batch.series], np.array([not value for value in codes.values])
                columns.append(pa.DictionaryArray.from_arrays(pa.array(own, mask=lacks[own]), pa.array(codes.values)))
            columns += [_column(pa, field, batch.fields[field.name]) for field in measurement.fields]
            writer.write_table(pa.table(columns, schema=schema))
            yield sink.take()
    yield sink.take()


def _column(pa: Any, field: Field, values: Any) -> Any:
    """Return the values of a field, null where points lack it."""
    made = arrow_values(pa, field, values)
    return made.dictionary_decode() if field.kind is Kind.BOOL else made


def arrow_values(pa: Any, field: Field, values: Any) -> Any:
    """Return the values of a field as an Arrow array, null where points lack it; floats are not copied."""
    if field.labels:
        codes = label_codes(values, len(field.labels)).astype(np.int32)
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes == len(field.labels)), pa.array(field.labels))
    made = pa.array(values, from_pandas=field.nullable)  # from pandas: NaN is null
    return made.cast(pa.int64()) if field.kind is Kind.INT else made
