"""Serving participants over gRPC, for an orchestrator elsewhere."""

from __future__ import annotations

import trio

from trio_cogment.config import RpcConfig
from trio_cogment.rpc import Serving, open_listeners, serve
from trio_cogment.sdk.participants import Participants


async def serve_participants(
    participants: Participants,
    *,
    port: int = 0,
    host: str = "0.0.0.0",  # noqa: S104 RUF100  participants are there to be reached
    rpc_config: RpcConfig | None = None,
    task_status: trio.TaskStatus[Serving] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve everything registered, on one port, until cancelled.

    `task_status.started` gets a `Serving`, which tells the bound addresses. After `Cancelled` every trial's session has
    been cancelled and the sockets are closed.

    Raises:
        OSError: the port is taken.
    """
    listeners = await open_listeners(host, port)
    await serve(participants.services(), listeners, config=rpc_config, task_status=task_status)
