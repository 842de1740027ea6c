"""`trio-cogment services directory`: its flags, and what it serves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import click

from trio_cogment.base.records import record
from trio_cogment.base.services import SERVICES, ServiceKind
from trio_cogment.cli.configuration import setting_options
from trio_cogment.cli.options import applied
from trio_cogment.cli.services.directory_flags import persistence_option
from trio_cogment.cli.services.kept import shown_file
from trio_cogment.cli.services.run import run_server
from trio_cogment.cli.services.settings import ServerSettings, common_settings, service_options
from trio_cogment.cli.services.start import Application, Resources, Running

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

_SERVICE = "DIRECTORY"


# Flags


@record(kw_only=True)
class DirectoryServerSettings(ServerSettings):
    """The settings of a directory; with an empty file it keeps registrations in memory."""

    port: int
    file: str


def directory_server_options(command: _Decorated) -> _Decorated:
    """Add the flags of a directory."""
    options = (
        setting_options("outgoing.allowed_networks", "outgoing.denied_networks"),
        service_options(_SERVICE, port=SERVICES[ServiceKind.DIRECTORY].default_port),
        setting_options(
            "directory_server.load_balancing", "directory_server.check_on_inquire", "directory_server.force_permanent"
        ),
        persistence_option("File, or s3://BUCKET/KEY, in which registrations are kept; empty: in memory."),
        setting_options("directory_server.registration_lag_seconds"),
    )
    return applied(options, command)


def directory_server_settings(ctx: click.Context) -> DirectoryServerSettings:
    """Collect the settings from the flags of `directory_server_options`.

    Raises:
        Failure: the flags contradict each other.
    """
    common = common_settings(ctx)
    if ctx.params["registration_lag"] is not None:  # the flag says all
        common["configuration"] = common["configuration"].overridden("directory_server", startup_lag_seconds=0)
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
    return {"directory": shown_file(settings.file)}
