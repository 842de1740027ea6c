"""The web side of a server: who may use it, its limits, its pages, and its connections."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING

import trio

from trio_cogment.base.config import WebConfig
from trio_cogment.rpc.relay import Accepted, RawHeaders, Served, WebRequest, WebRules
from trio_cogment.web.origins import OriginPolicy

if TYPE_CHECKING:
    from trio_cogment.web.page_access import PageAccess
    from trio_cogment.web.pages import Site
    from trio_cogment.web.routing import AnyRoute


#: Modules that are imported in a thread keep the others from running now and then.
_PREPARED_AFTER_SECONDS = 1.0


def _no_routes() -> Iterable[AnyRoute]:
    return ()


class WebSide:
    """The browser's side of one server, or of several; see `rpc.relay.ServerSide`.

    Args:
        policy: who may use it; by default what reaches it by an address or as `localhost`, if that is not a page or one
            of this machine.
        config: limits.
        routes: returns what is there for pages, besides what always is (see `common_pages`); see `routing`. It is
            called once, in a worker thread or when the first browser comes.
        access: who is behind the requests of pages; by default nobody is known, and what needs a right is closed.
    """

    def __init__(
        self,
        policy: OriginPolicy | None = None,
        *,
        config: WebConfig | None = None,
        routes: Callable[[], Iterable[AnyRoute]] = _no_routes,
        access: PageAccess | None = None,
    ) -> None:
        self.policy = policy or OriginPolicy()
        self.config = config or WebConfig()
        self._routes = routes
        self._access = access
        self._made: Site | None = None
        self._open = 0

    def connection(self, accepted: Accepted) -> Served:
        """Return a connection to be run."""
        from trio_cogment.web.connection import WebConnection

        site = self._site()  # it may fail, and then there is no connection
        self._open += 1
        return WebConnection(
            accepted,
            limits=self.config,
            policy=self.policy,
            site=site,
            overloaded=self._open > self.config.max_connections,
            on_end=self._left,
        )

    def grpc_web(self, *, secure: bool) -> WebRules:
        """Return what judges requests of gRPC-Web that come over HTTP/2; see `rpc.relay.ServerSide`."""

        def rules(path: str, authority: str, fields: RawHeaders) -> WebRequest:
            from trio_cogment.web.grpc_web_http2 import judge

            return judge(self.policy, secure, path, authority, fields)

        return rules

    async def prepare(self) -> None:
        """Import what the first connection needs, in a thread, once the first calls to a new server are answered."""
        await trio.sleep(_PREPARED_AFTER_SECONDS)
        try:
            await trio.to_thread.run_sync(self._import)
        except OSError:
            pass  # no descriptor is left for it; it is tried again with each connection

    def _import(self) -> None:
        import_module("trio_cogment.web.connection")
        import_module("trio_cogment.web.grpc_web_http2")
        self._site()

    def _site(self) -> Site:
        if self._made is None:
            from trio_cogment.web.common_pages import common_routes
            from trio_cogment.web.page_access import PageAccess
            from trio_cogment.web.pages import Site
            from trio_cogment.web.routing import Router

            access = self._access or PageAccess(session_seconds=self.config.page_session_seconds)
            routes = list(self._routes())
            given = {(route.pattern, getattr(route, "method", "")) for route in routes}
            common = [route for route in common_routes(access) if (route.pattern, route.method) not in given]
            self._made = Site(access, Router([*routes, *common]))
        return self._made

    def _left(self) -> None:
        self._open -= 1
