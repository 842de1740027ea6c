"""Check a built documentation site: every link leads somewhere, and nothing on a page comes from the network.

Run it: `python tools/check_site.py docs/_build/html`. It prints what is wrong, and its exit code is 1 if anything is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: What a browser loads by itself, and where the address is.
LOADED = {
    "img": "src",
    "script": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "link": "href",
}


class Page(HTMLParser):
    """What a page has.

    Attributes:
        anchors: the ids on it.
        links: where it leads.
        loads: what a browser loads with it.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag has."""
        values = {name: value or "" for name, value in attrs}
        if "id" in values:
            self.anchors.add(values["id"])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif LOADED.get(tag, "") in values and values.get("rel") not in (
            "canonical",
            "search",
            "index",
            "next",
            "prev",
        ):
            self.loads.append(values[LOADED[tag]])


def mistakes(folder: Path) -> Iterator[str]:
    """Yield what is wrong with the pages of a site."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(folder)
        for address in page.loads:
            if urlsplit(address).netloc:
                yield f"{name}: {address} comes from the network"
        for address in [*page.links, *page.loads]:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                yield f"{name}: {address} leads nowhere"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{name}: {address}: there is no such place on that page"
    for path in sorted(folder.rglob("*.css")):
        if "url(http" in path.read_text(encoding="utf-8") or "@import" in path.read_text(encoding="utf-8"):
            yield f"{path.relative_to(folder)}: something comes from elsewhere"


def main() -> int:
    """Print the mistakes; return the exit code."""
    found = list(mistakes(Path(sys.argv[1]).resolve()))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
