"""`trio-cogment services dm_env_rpc`: its flags, and what it serves.

The profile of a gateway is here for `serve` too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trio_cogment.base.errors import CogmentError
from trio_cogment.base.records import record
from trio_cogment.cli.configuration import setting_options
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import applied
from trio_cogment.cli.services.directory_flags import directory_options
from trio_cogment.cli.services.gateway_flags import orchestrator_of, orchestrator_option, profile_option
from trio_cogment.cli.services.kept import trials_elsewhere
from trio_cogment.cli.services.orchestrator_access import client_of
from trio_cogment.cli.services.run import run_server
from trio_cogment.cli.services.settings import ServerSettings, common_settings, service_options
from trio_cogment.cli.services.start import Application, Resources, Running

if TYPE_CHECKING:
    from trio_cogment.gateways.dm_env_rpc import Profile

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

_SERVICE = "DM_ENV_RPC"
_DEFAULT_PORT = 9010
_DEFAULT_PROFILE = Path("cogment.yaml")


# Flags


@record(kw_only=True)
class GatewaySettings(ServerSettings):
    """The settings of a gateway in front of an orchestrator."""

    port: int
    profile: Path
    orchestrator: str


def gateway_option(command: _Decorated) -> _Decorated:
    """Add the profile with which `serve` has a gateway."""
    text = "Let clients of dm_env_rpc take part in trials, by this profile: a project file, or a file of its own."
    return profile_option("--dm_env_rpc", _SERVICE, text=text, default=None)(command)


def gateway_options(command: _Decorated) -> _Decorated:
    """Add the flags of a gateway in front of an orchestrator."""
    options = (
        directory_options(_SERVICE),
        service_options(_SERVICE, port=_DEFAULT_PORT),
        setting_options("dm_env_rpc.max_worlds", "dm_env_rpc.max_connections"),
        orchestrator_option(_SERVICE),
        profile_option(
            "--profile",
            _SERVICE,
            text="The worlds that clients can create: a project file, or a file of its own.",
            default=_DEFAULT_PROFILE,
        ),
    )
    return applied(options, command)


def gateway_settings(ctx: click.Context) -> GatewaySettings:
    """Collect the settings from the flags of `gateway_options`.

    Raises:
        Failure: the flags contradict each other.
    """
    common = common_settings(ctx)
    endpoint = orchestrator_of(ctx, has_directory=common["directory"] is not None)
    return GatewaySettings(**common, port=ctx.params["port"], profile=ctx.params["profile"], orchestrator=endpoint)


@click.command("dm_env_rpc")
@gateway_options
@click.pass_context
def dm_env_rpc(ctx: click.Context, /, **_options: Any) -> None:
    """Run a gateway in front of an orchestrator: clients of dm_env_rpc take parts in its trials.

    The profile says which trials there are, and which parts: the actors whose endpoint is cogment://client. It is the
    section dm_env_rpc of a cogment.yaml, or of a file of its own; the trial_params of the file are enough.
    """
    run_gateway(gateway_settings(ctx))


# What is served


def run_gateway(settings: GatewaySettings) -> None:
    """Serve until SIGTERM or SIGINT; then answer what is being answered, end the trials, and return.

    Raises:
        Failure: it cannot start.
    """
    profile = cache(partial(read_profile, "--profile", settings.profile))
    application = Application(
        name="dm_env_rpc",
        ports=[settings.port],
        check=profile,
        open=partial(_opened, settings, profile),
    )
    run_server(settings, application)


@asynccontextmanager
async def _opened(
    settings: GatewaySettings, profile: Callable[[], Profile], resources: Resources
) -> AsyncIterator[Running]:
    from trio_cogment.gateways.dm_env_rpc import DmEnvRpcGateway

    gateway = DmEnvRpcGateway(profile(), config=settings.configuration.dm_env_rpc)
    async with (
        client_of(settings.orchestrator, settings, resources) as client,
        gateway.opened(await client.orchestrator(), access=resources.access.signing) as opened,
    ):
        kept = trials_elsewhere(settings.orchestrator)
        yield Running(services=[opened.services], stop=opened.stop, kept=kept)


def read_profile(flag: str, path: Path) -> Profile:
    """Read the file of a flag.

    Raises:
        Failure: it cannot be read, or makes no sense.
    """
    try:
        from trio_cogment.gateways.dm_env_rpc import load_profile

        return load_profile(path)
    except CogmentError as error:
        raise Failure(f"{flag}: {error}") from error
