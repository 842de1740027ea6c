"""The pages of a server that has a platform: what is there for browsers besides calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from trio_cogment.cli.services.settings import ServerSettings
from trio_cogment.cli.services.start import Resources

if TYPE_CHECKING:
    from trio_cogment.platform import Platform
    from trio_cogment.spec import Spec
    from trio_cogment.web import PageAccess
    from trio_cogment.web.routing import AnyRoute

Routes = Callable[["PageAccess"], Iterable["AnyRoute"]]


@asynccontextmanager
async def opened_pages(
    settings: ServerSettings, resources: Resources, platform: Platform, types: Spec | None
) -> AsyncIterator[Routes | None]:
    """Have the pages for the time of the block; None: the server has no browsers.

    Args:
        settings: of the server.
        resources: of the process.
        platform: what is shown.
        types: of payloads.
    """
    if settings.web is None or not settings.web.enabled:
        yield None
        return
    from trio_cogment.dashboard import open_dashboard

    async with open_dashboard(
        platform, types=types, directory=resources.directory, metrics=resources.registry
    ) as dashboard_routes:

        def routes(_access: PageAccess) -> Iterable[AnyRoute]:
            return dashboard_routes()

        yield routes
