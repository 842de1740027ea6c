"""Serving participants over gRPC, for an orchestrator in another process."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import partial

import trio

from trio_cogment.access import AccessControl
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.host import Host
from trio_cogment.rpc import HealthService, RunningServer, open_listeners, serve, standard_services
from trio_cogment.sdk._log_level import apply_log_level
from trio_cogment.sdk._participants import Participants
from trio_cogment.servers.discovery import SDK, DirectoryClient, host_finder, keep_registered


async def serve_participants(
    participants: Participants,
    *,
    port: int = 0,
    address: str = "0.0.0.0",
    tls: ssl.SSLContext | None = None,
    rpc_config: RpcConfig | None = None,
    directory: DirectoryClient | None = None,
    registration_host: str = "",
    registration_properties: Mapping[str, str] | None = None,
    access: AccessControl | None = None,
    host: Host | None = None,
    task_status: trio.TaskStatus[RunningServer] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the registered implementations, health and reflection on one port, until cancelled.

    `task_status.started` gets a `RunningServer` with the bound addresses. After `Cancelled` the sessions of all trials
    have been cancelled, the sockets are closed, and the services are deregistered (see `keep_registered`). If
    `COGMENT_LOG_LEVEL` is set, it becomes the level of the logger `trio_cogment`.

    Args:
        participants: the implementations.
        port: the TCP port; 0 for any free port.
        address: the address to listen on.
        tls: encrypt; for example from `trio_cogment.rpc.server_tls`, which can also ask clients for certificates.
        rpc_config: limits and timeouts of the server.
        directory: the directory with which to register the services, for `cogment://discover`; implementations that
            are added to `participants` later are not registered. See `trio_cogment.servers.discovery.open_directory`.
        registration_host: the name or address under which others reach this server; by default its own address.
        access: decides about every call: with the keys of the platform's servers, only their orchestrators get in, each
            for the trials it runs; None: everybody does. The directory's token is that of `open_directory`.
        registration_properties: properties of all registrations, in addition to those of the implementations.
        host: where to listen; by default the system.
        task_status: see above.

    Raises:
        OSError: the port is in use.
        TypeError: `host` is an address.
        InvalidArgumentError: `COGMENT_LOG_LEVEL` has an invalid value.
    """
    if isinstance(host, str):  # as other libraries call it
        raise TypeError(f"host: expected a Host, got a text; the address is `address={host!r}`")
    apply_log_level()
    listeners = await open_listeners(address, port, tls=tls, host=host)
    services = participants.services()
    health = HealthService(service.name for service in services)
    services = [*services, *standard_services(services, health)]
    run = partial(serve, services, listeners, config=rpc_config, health=health, access=access)
    if directory is None:
        await run(task_status=task_status)
        return
    async with trio.open_nursery() as nursery:
        serving: RunningServer = await nursery.start(run)
        task_status.started(serving)
        await keep_registered(
            directory,
            participants.offers(serving.port),
            registration_host=registration_host,
            ssl=tls is not None,
            properties=registration_properties,
            source=SDK,
            find_host=host_finder(serving.addresses, host),
            host=host,
        )
