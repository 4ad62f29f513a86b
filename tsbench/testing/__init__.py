"""What tests a target: the contract, the points that it is tried with, and the answer key in memory.

For whoever writes a target; it needs pytest and polars, and nothing else in tsbench imports it.
"""

import pytest

pytest.register_assert_rewrite("tsbench.testing.contract", "tsbench.testing.contract_base")


def pytest_configure(config: pytest.Config) -> None:
    """Make the contract's marks known; an entry point of pytest's, so for whoever has tsbench installed."""
    for mark in (
        "contract: what every target must do",
        "every_layout: also for a layout whose tables and indexes alone differ from another one's",
        "slow: takes seconds; tsbench's own suite leaves it out without --slow or --require",
        "every_user: what differs between root and an ordinary user (servers, processes, files, rights)",
    ):
        config.addinivalue_line("markers", mark)
