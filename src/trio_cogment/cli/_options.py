"""Flags, their environment twins, and the flags of the reference that are not built yet.

A flag wins over its environment variable, which wins over the default; an empty variable counts as unset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from trio_cogment.cli._directory_options import DirectorySettings, directory_settings

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

HELP_LIKE = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
LOG_LEVELS = ("trace", "debug", "info", "warning", "error", "off")
_HIGHEST_PORT = 65535
_LOG_NAMES = ("log_level", "log_format", "log_file")


class Failure(click.ClickException):
    """What ends a command with one line and exit code 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """Where the log goes: stderr, or a file it is appended to."""

    level: str = "info"
    form: str = "text"
    file: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """What an orchestrator is started with."""

    host: str
    lifecycle_port: int
    actor_port: int
    params: Path | None = None
    pre_trial_hooks: Sequence[str] = ()
    status_file: Path | None = None
    directory: DirectorySettings | None = None
    log: LogSettings = field(default_factory=LogSettings)


class _FilePath(click.Path):
    """A path; an empty one is a mistake, not the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("expected a path, got ''", param, ctx)
        return super().convert(value, param, ctx)


def as_port(_ctx: click.Context, _param: click.Parameter, value: str) -> int:
    """Return a TCP port, or 0 for any free one."""
    if value.isascii() and value.isdecimal() and int(value) <= _HIGHEST_PORT:
        return int(value)
    raise click.BadParameter(f"expected a port from 0 to {_HIGHEST_PORT}, got {value!r}")


def _hooks(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> list[str]:
    # Commas on the command line, blanks in the environment: as with the reference. Click has split at the blanks.
    if param.name and ctx.get_parameter_source(param.name) is ParameterSource.ENVIRONMENT:
        return list(values)
    return [hook.strip() for value in values for hook in value.split(",") if hook.strip()]


def server_options(command: _Decorated) -> _Decorated:
    """Add what every server has."""
    path = _FilePath(path_type=Path)
    for option in (
        click.option(
            "--status_file",
            type=path,
            envvar="COGMENT_STATUS_FILE",
            show_envvar=True,
            help="File or FIFO that gets I (initializing), R (ready) and T (terminated).",
        ),
        click.option(
            "--pre_trial_hooks",
            multiple=True,
            envvar="COGMENT_PRE_TRIAL_HOOKS",
            show_envvar=True,
            callback=_hooks,
            metavar="ENDPOINTS",
            help="Hooks, in the order of their calls: separated by commas (blanks in the environment); repeatable.",
        ),
        click.option(
            "--params",
            type=path,
            envvar="COGMENT_DEFAULT_PARAMS_FILE",
            show_envvar=True,
            help="YAML file with the default trial_params.",
        ),
    ):
        command = option(command)
    return command


def log_options(command: _Decorated) -> _Decorated:
    """Add what there is to say about the log."""
    for option in (
        click.option(
            "--log_format",
            type=click.Choice(["text", "json"]),
            envvar="COGMENT_LOG_FORMAT",
            show_envvar=True,
            help="Form of the log; the default is text, and json for a file.",
        ),
        click.option(
            "--log_file",
            type=_FilePath(path_type=Path),
            envvar="COGMENT_LOG_FILE",
            show_envvar=True,
            help="File to append the log to, instead of writing it to stderr.",
        ),
        click.option(
            "--log_level",
            type=click.Choice(LOG_LEVELS, case_sensitive=False),
            default="info",
            envvar="COGMENT_LOG_LEVEL",
            show_default=True,
            show_envvar=True,
            help="The least important that is logged.",
        ),
    ):
        command = option(command)
    return command


#: Flag, environment variables, and the default of the reference, which says the same as leaving it out.
_NOT_BUILT: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("--actor_web_port", ("COGMENT_WEB_PROXY_PORT",), "0"),
    ("--actor_http_port", (), "0"),
    ("--prometheus_port", ("COGMENT_ORCHESTRATOR_PROMETHEUS_PORT", "PROMETHEUS_PORT"), "0"),
    ("--private_key", ("COGMENT_PRIVATE_KEY_FILE",), ""),
    ("--root_cert", ("COGMENT_ROOT_CERT_FILE",), ""),
    ("--trust_chain", ("COGMENT_TRUST_CHAIN_FILE",), ""),
    ("--gc_frequency", ("COGMENT_GC_FREQUENCY",), "10"),
)


def _refuse(default: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    def refuse(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        if value is None:
            return
        if param.name and ctx.get_parameter_source(param.name) is ParameterSource.ENVIRONMENT:
            if value.strip().lower() == default:
                return
            names = " or ".join(param.envvar or ())
            raise Failure(f"{param.opts[0]} (environment: {names}) is not built yet")
        raise Failure(f"{param.opts[0]} is not built yet")

    return refuse


def not_built_options(command: _Decorated) -> _Decorated:
    """Add the flags of the reference that are refused: ignoring one would be worse."""
    for flag, variables, default in _NOT_BUILT:
        option = click.option(flag, envvar=list(variables), hidden=True, expose_value=False, callback=_refuse(default))
        command = option(command)
    return command


def server_settings(ctx: click.Context, *, host: str, lifecycle_port: int, actor_port: int) -> ServerSettings:
    """Collect what `server_options` and `log_options` found."""
    return ServerSettings(
        host=host,
        lifecycle_port=lifecycle_port,
        actor_port=actor_port,
        params=ctx.params["params"],
        pre_trial_hooks=ctx.params["pre_trial_hooks"],
        status_file=ctx.params["status_file"],
        directory=directory_settings(ctx),
        log=_log_settings(ctx),
    )


def _log_settings(ctx: click.Context) -> LogSettings:
    # `services` takes these flags too, before the name of the service: the nearer one wins.
    chosen = {name: ctx.params[name] for name in _LOG_NAMES}
    above = ctx.parent
    if above is not None:
        for name in _LOG_NAMES:
            given_here = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
            if not given_here and above.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                chosen[name] = above.params[name]
    form = chosen["log_format"] or ("json" if chosen["log_file"] else "text")
    return LogSettings(level=chosen["log_level"], form=form, file=chosen["log_file"])
