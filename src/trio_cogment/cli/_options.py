"""Flags that several commands have, and their environment twins.

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
from trio_cogment.cli._flags import applied, boolean_option
from trio_cogment.cli._settings import Configuration, Failure, LogSettings, ServerSettings, TlsFiles

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

HELP_LIKE = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
LOG_LEVELS = ("trace", "debug", "info", "warning", "error", "off")
_HIGHEST_PORT = 65535
_LOG_NAMES = ("log_level", "log_format", "log_file")
_TLS_NAMES = ("private_key", "root_cert", "trust_chain")
_NOT_IN_A_FILE = frozenset({"config", "help"})
_CONFIGURATION = "trio_cogment.configuration"


class FilePath(click.Path):
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


def as_list(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> list[str]:
    """Return a list: separated by commas on the command line and in the file, by blanks in the environment."""
    # As with the reference. Click has split at the blanks.
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


def tls_options(command: _Decorated) -> _Decorated:
    """Add the three files of mutual TLS."""
    options = (
        click.option(
            "--trust_chain",
            type=FilePath(path_type=Path),
            envvar="COGMENT_TRUST_CHAIN_FILE",
            show_envvar=True,
            help="PEM file with our certificate and those behind it.",
        ),
        click.option(
            "--root_cert",
            type=FilePath(path_type=Path),
            envvar="COGMENT_ROOT_CERT_FILE",
            show_envvar=True,
            help="PEM file with the authorities that sign the certificates of everybody else.",
        ),
        click.option(
            "--private_key",
            type=FilePath(path_type=Path),
            envvar="COGMENT_PRIVATE_KEY_FILE",
            show_envvar=True,
            help="PEM file with our private key. With all three of these every connection is mutual TLS.",
        ),
    )
    return applied(options, command)


def server_options(service: str, *, old_names: Sequence[str] = ()) -> Callable[[_Decorated], _Decorated]:
    """Return what adds the flags that every server has.

    Args:
        service: `ORCHESTRATOR`, for example: the variables that are its own have this in their names.
        old_names: of the variable for the port of the metrics.
    """

    def add(command: _Decorated) -> _Decorated:
        return applied(
            (
                tls_options,
                click.option(
                    "--prometheus_port",
                    callback=as_port,
                    metavar="PORT",
                    default="0",
                    envvar=[f"COGMENT_{service}_PROMETHEUS_PORT", *old_names],
                    show_default=True,
                    show_envvar=True,
                    help="Port of http://.../metrics; 0: no metrics.",
                ),
                click.option(
                    "--host",
                    multiple=True,
                    default=["0.0.0.0"],
                    callback=as_list,
                    metavar="HOSTS",
                    show_default=True,
                    help="Addresses or names to listen on: separated by commas; repeatable.",
                ),
                click.option(
                    "--config",
                    type=FilePath(path_type=Path),
                    envvar="TRIO_COGMENT_CONFIG",
                    show_envvar=True,
                    is_eager=True,
                    expose_value=False,
                    callback=_read_configuration,
                    help="YAML file with flags, and with settings that no flag has (docs/configuration.md).",
                ),
            ),
            command,
        )

    return add


def service_options(service: str, *, port: int) -> Callable[[_Decorated], _Decorated]:
    """Return what adds the flags of a server with one port: this, those of every server, and those about the log.

    Reflection is on unless somebody turns it off: here the default of the reference is off.

    Args:
        service: as for `server_options`.
        port: the default.
    """
    port_option = click.option(
        "--port",
        callback=as_port,
        metavar="PORT",
        default=str(port),
        envvar=f"COGMENT_{service}_PORT",
        show_default=True,
        show_envvar=True,
        help="TCP port; 0: any free one.",
    )
    reflection = boolean_option(
        "--grpc_reflection", variable=f"COGMENT_{service}_GRPC_REFLECTION", text="Describe our services to who asks."
    )

    def add(command: _Decorated) -> _Decorated:
        return applied((log_options, reflection, server_options(service), port_option), command)

    return add


def log_options(command: _Decorated) -> _Decorated:
    """Add what there is to say about the log."""
    options = (
        click.option(
            "--log_format",
            type=click.Choice(["text", "json"]),
            envvar="COGMENT_LOG_FORMAT",
            show_envvar=True,
            help="Form of the log; the default is text, and json for a file.",
        ),
        click.option(
            "--log_file",
            type=FilePath(path_type=Path),
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
    )
    return applied(options, command)


def nearest(ctx: click.Context, name: str) -> Any:
    """Return a flag that several commands on the line may take: given there, the last one wins.

    What the environment or a default says is the same for all of them.
    """
    takers = _takers(ctx, name)
    return next((taker for taker in takers if _has(taker, name)), takers[0]).params[name]


def given_on_the_line(ctx: click.Context, name: str) -> bool:
    """Tell whether a flag that several commands on the line may take is given there."""
    return any(_has(taker, name) for taker in _takers(ctx, name))


def _takers(ctx: click.Context, name: str) -> list[click.Context]:
    takers = []
    above: click.Context | None = ctx
    while above is not None:
        if name in above.params:
            takers.append(above)
        above = above.parent
    return takers


def _has(taker: click.Context, name: str) -> bool:
    return taker.get_parameter_source(name) is ParameterSource.COMMANDLINE


def overridden(configuration: Configuration, section: str, **said: Any) -> Configuration:
    """Return a configuration with what flags say about the fields of one section; None says nothing."""
    given = {name: value for name, value in said.items() if value is not None}
    changed: Any = replace(getattr(configuration, section), **given)
    return replace(configuration, **{section: changed})


def common_settings(ctx: click.Context) -> dict[str, Any]:
    """Return the fields of `ServerSettings` from what the flags and variables said.

    Raises:
        Failure: what they say does not fit together.
    """
    if not ctx.params["host"]:
        raise Failure("--host: expected an address or a name at least")
    return {
        "hosts": ctx.params["host"],
        "prometheus_port": ctx.params["prometheus_port"],
        "grpc_reflection": ctx.params.get("grpc_reflection", True),
        "tls": tls_files(ctx),
        "configuration": configuration_of(ctx),
        "directory": directory_settings(ctx),
        "log": _log_settings(ctx),
    }


def server_settings(ctx: click.Context) -> ServerSettings:
    """Collect what `service_options` (or `server_options` and `log_options`) and `directory_options` found.

    Raises:
        Failure: what they say does not fit together.
    """
    return ServerSettings(**common_settings(ctx))


def tls_files(ctx: click.Context) -> TlsFiles | None:
    """Collect what `tls_options` found.

    Raises:
        Failure: some of the files are there, but not all.
    """
    given = {name: nearest(ctx, name) for name in _TLS_NAMES}
    missing = [f"--{name}" for name, path in given.items() if path is None]
    if len(missing) == len(given):
        return None
    if missing:
        raise Failure(f"TLS needs all of {', '.join(f'--{name}' for name in given)}; missing: {', '.join(missing)}")
    return TlsFiles(**given)


def _log_settings(ctx: click.Context) -> LogSettings:
    # `services` takes these flags too, before the name of the service.
    chosen = {name: nearest(ctx, name) for name in _LOG_NAMES}
    form = chosen["log_format"] or ("json" if chosen["log_file"] else "text")
    return LogSettings(level=chosen["log_level"], form=form, file=chosen["log_file"])
