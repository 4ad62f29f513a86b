"""The version of the simulated worlds, as manifests record it."""

WORLD_VERSION = 2
"""Raised whenever a use case's points change for the same spec, seed and number, so that results with other data under
the same name are distinguished. A test pins hashes of some points to it.

2: in devops' `mem`, used + available = total in every row, and the percentages are those of the whole bytes.
"""
