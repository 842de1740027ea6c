"""`trio-cogment rl openenv ENVIRONMENT`: seats of an environment's trials as OpenEnv environments."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

from trio_cogment.cli.errors import Failure
from trio_cogment.cli.rl.targets import environment_options, target_of
from trio_cogment.errors import CogmentError

if TYPE_CHECKING:
    from trio_cogment.rl import Seat

_DEFAULT_PORT = 8000
_COMMAND = "rl openenv"


class _Seat(click.ParamType[tuple[str, str]]):
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
    "seats",
    type=_Seat(),
    multiple=True,
    metavar="NAME=WHO",
    help="Who takes an agent's seat where no socket is: random, MODULE:FUNCTION, or grpc://host:port. Repeatable.",
)
@click.option("--store", default=None, metavar="ADDRESS", help="Keep the trials: memory:, or sqlite:FILE.")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen at; there is no access control."
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=_DEFAULT_PORT, show_default=True, help="0: any free one."
)
@click.option("--max-sockets", type=click.IntRange(min=1), default=None, help="How many may be open.  [default: 64]")
def openenv(
    environment: str,
    arguments: tuple[tuple[str, Any], ...],
    hosting: Any,
    seats: tuple[tuple[str, str], ...],
    store: str | None,
    host: str,
    port: int,
    max_sockets: int | None,
) -> None:
    """Serve the seats of an environment's trials as OpenEnv environments, on /ws and OpenEnv's HTTP routes.

    ENVIRONMENT is an id of Gymnasium (CartPole-v1), an id or name of PettingZoo (classic/rps-v2, rps_v2), or
    MODULE:FUNCTION, a function that makes one; the module is looked up in the current folder first.
    """
    import trio

    from trio_cogment.config import OpenEnvConfig
    from trio_cogment.rl import serve_openenv

    try:
        run = functools.partial(
            serve_openenv,
            target_of(environment, _COMMAND),
            arguments=dict(arguments),
            hosting=hosting,
            seats={agent: _seat(who) for agent, who in seats},
            store=store,
            host=host,
            port=port,
            config=OpenEnvConfig() if max_sockets is None else OpenEnvConfig(max_sockets=max_sockets),
        )
        trio.run(_serve, run, environment)
    except CogmentError as error:
        raise Failure(f"{_COMMAND}: {error}") from error


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


async def _serve(run: Any, environment: str) -> None:
    """Serve until SIGTERM or SIGINT."""
    import signal

    import trio

    from trio_cogment.rpc import OwnNursery

    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with OwnNursery() as nursery:
            server = await nursery.start(run)
            click.echo(f"openenv listening on {server.url} ({environment})")
            await anext(signals)
            nursery.cancel_scope.cancel()
