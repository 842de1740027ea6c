"""Servers in front of an orchestrator: their flags and their client of it, and what gateways with a profile share.

A gateway's profile is read before it is announced. What is heavy is imported by those who run it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from trio_cogment.base.endpoints import DISCOVER, DiscoverEndpoint, parse_server_endpoint
from trio_cogment.base.errors import EndpointError
from trio_cogment.base.records import record
from trio_cogment.base.services import ServiceKind, default_address
from trio_cogment.cli.configuration import setting_options
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import FilePath, applied
from trio_cogment.cli.services.directory_flags import directory_options
from trio_cogment.cli.services.kept import trials_elsewhere
from trio_cogment.cli.services.run import run_server
from trio_cogment.cli.services.settings import ServerSettings, common_settings, service_options
from trio_cogment.cli.services.start import Application, Resources, Running

if TYPE_CHECKING:
    from trio_cogment.access import AccessControl
    from trio_cogment.platform import OpenedExtension
    from trio_cogment.rpc import CallOpener
    from trio_cogment.sdk import Client
    from trio_cogment.sdk.spec import Spec
    from trio_cogment.servers.discovery import Offer

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])
_Profile = TypeVar("_Profile")

#: Ours, and that of the reference's web proxy.
ORCHESTRATOR_FLAGS = ("--orchestrator", "--orchestrator_endpoint")


def profile_option(flag: str, service: str, *, text: str, default: Path | None) -> Callable[[_Decorated], _Decorated]:
    """Return what adds the flag of a profile.

    Args:
        flag: with its dashes.
        service: the part of the environment variable's name that says which gateway it is.
        text: the help.
        default: the file.
    """
    return click.option(
        flag,
        type=FilePath(path_type=Path),
        default=default,
        metavar="PATH",
        envvar=f"COGMENT_{service}_PROFILE",
        show_default=default is not None,
        show_envvar=True,
        help=text,
    )


def orchestrator_option(
    service: str, *, flag: str = "--orchestrator", variable: str = ""
) -> Callable[[_Decorated], _Decorated]:
    """Return what adds the flag of the orchestrator; `orchestrator_of` reads it.

    Args:
        service: as of `profile_option`.
        flag: its name; it has both of `ORCHESTRATOR_FLAGS`.
        variable: its environment variable, where that does not follow from the service.
    """
    return click.option(
        flag,
        *(other for other in ORCHESTRATOR_FLAGS if other != flag),
        flag.removeprefix("--"),
        callback=_as_orchestrator,
        default=None,
        metavar="ENDPOINT",
        envvar=variable or f"COGMENT_{service}_ORCHESTRATOR",
        show_envvar=True,
        help=f"Where trials are started: grpc://host:port, or {DISCOVER}, which is the default with "
        f"--directory_endpoint; without it, the default is {default_address(ServiceKind.LIFECYCLE)}.",
    )


def _as_orchestrator(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        try:
            parse_server_endpoint(value, discovery=True, field_name="")
        except EndpointError as error:
            raise click.BadParameter(str(error)) from None
    return value


def orchestrator_of(ctx: click.Context, *, has_directory: bool, flag: str = "--orchestrator") -> str:
    """Return the endpoint of the orchestrator.

    Args:
        ctx: has the flags.
        has_directory: there is one to ask.
        flag: the name of the flag.

    Raises:
        Failure: it is to be discovered, and there is no directory.
    """
    endpoint: str = ctx.params[flag.removeprefix("--")] or (
        DISCOVER if has_directory else default_address(ServiceKind.LIFECYCLE)
    )
    found = parse_server_endpoint(endpoint, discovery=True, field_name=flag)
    if isinstance(found, DiscoverEndpoint) and not has_directory:
        raise Failure(f"{flag}: {endpoint}: discovery needs a directory (--directory_endpoint)")
    return endpoint


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


# Gateways with a profile


class Gateway(Protocol):
    """A gateway, as it is made of its profile."""

    def opened(
        self, opener: CallOpener, *, access: AccessControl | None
    ) -> AbstractAsyncContextManager[OpenedExtension]:
        """Open it in front of an orchestrator, for the time of a block."""


@record(kw_only=True)
class GatewaySettings(ServerSettings):
    """The settings of a gateway in front of an orchestrator."""

    port: int
    profile: Path
    orchestrator: str


def gateway_options(
    service: str, *, port: int, text: str, more: Sequence[str] = ()
) -> Callable[[_Decorated], _Decorated]:
    """Return a decorator that adds the flags of a gateway.

    Args:
        service: as of `profile_option`.
        port: the default.
        text: the help of `--profile`.
        more: settings that have a flag, `section.key`.
    """
    options = (
        directory_options(service),
        service_options(service, port=port),
        setting_options(*more),
        orchestrator_option(service),
        profile_option("--profile", service, text=text, default=Path("cogment.yaml")),
    )
    return lambda command: applied(options, command)


def gateway_settings(ctx: click.Context) -> GatewaySettings:
    """Collect the settings from the flags of `gateway_options`.

    Raises:
        Failure: the flags contradict each other.
    """
    common = common_settings(ctx)
    endpoint = orchestrator_of(ctx, has_directory=common["directory"] is not None)
    return GatewaySettings(**common, port=ctx.params["port"], profile=ctx.params["profile"], orchestrator=endpoint)


def run_gateway(
    name: str,
    settings: GatewaySettings,
    read: Callable[[], _Profile],
    make: Callable[[_Profile], Gateway],
    *,
    offers: Callable[[int], Sequence[Offer]] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; then answer what is being answered, end the trials, and return.

    Args:
        name: of the gateway, as it is announced.
        settings: of the flags.
        read: reads the profile.
        make: makes the gateway of it.
        offers: as of `Running`.

    Raises:
        Failure: it cannot start.
    """
    profile = cache(read)

    @asynccontextmanager
    async def opened(resources: Resources) -> AsyncIterator[Running]:
        gateway = make(profile())
        async with (
            client_of(settings.orchestrator, settings, resources) as client,
            gateway.opened(await client.orchestrator(), access=resources.access.signing) as serving,
        ):
            kept = trials_elsewhere(settings.orchestrator)
            yield Running(services=[serving.services], offers=offers, stop=serving.stop, kept=kept)

    run_server(settings, Application(name=name, ports=[settings.port], check=profile, open=opened))
