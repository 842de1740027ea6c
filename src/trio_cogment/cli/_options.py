"""Flags, their environment twins, and the flags of the reference that are not built yet.

A flag wins over its environment variable, which wins over the file of `--config`, which wins over the default; an empty
variable counts as unset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from trio_cogment.cli._directory_options import directory_settings
from trio_cogment.cli._settings import Configuration, Failure, LogSettings, ServerSettings, TlsFiles

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

HELP_LIKE = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
LOG_LEVELS = ("trace", "debug", "info", "warning", "error", "off")
_HIGHEST_PORT = 65535
_MOST_DIGITS = 9
_LOG_NAMES = ("log_level", "log_format", "log_file")
_TLS_NAMES = ("private_key", "root_cert", "trust_chain")
_NOT_IN_A_FILE = frozenset({"config", "help"})
_CONFIGURATION = "trio_cogment.configuration"


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


def _as_count(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    if value.isascii() and value.isdecimal() and len(value) <= _MOST_DIGITS:
        return int(value)
    raise click.BadParameter(f"expected a number of starts, 0 or more, got {value!r}")


def _list(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> list[str]:
    # Commas on the command line, blanks in the environment: as with the reference. Click has split at the blanks.
    if param.name and ctx.get_parameter_source(param.name) is ParameterSource.ENVIRONMENT:
        return list(values)
    return [item.strip() for value in values for item in value.split(",") if item.strip()]


def _read_configuration(ctx: click.Context, _param: click.Parameter, path: Path | None) -> None:
    if path is None:
        return
    # YAML takes time to import, and few need it.
    from trio_cogment.cli._config_file import load_configuration

    options = [option for option in ctx.command.params if isinstance(option, click.Option) and option.name]
    flags = {str(option.name): option.multiple for option in options if option.name not in _NOT_IN_A_FILE}
    found = load_configuration(path, flags)
    ctx.meta[_CONFIGURATION] = found
    ctx.default_map = found.flags


def configuration_of(ctx: click.Context) -> Configuration:
    """Return what the file of `--config` says, or the defaults."""
    found = ctx.meta.get(_CONFIGURATION)
    return found if isinstance(found, Configuration) else Configuration()


def server_options(command: _Decorated) -> _Decorated:
    """Add what every server has."""
    path = _FilePath(path_type=Path)
    for option in (
        click.option(
            "--gc_frequency",
            callback=_as_count,
            metavar="STARTS",
            envvar="COGMENT_GC_FREQUENCY",
            show_envvar=True,
            help="Forget all ended trials at every so many starts too; without it they go by age and number alone.",
        ),
        click.option(
            "--trust_chain",
            type=path,
            envvar="COGMENT_TRUST_CHAIN_FILE",
            show_envvar=True,
            help="PEM file with our certificate and those behind it.",
        ),
        click.option(
            "--root_cert",
            type=path,
            envvar="COGMENT_ROOT_CERT_FILE",
            show_envvar=True,
            help="PEM file with the authorities that sign the certificates of everybody else.",
        ),
        click.option(
            "--private_key",
            type=path,
            envvar="COGMENT_PRIVATE_KEY_FILE",
            show_envvar=True,
            help="PEM file with our private key. With all three of these every connection is mutual TLS.",
        ),
        click.option(
            "--prometheus_port",
            callback=as_port,
            metavar="PORT",
            default="0",
            envvar=["COGMENT_ORCHESTRATOR_PROMETHEUS_PORT", "PROMETHEUS_PORT"],
            show_default=True,
            show_envvar=True,
            help="Port of http://.../metrics; 0: no metrics.",
        ),
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
            callback=_list,
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
        click.option(
            "--host",
            multiple=True,
            default=["0.0.0.0"],
            callback=_list,
            metavar="HOSTS",
            show_default=True,
            help="Addresses or names to listen on: separated by commas; repeatable.",
        ),
        click.option(
            "--config",
            type=path,
            envvar="TRIO_COGMENT_CONFIG",
            show_envvar=True,
            is_eager=True,
            expose_value=False,
            callback=_read_configuration,
            help="YAML file with flags, and with settings that no flag has (docs/configuration.md).",
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


def server_settings(ctx: click.Context, *, lifecycle_port: int, actor_port: int) -> ServerSettings:
    """Collect what `server_options` and `log_options` found.

    Raises:
        Failure: what they say does not fit together.
    """
    configuration = configuration_of(ctx)
    if ctx.params["gc_frequency"] is not None:
        orchestrator = replace(configuration.orchestrator, gc_frequency=ctx.params["gc_frequency"])
        configuration = replace(configuration, orchestrator=orchestrator)
    if not ctx.params["host"]:
        raise Failure("--host: expected an address or a name at least")
    return ServerSettings(
        hosts=ctx.params["host"],
        lifecycle_port=lifecycle_port,
        actor_port=actor_port,
        params=ctx.params["params"],
        pre_trial_hooks=ctx.params["pre_trial_hooks"],
        prometheus_port=ctx.params["prometheus_port"],
        status_file=ctx.params["status_file"],
        tls=_tls_files(ctx),
        configuration=configuration,
        directory=directory_settings(ctx),
        log=_log_settings(ctx),
    )


def _tls_files(ctx: click.Context) -> TlsFiles | None:
    given = {name: ctx.params[name] for name in _TLS_NAMES}
    missing = [f"--{name}" for name, path in given.items() if path is None]
    if len(missing) == len(given):
        return None
    if missing:
        raise Failure(f"TLS needs all of {', '.join(f'--{name}' for name in given)}; missing: {', '.join(missing)}")
    return TlsFiles(**given)


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
