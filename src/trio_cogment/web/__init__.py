"""The browser's side of a server's port: HTTP/1.1, gRPC-Web, gRPC over WebSockets, and who may use them.

A browser cannot speak gRPC, and people should not have to run a proxy. So the port that serves gRPC looks at the first
bytes of a connection and hands everything that is not HTTP/2 to this side, if the server has one. Calls that come here
become calls in process (`rpc.relay`), with the peer and the identity of their connection: handlers see no difference,
and limits, rights and metrics hold without a second implementation.

Protocols are parsed without I/O (`http1`, `websockets`, `frames`), and `connection` is the Trio shell around them. What
is not a call is a page's request: a package that has pages gives `routing` its routes, and this package sees to
methods, bodies, origins and rights.

A browser is a special kind of client: it acts for whatever page it shows, and sends cookies by itself. So who may use a
port from which page is one rule (`origins`), a page needs a token also where calls do not, and that token is in a
cookie that scripts cannot read (`page_access`).

The names below are resolved when they are first used: a server without browsers imports little of it.
"""

from typing import TYPE_CHECKING

from trio_cogment.base.config import WebConfig as WebConfig
from trio_cogment.base.lazy_names import lazy_names as _lazy_names

if TYPE_CHECKING:
    from trio_cogment.web.origins import OriginPolicy as OriginPolicy
    from trio_cogment.web.origins import PublicAddress as PublicAddress
    from trio_cogment.web.page_access import PageAccess as PageAccess
    from trio_cogment.web.replies import Reply as Reply
    from trio_cogment.web.replies import Streamed as Streamed
    from trio_cogment.web.replies import html_page as html_page
    from trio_cogment.web.replies import json_data as json_data
    from trio_cogment.web.replies import redirect as redirect
    from trio_cogment.web.routing import Route as Route
    from trio_cogment.web.routing import SocketRoute as SocketRoute
    from trio_cogment.web.routing import Visit as Visit
    from trio_cogment.web.side import WebSide as WebSide

_HOMES = {
    "OriginPolicy": "origins",
    "PageAccess": "page_access",
    "PublicAddress": "origins",
    "Reply": "replies",
    "Route": "routing",
    "SocketRoute": "routing",
    "Streamed": "replies",
    "Visit": "routing",
    "WebSide": "side",
    "html_page": "replies",
    "json_data": "replies",
    "redirect": "replies",
}

__getattr__, __dir__ = _lazy_names(__name__, globals(), _HOMES)
__all__ = sorted([*_HOMES, "WebConfig"])  # noqa: PLE0605  the names are texts
