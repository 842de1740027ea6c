"""`trio-cogment status`: its flags. What it does is in `_status_command`."""

from __future__ import annotations

from typing import Any

import click

from trio_cogment.cli._client import client_options, client_settings
from trio_cogment.cli._client_directory import type_option, where_options


@click.command()
@click.argument("names", nargs=-1, metavar="[NAMES]...")
@type_option("What the service is; without it all types are tried, or shown.")
@click.option(
    "--endpoint",
    default="cogment://discover",
    show_default=True,
    metavar="ENDPOINT",
    help="Whom to ask: grpc://host:port, or cogment://discover... for those that the directory knows.",
)
@where_options
@click.option(
    "-v",
    "--verbose",
    count=True,
    help="Say more about each service: -v where it is, -vv what it is, -vvv whether permanently, -vvvv its properties.",
)
@client_options
@click.pass_context
def status(ctx: click.Context, /, names: tuple[str, ...], verbose: int, endpoint: str, kind: str, **_: Any) -> None:
    """Ask services for their statuses: those of these names; '*' is all of them, no name is none."""
    from trio_cogment.cli._status_command import show_statuses

    where, token = ctx.params["directory_endpoint"], ctx.params["directory_authentication_token"]
    show_statuses(client_settings(ctx), where, token, endpoint, kind=kind, verbose=verbose, names=names)
