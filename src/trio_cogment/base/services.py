"""The services of the platform, and the names they go by: one table.

A service has a kind, which endpoints and command lines name, a gRPC name, a number in the directory's registrations,
and a default port. The names of metadata and of registered properties are here too. Each name stands only here.

The module imports only the standard library, so that every module may import it, including those that only print a
command's ``--help``. `ServiceInfo.descriptor` imports the API's modules when it is called.
"""

from __future__ import annotations

import enum
import importlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from trio_cogment.base.records import record

if TYPE_CHECKING:
    from google.protobuf.descriptor import ServiceDescriptor

_PACKAGE = "cogmentAPI"

# Names of the gRPC services, without their package

SERVICE_ACTOR = "ServiceActorSP"
ENVIRONMENT = "EnvironmentSP"
DATALOG = "DatalogSP"
#: The name of the data log service in the reference's documentation. It is served beside `DatalogSP`, and has no kind.
LOG_EXPORTER = "LogExporterSP"
PRE_TRIAL_HOOKS = "TrialHooksSP"
LIFECYCLE = "TrialLifecycleSP"
CLIENT_ACTOR = "ClientActorSP"
DATASTORE = "TrialDatastoreSP"
#: A trial datastore's service for orchestrators that go on with its trials. It is ours, and has no kind.
ATTEMPTS = "TrialAttempts"
MODEL_REGISTRY = "ModelRegistrySP"
DIRECTORY = "DirectorySP"
#: A gateway's service for clients of dm_env_rpc. It is not of the platform, and has no kind.
DM_ENV_RPC = "Environment"
#: The service of a trainer. It is not of the platform, and has no kind.
TRAINER = "TrainerService"
#: A gateway's service for clients of the legacy API. It has no kind either.
LEGACY_TRIAL = "Trial"
#: A gateway's service for orchestrators of the legacy API.
LEGACY_LOG_EXPORTER = "LogExporter"

# Metadata of calls

#: Which trial a call is about; `TrialLifecycleSP` takes several.
TRIAL_ID = "trial-id"
#: The user who started the trial.
USER_ID = "user-id"
#: For whom an orchestrator runs the trial that it logs: an account, quoted as in a URL.
TRIAL_OWNER = "trial-owner"
#: And its quotas, as `access.Quotas.text` writes them.
TRIAL_QUOTAS = "trial-quotas"
#: The endpoint of the orchestrator that logs the trial, quoted as above: where others find it.
TRIAL_ORCHESTRATOR = "trial-orchestrator"
#: Which attempt at its trial a data log writes; 0: the next one. Without it the datastore counts none.
TRIAL_ATTEMPT = "trial-attempt"
#: For the worker of which run a gateway starts a trial, quoted as above.
TRIAL_RUN = "trial-run"
#: Sent to a client actor: the trial may go on after a death of its orchestrator, so it is worth coming back.
TRIAL_RESUMES = "trial-resumes"
#: Sent to a directory: a registration is found, and can be removed, only with the token it was made with.
AUTHENTICATION_TOKEN = "authentication-token"

# Properties of registrations with a directory

#: The class of the actor that is served.
ACTOR_CLASS = "__actor_class"
#: The name of the implementation that is served.
IMPLEMENTATION = "__implementation"
#: The version of the program that registered the service.
VERSION = "__version"
#: The protocol of a service that is not of the platform.
PROTOCOL = "__protocol"
#: Which kind of program made the registration, and how it determined the host.
REGISTRATION_SOURCE = "__registration_source"


class ServiceKind(enum.Enum):
    """What a service is; the values are the paths of ``cogment://discover/...`` and the types on command lines."""

    ACTOR = "actor"
    ENVIRONMENT = "environment"
    DATALOG = "datalog"
    PRE_TRIAL_HOOK = "prehook"
    LIFECYCLE = "lifecycle"
    CLIENT_ACTOR = "actservice"
    DATASTORE = "datastore"
    MODEL_REGISTRY = "modelregistry"
    DIRECTORY = "directory"
    OTHER = "other"


