"""What docs/security.md says of modes and attacks is what tsbench's own clients do."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from tests.hostile import modes

if TYPE_CHECKING:
    from tests.hostile.doors import Certificates

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
BEGIN, END = "<!-- who gets what: made by tests/hostile/test_modes.py -->\n", "<!-- end -->"


@pytest.mark.parametrize(
    "name", ["postgres", "mongodb", "http", pytest.param("mysql", marks=pytest.mark.needs("MySQLdb"))]
)
@pytest.mark.slow
def test_the_page_says_what_an_attacker_gets_in_each_mode(
    certificates: Certificates, request: pytest.FixtureRequest, name: str
) -> None:
    protocol = import_module(f"tests.hostile.{name}")
    with (  # no look at who else listens, which costs a second for each failed connection
        mock.patch("tsbench.targets.endpoint.product_at", return_value=""),
        mock.patch("tsbench.targets.mongodb.client.product_at", return_value=""),
    ):
        found = [*modes.rows(protocol, certificates)]
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    table, _, after = rest.partition(END)
    written = re.findall(rf"^\| {re.escape(protocol.TITLE)} .*\n", table, re.MULTILINE)
    if request.config.getoption("--update-snapshots") and written != found:
        others = table.removeprefix(modes.HEAD)
        for line in written:
            others = others.replace(line, "")
        PAGE.write_text(f"{before}{BEGIN}{modes.HEAD}{others}{''.join(found)}{END}{after}", encoding="utf-8")
        written = found
    assert written == found
