"""The root command, and how errors are reported: one line on stderr, and exit code 1."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click
from click.core import ParameterSource

from trio_cogment._version import __version__
from trio_cogment.cli.client import client
from trio_cogment.cli.configuration import configuration_of
from trio_cogment.cli.demo import demo
from trio_cogment.cli.options import Group, not_built
from trio_cogment.cli.replay import replay
from trio_cogment.cli.serve import serve
from trio_cogment.cli.services import services
from trio_cogment.cli.status import status
from trio_cogment.cli.text import printable

#: The exit code that shells expect of a command ended by Control-C.
_INTERRUPTED = 130

#: Commands of the reference that are not built yet.
_NOT_BUILT = ("launch", "copy", "generate", "init", "run")


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, "--version", message="%(version)s")
def cli() -> None:
    """The Cogment platform on Trio: trials in which humans, software agents and an environment meet."""


@cli.command()
def version() -> None:
    """Print the version."""
    click.echo(__version__)


for _command in (serve, services, client, status, demo, replay, *(not_built(name) for name in _NOT_BUILT)):
    cli.add_command(_command)


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
    except BrokenPipeError:  # the reader of the output has gone
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
