"""The services that every gRPC server should have: health and reflection."""

from __future__ import annotations

from collections.abc import Iterable

from purerpc import Service

from trio_cogment.rpc.health import HealthService
from trio_cogment.rpc.reflection import reflection_services


def standard_services(
    services: Iterable[Service], health: HealthService | None = None, *, reflection: bool = True
) -> list[Service]:
    """Return the health service and both versions of reflection, to be served beside `services`.

    Args:
        services: what the server is for; reflection describes them.
        health: says how they are; without one all of them are SERVING. Where several servers share it, each tells of
            its own services only.
        reflection: without it there is health only.
    """
    served = list(services)
    if health is None:
        health = HealthService(service.name for service in served)
    health_service = health.service(service.name for service in served)
    return [health_service, *(reflection_services([*served, health_service]) if reflection else ())]
