"""`trio-cogment services legacy_gateway`: its flags, and what it serves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trio_cogment.base.records import record
from trio_cogment.cli.options import applied
from trio_cogment.cli.services.directory_flags import directory_options
from trio_cogment.cli.services.gateway_flags import orchestrator_of, orchestrator_option, profile_option
from trio_cogment.cli.services.kept import trials_elsewhere
from trio_cogment.cli.services.legacy import read_legacy_profile
from trio_cogment.cli.services.orchestrator_access import client_of
from trio_cogment.cli.services.run import run_server
from trio_cogment.cli.services.settings import ServerSettings, common_settings, service_options
from trio_cogment.cli.services.start import Application, Resources, Running

if TYPE_CHECKING:
    from trio_cogment.gateways.legacy import LegacyProfile
    from trio_cogment.servers.discovery import Offer

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

_SERVICE = "LEGACY_GATEWAY"
_DEFAULT_PORT = 9011


@record(kw_only=True)
class LegacyGatewaySettings(ServerSettings):
    """The settings of a gateway in front of an orchestrator."""

    port: int
    profile: Path
    orchestrator: str


def legacy_gateway_options(command: _Decorated) -> _Decorated:
    """Add the flags of a gateway in front of an orchestrator."""
    options = (
        directory_options(_SERVICE),
        service_options(_SERVICE, port=_DEFAULT_PORT),
        orchestrator_option(_SERVICE),
        profile_option(
            "--profile",
            _SERVICE,
            text="The project of the old programs: its project file, of today or of that time.",
            default=Path("cogment.yaml"),
        ),
    )
    return applied(options, command)


@click.command("legacy_gateway")
@legacy_gateway_options
@click.pass_context
def legacy_gateway(ctx: click.Context, /, **_options: Any) -> None:
    """Run a gateway in front of an orchestrator, for clients, agents and environments of the legacy API (0.3).

    Old clients call it. Old agents and environments are called by it: in the parameters of trials their endpoint is the
    gateway's, and their implementation is legacy://host:port. Hooks and the data log are those of the profile.
    """
    common = common_settings(ctx)
    endpoint = orchestrator_of(ctx, has_directory=common["directory"] is not None)
    settings = LegacyGatewaySettings(
        **common, port=ctx.params["port"], profile=ctx.params["profile"], orchestrator=endpoint
    )
    run_legacy_gateway(settings)


def run_legacy_gateway(settings: LegacyGatewaySettings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        Failure: it cannot start.
    """
    profile = cache(partial(read_legacy_profile, "--profile", settings.profile))
    application = Application(
        name="legacy_gateway",
        ports=[settings.port],
        check=profile,
        open=partial(_opened, settings, profile),
    )
    run_server(settings, application)


@asynccontextmanager
async def _opened(
    settings: LegacyGatewaySettings, profile: Callable[[], LegacyProfile], resources: Resources
) -> AsyncIterator[Running]:
    from trio_cogment.gateways.legacy import LegacyGateway

    gateway = LegacyGateway(profile(), rpc_config=settings.configuration.rpc)
    async with (
        client_of(settings.orchestrator, settings, resources) as client,
        gateway.opened(await client.orchestrator(), access=resources.access.signing) as opened,
    ):
        kept = trials_elsewhere(settings.orchestrator)
        yield Running(services=[opened.services], offers=_offers, stop=opened.stop, kept=kept)


def _offers(port: int) -> list[Offer]:
    # The participants are found by nobody: each trial says which old server is meant.
    from trio_cogment.base.services import PROTOCOL, ServiceKind
    from trio_cogment.servers.discovery import Offer

    return [Offer(kind=ServiceKind.OTHER, port=port, properties={PROTOCOL: "legacy"})]
