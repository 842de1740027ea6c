"""`trio-cogment rl openenv ENVIRONMENT`: seats of an environment's trials as OpenEnv environments."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

from trio_cogment.cli.config_option import config_option
from trio_cogment.cli.configuration import Configuration, configuration_of
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.log_setup import set_up_logging
from trio_cogment.cli.logs import log_options, log_settings
from trio_cogment.cli.options import PairType, port_option
from trio_cogment.cli.rl.targets import environment_options, failures, target_of

if TYPE_CHECKING:
    from trio_cogment.rl import Seat

_DEFAULT_PORT = 8000
_COMMAND = "rl openenv"


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
@click.option("--store", default=None, metavar="ADDRESS", help="Keep the trials: memory:, or sqlite:FILE.")
@config_option
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen at; there is no access control."
)
@port_option("--port", default=_DEFAULT_PORT, text="TCP port; 0: any free one.")
@click.option(
    "--max_sockets", type=click.IntRange(min=1), default=None, help="How many may be open; the default is 64."
)
@log_options
@click.pass_context
def openenv(
    ctx: click.Context,
    /,
    environment: str,
    argument: tuple[tuple[str, Any], ...],
    hosting: Any,
    seat: tuple[tuple[str, str], ...],
    store: str | None,
    host: str,
    port: int,
    max_sockets: int | None,
    **_options: Any,
) -> None:
    """Serve the seats of an environment's trials as OpenEnv environments, on /ws and OpenEnv's HTTP routes.

    ENVIRONMENT is an id of Gymnasium (CartPole-v1), an id or name of PettingZoo (classic/rps-v2, rps_v2), or
    MODULE:FUNCTION, a function that makes one; the module is looked up in the current folder first.
    """
    set_up_logging(log_settings(ctx))
    configuration = configuration_of(ctx).overridden("openenv", max_sockets=max_sockets)
    import trio

    with failures(_COMMAND):
        from trio_cogment.rl import serve_openenv

        run = functools.partial(
            serve_openenv,
            target_of(environment, _COMMAND),
            arguments=dict(argument),
            hosting=hosting,
            seats={agent: _seat(who) for agent, who in seat},
            host=host,
            port=port,
            config=configuration.openenv,
        )
        try:
            trio.run(_serve, run, configuration, store, environment)
        except OSError as error:
            raise Failure(f"{_COMMAND}: cannot listen on {host}:{port}: {error.strerror or error}") from error


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


async def _serve(run: Any, configuration: Configuration, store: str | None, environment: str) -> None:
    """Serve until SIGTERM or SIGINT."""
    import signal

    import trio

    from trio_cogment.config import PlatformConfig
    from trio_cogment.platform import open_platform
    from trio_cogment.rl import RL_SPEC
    from trio_cogment.rpc import OwnNursery

    config = PlatformConfig(
        orchestrator=configuration.orchestrator, rpc=configuration.rpc, datastore=configuration.datastore
    )
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with open_platform(RL_SPEC, store=store, config=config) as platform, OwnNursery() as nursery:
            server = await nursery.start(functools.partial(run, platform=platform))
            click.echo(f"openenv listening on {server.url} ({environment})")
            await anext(signals)
            nursery.cancel_scope.cancel()
