"""A server's access to an orchestrator in another process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from trio_cogment.cli.services.settings import ServerSettings
from trio_cogment.cli.services.start import Resources

if TYPE_CHECKING:
    from trio_cogment.sdk import Client
    from trio_cogment.sdk.spec import Spec


@asynccontextmanager
async def client_of(
    endpoint: str, settings: ServerSettings, resources: Resources, *, spec: Spec | None = None
) -> AsyncIterator[Client]:
    """Give a client of the services that are with an orchestrator, or in the server's directory.

    Args:
        endpoint: of the orchestrator.
        settings: of the server.
        resources: of the server.
        spec: the types of payloads; without them they are bytes.
    """
    from trio_cogment.access import Role
    from trio_cogment.sdk import connect

    async with connect(
        endpoint,
        spec=spec,
        directory=resources.directory or "",
        # Who asks about a participant's trial is not its owner.
        access_token=resources.access.token_for(Role.OPERATOR, Role.OBSERVER),
        tls=resources.client_tls,
        config=settings.configuration.rpc,
        variables={},
    ) as client:
        yield client
