"""Tests of the target: `pytest --pyargs tsbench_chdb` where the package is installed."""
