"""Databases: one package or module each, listed in `registry`."""
