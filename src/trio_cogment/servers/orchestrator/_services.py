"""The services in front of an orchestrator."""

from __future__ import annotations

from purerpc import Service

from trio_cogment.base.services import SERVICES, ServiceKind
from trio_cogment.rpc import bind
from trio_cogment.servers.orchestrator._client_actor_service import ClientActorService
from trio_cogment.servers.orchestrator._lifecycle_service import LifecycleService
from trio_cogment.servers.orchestrator._orchestrator import Orchestrator


def orchestrator_services(orchestrator: Orchestrator) -> list[Service]:
    """Return what of an orchestrator is to be served: `TrialLifecycleSP` and `ClientActorSP`, in this order."""
    return [
        bind(SERVICES[ServiceKind.LIFECYCLE].descriptor(), LifecycleService(orchestrator)),
        bind(SERVICES[ServiceKind.CLIENT_ACTOR].descriptor(), ClientActorService(orchestrator)),
    ]