@record()
class ServiceInfo:
    """One row of the table.

    Attributes:
        name: the gRPC service, without its package; empty for services that are not of the platform.
        directory_type: the number of its `ServiceType` in directory.proto.
        module: the module of `trio_cogment.api` that describes it.
        default_port: where its server listens unless told otherwise; 0: any free port.
        found_by: the properties that its registrations have, and that a trial's parameters ask for.
    """

    name: str
    directory_type: int
    module: str = ""
    default_port: int = 0
    found_by: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """The name of the gRPC service as it stands in the path of a call."""
        return f"{_PACKAGE}.{self.name}" if self.name else ""

    def descriptor(self) -> ServiceDescriptor:
        """Return the description of the service, for `rpc.bind` and `rpc.methods_of`.

        Raises:
            LookupError: the service is not of the platform, and nothing is known about its methods.
        """
        if not self.name:
            raise LookupError("a service that is not of the platform has no description")
        module = importlib.import_module(f"trio_cogment.api.{self.module}")
        service: ServiceDescriptor = module.DESCRIPTOR.services_by_name[self.name]
        return service


_ORCHESTRATOR_PORT = 9000
_MODEL_REGISTRY_PORT = 9002
_DATASTORE_PORT = 9003
_DIRECTORY_PORT = 9005

#: In the order in which `trio-cogment status` tries the kinds of a service whose kind it does not know.
SERVICES: Mapping[ServiceKind, ServiceInfo] = {
    ServiceKind.ACTOR: ServiceInfo(SERVICE_ACTOR, 3, "agent_pb2", found_by=(ACTOR_CLASS, IMPLEMENTATION)),
    ServiceKind.ENVIRONMENT: ServiceInfo(ENVIRONMENT, 4, "environment_pb2", found_by=(IMPLEMENTATION,)),
    ServiceKind.DATALOG: ServiceInfo(DATALOG, 6, "datalog_pb2", _DATASTORE_PORT),
    ServiceKind.PRE_TRIAL_HOOK: ServiceInfo(PRE_TRIAL_HOOKS, 5, "hooks_pb2"),
    ServiceKind.LIFECYCLE: ServiceInfo(LIFECYCLE, 1, "orchestrator_pb2", _ORCHESTRATOR_PORT),
    ServiceKind.CLIENT_ACTOR: ServiceInfo(CLIENT_ACTOR, 2, "orchestrator_pb2", _ORCHESTRATOR_PORT),
    ServiceKind.DATASTORE: ServiceInfo(DATASTORE, 7, "trial_datastore_pb2", _DATASTORE_PORT),
    ServiceKind.MODEL_REGISTRY: ServiceInfo(MODEL_REGISTRY, 8, "model_registry_pb2", _MODEL_REGISTRY_PORT),
    ServiceKind.DIRECTORY: ServiceInfo(DIRECTORY, 9, "directory_pb2", _DIRECTORY_PORT),
    ServiceKind.OTHER: ServiceInfo("", 100),
}

#: What a trial calls; the endpoints in its parameters lead to nothing else.
TRIAL_KINDS = (ServiceKind.ACTOR, ServiceKind.ENVIRONMENT, ServiceKind.DATALOG, ServiceKind.PRE_TRIAL_HOOK)

#: What a server registers of the services it has, in this order. Those of an SDK's process are registered by the SDK,
#: and a directory is registered nowhere.
REGISTERED_BY_SERVERS = (
    ServiceKind.CLIENT_ACTOR,
    ServiceKind.LIFECYCLE,
    ServiceKind.DATASTORE,
    ServiceKind.DATALOG,
    ServiceKind.MODEL_REGISTRY,
)

#: Services of other protocols that a server of the platform may have: full name -> value of `PROTOCOL`.
PROTOCOLS = {
    f"dm_env_rpc.v1.{DM_ENV_RPC}": "dm_env_rpc",
    f"gymgui.trainer.{TRAINER}": "trainer",
    f"cogment.{LEGACY_TRIAL}": "legacy",
}

_KIND_OF_TYPE = {info.directory_type: kind for kind, info in SERVICES.items()}
_KIND_OF_NAME = {info.full_name: kind for kind, info in SERVICES.items() if info.name}


def kind_of_type(directory_type: int) -> ServiceKind | None:
    """Return the kind that a `ServiceType` of the directory stands for, None if it is unknown."""
    return _KIND_OF_TYPE.get(directory_type)


def registered_kinds(full_names: Iterable[str]) -> list[ServiceKind]:
    """Return what a server registers, in order, that serves the gRPC services of these full names."""
    served = {_KIND_OF_NAME.get(name) for name in full_names}
    return [kind for kind in REGISTERED_BY_SERVERS if kind in served]


def default_address(kind: ServiceKind) -> str:
    """Return the endpoint of a server on this host that listens on its default port."""
    return f"grpc://localhost:{SERVICES[kind].default_port}"
