"""`trio-cogment services dm_env_rpc`: its flags, and what it serves.

The profile of a gateway is here for `serve` too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trio_cogment.base.errors import CogmentError
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.services.gateway import (
    GatewaySettings,
    gateway_options,
    gateway_settings,
    profile_option,
    run_gateway,
)

if TYPE_CHECKING:
    from trio_cogment.gateways.dm_env_rpc import DmEnvRpcGateway, Profile

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

_SERVICE = "DM_ENV_RPC"
_DEFAULT_PORT = 9010


# Flags


def gateway_option(command: _Decorated) -> _Decorated:
    """Add the profile with which `serve` has a gateway."""
    text = "Let clients of dm_env_rpc take part in trials, by this profile: a project file, or a file of its own."
    return profile_option("--dm_env_rpc", _SERVICE, text=text, default=None)(command)


@click.command("dm_env_rpc")
@gateway_options(
    _SERVICE,
    port=_DEFAULT_PORT,
    text="The worlds that clients can create: a project file, or a file of its own.",
    more=("dm_env_rpc.max_worlds", "dm_env_rpc.max_connections"),
)
@click.pass_context
def dm_env_rpc(ctx: click.Context, /, **_options: Any) -> None:
    """Run a gateway in front of an orchestrator: clients of dm_env_rpc take parts in its trials.

    The profile says which trials there are, and which parts: the actors whose endpoint is cogment://client. It is the
    section dm_env_rpc of a cogment.yaml, or of a file of its own; the trial_params of the file are enough.
    """
    run_dm_env_rpc(gateway_settings(ctx))


# What is served


def run_dm_env_rpc(settings: GatewaySettings) -> None:
    """Run a gateway: see `run_gateway`."""

    def make(profile: Profile) -> DmEnvRpcGateway:
        from trio_cogment.gateways.dm_env_rpc import DmEnvRpcGateway

        return DmEnvRpcGateway(profile, config=settings.configuration.dm_env_rpc)

    run_gateway("dm_env_rpc", settings, partial(read_profile, "--profile", settings.profile), make)


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
