"""The pages of an experiment: the participants', by a link with the experiment's key, and the researchers'.

The key stands for a token: it is in the experiment's file, so the link that people have got counts after the server
was started again. Whoever has the key can take part, and nothing else. The seats of trials have tokens of their own.
The researchers' page is for observers; what changes something, and the data, is for administrators.
"""

from __future__ import annotations

import hmac
from typing import Any

import trio

from trio_cogment.access import PAGES
from trio_cogment.base.errors import InvalidArgumentError, NotFoundError
from trio_cogment.experiment.overview import overview
from trio_cogment.experiment.server import ExperimentServer
from trio_cogment.experiment.texts import PICTURE_TYPES, PICTURES
from trio_cogment.web.assets import Assets
from trio_cogment.web.json_text import json_text
from trio_cogment.web.replies import Reply, html_page, json_data, script_page
from trio_cogment.web.routing import AnyRoute, Route, Socket, SocketRoute, Visit

#: See the rows of these in the table of rights.
_SEE, _CONTROL = f"{PAGES}experiment", f"{PAGES}experiment_control"
#: A page of researchers is told of changes so often at most.
_LOOK_SECONDS = 0.25
#: What it shows has times in it, so it is sent now and then without a change.
_PATIENCE_SECONDS = 5.0
_MAX_ACT_BYTES = 16 * 1024
_MAX_DIGITS = 9
#: Of pictures: one of this name does not change.
_KEPT = b"private, max-age=86400, immutable"
_ASSETS = "/experiment/assets"


def experiment_routes(server: ExperimentServer) -> list[AnyRoute]:
    """Return the routes; see `web.routing`. They go with those of `play_routes`, which have the seats.

    Args:
        server: of the experiment.
    """
    pages = _Pages(server)
    return [
        *Assets("trio_cogment.experiment").routes(_ASSETS),
        Route("GET", "/experiment/", pages.researchers, right=_SEE),
        SocketRoute("/experiment/live", pages.live, right=_SEE),
        Route("POST", "/experiment/act", pages.act, right=_CONTROL, max_body_bytes=_MAX_ACT_BYTES),
        Route("GET", "/experiment/export.zip", pages.export, right=_CONTROL),
        Route("GET", "/experiment/wizard/{group}/{agent}", pages.wizard, right=_CONTROL),
        Route("GET", "/experiment/{key}/", pages.page, right=None),
        Route("GET", f"/experiment/{{key}}/{PICTURES}/{{name}}", pages.picture, right=None),
        SocketRoute("/experiment/{key}/socket", pages.socket, right=None),
        # Behind the others of two parts, which it fits, too.
        Route("GET", "/experiment/{key}", pages.without_slash, right=None),
    ]


class _Pages:
    def __init__(self, server: ExperimentServer) -> None:
        self._server = server
        self._pictures = {each.name: each for each in server.experiment.pictures.values()}

    def _has_key(self, visit: Visit) -> bool:
        return hmac.compare_digest(visit.parameters["key"].encode("utf-8", "replace"), self._server.key.encode())

    def _check_key(self, visit: Visit) -> None:
        if not self._has_key(visit):
            raise NotFoundError("there is no such experiment: this link is not complete, or not of this server")

    async def without_slash(self, visit: Visit) -> Reply:
        """Lead somebody to the page whose link has lost its last slash on the way."""
        if not self._has_key(visit):
            return _no_such_page(visit)
        query = f"?{visit.request.query}" if visit.request.query else ""
        where = visit.request.at(f"/experiment/{self._server.key}/") + query
        return Reply(303, headers=((b"location", where.encode("latin-1", "replace")),))

    async def page(self, visit: Visit) -> Reply:
        """Return the page of a participant."""
        if not self._has_key(visit):
            return _no_such_page(visit)
        styles = ("/play/assets/play.css", f"{_ASSETS}/experiment.css")
        return script_page(visit.request, "Study", f"{_ASSETS}/experiment.js", *styles)

    async def picture(self, visit: Visit) -> Reply:
        """Return a picture of a text."""
        self._check_key(visit)
        found = self._pictures.get(visit.parameters["name"])
        if found is None:
            raise NotFoundError("there is no such picture")
        return Reply(200, found.content, PICTURE_TYPES[found.kind], ((b"cache-control", _KEPT),))

    async def socket(self, visit: Visit, socket: Socket) -> None:
        """Serve it."""
        self._check_key(visit)
        await self._server.serve_page(socket)

    async def researchers(self, visit: Visit) -> Reply:
        """Return the page of researchers."""
        return script_page(visit.request, "Experiment", f"{_ASSETS}/researchers.js", f"{_ASSETS}/experiment.css")

    async def live(self, _visit: Visit, socket: Socket) -> None:
        """Tell a page of researchers what there is, each time when it is other than before."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_ignore, socket)
            while True:
                change = self._server.change
                await socket.send(json_text(overview(self._server)).encode())
                with trio.move_on_after(_PATIENCE_SECONDS):
                    await change.wait()
                await trio.sleep(_LOOK_SECONDS)

    async def act(self, visit: Visit) -> Reply:
        """Do what a researcher asks for."""
        said = visit.json_object()
        what, server = said.get("what"), self._server
        if what == "take out":
            server.take_out(_text(said, "id"))
        elif what == "end group":
            group = said.get("group")
            if type(group) is not int:
                raise InvalidArgumentError("group: expected its number")
            server.take_group_out(group)
        elif what in ("close", "open"):
            server.close_waiting_room(what == "close")
        elif what == "tell":
            server.tell(_text(said, "text"), _text(said, "id") if "id" in said else "")
        else:
            raise InvalidArgumentError("what: expected one of take out, end group, close, open, tell")
        return json_data({})

    async def wizard(self, visit: Visit) -> Reply:
        """Lead a researcher to the page on which an agent is played."""
        group = visit.parameters["group"]
        if not (group.isascii() and group.isdecimal()) or len(group) > _MAX_DIGITS:
            raise InvalidArgumentError("group: expected its number")
        link = self._server.wizard_link(int(group), visit.parameters["agent"], visit.who.derives)
        return Reply(303, headers=((b"location", visit.request.outside(link).encode()),))

    async def export(self, _visit: Visit) -> Reply:
        """Return the data as a ZIP file."""
        name = f"{self._server.experiment.name}.zip".encode()
        headers = ((b"content-disposition", b'attachment; filename="' + name + b'"'),)
        return Reply(200, await self._server.archive(), b"application/zip", headers)


def _no_such_page(visit: Visit) -> Reply:
    text = "There is no such study: the link is not complete, or not one of this server. Please look at it again."
    return html_page(visit.request, 404, "Not found", text)


async def _ignore(socket: Socket) -> None:
    """Take what a page says that has nothing to say."""
    while True:
        await socket.receive()


def _text(said: dict[str, Any], name: str) -> str:
    value = said.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidArgumentError(f"{name}: expected a text")
    return value
