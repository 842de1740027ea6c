"""The commands, and how their errors are told: one line on stderr, and exit code 1."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from trio_cogment._version import __version__
from trio_cogment.cli._client import client
from trio_cogment.cli._client_datastore import trial_datastore
from trio_cogment.cli._client_directory import directory as client_directory
from trio_cogment.cli._client_registry import model_registry as client_model_registry
from trio_cogment.cli._client_status import status
from trio_cogment.cli._datastore_options import datastore_options, datastore_settings, storage_options, storage_settings
from trio_cogment.cli._directory_options import own_directory_option
from trio_cogment.cli._directory_server_options import directory_server_options, directory_server_settings
from trio_cogment.cli._groups import Group
from trio_cogment.cli._model_registry_options import (
    archive_folder,
    archive_option,
    model_registry_options,
    model_registry_settings,
)
from trio_cogment.cli._options import HELP_LIKE, as_port, configuration_of, log_options
from trio_cogment.cli._orchestrator_options import orchestrator_options, orchestrator_settings
from trio_cogment.cli._settings import Failure
from trio_cogment.cli._text import printable
from trio_cogment.services import SERVICES, ServiceKind

_DEFAULT_PORT = str(SERVICES[ServiceKind.LIFECYCLE].default_port)
#: What a shell expects of a command that Control-C ended.
_INTERRUPTED = 130

#: Commands of the reference that are not built yet, by group.
_NOT_BUILT_SERVICES = ("web_proxy", "proxy")
_NOT_BUILT = ("launch", "copy", "generate", "init", "run")


@click.group(cls=Group, context_settings=HELP_LIKE)
@click.version_option(__version__, "--version", message="%(version)s")
def cli() -> None:
    """The Cogment platform on Trio: trials in which humans, software agents and an environment meet."""


@cli.command()
def version() -> None:
    """Print the version."""
    click.echo(__version__)


@cli.command()
@click.option(
    "--port",
    callback=as_port,
    metavar="PORT",
    default=_DEFAULT_PORT,
    show_default=True,
    help="TCP port; 0: any free one.",
)
@own_directory_option
@archive_option
@storage_options
@orchestrator_options
@click.pass_context
def serve(ctx: click.Context, /, port: int, **_options: Any) -> None:
    """Serve everything there is, on one port: orchestrator, trial datastore, model registry and directory."""
    settings = orchestrator_settings(
        ctx, lifecycle_port=port, actor_port=port, storage=storage_settings(ctx), archive=archive_folder(ctx)
    )
    from trio_cogment.cli._serve import run_orchestrator

    run_orchestrator(settings)


@click.group(cls=Group)
@log_options
def services(**_options: Any) -> None:
    """Serve one service, with the flags and environment variables of the reference."""


@services.command(epilog="Flags of the reference that are missing here are refused: they are not built yet.")
@click.option(
    "--lifecycle_port",
    callback=as_port,
    metavar="PORT",
    default=_DEFAULT_PORT,
    envvar=["COGMENT_LIFECYCLE_PORT", "TRIAL_LIFECYCLE_PORT"],
    show_default=True,
    show_envvar=True,
    help="Port of the trial lifecycle service; 0: any free one.",
)
@click.option(
    "--actor_port",
    callback=as_port,
    metavar="PORT",
    default=_DEFAULT_PORT,
    envvar=["COGMENT_ACTOR_PORT", "TRIAL_ACTOR_PORT"],
    show_default=True,
    show_envvar=True,
    help="Port for client actors; the same port means one server with both services.",
)
@orchestrator_options
@click.pass_context
def orchestrator(ctx: click.Context, /, lifecycle_port: int, actor_port: int, **_options: Any) -> None:
    """Run an orchestrator."""
    settings = orchestrator_settings(ctx, lifecycle_port=lifecycle_port, actor_port=actor_port)
    from trio_cogment.cli._serve import run_orchestrator

    run_orchestrator(settings)


@click.command("trial_datastore")
@datastore_options
@click.pass_context
def datastore(ctx: click.Context, /, **_options: Any) -> None:
    """Run a trial datastore."""
    settings = datastore_settings(ctx)
    from trio_cogment.cli._datastore import run_datastore

    run_datastore(settings)


@click.command("model_registry")
@model_registry_options
@click.pass_context
def model_registry(ctx: click.Context, /, **_options: Any) -> None:
    """Run a model registry."""
    settings = model_registry_settings(ctx)
    from trio_cogment.cli._model_registry import run_model_registry

    run_model_registry(settings)


@services.command()
@directory_server_options
@click.pass_context
def directory(ctx: click.Context, /, **_options: Any) -> None:
    """Run a directory."""
    settings = directory_server_settings(ctx)
    from trio_cogment.cli._directory_server import run_directory

    run_directory(settings)


@cli.command()
@click.option("--grpc", is_flag=True, help="Over sockets on this machine instead of within the process.")
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed gives the same result, exactly.")
@click.option("--ticks", type=click.IntRange(min=20), default=None, help="Length of the trial.")
@click.option("--no-learning", is_flag=True, help="The actors keep guessing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def demo(grpc: bool, seed: int, ticks: int | None, no_learning: bool, as_json: bool) -> None:
    """Run a small trial: two actors invent a code for colours."""
    from trio_cogment.cli._demo import show_demo

    show_demo(grpc=grpc, seed=seed, ticks=ticks, learning=not no_learning, json=as_json)


@cli.command("replay")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--full", is_flag=True, help="Do not cut long lines.")
@click.option("--json", "as_json", is_flag=True, help="Print each input with its effects and the state as JSON.")
def replay_command(file: Path, full: bool, as_json: bool) -> None:
    """Play a recorded trial through this version's rules, and show it tick by tick.

    Exit code 1, and the differences, when this version does anything else than the one that recorded it.
    """
    from trio_cogment.cli._replay import show_replay

    show_replay(file, as_json=as_json, full=full)


def _not_built(group: click.Group, name: str) -> None:
    def refuse(**_arguments: Any) -> None:
        path = f"{group.name} " if group is not cli else ""
        raise Failure(f"{path}{name}: not built yet")

    anything = click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)
    settings = {"ignore_unknown_options": True}
    command = click.Command(
        name, callback=refuse, params=[anything], help="Not built yet.", hidden=True, context_settings=settings
    )
    group.add_command(command)


cli.add_command(services)
cli.add_command(client)
cli.add_command(status)
services.add_command(datastore, aliases=("datastore",))
services.add_command(model_registry, aliases=("registry",))
client.add_command(trial_datastore, aliases=("datastore",))
client.add_command(client_model_registry, aliases=("registry",))
client.add_command(client_directory)
for _name in _NOT_BUILT_SERVICES:
    _not_built(services, _name)
for _name in _NOT_BUILT:
    _not_built(cli, _name)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and leave the process: 0 for success, 1 for every kind of error, 130 for Control-C."""
    sys.exit(_exit_code(lambda: cli.main(arguments, prog_name="trio-cogment", standalone_mode=False)))


