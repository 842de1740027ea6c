"""The file of `--config`, as the commands see it: values of flags, and settings that no flag has.

A flag or an environment variable wins over the file. `configuration_file` reads the file; what a command does not ask
for is not made, since the classes of the settings take a while to import.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import click

from trio_cogment.base.records import record

if TYPE_CHECKING:
    from trio_cogment.base.config import (
        DatastoreConfig,
        DirectoryConfig,
        DirectoryServerConfig,
        DmEnvRpcConfig,
        MetricsConfig,
        ModelRegistryConfig,
        OpenEnvConfig,
        OrchestratorConfig,
        OutgoingConfig,
        PlayConfig,
        RpcConfig,
        TrainerConfig,
        WebConfig,
        WebProxyConfig,
        WorkersConfig,
    )

#: Section of the file -> its class in `trio_cogment.base.config`.
SECTIONS = {
    "orchestrator": "OrchestratorConfig",
    "rpc": "RpcConfig",
    "metrics": "MetricsConfig",
    "directory": "DirectoryConfig",
    "datastore": "DatastoreConfig",
    "model_registry": "ModelRegistryConfig",
    "directory_server": "DirectoryServerConfig",
    "outgoing": "OutgoingConfig",
    "openenv": "OpenEnvConfig",
    "dm_env_rpc": "DmEnvRpcConfig",
    "trainer": "TrainerConfig",
    "workers": "WorkersConfig",
    "play": "PlayConfig",
    "web": "WebConfig",
    "web_proxy": "WebProxyConfig",
}

META_KEY = "trio_cogment.configuration"


def section_class(name: str) -> type[Any]:
    """Return the class of a section."""
    found: type[Any] = getattr(importlib.import_module("trio_cogment.base.config"), SECTIONS[name])
    return found


@record(kw_only=True)
class Configuration:
    """The content of the file of `--config`, and what flags change in it.

    Attributes:
        sections: those that the file has.
        changes: for each section, the values of fields that flags give.
        flags: values of flags, by their names.
        places: where in the file each flag is, for errors.
    """

    sections: Mapping[str, Any] = field(default_factory=dict)
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    flags: dict[str, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)

    @property
    def orchestrator(self) -> OrchestratorConfig:
        """Limits and timeouts of trials."""
        found: OrchestratorConfig = self._section("orchestrator")
        return found

    @property
    def rpc(self) -> RpcConfig:
        """Limits and timeouts of all servers and channels."""
        found: RpcConfig = self._section("rpc")
        return found

    @property
    def metrics(self) -> MetricsConfig:
        """The buckets and labels of metrics."""
        found: MetricsConfig = self._section("metrics")
        return found

    @property
    def directory(self) -> DirectoryConfig:
        """Timeouts of calls to the directory."""
        found: DirectoryConfig = self._section("directory")
        return found

    @property
    def datastore(self) -> DatastoreConfig:
        """Limits of the trial datastore."""
        found: DatastoreConfig = self._section("datastore")
        return found

    @property
    def model_registry(self) -> ModelRegistryConfig:
        """Limits of the model registry."""
        found: ModelRegistryConfig = self._section("model_registry")
        return found

    @property
    def directory_server(self) -> DirectoryServerConfig:
        """Rules and limits of a directory."""
        found: DirectoryServerConfig = self._section("directory_server")
        return found

    @property
    def outgoing(self) -> OutgoingConfig:
        """Where a server connects when a peer has named an endpoint."""
        found: OutgoingConfig = self._section("outgoing")
        return found

    @property
    def openenv(self) -> OpenEnvConfig:
        """Limits of a server of OpenEnv."""
        found: OpenEnvConfig = self._section("openenv")
        return found

    @property
    def dm_env_rpc(self) -> DmEnvRpcConfig:
        """Limits of a gateway for clients of dm_env_rpc."""
        found: DmEnvRpcConfig = self._section("dm_env_rpc")
        return found

    @property
    def trainer(self) -> TrainerConfig:
        """Limits and timeouts of a trainer."""
        found: TrainerConfig = self._section("trainer")
        return found

    @property
    def workers(self) -> WorkersConfig:
        """Limits and timeouts of the processes of a trainer's workers."""
        found: WorkersConfig = self._section("workers")
        return found

    @property
    def web(self) -> WebConfig:
        """Limits of what servers have for browsers."""
        found: WebConfig = self._section("web")
        return found

    @property
    def play(self) -> PlayConfig:
        """Of pages in which people take part in trials."""
        found: PlayConfig = self._section("play")
        return found

    @property
    def web_proxy(self) -> WebProxyConfig:
        """Limits of a web proxy."""
        found: WebProxyConfig = self._section("web_proxy")
        return found

    def _section(self, name: str) -> Any:
        found = self.sections[name] if name in self.sections else section_class(name)()
        return replace(found, **self.changes.get(name, {}))

    def overridden(self, section: str, **given: Any) -> Configuration:
        """Return a copy with the values that flags give to fields of one section; None gives nothing."""
        values = {name: value for name, value in given.items() if value is not None}
        return replace(self, changes={**self.changes, section: {**self.changes.get(section, {}), **values}})


def configuration_of(ctx: click.Context) -> Configuration:
    """Return the content of the file of `--config`, or the defaults."""
    found = ctx.meta.get(META_KEY)
    return found if isinstance(found, Configuration) else Configuration()
