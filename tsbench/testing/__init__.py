"""What tests a target: the contract, the points that it is tried with, and the answer key in memory.

For whoever writes a target; it needs pytest and polars, and nothing else in tsbench imports it.
"""

import pytest

pytest.register_assert_rewrite("tsbench.testing.contract", "tsbench.testing.contract_base")
