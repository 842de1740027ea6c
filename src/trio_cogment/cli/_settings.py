"""What the command line, the environment and the file of `--config` come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from trio_cogment.cli._directory_options import DirectorySettings
from trio_cogment.config import DirectoryConfig, DirectoryServerConfig, MetricsConfig, OrchestratorConfig, RpcConfig


class Failure(click.ClickException):
    """What ends a command with one line and exit code 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """Where the log goes: stderr, or a file it is appended to."""

    level: str = "info"
    form: str = "text"
    file: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """The three files of mutual TLS: for our servers, and for every call that goes out."""

    private_key: Path
    root_cert: Path
    trust_chain: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What the file of `--config` says.

    Attributes:
        orchestrator: limits and timeouts of trials.
        rpc: of all servers and channels.
        metrics: of the metrics' endpoint.
        directory: of what the directory is asked and told.
        directory_server: of a directory of ours.
        flags: by their names.
        places: where in the file each flag is, for errors.
    """

    orchestrator: OrchestratorConfig = field(default_factory=OrchestratorConfig)
    rpc: RpcConfig = field(default_factory=RpcConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    directory: DirectoryConfig = field(default_factory=DirectoryConfig)
    directory_server: DirectoryServerConfig = field(default_factory=DirectoryServerConfig)
    flags: dict[str, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """What an orchestrator is started with."""

    hosts: Sequence[str]
    lifecycle_port: int
    actor_port: int
    params: Path | None = None
    pre_trial_hooks: Sequence[str] = ()
    prometheus_port: int = 0
    status_file: Path | None = None
    tls: TlsFiles | None = None
    configuration: Configuration = field(default_factory=Configuration)
    directory: DirectorySettings | None = None
    log: LogSettings = field(default_factory=LogSettings)
