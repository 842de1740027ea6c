"""Names under which the servers of the platform are announced once their ports are open.

A server announces itself before anything slow is imported, so this module imports nothing but names.
"""

from __future__ import annotations

from trio_cogment.service_names import (
    CLIENT_ACTOR,
    DATALOG,
    DATASTORE,
    DIRECTORY,
    DM_ENV_RPC,
    ENVIRONMENT,
    LEGACY_LOG_EXPORTER,
    LEGACY_TRIAL,
    LIFECYCLE,
    LOG_EXPORTER,
    MODEL_REGISTRY,
    PRE_TRIAL_HOOKS,
    SERVICE_ACTOR,
    TRAINER,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable, Sequence
    from typing import TypeVar

    T = TypeVar("T")

DIRECTORY_SERVICES = (DIRECTORY,)
DATASTORE_SERVICES = (DATALOG, LOG_EXPORTER, DATASTORE)
REGISTRY_SERVICES = (MODEL_REGISTRY,)
DM_ENV_RPC_SERVICES = (DM_ENV_RPC,)
TRAINER_SERVICES = (TRAINER,)
WEB_PROXY_SERVICES = (SERVICE_ACTOR,)
#: What the JavaScript SDK calls: the services on the port for pages of any origin.
FOR_PAGES = (LIFECYCLE, CLIENT_ACTOR)
#: What `serve` is announced as; which services there are it says when it serves.
EVERYTHING = "trio-cogment"
#: Of a gateway for the legacy API in front of an orchestrator.
LEGACY_SERVICES = (LEGACY_TRIAL, ENVIRONMENT, SERVICE_ACTOR, DATALOG, PRE_TRIAL_HOOKS)


def orchestrator_parts(
    *,
    datastore: bool,
    model_registry: bool,
    directory: bool,
    one_port: bool,
    dm_env_rpc: bool = False,
    trainer: bool = False,
    legacy: bool = False,
) -> tuple[str, list[list[str]]]:
    """Return the name of an orchestrator with what is in its process, and the services of its two ports."""
    names, lifecycle, others = ["orchestrator"], [LIFECYCLE], [CLIENT_ACTOR]
    if datastore:
        names.append("trial_datastore")
        others += DATASTORE_SERVICES
    if model_registry:
        names.append("model_registry")
        others += REGISTRY_SERVICES
    if dm_env_rpc:
        names.append("dm_env_rpc")
        others += DM_ENV_RPC_SERVICES
    if trainer:
        names.append("trainer")
        others += TRAINER_SERVICES
    if legacy:
        names.append("legacy")
        others += [LEGACY_TRIAL, LEGACY_LOG_EXPORTER] if datastore else [LEGACY_TRIAL]
    if directory:
        names.append("directory")
        # It is on the first port.
        (others if one_port else lifecycle).extend(DIRECTORY_SERVICES)
    return ", ".join(names), [lifecycle, others]


def announcements(
    name: str,
    ports: Sequence[int],
    services: Sequence[Sequence[str]],
    servers: Iterable[Iterable[socket.socket]],
) -> list[str]:
    """Return a line for each address.

    Args:
        name: of what is served.
        ports: as they were asked for; the same port twice means one server.
        services: the names of the services on each port; none: the line does not list them.
        servers: the open sockets of each server.
    """
    return [
        f"{name} listening on {_address(one)}" + (f" ({', '.join(names)})" if names else "")
        for sockets, names in zip(servers, merged(ports, services), strict=True)
        for one in sockets
    ]


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def merged(ports: Sequence[int], items: Sequence[Sequence[T]]) -> list[list[T]]:
    """Return what belongs to each server; there is one for each distinct port."""
    found: dict[int, list[T]] = {}
    for port, some in zip(ports, items, strict=True):
        found.setdefault(port, []).extend(some)
    return list(found.values())
