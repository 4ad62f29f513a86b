"""Looks through the documentation site (`make docs`) for dead links, pages that the menu lacks, and foreign hosts.

With `--browser` Chromium opens each page, wide and narrow, light and dark: none may be wider than its window or
complain, and the search has to find the page for each of `QUESTIONS`. Prints what is wrong, and then exits with 1.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from functools import cache, partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from tests.drive.webui.browser import Browser

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
SITE, DOCS = ROOT / "dist" / "site", ROOT / "dist" / "docs"
WIDTHS = (1300, 390)
QUESTIONS = {
    "csv": "your-workload",
    "parquet": "your-workload",
    "own query sql": "your-queries",
    "percentile": "latency",
    "docker": "containers",
    "raspberry pi": "small-devices",
    "password": "security",
    "github workflow": "gates",
    "add a database": "plugins",
    "tsbs": "coming-from-tsbs",
}
"""What a newcomer may type, and the page that has to be among the first ten that are found."""


class Page(HTMLParser):
    """The links, the anchors and the loaded files of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := given.get(name))}
        if tag == "a" and (href := given.get("href")):
            self.links.append(href)
        if tag in {"img", "script", "link", "iframe"} and (loaded := given.get("src") or given.get("href")):
            (self.links if given.get("rel") in {"canonical", "next", "prev"} else self.loaded).append(loaded)


@cache
def page(path: Path) -> Page:
    """Return a page of the site, read once."""
    return Page(path)


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def pages(site: Path) -> list[Path]:
    """Return the pages; reports of the gallery are shown as they are."""
    return [path for path in sorted(site.rglob("*.html")) if path.parent.name != "gallery" or path.name == "index.html"]


def dead(site: Path) -> Iterator[str]:
    """Yield one line for each link that leads nowhere, and each file that a page would load from another host."""
    for path in pages(site):
        for link in [*page(path).links, *page(path).loaded]:
            url = urlsplit(link)
            if url.scheme or url.netloc:
                if link in page(path).loaded and url.scheme != "data":
                    yield f"{path.relative_to(site)} loads {link}"
                continue
            base = site if url.path.startswith("/") else path.parent  # 404.html is shown anywhere
            aim = (base / unquote(url.path).lstrip("/")).resolve() if url.path else path
            aim = aim / "index.html" if aim.is_dir() else aim
            if not aim.is_file():
                yield f"{path.relative_to(site)} leads to {link}, which is not there"
            elif url.fragment and aim.suffix == ".html" and unquote(url.fragment) not in page(aim).anchors:
                yield f"{path.relative_to(site)} leads to {link}, and that page has no such anchor"


def unlisted(site: Path, docs: Path) -> Iterator[str]:
    """Yield one line for each page that the menu lacks."""
    links = (urlsplit(link) for link in page(site / "index.html").links)
    menu = {(site / link.path).resolve() for link in links if not link.scheme}
    for path in sorted(docs.rglob("*.md")):
        name = path.relative_to(docs).with_suffix("")
        if str(name) != "index" and site / name not in menu:
            yield f"{name}.md is not in the menu"


def seen(site: Path) -> Iterator[str]:
    """Yield one line for each page that does not look as it should in a browser, and each question without its page."""
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), partial(_Silent, directory=str(site))) as server,
        tempfile.TemporaryDirectory() as profiles,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        home = f"http://127.0.0.1:{server.server_port}/"
        for theme in ("light", "dark"):
            profile = Path(profiles) / theme
            profile.mkdir()
            browser = Browser(profile, dark=theme == "dark")
            try:
                yield from looked_at(browser, site, home, theme)
                if theme == "light":
                    yield from searched(browser, home)
                yield from (f"{theme}: {error}" for error in browser.errors)
            finally:
                browser.close()
        server.shutdown()


def looked_at(browser: Browser, site: Path, home: str, theme: str) -> Iterator[str]:
    """Yield one line for each page that is wider than the window, or has not the colours of the reader's choice."""
    for path in pages(site):
        name = str(path.relative_to(site))
        browser.go(home + name)
        for width in WIDTHS:
            browser.resize(width, 900)
            if (wide := browser.ask("document.documentElement.scrollWidth")) > width:
                yield f"{theme}, {width} pixels: {name} is {wide} pixels wide"
        red = browser.ask("Number(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])")
        if (red > 128) != (theme == "light"):
            yield f"{theme}: {name} has a background of {red} of 255"


def searched(browser: Browser, home: str) -> Iterator[str]:
    """Yield one line for each question whose page is not among the first ten that the search finds."""
    browser.resize(1300, 900)
    for question, wanted in QUESTIONS.items():
        browser.go(home)
        browser.click("document.querySelector('.md-search__button')")
        root = "[...document.querySelectorAll('*')].find(e => e.shadowRoot?.querySelector('input'))?.shadowRoot"
        browser.until(f"Boolean({root})", "the search to open")
        browser.ask(f"{root}.querySelector('input').focus()")
        browser.write(question)
        links = f"[...{root}.querySelectorAll('a[href]')].map(a => a.href).slice(0, 10)"
        try:
            browser.until(f"{links}.some(href => href.includes('/{wanted}/'))", question, timeout_s=5)
        except AssertionError:
            yield f"search for '{question}': {wanted} is not among {browser.ask(links)}"


def main() -> int:
    """Look at the whole site."""
    wrong = [*dict.fromkeys([*dead(SITE), *unlisted(SITE, DOCS)])]
    if "--browser" in sys.argv[1:]:
        wrong += seen(SITE)
    print("\n".join([*wrong, f"{len(pages(SITE))} pages, {len(wrong)} faults: {SITE.relative_to(ROOT)}/index.html"]))
    return 1 if wrong or not pages(SITE) else 0


if __name__ == "__main__":
    sys.exit(main())
