"""The pages of an experiment: the participants', by a link with the experiment's key.

The key stands for a token: it is in the experiment's file, so the link that people have got counts after the server
was started again. Whoever has the key can take part, and nothing else. The seats of trials have tokens of their own.
"""

from __future__ import annotations

import hmac

from trio_cogment.base.errors import NotFoundError
from trio_cogment.experiment.server import ExperimentServer
from trio_cogment.web.assets import Assets
from trio_cogment.web.replies import Reply
from trio_cogment.web.routing import AnyRoute, Route, Socket, SocketRoute, Visit


def experiment_routes(server: ExperimentServer) -> list[AnyRoute]:
    """Return the routes; see `web.routing`. They go with those of `play_routes`, which have the seats.

    Args:
        server: of the experiment.
    """
    pages = _Pages(server)
    return [
        *Assets("trio_cogment.experiment").routes("/experiment/assets"),
        Route("GET", "/experiment/{key}/", pages.page, right=None),
        SocketRoute("/experiment/{key}/socket", pages.socket, right=None),
    ]


class _Pages:
    def __init__(self, server: ExperimentServer) -> None:
        self._server = server
        self._assets = Assets("trio_cogment.experiment")

    def _check_key(self, visit: Visit) -> None:
        key = visit.parameters["key"]
        if not hmac.compare_digest(key.encode("utf-8", "replace"), self._server.key.encode()):
            raise NotFoundError("there is no such experiment: this link is not complete, or not of this server")

    async def page(self, visit: Visit) -> Reply:
        """Return the page of a participant."""
        self._check_key(visit)
        return self._assets.reply(visit.request, "experiment.html")

    async def socket(self, visit: Visit, socket: Socket) -> None:
        """Serve it."""
        self._check_key(visit)
        await self._server.serve_page(socket)
