"""`trio-cogment services legacy_gateway`: its flags, and what it serves.

The profile of a legacy project is here for `serve` and `services orchestrator` too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trio_cogment.base.errors import CogmentError
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import FilePath
from trio_cogment.cli.services.gateway import GatewaySettings, gateway_options, gateway_settings, run_gateway

if TYPE_CHECKING:
    from trio_cogment.gateways.legacy import LegacyGateway, LegacyProfile
    from trio_cogment.servers.discovery import Offer

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

_SERVICE = "LEGACY_GATEWAY"
_DEFAULT_PORT = 9011


def legacy_option(command: _Decorated) -> _Decorated:
    """Add the profile with which an orchestrator has participants of the legacy API."""
    return click.option(
        "--legacy",
        type=FilePath(path_type=Path),
        default=None,
        metavar="PATH",
        envvar="COGMENT_LEGACY_PROFILE",
        show_envvar=True,
        help="Let programs of the legacy API (0.3) take part in trials: those of the project with this file.",
    )(command)


@click.command("legacy_gateway")
@gateway_options(
    _SERVICE,
    port=_DEFAULT_PORT,
    text="The project of the old programs: its project file, of today or of that time.",
)
@click.pass_context
def legacy_gateway(ctx: click.Context, /, **_options: Any) -> None:
    """Run a gateway in front of an orchestrator, for clients, agents and environments of the legacy API (0.3).

    Old clients call it. Old agents and environments are called by it: in the parameters of trials their endpoint is the
    gateway's, and their implementation is legacy://host:port. Hooks and the data log are those of the profile.
    """
    run_legacy_gateway(gateway_settings(ctx))


# What is served


def run_legacy_gateway(settings: GatewaySettings) -> None:
    """Run a gateway: see `run_gateway`."""

    def make(profile: LegacyProfile) -> LegacyGateway:
        from trio_cogment.gateways.legacy import LegacyGateway

        return LegacyGateway(profile, rpc_config=settings.configuration.rpc)

    read = partial(read_legacy_profile, "--profile", settings.profile)
    run_gateway("legacy_gateway", settings, read, make, offers=_offers)


def _offers(port: int) -> list[Offer]:
    # The participants are found by nobody: each trial says which old server is meant.
    from trio_cogment.base.services import PROTOCOL, ServiceKind
    from trio_cogment.servers.discovery import Offer

    return [Offer(kind=ServiceKind.OTHER, port=port, properties={PROTOCOL: "legacy"})]


def read_legacy_profile(flag: str, path: Path) -> LegacyProfile:
    """Read the file of a flag.

    Raises:
        Failure: it cannot be read, or makes no sense.
    """
    try:
        from trio_cogment.gateways.legacy import load_profile

        return load_profile(path)
    except CogmentError as error:
        raise Failure(f"{flag}: {error}") from error
