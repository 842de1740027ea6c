"""The root command, and how errors are reported: one line on stderr, and exit code 1."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import click
from click.core import ParameterSource

from trio_cogment._version import __version__
from trio_cogment.cli.commands import ABOUT, COMMANDS, PROGRAM
from trio_cogment.cli.options import Group, json_option

#: The exit code that shells expect of a command ended by Control-C.
_INTERRUPTED = 130


_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


@click.group(cls=Group, help=ABOUT, lazy=COMMANDS, context_settings=_SETTINGS)
@click.version_option(__version__, "--version", message="%(version)s")
def cli() -> None:
    """Have the commands of the table."""


@click.command()
@json_option("Print the version as JSON.")
def version(as_json: bool) -> None:
    """Print the version."""
    if as_json:
        from trio_cogment.cli.text import print_json

        print_json({"version": __version__})
    else:
        click.echo(__version__)


def run(arguments: Sequence[str]) -> int:
    """Run a command and return the exit code: 0 for success, 1 for every kind of error, 130 for Control-C."""
    return _exit_code(lambda: cli.main(arguments, prog_name=PROGRAM, standalone_mode=False))


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
    except ImportError as error:
        from trio_cogment.base.errors import MissingExtraError

        if not isinstance(error, MissingExtraError):
            raise
        return _fail(str(error))
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
        path = error.ctx.command_path if error.ctx is not None else PROGRAM
        text = f"{text.rstrip('.')} (see {path} --help)"
    from trio_cogment.cli.text import printable

    return printable(" ".join(text.split()))


def _where(ctx: click.Context | None, option: click.Option) -> str:
    """Name a flag, and the variable or the line of the file if the value came from there."""
    flag = option.opts[0]
    source = None if ctx is None or not option.name else ctx.get_parameter_source(option.name)
    if ctx is not None and option.name and source is ParameterSource.DEFAULT_MAP:
        from trio_cogment.cli.configuration import configuration_of

        return f"{flag} (from {configuration_of(ctx).places[option.name]})"
    if source is not ParameterSource.ENVIRONMENT:
        return flag
    names = [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or ())
    return f"{flag} (from {next((name for name in names if os.environ.get(name)), 'the environment')})"
