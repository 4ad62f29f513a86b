"""Encoders from batches to bytes, one wire format per module; no database driver is imported here."""
