"""Batches to bytes, one wire format per file; no driver is imported here."""
