"""`trio-cogment rl serve ENVIRONMENT`: an environment of the field as the environment of trials."""

from __future__ import annotations

import functools
import importlib
import json
import math
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import click

from trio_cogment.cli.errors import Failure
from trio_cogment.cli.services.directory_flags import directory_options
from trio_cogment.cli.services.run import run_server
from trio_cogment.cli.services.settings import ServerSettings, common_settings, service_options
from trio_cogment.cli.services.start import Application, Resources, Running
from trio_cogment.errors import CogmentError

_SERVICE = "PARTICIPANTS"
_DEFAULT_PORT = 9001
#: When after a signal the process ends, even if an environment's step on Trio's thread does not.
_GIVE_UP_SECONDS = 5.0
_HOSTINGS = ("inline", "thread", "process")


class _Argument(click.ParamType[tuple[str, Any]]):
    """`NAME=VALUE`; the value is JSON, or text if it is none."""

    name = "argument"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        """Return the name and the value."""
        if isinstance(value, tuple):
            return value
        name, equals, text = value.partition("=")
        if not equals or not name.isidentifier():
            self.fail(f"expected NAME=VALUE, got {value!r}", param, ctx)
        try:
            return name, json.loads(text)
        except ValueError:
            return name, text


@click.command("serve")
@click.argument("environment", required=False, metavar="[ENVIRONMENT]")
@click.option(
    "--argument",
    "arguments",
    type=_Argument(),
    multiple=True,
    metavar="NAME=VALUE",
    help="With which it is made; the value is JSON, or text. Repeatable.",
)
@click.option(
    "--hosting",
    type=click.Choice(_HOSTINGS),
    default="inline",
    show_default=True,
    help="Where it runs: on the server's own thread, on a thread or in a process for each trial.",
)
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
    arguments: tuple[tuple[str, Any], ...],
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
        services=[["EnvironmentSP"]],
        # Elsewhere than in this thread it may not be possible to make it here.
        check=functools.partial(_check, environment, dict(arguments)) if hosting == "inline" else None,
        open=functools.partial(_opened, environment, dict(arguments), hosting, implementation),
        give_up_seconds=_GIVE_UP_SECONDS if hosting != "process" else math.inf,
    )
    run_server(settings, application)


def _target(name: str | None) -> Any:
    """Return a function of a module, or the name of something else as it is."""
    if name is None or ":" not in name:
        return name
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module, _, attribute = name.partition(":")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        where = f"in {folder}, nor among the installed packages"
        raise Failure(f"rl serve: there is no module {module!r} {where}") from None
    # Otherwise it is an id of Gymnasium, which the module registers.
    return getattr(found, attribute, name)


def _check(name: str | None, arguments: dict[str, Any]) -> None:
    """Make the environment once, so that what is wrong with it is said before the server is announced."""
    if name is None:
        return
    from trio_cogment.rl.environments.making import make_environment

    try:
        make_environment(_target(name), **arguments).close()
    except CogmentError as error:
        raise Failure(f"rl serve: {error}") from error


@asynccontextmanager
async def _opened(
    name: str | None, arguments: dict[str, Any], hosting: Any, implementation: str, _resources: Resources
) -> AsyncIterator[Running]:
    from trio_cogment.rl import RL_SPEC
    from trio_cogment.rl.environments.serving import environment
    from trio_cogment.sdk import Participants
    from trio_cogment.services import SERVICES, ServiceKind

    served = environment(_target(name), hosting=hosting, arguments=arguments)
    participants = Participants(RL_SPEC)
    participants.register_environment(served, implementation)
    own = SERVICES[ServiceKind.ENVIRONMENT].descriptor().full_name
    services = [service for service in participants.services() if service.name == own]
    try:
        if name is not None and hosting != "inline":
            await served.prepare()
        yield Running(services=[services], offers=participants.offers)
    finally:
        await served.aclose()
