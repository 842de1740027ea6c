"""Settings, with their units in their names. Every limit and every timeout of the package has its default here.

The names below are resolved when they are first used: no server needs all of them.
"""

from typing import TYPE_CHECKING

from trio_cogment.base.lazy_names import lazy_names as _lazy_names

if TYPE_CHECKING:
    from trio_cogment.base.config._directory import DirectoryConfig as DirectoryConfig
    from trio_cogment.base.config._directory import DirectoryServerConfig as DirectoryServerConfig
    from trio_cogment.base.config._dm_env_rpc import DmEnvRpcConfig as DmEnvRpcConfig
    from trio_cogment.base.config._openenv import OpenEnvConfig as OpenEnvConfig
    from trio_cogment.base.config._orchestrator import MetricsConfig as MetricsConfig
    from trio_cogment.base.config._orchestrator import OrchestratorConfig as OrchestratorConfig
    from trio_cogment.base.config._outgoing import OutgoingConfig as OutgoingConfig
    from trio_cogment.base.config._platform import PlatformConfig as PlatformConfig
    from trio_cogment.base.config._play import PlayConfig as PlayConfig
    from trio_cogment.base.config._rpc import RpcConfig as RpcConfig
    from trio_cogment.base.config._stores import DatastoreConfig as DatastoreConfig
    from trio_cogment.base.config._stores import ModelRegistryConfig as ModelRegistryConfig
    from trio_cogment.base.config._tracing import TracingConfig as TracingConfig
    from trio_cogment.base.config._trainer import TrainerConfig as TrainerConfig
    from trio_cogment.base.config._trainer import WorkersConfig as WorkersConfig
    from trio_cogment.base.config._web import WebConfig as WebConfig
    from trio_cogment.base.config._web_proxy import WebProxyConfig as WebProxyConfig

_HOMES = {
    "DatastoreConfig": "_stores",
    "DirectoryConfig": "_directory",
    "DirectoryServerConfig": "_directory",
    "DmEnvRpcConfig": "_dm_env_rpc",
    "MetricsConfig": "_orchestrator",
    "ModelRegistryConfig": "_stores",
    "OpenEnvConfig": "_openenv",
    "OrchestratorConfig": "_orchestrator",
    "OutgoingConfig": "_outgoing",
    "PlatformConfig": "_platform",
    "PlayConfig": "_play",
    "RpcConfig": "_rpc",
    "TracingConfig": "_tracing",
    "TrainerConfig": "_trainer",
    "WebConfig": "_web",
    "WebProxyConfig": "_web_proxy",
    "WorkersConfig": "_trainer",
}

__getattr__, __dir__ = _lazy_names(__name__, globals(), _HOMES)
__all__ = sorted(_HOMES)  # noqa: PLE0605  the names are texts
