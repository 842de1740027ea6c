"""Files for pages that are part of the package: scripts, style sheets, pages themselves.

They are read once, from the folder `assets` of a package, when the first of them is asked for. An answer has an ETag,
and a browser asks each time whether it is still that one: what it has is never older than the server.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable

from trio_cogment.base.errors import NotFoundError
from trio_cogment.web.replies import Reply
from trio_cogment.web.requests import Request
from trio_cogment.web.routing import Route, Visit

_TYPES = {
    "css": b"text/css; charset=utf-8",
    "html": b"text/html; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "json": b"application/json",
    "png": b"image/png",
    "svg": b"image/svg+xml",
    "txt": b"text/plain; charset=utf-8",
    "webp": b"image/webp",
}
_ETAG_CHARACTERS = 20


class Assets:
    """The files of one package.

    Args:
        package: that has a folder `assets`; all in it can be had by everybody.
    """

    def __init__(self, package: str) -> None:
        self._package = package
        self._replies: Mapping[str, Reply] | None = None

    def routes(self, prefix: str) -> list[Route]:
        """Return the routes to all files.

        Args:
            prefix: the path before their names, `/assets` for example.
        """

        async def asset(visit: Visit) -> Reply:
            return self.reply(visit.request, visit.parameters["name"])

        return [Route("GET", f"{prefix}/{{name*}}", asset, right=None)]

    def reply(self, request: Request, name: str) -> Reply:
        """Return the answer with a file: 304 if the browser has it.

        Raises:
            NotFoundError: there is none of this name.
        """
        reply = self._read().get(name)
        if reply is None:
            raise NotFoundError("there is no such file")
        (_, etag), *_ = reply.headers
        if etag in request.listed(b"if-none-match"):
            return Reply(304, headers=reply.headers)
        return reply

    def _read(self) -> Mapping[str, Reply]:
        if self._replies is None:
            self._replies = dict(_replies(files(self._package) / "assets", ""))
        return self._replies


def _replies(folder: Traversable, prefix: str) -> Iterator[tuple[str, Reply]]:
    for entry in folder.iterdir():
        name = prefix + entry.name
        if entry.is_dir():
            yield from _replies(entry, f"{name}/")
            continue
        content_type = _TYPES.get(name.rpartition(".")[2])
        if content_type is not None:
            body = entry.read_bytes()
            etag = b'"%b"' % hashlib.sha256(body).hexdigest()[:_ETAG_CHARACTERS].encode()
            yield name, Reply(200, body, content_type, ((b"etag", etag), (b"cache-control", b"no-cache")))
