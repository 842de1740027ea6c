"""The web proxy: trials started and played by HTTP and JSON, as with the reference's; see `docs/web-proxy.md`."""

from trio_cogment.gateways.rest.proxy import RestProxy
from trio_cogment.gateways.rest.routes import rest_routes

__all__ = [
    "RestProxy",
    "rest_routes",
]
