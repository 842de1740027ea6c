"""`trio-cogment health`: whether a server serves, for health checks of containers and supervisors."""

from __future__ import annotations

from typing import Any

import click

from trio_cogment.base.endpoints import GrpcEndpoint
from trio_cogment.base.services import ServiceKind
from trio_cogment.cli.client.common import ClientSettings, client_options, client_settings, run_client, show
from trio_cogment.cli.client.reaching import ENDPOINT_VARIABLE, default_places, reached
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import as_endpoint

[_DEFAULT] = default_places(ServiceKind.LIFECYCLE)


@click.command()
@click.option(
    "--endpoint",
    default=str(_DEFAULT),
    callback=as_endpoint,
    metavar="ENDPOINT",
    envvar=ENDPOINT_VARIABLE,
    show_default=True,
    show_envvar=True,
    help="Server to ask: grpc://host:port.",
)
@client_options
@click.pass_context
def health(ctx: click.Context, /, endpoint: GrpcEndpoint, **_options: Any) -> int:
    """Ask whether a server serves; the exit code is 0 if it does, else 1.

    Asks `grpc.health.v1.Health/Check`, which servers answer without a token, too.
    """
    settings = client_settings(ctx)
    try:
        status = run_client(_asked, settings, endpoint)
    except Failure as failure:
        if settings.output == "text":
            raise
        show(settings, "", {"endpoint": str(endpoint), "error": failure.message})
        return 1
    show(settings, f"{endpoint}: {status}", {"endpoint": str(endpoint), "status": status})
    return int(status != "SERVING")


async def _asked(settings: ClientSettings, endpoint: GrpcEndpoint) -> str:
    from trio_cogment.rpc import ask_health

    async with reached(settings, None, [endpoint]) as channel:
        return (await ask_health(channel)).name
