"""Simulated worlds: their points and the queries about them. No I/O, no database."""
