"""Encoders from batches to bytes, one wire format per module; no database driver is imported here."""

FORMAT_NAMES = ("influx", "csv", "pgcopy", "parquet")
"""Formats that `tsbench generate` can write, by their names on the command line."""