def _exit_code(run: Callable[[], Any]) -> int:
    try:
        code = run()
    except click.ClickException as error:
        return _fail(_one_line(error))
    except (click.Abort, KeyboardInterrupt):  # Control-C; click turns one into the other
        return _INTERRUPTED
    except BrokenPipeError:  # nobody reads our output any more
        return 1
    except OSError as error:
        return _fail(f"{error.strerror or error}")
    return code if isinstance(code, int) else 0


def _fail(text: str) -> int:
    click.echo(f"trio-cogment: {text}", err=True)
    return 1


def _one_line(error: click.ClickException) -> str:
    text = error.format_message()
    if isinstance(error, click.BadParameter) and isinstance(error.param, click.Option):
        # One that is missing has no message.
        text = f"{_where(error.ctx, error.param)}: {error.message or 'it is needed'}"
    elif isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx is not None else "trio-cogment"
        text = f"{text.rstrip('.')} (see {path} --help)"
    return printable(" ".join(text.split()))


def _where(ctx: click.Context | None, option: click.Option) -> str:
    """Name a flag, and the variable or the line of the file if the value came from there."""
    flag = option.opts[0]
    source = None if ctx is None or not option.name else ctx.get_parameter_source(option.name)
    if ctx is not None and option.name and source is ParameterSource.DEFAULT_MAP:
        return f"{flag} (from {configuration_of(ctx).places[option.name]})"
    if source is not ParameterSource.ENVIRONMENT:
        return flag
    names = [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or ())
    return f"{flag} (from {next((name for name in names if os.environ.get(name)), 'the environment')})"
