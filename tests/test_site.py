"""The look through the documentation site finds what is wrong with one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.site import dead, unlisted

if TYPE_CHECKING:
    from pathlib import Path

HOME = '<a href="other/">other</a><a href="https://db.example/">out</a><h2 id="here"></h2><img src="a.png">'


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Make a site of two pages, in order."""
    for name in ("docs", "site/other", "site/gallery"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("index", "other"):
        (tmp_path / f"docs/{name}.md").write_text("# x")
    (tmp_path / "site/index.html").write_text(HOME)
    (tmp_path / "site/a.png").write_bytes(b"")
    (tmp_path / "site/other/index.html").write_text('<a href="../#here">home</a>')
    (tmp_path / "site/gallery/report.html").write_text('<a href="gone">a report is shown as it is</a>')
    return tmp_path / "site"


def test_a_site_in_order_has_no_faults(site: Path) -> None:
    assert [*dead(site), *unlisted(site, site.parent / "docs")] == []


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ('<a href="gone/">x</a>', "index.html leads to gone/, which is not there"),
        ('<a href="other/#gone">x</a>', "index.html leads to other/#gone, and that page has no such anchor"),
        ('<img src="gone.png">', "index.html leads to gone.png, which is not there"),
        ('<script src="https://cdn.example/x.js"></script>', "index.html loads https://cdn.example/x.js"),
        ('<link rel="stylesheet" href="//fonts.example/x.css">', "index.html loads //fonts.example/x.css"),
    ],
)
def test_a_fault_of_a_page_is_found(site: Path, more: str, fault: str) -> None:
    (site / "index.html").write_text(HOME + more)
    assert [*dead(site)] == [fault]


def test_a_page_that_the_menu_lacks_is_found(site: Path) -> None:
    (site.parent / "docs/third.md").write_text("# x")
    assert [*unlisted(site, site.parent / "docs")] == ["third.md is not in the menu"]
