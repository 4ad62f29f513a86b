"""Collectors: samples of host, load processes, server and counters during a run."""
