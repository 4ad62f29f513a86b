"""Certificates for the tests of this directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.hostile.doors import new_certificates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.hostile.doors import Certificates


@pytest.fixture(scope="module")
def certificates() -> Iterator[Certificates]:
    try:
        with new_certificates() as made:
            yield made
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
