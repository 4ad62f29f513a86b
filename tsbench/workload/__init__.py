"""Simulated worlds: their points and the queries about them. No I/O, no database."""

WORLD_VERSION = 3
"""Raised whenever a use case's points change for the same spec, seed and number, so that results with other data under
the same name are distinguished. A test pins hashes of some points to it.

2: in devops' `mem`, used + available = total in every row, and the percentages are those of the whole bytes.
"""
