"""The version of the simulated worlds, as manifests record it."""

WORLD_VERSION = 1
"""Raised whenever a use case's points change for the same spec, seed and number, so that results with other data under
the same name are distinguished. A test pins hashes of some points to it.
"""
