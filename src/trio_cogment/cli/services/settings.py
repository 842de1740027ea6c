"""The flags of every server, and the settings made of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, TypeVar

import click

from trio_cogment.base.records import record
from trio_cogment.cli.config_option import config_option
from trio_cogment.cli.configuration import Configuration, configuration_of, setting_options
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.logs import LogSettings, log_options, log_settings
from trio_cogment.cli.options import applied, as_list, boolean_option, port_option
from trio_cogment.cli.services.auth import AuthSettings, auth_options, auth_settings
from trio_cogment.cli.services.directory_flags import DirectorySettings, directory_settings
from trio_cogment.cli.services.web_flags import WebSettings
from trio_cogment.cli.tls import TlsFiles, server_tls_options, tls_files

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

ANYWHERE = "0.0.0.0"
THIS_MACHINE = "127.0.0.1"


@record(kw_only=True)
class ServerSettings:
    """The settings of any server.

    Attributes:
        hosts: addresses or names to listen on.
        prometheus_port: of the metrics; 0: no metrics.
        status_file: what a supervisor reads.
        grpc_reflection: servers describe their services to clients.
        tls: for the servers and for every call to other services.
        auth: who may call the servers, and how they say who they are.
        configuration: what no flag says.
        directory: where, and as what, the services are registered.
        log: where it goes.
        web: what it has for browsers; None: nothing.
    """

    hosts: Sequence[str]
    prometheus_port: int = 0
    status_file: Path | None = None
    grpc_reflection: bool = True
    tls: TlsFiles | None = None
    auth: AuthSettings = field(default_factory=AuthSettings)
    configuration: Configuration = field(default_factory=Configuration)
    directory: DirectorySettings | None = None
    log: LogSettings = field(default_factory=LogSettings)
    web: WebSettings | None = None


def server_options(
    service: str, *, old_names: Sequence[str] = (), host: str = ANYWHERE
) -> Callable[[_Decorated], _Decorated]:
    """Return a decorator that adds the flags of every server.

    Args:
        service: `ORCHESTRATOR`, for example: the variables that are its own have this in their names.
        old_names: of the variable for the port of the metrics.
        host: where it listens by default.
    """
    options = (
        auth_options,
        server_tls_options,
        port_option(
            "--prometheus_port",
            default=0,
            variables=[f"COGMENT_{service}_PROMETHEUS_PORT", *old_names],
            text="Port of http://.../metrics; 0: no metrics.",
        ),
        setting_options("tracing.endpoint", "tracing.sample_ratio", "tracing.tick_ratio"),
        host_option(host),
        config_option,
    )
    return lambda command: applied(options, command)


def host_option(default: str) -> Callable[[_Decorated], _Decorated]:
    """Return a decorator that adds `--host`: where a server listens."""
    return click.option(
        "--host",
        multiple=True,
        default=[default],
        callback=as_list,
        metavar="HOSTS",
        show_default=True,
        help="Addresses or names to listen on, separated by commas; repeatable.",
    )


def given_hosts(ctx: click.Context) -> Sequence[str]:
    """Return the value of `--host`.

    Raises:
        Failure: it is empty.
    """
    hosts: Sequence[str] = ctx.params["host"]
    if not hosts:
        raise Failure("--host: expected an address or a name at least")
    return hosts


def service_options(service: str, *, port: int, host: str = ANYWHERE) -> Callable[[_Decorated], _Decorated]:
    """Return a decorator that adds the flags of a server with one port: its own, those of every server and of the log.

    Reflection is on by default; the default of the reference is off.

    Args:
        service: as for `server_options`.
        port: the default.
        host: the default.
    """
    options = (
        log_options,
        boolean_option(
            "--grpc_reflection",
            variable=f"COGMENT_{service}_GRPC_REFLECTION",
            text="Serve gRPC reflection, by which clients list the services.",
        ),
        server_options(service, host=host),
        port_option("--port", default=port, variables=[f"COGMENT_{service}_PORT"], text="TCP port; 0: any free one."),
    )
    return lambda command: applied(options, command)


def common_settings(ctx: click.Context) -> dict[str, Any]:
    """Return the fields of `ServerSettings`, from `service_options` (or `server_options` and `log_options`).

    Raises:
        Failure: the flags contradict each other.
    """
    return {
        "hosts": given_hosts(ctx),
        "prometheus_port": ctx.params["prometheus_port"],
        "grpc_reflection": ctx.params.get("grpc_reflection", True),
        "tls": tls_files(ctx, server=True),
        "auth": auth_settings(ctx),
        "configuration": configuration_of(ctx),
        "directory": directory_settings(ctx),
        "log": log_settings(ctx),
    }
