"""Pages of every server: what it is, the shared files, and the ways to come in and to leave (`sign_in`).

`/` says what this is. A route for `/` that is given before takes its place.
"""

from __future__ import annotations

from trio_cogment.base.about import API_VERSION, GRPC_VERSION
from trio_cogment.web.assets import Assets
from trio_cogment.web.page_access import PageAccess
from trio_cogment.web.replies import Reply, json_reply
from trio_cogment.web.routing import Route, Visit
from trio_cogment.web.sign_in import sign_in_routes


def common_routes(access: PageAccess) -> list[Route]:
    """Return the routes; see the module.

    Args:
        access: who may come in.
    """
    return [
        Route("GET", "/", about, right=None, foreign=True),
        *sign_in_routes(access),
        *Assets("trio_cogment.web").routes("/assets"),
    ]


async def about(_visit: Visit) -> Reply:
    """Answer with what this is."""
    return json_reply(200, "trio-cogment", version=API_VERSION, server=GRPC_VERSION)
