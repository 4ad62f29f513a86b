"""Limits that results of tsbench never exceed, so that reading other people's results takes little memory and time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper limits of results; twelve runs of an hour stay below a tenth of each.

    The longest honest result set is one of a week (`scenario.validation`), of 1,000 runs, or of runs with 100 ops.
    """

    runs: int = 1_000
    """Runs of a result set: as many as a matrix has at most (`scenario.matrix`)."""
    ops: int = 100
    """Ops of a run, by name: as many as a scenario has at most. Each needs 1.4 MB of histograms while it is merged."""
    tags: int = 410
    """Tags of a histogram log: four for each op, and a few."""
    counted: int = 10**12
    """Ops, points or ns that a process counts in a second; a sum over ten million lines is still an int64."""
    streams: int = 10_000_000
    block_points: int = 1_000_000
    """Streams of a world, and points of a block: as many as a scenario has at most (`scenario.parts`)."""
    blocks: int = 10_000
    """Blocks of a stream beyond one for each of its process's writes."""
    answer_bytes: int = 64_000_000
    """Length of an answer in a file of a load process; of one beyond 8 MB, a part of its rows is kept."""
    span_s: int = 8 * 86_400
    """Seconds between the first and the last row of a table: a week, and its warm-up."""
    json_bytes: int = 20_000_000
    json_values: int = 1_000_000
    json_objects: int = 100_000
    json_escapes: int = 200_000
    """Size of a set's summary.json, its values, objects and backslashes: 1,000 runs of 7 kB, 300 values, 45 objects."""
    json_of_set: int = 10
    """A run's own JSON files have a tenth of that at most: 100 ops of 45 values, 1,000 settings of a server."""
    json_depth: int = 30
    json_digits: int = 25
    json_key: int = 70_000
    """Characters of a key; keys may be names in a database, and InfluxDB's have 64 KiB at the longest."""
    error_text: int = 1_000
    """Characters that are kept of an error's text."""
    entries: int = 1_000
    """Entries of each object or list that reports show (`json_files.Named`, `json_files.Several`)."""
    table_bytes: int = 200_000_000
    """Size of a Parquet file: a week of 100 ops takes 10 bytes for each op and second."""
    table_values: int = 1_500_000
    table_values_per_byte: int = 8
    """Values (rows x columns) of a Parquet file: up to the number, or up to the second one for each of its bytes.

    Every second has other times, so that honest files have 0.1 to 3 values per byte; counters that hardly move, 8.
    """
    value_bytes: int = 32
    """Unpacked bytes per value: 8, and the texts of names."""
    footer_bytes: int = 4_000_000
    """Size of a Parquet file's directory; it describes each column of each million rows with some hundred bytes."""
    log_bytes: int = 2_000_000_000
    """Size of a histogram log, a ledger or another file of a load process (`drive.cluster.files` takes no more)."""
    log_ratio: int = 4
    """Unpacked bytes per byte of a histogram log; honest ones have 0.7, and 1.3 in their most regular lines."""
    line_bytes: int = 500_000
    """Length of a line of a log: a histogram of which each counter is used has 410 kB."""
    causes: int = 1_000
    """Different causes of errors of an op; load processes name some dozens."""
    rows: int = 10_000_000
    """Seconds with an op, over all ops of a run: a week of 16 ops, 100 ops for a day."""
    name: int = 250
    """Characters of an op's, a counter's or a host's name."""
    text_bytes: int = 1_000_000
    """Size of scenario.toml."""


LIMITS = Limits()
FREE_BYTES = 1_000_000
"""What a log may unpack to whatever its size."""
FIRST_S, LAST_S = 0, 4_102_444_800
"""Epoch seconds between which runs are made: to the year 2100."""
LARGEST = 2.0**63
"""Magnitude below which numbers in results are."""
