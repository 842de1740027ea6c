"""Markdown of an experiment file: its HTML for pages, and the pictures that it names.

Pages load nothing from other servers. So pictures are files beside the experiment file: they are read when it is, and
the server has these and no others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

#: Kinds of pictures, by the ends of files' names.
PICTURE_TYPES: Mapping[str, bytes] = {
    "avif": b"image/avif",
    "gif": b"image/gif",
    "jpeg": b"image/jpeg",
    "jpg": b"image/jpeg",
    "png": b"image/png",
    "svg": b"image/svg+xml",
    "webp": b"image/webp",
}
#: Part of the addresses of pictures, below that of the page.
PICTURES = "pictures"
_HASH_CHARACTERS = 20


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture in a text.

    Attributes:
        kind: one of `PICTURE_TYPES`.
        content: of the file.
    """

    kind: str
    content: bytes

    @property
    def name(self) -> str:
        """The name by which a browser asks for it: another content has another one, so it may be kept there."""
        return f"{hashlib.sha256(self.content).hexdigest()[:_HASH_CHARACTERS]}.{self.kind}"


def pictures_in(text: str) -> Iterator[tuple[str, int]]:
    """Yield the address of each picture in Markdown, as a browser would ask for it, and the line, from 0.

    The line is that on which the paragraph begins.
    """
    if "![" in text:  # only then the extra that reads Markdown is needed
        for token in _parsed(text):
            for image in _images(token):
                yield str(image.attrs["src"]), token.map[0] if token.map else 0


class Texts:
    """Makes HTML of Markdown, once of each text.

    Args:
        pictures: by their addresses in the texts.
    """

    def __init__(self, pictures: Mapping[str, Picture]) -> None:
        self._addresses = {address: f"{PICTURES}/{picture.name}" for address, picture in pictures.items()}
        self._made: dict[str, str] = {}

    def html(self, text: str) -> str:
        """Return a text of the file as HTML: CommonMark and tables. HTML in it is text."""
        if text not in self._made:
            tokens = _parsed(text)
            for token in tokens:
                for image in _images(token):
                    address = str(image.attrs["src"])
                    image.attrs["src"] = self._addresses.get(address, address)
            markdown = _markdown()
            self._made[text] = str(markdown.renderer.render(tokens, markdown.options, {}))
        return self._made[text]


def _markdown() -> Any:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).enable("table")


def _parsed(text: str) -> list[Any]:
    return list(_markdown().parse(text))


def _images(token: Any) -> Iterator[Any]:
    """Yield the pictures within a token."""
    for child in token.children or ():
        if child.type == "image":
            yield child
