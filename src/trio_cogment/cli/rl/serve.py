"""`trio-cogment rl serve ENVIRONMENT`: an environment of the field as the environment of trials."""

from __future__ import annotations

import functools
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import click

from trio_cogment.base.errors import needing
from trio_cogment.cli.rl.targets import environment_options, failures, target_of
from trio_cogment.cli.services.directory_flags import directory_options
from trio_cogment.cli.services.run import run_server
from trio_cogment.cli.services.settings import ServerSettings, common_settings, service_options
from trio_cogment.cli.services.start import Application, Resources, Running

_COMMAND = "rl serve"
_SERVICE = "PARTICIPANTS"
_DEFAULT_PORT = 9001
#: When after a signal the process ends, even if an environment's step on Trio's thread does not.
_GIVE_UP_SECONDS = 5.0


@click.command("serve")
@click.argument("environment", required=False, metavar="[ENVIRONMENT]")
@environment_options
@click.option(
    "--implementation", default="default", show_default=True, help="Name by which trials ask for this environment."
)
@service_options(_SERVICE, port=_DEFAULT_PORT)
@directory_options(_SERVICE)
@click.pass_context
def serve(
    ctx: click.Context,
    /,
    environment: str | None,
    argument: tuple[tuple[str, Any], ...],
    hosting: str,
    implementation: str,
    port: int,
    **_options: Any,
) -> None:
    """Serve an environment of Gymnasium, PettingZoo or dm_env to trials.

    ENVIRONMENT is an id of Gymnasium (CartPole-v1), an id or name of PettingZoo (classic/rps-v2, rps_v2), or
    MODULE:FUNCTION, a function that makes one; the module is looked up in the current folder first. Without it, trials
    name an environment by its id.
    """
    settings = ServerSettings(**common_settings(ctx))
    application = Application(
        name="environment",
        ports=[port],
        # Elsewhere than in this thread it may not be possible to make it here.
        check=functools.partial(_check, environment, dict(argument)) if hosting == "inline" else None,
        open=functools.partial(_opened, environment, dict(argument), hosting, implementation),
        give_up_seconds=_GIVE_UP_SECONDS if hosting != "process" else math.inf,
    )
    run_server(settings, application)


def _check(name: str | None, arguments: dict[str, Any]) -> None:
    """Make the environment once, so that what is wrong with it is said before the server is announced."""
    if name is None:
        return
    with failures(_COMMAND), needing("gym"):
        from trio_cogment.environments.making import Recipe

        Recipe(target_of(name, _COMMAND), arguments).make().close()


@asynccontextmanager
async def _opened(
    name: str | None, arguments: dict[str, Any], hosting: Any, implementation: str, _resources: Resources
) -> AsyncIterator[Running]:
    from trio_cogment.base.services import SERVICES, ServiceKind
    from trio_cogment.environments.serving import environment
    from trio_cogment.rl import RL_SPEC
    from trio_cogment.sdk import Participants

    served = environment(target_of(name, _COMMAND), hosting=hosting, arguments=arguments)
    participants = Participants(RL_SPEC)
    participants.register_environment(served, implementation)
    own = SERVICES[ServiceKind.ENVIRONMENT].descriptor().full_name
    services = [service for service in participants.services() if service.name == own]
    try:
        if name is not None and hosting != "inline":
            with failures(_COMMAND):
                await served.prepare()
        yield Running(services=[services], offers=participants.offers)
    finally:
        await served.aclose()
