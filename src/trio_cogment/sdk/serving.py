"""Serving participants over gRPC, for an orchestrator elsewhere."""

from __future__ import annotations

import trio

from trio_cogment.config import RpcConfig
from trio_cogment.rpc import HealthService, Serving, open_listeners, serve, standard_services
from trio_cogment.sdk.participants import Participants


async def serve_participants(
    participants: Participants,
    *,
    port: int = 0,
    host: str = "0.0.0.0",
    rpc_config: RpcConfig | None = None,
    task_status: trio.TaskStatus[Serving] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve everything registered, and health and reflection, on one port, until cancelled.

    `task_status.started` gets a `Serving`, which tells the bound addresses. After `Cancelled` every trial's session has
    been cancelled and the sockets are closed.

    Raises:
        OSError: the port is taken.
    """
    listeners = await open_listeners(host, port)
    services = participants.services()
    health = HealthService(service.name for service in services)
    services = [*services, *standard_services(services, health)]
    await serve(services, listeners, config=rpc_config, health=health, task_status=task_status)
