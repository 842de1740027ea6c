"""Settings, with their units in their names. Every limit and every timeout of the package has its default here."""

from trio_cogment.config._directory import DirectoryConfig, DirectoryServerConfig
from trio_cogment.config._dm_env_rpc import DmEnvRpcConfig
from trio_cogment.config._openenv import OpenEnvConfig
from trio_cogment.config._orchestrator import MetricsConfig, OrchestratorConfig
from trio_cogment.config._outgoing import OutgoingConfig
from trio_cogment.config._platform import PlatformConfig
from trio_cogment.config._play import PlayConfig
from trio_cogment.config._rpc import RpcConfig
from trio_cogment.config._stores import DatastoreConfig, ModelRegistryConfig
from trio_cogment.config._trainer import TrainerConfig, WorkersConfig
from trio_cogment.config._web import WebConfig
from trio_cogment.config._web_proxy import WebProxyConfig

__all__ = [
    "DatastoreConfig",
    "DirectoryConfig",
    "DirectoryServerConfig",
    "DmEnvRpcConfig",
    "MetricsConfig",
    "ModelRegistryConfig",
    "OpenEnvConfig",
    "OrchestratorConfig",
    "OutgoingConfig",
    "PlatformConfig",
    "PlayConfig",
    "RpcConfig",
    "TrainerConfig",
    "WebConfig",
    "WebProxyConfig",
    "WorkersConfig",
]
