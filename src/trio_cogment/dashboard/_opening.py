"""Opening a dashboard: little, so that a server starts quickly; the rest is imported when the first browser comes."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from trio_cogment.base.host import Host
from trio_cogment.dashboard._log import LogRing
from trio_cogment.rpc import InProcessChannel, RpcConfig
from trio_cogment.rpc.inprocess import UNLIMITED_BYTES

if TYPE_CHECKING:
    from trio_cogment.dashboard._elsewhere import Find, Mint
    from trio_cogment.dashboard._server_pages import Measured
    from trio_cogment.platform import Platform
    from trio_cogment.sdk.spec import Spec
    from trio_cogment.servers.discovery import DirectoryClient
    from trio_cogment.web.routing import AnyRoute


@asynccontextmanager
async def open_dashboard(
    platform: Platform,
    *,
    types: Spec | None = None,
    directory: DirectoryClient | None = None,
    metrics: Measured | None = None,
    find: Find | None = None,
    mint: Mint | None = None,
    pages: Mapping[str, str] | None = None,
    host: Host | None = None,
) -> AsyncIterator[Callable[[], list[AnyRoute]]]:
    """Have a dashboard for the time of the block, within that of the platform.

    What it gives returns the routes of its pages; it may be called in another thread.

    Args:
        platform: what is shown.
        types: the types of payloads; without them they are shown as bytes.
        directory: a directory, whose registrations are shown.
        metrics: a registry of prometheus_client, which is shown.
        find: finds a datastore or a model registry elsewhere, where the platform has none: given its kind, it returns
            what calls it.
        mint: returns a token of the visitor for these, given its grant, the seconds for which it
            counts, and what it is derived from; empty, or
            without this, only visitors who may see everything see what they have.
        pages: other pages of this server for those who see everything: their paths, by what links to them say.
        host: the clock.
    """
    log = LogRing()
    root = logging.getLogger()
    began = trio.current_time()

    def routes() -> list[AnyRoute]:
        from trio_cogment.dashboard._dashboard import Dashboard
        from trio_cogment.dashboard._elsewhere import VisitorCalls

        here = frozenset(service.name for service in platform.services)
        made = Dashboard(
            platform,
            VisitorCalls(channel, here, find, mint or (lambda _grant, _seconds, _sources: "")),
            log,
            types=types,
            directory=directory,
            metrics=metrics,
            pages=pages or {},
            host=host or Host(),
            began=began,
        )
        return made.routes()

    # Whoever is in the process may read what is stored, whatever its size.
    config = RpcConfig(max_receive_message_bytes=UNLIMITED_BYTES)
    async with InProcessChannel(platform.services, config=config) as channel:
        root.addHandler(log)
        try:
            yield routes
        finally:
            root.removeHandler(log)
