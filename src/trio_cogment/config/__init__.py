"""Settings, with their units in their names. Every limit and every timeout of the package has its default here."""

from trio_cogment.config._directory import DirectoryConfig as DirectoryConfig
from trio_cogment.config._directory import DirectoryServerConfig as DirectoryServerConfig
from trio_cogment.config._dm_env_rpc import DmEnvRpcConfig as DmEnvRpcConfig
from trio_cogment.config._openenv import OpenEnvConfig as OpenEnvConfig
from trio_cogment.config._orchestrator import MetricsConfig as MetricsConfig
from trio_cogment.config._orchestrator import OrchestratorConfig as OrchestratorConfig
from trio_cogment.config._outgoing import OutgoingConfig as OutgoingConfig
from trio_cogment.config._platform import PlatformConfig as PlatformConfig
from trio_cogment.config._play import PlayConfig as PlayConfig
from trio_cogment.config._rpc import RpcConfig as RpcConfig
from trio_cogment.config._stores import DatastoreConfig as DatastoreConfig
from trio_cogment.config._stores import ModelRegistryConfig as ModelRegistryConfig
from trio_cogment.config._trainer import TrainerConfig as TrainerConfig
from trio_cogment.config._trainer import WorkersConfig as WorkersConfig
from trio_cogment.config._web import WebConfig as WebConfig
from trio_cogment.config._web_proxy import WebProxyConfig as WebProxyConfig
