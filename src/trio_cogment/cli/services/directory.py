"""`trio-cogment services directory`: its flags, and what it serves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from trio_cogment.base.records import record
from trio_cogment.base.services import SERVICES, ServiceKind
from trio_cogment.cli.options import applied, boolean_option
from trio_cogment.cli.services.directory_flags import persistence_option
from trio_cogment.cli.services.outgoing import outgoing_options, with_outgoing
from trio_cogment.cli.services.run import run_server
from trio_cogment.cli.services.settings import ServerSettings, common_settings, service_options
from trio_cogment.cli.services.start import Application, Resources, Running

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

_SERVICE = "DIRECTORY"
_MAX_SECONDS = 10**9


# Flags


@record(kw_only=True)
class DirectoryServerSettings(ServerSettings):
    """The settings of a directory; with an empty file it keeps registrations in memory."""

    port: int
    file: str


def directory_server_options(command: _Decorated) -> _Decorated:
    """Add the flags of a directory."""
    options = (
        outgoing_options,
        service_options(_SERVICE, port=SERVICES[ServiceKind.DIRECTORY].default_port),
        _rule("--force_permanent", "FORCE_PERMANENT", "Make every registration permanent."),
        _rule(
            "--check_on_inquire",
            "CHECK_ON_INQUIRE",
            "Check the health of services before returning them.",
        ),
        _rule("--load_balancing", "LOAD_BALANCING", "Return only services with little load, in random order."),
        persistence_option("File in which registrations are kept; empty: in memory."),
        click.option(
            "--registration_lag",
            type=click.IntRange(0, _MAX_SECONDS),
            default=None,
            metavar="SECONDS",
            envvar=f"COGMENT_{_SERVICE}_REGISTRATION_LAG",
            show_envvar=True,
            help="How long an inquiry that finds no service waits for one to register; 0: not at all. "
            "By default it waits only in the first 5 s after the start.",
        ),
    )
    return applied(options, command)


def _rule(flag: str, variable: str, text: str) -> Callable[[_Decorated], _Decorated]:
    return boolean_option(flag, variable=f"COGMENT_{_SERVICE}_{variable}", text=text, default=None)


def directory_server_settings(ctx: click.Context) -> DirectoryServerSettings:
    """Collect the settings from the flags of `directory_server_options`.

    Raises:
        Failure: the flags contradict each other.
    """
    common = common_settings(ctx)
    lag: int | None = ctx.params["registration_lag"]
    common["configuration"] = with_outgoing(ctx, common["configuration"]).overridden(
        "directory_server",
        registration_lag_seconds=lag,
        startup_lag_seconds=None if lag is None else 0,  # the flag says all
        load_balancing=ctx.params["load_balancing"],
        check_on_inquire=ctx.params["check_on_inquire"],
        force_permanent=ctx.params["force_permanent"],
    )
    return DirectoryServerSettings(**common, port=ctx.params["port"], file=ctx.params["persistence_file"])


@click.command()
@directory_server_options
@click.pass_context
def directory(ctx: click.Context, /, **_options: Any) -> None:
    """Run a directory."""
    run_directory(directory_server_settings(ctx))


# What is served


def run_directory(settings: DirectoryServerSettings) -> None:
    """Serve until SIGTERM or SIGINT; all confirmed registrations are in the file then.

    Raises:
        Failure: it cannot start.
    """
    application = Application(
        name="directory",
        ports=[settings.port],
        open=partial(_opened, settings),
        # The line that the reference's launch files wait for.
        ready="Listening [port:{port}]",
    )
    run_server(settings, application)


@asynccontextmanager
async def _opened(settings: DirectoryServerSettings, resources: Resources) -> AsyncIterator[Running]:
    from trio_cogment.cli.services.directory_access import opened_directory_server
    from trio_cogment.servers.directory import directory_services

    async with opened_directory_server(settings.file, settings.configuration, resources.access.tokens) as directory:

        async def stop() -> None:
            await directory.farewell()
            directory.stop()

        yield Running(services=[directory_services(directory)], stop=stop, kept=_kept(settings))


def _kept(settings: DirectoryServerSettings) -> dict[str, str]:
    return {"directory": str(Path(settings.file).absolute()) if settings.file else "in memory"}
