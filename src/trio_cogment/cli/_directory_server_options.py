"""The flags of a directory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from trio_cogment.cli._directory_options import persistence_option
from trio_cogment.cli._flags import applied, boolean_option
from trio_cogment.cli._options import common_settings, overridden, service_options
from trio_cogment.cli._settings import DirectoryServerSettings
from trio_cogment.services import SERVICES, ServiceKind

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

_SERVICE = "DIRECTORY"
_MOST_SECONDS = 10**9


def directory_server_options(command: _Decorated) -> _Decorated:
    """Add what a directory has."""
    options = (
        service_options(_SERVICE, port=SERVICES[ServiceKind.DIRECTORY].default_port),
        _rule("--force_permanent", "FORCE_PERMANENT", "Every registration is a permanent one."),
        _rule("--check_on_inquire", "CHECK_ON_INQUIRE", "Look at those who fit before an inquiry is answered."),
        _rule("--load_balancing", "LOAD_BALANCING", "Show only those with little load, in any order."),
        persistence_option("File in which registrations are kept; empty: in memory."),
        click.option(
            "--registration_lag",
            type=click.IntRange(0, _MOST_SECONDS),
            default=None,
            metavar="SECONDS",
            envvar=f"COGMENT_{_SERVICE}_REGISTRATION_LAG",
            show_envvar=True,
            help="How long an inquiry that finds nobody waits for somebody to come; the default is 0: not at all.",
        ),
    )
    return applied(options, command)


def _rule(flag: str, variable: str, text: str) -> Callable[[_Decorated], _Decorated]:
    return boolean_option(flag, variable=f"COGMENT_{_SERVICE}_{variable}", text=text, default=None)


def directory_server_settings(ctx: click.Context) -> DirectoryServerSettings:
    """Collect what `directory_server_options` found.

    Raises:
        Failure: what they say does not fit together.
    """
    common = common_settings(ctx)
    common["configuration"] = overridden(
        common["configuration"],
        "directory_server",
        registration_lag_seconds=ctx.params["registration_lag"],
        load_balancing=ctx.params["load_balancing"],
        check_on_inquire=ctx.params["check_on_inquire"],
        force_permanent=ctx.params["force_permanent"],
    )
    return DirectoryServerSettings(**common, port=ctx.params["port"], file=ctx.params["persistence_file"])
