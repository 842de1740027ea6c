"""Settings of a platform within a program."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from trio_cogment.base.config._directory import DirectoryConfig
from trio_cogment.base.config._orchestrator import OrchestratorConfig
from trio_cogment.base.config._outgoing import OutgoingConfig
from trio_cogment.base.config._rpc import RpcConfig
from trio_cogment.base.config._stores import DatastoreConfig, ModelRegistryConfig
from trio_cogment.base.records import record

if TYPE_CHECKING:
    import ssl

    from trio_cogment.api.common_pb2 import TrialParams


@record(kw_only=True)
class PlatformConfig:
    """The settings of `open_platform`.

    Attributes:
        orchestrator: limits and timeouts of trials.
        rpc: the settings of the channels to participants elsewhere, and to a directory.
        datastore: the settings of the datastore.
        model_registry: the settings of a model registry that is opened for the platform.
        directory: timeouts of a directory's client that is opened for the platform.
        outgoing: where the orchestrator connects when a peer names an endpoint.
        default_params: the parameters of trials that are started without any.
        pre_trial_hooks: the endpoints of the pre-trial hooks, in the order of their calls; `cogment://discover` means
            the hooks that are registered with the platform's participants.
        client_tls: encrypts every connection to participants elsewhere and to a directory; see `rpc.client_tls`.
    """

    orchestrator: OrchestratorConfig = field(default_factory=OrchestratorConfig)
    rpc: RpcConfig = field(default_factory=RpcConfig)
    datastore: DatastoreConfig = field(default_factory=DatastoreConfig)
    model_registry: ModelRegistryConfig = field(default_factory=ModelRegistryConfig)
    directory: DirectoryConfig = field(default_factory=DirectoryConfig)
    outgoing: OutgoingConfig = field(default_factory=OutgoingConfig)
    default_params: TrialParams | None = None
    pre_trial_hooks: tuple[str, ...] = ()
    client_tls: ssl.SSLContext | None = None
