"""The pages of a server: what a browser asks for, and whose seat or lobby it is by its token.

A link is `/~TOKEN/play/`. Its token has the role *seat*, for one actor of one trial. That of a lobby is such a token,
too, with `lobby:NAME` in place of a trial: it is for no actor of any trial that a server starts.
"""

from __future__ import annotations

import base64
import html
import json
import re
from functools import cache, partial
from importlib.resources import files

from trio_cogment.access import EXACTLY, PAGES, Grant, Identity, Role, Sources
from trio_cogment.base.errors import NotFoundError, PermissionDeniedError
from trio_cogment.play.server import PlayServer
from trio_cogment.web import PageAccess
from trio_cogment.web.assets import Assets
from trio_cogment.web.page_access import LEAVE
from trio_cogment.web.replies import Reply, html_page, script_page
from trio_cogment.web.routing import AnyRoute, Route, Socket, SocketRoute, Visit

#: Who may have the pages.
_RIGHT = f"{PAGES}play"
#: What a page of one's own may do: draw. It reaches no server, and nothing of the page around it.
_RENDERER_POLICY = (
    b"default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data: blob:; "
    b"media-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'; "
    b"sandbox allow-scripts allow-forms"  # whose `submit` scripts take; nothing is sent
)
#: Begins what stands for a lobby where a trial is expected.
_LOBBY = "lobby:"
_WAITS = "waits"


def play_routes(server: PlayServer, access: PageAccess) -> list[AnyRoute]:
    """Return the routes; see `web.routing`.

    Args:
        server: has the seats and lobbies; its links are made from now on.
        access: makes the tokens of links.
    """
    server.link_of = partial(seat_link, access, server.config.link_seconds)
    pages = _Pages(server, access)
    return [
        Route("GET", "/play/", pages.page, right=_RIGHT),
        Route("GET", "/play/renderer", pages.renderer, right=_RIGHT),
        SocketRoute("/play/socket", pages.socket, right=_RIGHT),
        *Assets("trio_cogment.play").routes("/play/assets"),
    ]


def seat_link(access: PageAccess, seconds: float, trial_id: str, actor: str, sources: Sources = ()) -> str:
    """Return the link of a seat: a path.

    Args:
        access: makes its token.
        seconds: how long it counts.
        trial_id: of the trial.
        actor: the actor's name.
        sources: the link counts as long as these do; empty: it is the server's own.
    """
    grant = Grant(
        name=f"seat {actor}"[:64] if actor.isprintable() and "#" not in actor else "seat",
        roles=frozenset([Role.SEAT]),
        trials=(f"{EXACTLY}{trial_id}",),
        actors=(f"{EXACTLY}{actor}",),
    )
    return f"/~{access.mint(grant, seconds, sources)}/play/"


def lobby_link(access: PageAccess, seconds: float, name: str, sources: Sources = ()) -> str:
    """Return the link of a game's lobby; the arguments are those of `seat_link`."""
    return seat_link(access, seconds, f"{_LOBBY}{name}", _WAITS, sources)


class _Pages:
    def __init__(self, server: PlayServer, access: PageAccess) -> None:
        self._server = server
        self._access = access

    async def page(self, visit: Visit) -> Reply:
        """Return the page of a seat or a lobby; or, to an administrator, the links that can be given away."""
        if _place(visit.who) is None:
            return self._overview(visit)
        return script_page(visit.request, "Play", "/play/assets/play.js", "/play/assets/play.css")

    def _overview(self, visit: Visit) -> Reply:
        if not visit.who.admin:
            raise PermissionDeniedError("expected the link of a seat, or of a lobby")
        access, server, sources = self._access, self._server, visit.who.derives
        seconds = server.config.link_seconds
        lobbies = [(game.title or game.name, lobby_link(access, seconds, game.name, sources)) for game in server.games]
        seats = [
            (f"{seat.actor}, {seat.trial_id}", seat_link(access, seconds, seat.trial_id, seat.actor, sources))
            for seat in server.seats
        ]
        content = "".join(
            f"<h2>{title}</h2>\n<ul>{''.join(_item(visit, *link) for link in links)}</ul>\n"
            for title, links in (("Lobbies", lobbies), ("Seats", seats))
            if links
        )
        text = "Each of these links is for the people who are to play. Whoever has one can take part."
        content += f'<p><a href="{html.escape(visit.request.outside(LEAVE))}">Leave</a></p>\n'
        return html_page(visit.request, 200, "Play", text if lobbies or seats else "There is no game.", content=content)

    async def renderer(self, visit: Visit) -> Reply:
        """Return the project's own page that shows observations, for a frame in which it can do no harm."""
        place = _place(visit.who)
        body = b"" if place is None else self._server.renderer(place[0])
        if not body:
            raise NotFoundError("there is no renderer")
        headers = ((b"content-security-policy", _RENDERER_POLICY), (b"x-frame-options", b"SAMEORIGIN"))
        return Reply(200, with_module(body), b"text/html; charset=utf-8", headers)

    async def socket(self, visit: Visit, socket: Socket) -> None:
        """Serve the page of a seat or a lobby."""
        place = _place(visit.who)
        if place is None:
            raise PermissionDeniedError("expected the link of a seat, or of a lobby")
        trial_id, actor = place
        if trial_id.startswith(_LOBBY):
            await self._server.lobby(trial_id.removeprefix(_LOBBY)).serve_page(socket, visit.who.derives)
        else:
            await (await self._server.seat_in_time(trial_id, actor)).serve_page(socket)


_DOCTYPE = re.compile(rb"\s*<!doctype[^>]*>", re.IGNORECASE)


def with_module(page: bytes) -> bytes:
    """Return a page of one's own in which scripts can import `trio-cogment`: `assets/own_page.js`.

    The frame may make no request, so the module is in the page: in an import map, as a `data:` address.
    """
    doctype = _DOCTYPE.match(page)
    at = 0 if doctype is None else doctype.end()  # before it would be the mode of pages of long ago
    return page[:at] + _import_map() + page[at:]


@cache
def _import_map() -> bytes:
    module = (files("trio_cogment.play") / "assets" / "own_page.js").read_bytes()
    address = f"data:text/javascript;base64,{base64.b64encode(module).decode()}"
    found = json.dumps({"imports": {"trio-cogment": address}})
    return f'<script type="importmap">{found}</script>'.encode()


def _place(who: Identity) -> tuple[str, str] | None:
    """Return the trial and the actor of somebody's seat; None: there is none."""
    if Role.SEAT not in who.grant.roles:
        return None
    [trial_id], [actor] = who.grant.trials, who.grant.actors
    return trial_id.removeprefix(EXACTLY), actor.removeprefix(EXACTLY)


def _item(visit: Visit, text: str, path: str) -> str:
    return f'<li><a href="{html.escape(visit.request.outside(path))}">{html.escape(text)}</a></li>\n'
