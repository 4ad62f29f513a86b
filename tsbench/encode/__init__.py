"""Batches to bytes, one wire format per file; no driver is imported here."""

FORMATS = ("influx", "csv", "pgcopy")
"""What `tsbench generate` can write, by the names that people give it."""
