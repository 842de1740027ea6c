"""`trio-cogment rl openenv ENVIRONMENT`: seats of an environment's trials as OpenEnv environments."""

from __future__ import annotations

import functools
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click

from trio_cogment.base.errors import needing
from trio_cogment.base.records import record
from trio_cogment.cli.configuration import Configuration, setting_options
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import PairType
from trio_cogment.cli.rl.targets import environment_options, failures, target_of
from trio_cogment.cli.services.kept import where_at
from trio_cogment.cli.services.run import run_server
from trio_cogment.cli.services.settings import THIS_MACHINE, ServerSettings, common_settings, service_options
from trio_cogment.cli.services.start import Application, Resources, Running
from trio_cogment.cli.services.web_flags import entrance, origin_options, origin_settings

if TYPE_CHECKING:
    from trio_cogment.rl import Seat

_COMMAND = "rl openenv"
_SERVICE = "OPENENV"
_DEFAULT_PORT = 8000
#: When after a signal the process ends, even if an environment's step on Trio's thread does not.
_GIVE_UP_SECONDS = 5.0


class _Seat(PairType):
    """`NAME=WHO`."""

    name = "seat"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Return the name of the agent, and who is there."""
        if isinstance(value, tuple):
            return value
        agent, _, who = value.partition("=")
        if not agent or not who:
            self.fail(f"expected NAME=WHO, got {value!r}", param, ctx)
        return agent, who


@click.command("openenv")
@click.argument("environment", metavar="ENVIRONMENT")
@environment_options
@click.option(
    "--seat",
    type=_Seat(),
    multiple=True,
    metavar="NAME=WHO",
    help="Who takes an agent's seat where no socket is: random, MODULE:FUNCTION, or grpc://host:port. Repeatable.",
)
@click.option(
    "--store",
    default=None,
    metavar="ADDRESS",
    help="Store the trials: memory:, or sqlite:FILE. The default is not to store them.",
)
@setting_options("openenv.max_sockets", "openenv.max_peer_sockets")
@origin_options
@service_options(_SERVICE, port=_DEFAULT_PORT, host=THIS_MACHINE)
@click.pass_context
def openenv(
    ctx: click.Context,
    /,
    environment: str,
    argument: tuple[tuple[str, Any], ...],
    hosting: Any,
    seat: tuple[tuple[str, str], ...],
    store: str | None,
    port: int,
    **_options: Any,
) -> None:
    """Serve the seats of an environment's trials as OpenEnv environments, on /ws and OpenEnv's HTTP routes.

    ENVIRONMENT is an id of Gymnasium (CartPole-v1), an id or name of PettingZoo (classic/rps-v2, rps_v2), or
    MODULE:FUNCTION, a function that makes one; the module is looked up in the current folder first.
    """
    common = {**common_settings(ctx), "web": origin_settings(ctx)}
    common["configuration"] = _limited(common["configuration"])
    settings = ServerSettings(**common)
    address = entrance(origin_settings(ctx), settings.hosts, 0, tls=settings.tls is not None).removesuffix("0")
    given = _Given(environment, dict(argument), hosting, seat, store)
    application = Application(
        name="openenv",
        ready=f"openenv  {address}{{port}}",
        ports=[port],
        check=functools.partial(_check, given),
        open=functools.partial(_opened, given, settings),
        give_up_seconds=_GIVE_UP_SECONDS if hosting != "process" else math.inf,
    )
    run_server(settings, application)


@record()
class _Given:
    """What the flags say about the trials."""

    environment: str
    arguments: dict[str, Any]
    hosting: Any
    seats: tuple[tuple[str, str], ...]
    store: str | None


def _limited(configuration: Configuration) -> Configuration:
    """Return the configuration in which the limits of OpenEnv are those of the port, too."""
    own = configuration.openenv
    limited = configuration.overridden(
        "web", body_timeout_seconds=own.send_seconds, write_stall_timeout_seconds=own.send_seconds
    )
    return limited.overridden("rpc", drain_grace_seconds=own.shutdown_seconds)


def _check(given: _Given) -> None:
    """Find everything that is named before the server is announced, and make the environment if it runs here."""
    with failures(_COMMAND), needing("openenv"):
        import trio_cogment.gateways.openenv.server  # noqa: F401  it needs the extra
        from trio_cogment.environments.making import Recipe

        target = target_of(given.environment, _COMMAND)
        if given.hosting == "inline":
            Recipe(target, given.arguments).make().close()
        for _, who in given.seats:
            _seat(who)


def _seat(who: str) -> Seat:
    from trio_cogment.rl import endpoint, policy, random

    if who == "random":
        return random()
    if "://" in who:
        return endpoint(who)
    found = target_of(who, _COMMAND)
    if not callable(found):
        raise Failure(f"{_COMMAND}: --seat: expected random, MODULE:FUNCTION or grpc://host:port, got {who!r}")
    return policy(found)


@asynccontextmanager
async def _opened(given: _Given, settings: ServerSettings, resources: Resources) -> AsyncIterator[Running]:
    from trio_cogment.base.config import PlatformConfig
    from trio_cogment.gateways.openenv.server import opened_application, opened_game
    from trio_cogment.platform import open_platform
    from trio_cogment.rl import RL_SPEC

    configuration = settings.configuration
    config = PlatformConfig(
        orchestrator=configuration.orchestrator,
        rpc=configuration.rpc,
        datastore=configuration.datastore,
        client_tls=resources.client_tls,
    )
    with failures(_COMMAND):
        async with (
            open_platform(RL_SPEC, store=given.store, config=config) as platform,
            opened_game(
                target_of(given.environment, _COMMAND),
                platform,
                arguments=given.arguments,
                hosting=given.hosting,
                seats={agent: _seat(who) for agent, who in given.seats},
                config=configuration.openenv,
            ) as game,
            opened_application(
                game, platform, configuration.openenv, asked=resources.access.control is not None
            ) as application,
        ):
            yield Running(
                services=[()],
                routes=lambda _access: application.routes(),
                entrance=False,
                stop=platform.stop,
                kept={
                    "trials": where_at(given.store) if given.store else "not stored (--store=sqlite:FILE stores them)"
                },
            )
