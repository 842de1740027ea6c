"""The pages of a server that has a platform: what is there for browsers besides calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from trio_cogment.cli.services.settings import ServerSettings
from trio_cogment.cli.services.start import Resources

if TYPE_CHECKING:
    from trio_cogment.base.services import ServiceKind
    from trio_cogment.cli.services.web_flags import WebSettings
    from trio_cogment.platform import Platform
    from trio_cogment.rpc import CallOpener
    from trio_cogment.sdk.spec import Spec
    from trio_cogment.web import PageAccess
    from trio_cogment.web.routing import AnyRoute

Routes = Callable[["PageAccess"], Iterable["AnyRoute"]]


@asynccontextmanager
async def opened_pages(
    settings: ServerSettings,
    resources: Resources,
    platform: Platform,
    types: Spec | None,
    pages: Mapping[str, str] | None = None,
) -> AsyncIterator[Routes | None]:
    """Have the pages for the time of the block; None: the server has no browsers.

    Args:
        settings: of the server.
        resources: of the process.
        platform: what is shown.
        types: of payloads.
        pages: see `open_dashboard`.
    """
    if settings.web is None or not settings.web.enabled:
        yield None
        return
    from trio_cogment.dashboard import open_dashboard

    tokens = resources.access.tokens
    async with (
        _elsewhere(settings.web, settings, resources) as find,
        open_dashboard(
            platform,
            types=types,
            directory=resources.directory,
            metrics=resources.registry,
            find=find,
            mint=None if tokens is None else tokens.mint,
            pages=pages,
        ) as dashboard_routes,
    ):

        def routes(_access: PageAccess) -> Iterable[AnyRoute]:
            return dashboard_routes()

        yield routes


@asynccontextmanager
async def _elsewhere(
    web: WebSettings, settings: ServerSettings, resources: Resources
) -> AsyncIterator[Callable[[ServiceKind], Awaitable[CallOpener]] | None]:
    """Give what finds the stores that the server itself does not have; None: there is no way to them."""
    if resources.directory is None and not (web.datastore or web.model_registry):
        yield None
        return
    from trio_cogment.base.services import ServiceKind
    from trio_cogment.sdk import connect

    endpoints = {ServiceKind.DATASTORE: web.datastore, ServiceKind.MODEL_REGISTRY: web.model_registry}
    async with connect(
        directory=resources.directory or "", tls=resources.client_tls, config=settings.configuration.rpc, variables={}
    ) as client:

        async def find(kind: ServiceKind) -> CallOpener:
            return await client.service(kind, endpoints[kind])

        yield find
