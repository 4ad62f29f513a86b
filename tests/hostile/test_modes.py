"""What docs/security.md says of modes and attacks is what tsbench's own clients do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.hostile import modes
from tests.hostile.doors import new_certificates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.hostile.doors import Certificates

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
TABLE = re.compile(r"(<!-- who gets what: made by tests/hostile/test_modes.py -->\n).*?(?=<!-- end -->)", re.DOTALL)


@pytest.fixture(scope="module")
def certificates() -> Iterator[Certificates]:
    try:
        with new_certificates() as made:
            yield made
    except FileNotFoundError:
        pytest.skip("openssl is not installed")


def test_the_page_says_what_an_attacker_gets_in_each_mode(
    certificates: Certificates, request: pytest.FixtureRequest
) -> None:
    found = "\n".join(modes.lines(modes.PROTOCOLS, certificates)) + "\n"
    text = PAGE.read_text(encoding="utf-8")
    if request.config.getoption("--update-snapshots"):
        text = TABLE.sub(lambda match: match[1] + found, text)
        PAGE.write_text(text, encoding="utf-8")
    (written,) = TABLE.finditer(text)
    assert written[0].removeprefix(written[1]) == found
