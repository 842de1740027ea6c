"""The browser's side of a server's port: HTTP/1.1, gRPC-Web, gRPC over WebSockets, and who may use them."""

from trio_cogment.config import WebConfig as WebConfig
from trio_cogment.web.origins import OriginPolicy as OriginPolicy
from trio_cogment.web.origins import PublicAddress as PublicAddress
from trio_cogment.web.page_access import PageAccess as PageAccess
from trio_cogment.web.side import WebSide as WebSide
