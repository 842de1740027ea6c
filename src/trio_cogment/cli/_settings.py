"""What the command line, the environment and the file of `--config` come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from trio_cogment.cli._directory_options import DirectorySettings
from trio_cogment.config import (
    DatastoreConfig,
    DirectoryConfig,
    DirectoryServerConfig,
    MetricsConfig,
    ModelRegistryConfig,
    OrchestratorConfig,
    RpcConfig,
)


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
        datastore: of the trial datastore.
        model_registry: of the model registry.
        directory_server: of a directory of ours.
        flags: by their names.
        places: where in the file each flag is, for errors.
    """

    orchestrator: OrchestratorConfig = field(default_factory=OrchestratorConfig)
    rpc: RpcConfig = field(default_factory=RpcConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    directory: DirectoryConfig = field(default_factory=DirectoryConfig)
    datastore: DatastoreConfig = field(default_factory=DatastoreConfig)
    model_registry: ModelRegistryConfig = field(default_factory=ModelRegistryConfig)
    directory_server: DirectoryServerConfig = field(default_factory=DirectoryServerConfig)
    flags: dict[str, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """What any server is started with.

    Attributes:
        hosts: addresses or names to listen on.
        prometheus_port: of the metrics; 0: none.
        status_file: what a supervisor reads.
        grpc_reflection: servers describe their services to whoever asks.
        tls: for our servers and for every call that goes out.
        configuration: what no flag says.
        directory: where, and as what, our services are registered.
        log: where it goes.
    """

    hosts: Sequence[str]
    prometheus_port: int = 0
    status_file: Path | None = None
    grpc_reflection: bool = True
    tls: TlsFiles | None = None
    configuration: Configuration = field(default_factory=Configuration)
    directory: DirectorySettings | None = None
    log: LogSettings = field(default_factory=LogSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSettings:
    """Where trials are stored.

    Attributes:
        file: an SQLite database; None: in memory.
        memory_bytes: what they may take there.
        durability: what a confirmed sample in a file survives, `full` or `batch`.
    """

    file: Path | None = None
    memory_bytes: int
    durability: str = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatastoreSettings(ServerSettings):
    """What a trial datastore is started with, besides."""

    port: int
    storage: StorageSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRegistrySettings(ServerSettings):
    """What a model registry is started with, besides."""

    port: int
    archive: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryServerSettings(ServerSettings):
    """What a directory is started with, besides; an empty file is none."""

    port: int
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OrchestratorSettings(ServerSettings):
    """What an orchestrator is started with, besides.

    With a storage a datastore is part of it, with an archive a model registry.
    """

    lifecycle_port: int
    actor_port: int
    params: Path | None = None
    pre_trial_hooks: Sequence[str] = ()
    storage: StorageSettings | None = None
    archive: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """What a command of the client is run with.

    Attributes:
        output: `text` or `json`.
        timeout_seconds: how long to wait for an answer.
        tls: every call is encrypted.
    """

    output: str = "text"
    timeout_seconds: float = 30.0
    tls: TlsFiles | None = None
