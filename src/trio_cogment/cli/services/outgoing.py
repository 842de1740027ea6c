"""The flags that say where a server connects when a peer has named an endpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from trio_cogment.cli.configuration import Configuration
from trio_cogment.cli.options import applied, as_list

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


def _as_networks(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[str]:
    import ipaddress

    found = as_list(ctx, param, values)
    for text in found:
        try:
            ipaddress.ip_network(text, strict=False)
        except ValueError:
            raise click.BadParameter(f"expected networks such as 10.0.0.0/8 or addresses, got {text!r}") from None
    return found


def _option(flag: str, variable: str, text: str) -> Callable[[_Decorated], _Decorated]:
    return click.option(
        flag,
        multiple=True,
        envvar=variable,
        show_envvar=True,
        callback=_as_networks,
        metavar="NETWORKS",
        help=f"{text} Separated by commas (blanks in the environment); repeatable.",
    )


def outgoing_options(command: _Decorated) -> _Decorated:
    """Add the flags."""
    options = (
        _option("--outgoing_deny", "TRIO_COGMENT_OUTGOING_DENY", "Networks where no peer's endpoint may lead."),
        _option(
            "--outgoing_allow",
            "TRIO_COGMENT_OUTGOING_ALLOW",
            "Networks where endpoints of peers on other machines may lead, besides public ones and their own address.",
        ),
    )
    return applied(options, command)


def with_outgoing(ctx: click.Context, configuration: Configuration) -> Configuration:
    """Return a configuration with the values of the flags."""
    return configuration.overridden(
        "outgoing",
        allowed_networks=tuple(ctx.params["outgoing_allow"]) or None,
        denied_networks=tuple(ctx.params["outgoing_deny"]) or None,
    )
