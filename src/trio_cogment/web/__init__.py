"""The browser's side of a server's port: HTTP/1.1, gRPC-Web, gRPC over WebSockets, and who may use them."""

from trio_cogment.config import WebConfig
from trio_cogment.web.origins import OriginPolicy, PublicAddress
from trio_cogment.web.page_access import PageAccess
from trio_cogment.web.replies import Reply, Streamed, html_page, json_data, redirect
from trio_cogment.web.routing import Route, SocketRoute, Visit
from trio_cogment.web.side import WebSide

__all__ = [
    "OriginPolicy",
    "PageAccess",
    "PublicAddress",
    "Reply",
    "Route",
    "SocketRoute",
    "Streamed",
    "Visit",
    "WebConfig",
    "WebSide",
    "html_page",
    "json_data",
    "redirect",
]
