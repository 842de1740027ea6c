"""What a server has for browsers: who may use it, its limits, its pages, and its connections."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from typing import TypeAlias

import trio

from trio_cogment.about import API_VERSION, GRPC_VERSION
from trio_cogment.config import WebConfig
from trio_cogment.rpc.relay import Accepted, Served
from trio_cogment.web.origins import OriginPolicy
from trio_cogment.web.replies import Reply, json_reply, refusal
from trio_cogment.web.requests import Request

#: Answers what is asked for by GET and HEAD at a path.
Page: TypeAlias = Callable[[Request], Awaitable[Reply]]


class WebSide:
    """The browser's side of one server, or of several; see `rpc.relay.ServerSide`.

    Args:
        policy: who may use it; by default what reaches it by an address or as `localhost`, if that is no page or one of
            this machine.
        config: limits.
        pages: by their paths; `/` says what this is unless there is another page.
    """

    def __init__(
        self,
        policy: OriginPolicy | None = None,
        *,
        config: WebConfig | None = None,
        pages: Mapping[str, Page] | None = None,
    ) -> None:
        self.policy = policy or OriginPolicy()
        self.config = config or WebConfig()
        self._pages = {"/": _about, **(pages or {})}
        self._open = 0

    def connection(self, accepted: Accepted) -> Served:
        """Return a connection to be run."""
        from trio_cogment.web.connection import WebConnection

        self._open += 1
        return WebConnection(
            accepted,
            limits=self.config,
            policy=self.policy,
            page=self.page,
            overloaded=self._open > self.config.max_connections,
            on_end=self._left,
        )

    async def prepare(self) -> None:
        """Import what the first connection needs, in a thread: a server that starts has other things to do before."""
        try:
            await trio.to_thread.run_sync(import_module, "trio_cogment.web.connection")
        except OSError:
            pass  # no descriptor is left for it; it is tried again with each connection

    def _left(self) -> None:
        self._open -= 1

    async def page(self, request: Request) -> Reply:
        """Return the answer to a request that is no call."""
        page = self._pages.get(request.path)
        if page is None:
            return refusal(404)
        if request.method not in ("GET", "HEAD"):
            return Reply(405, headers=((b"allow", b"GET, HEAD"),))
        return await page(request)


async def _about(_request: Request) -> Reply:
    return json_reply(200, "trio-cogment", version=API_VERSION, server=GRPC_VERSION)
