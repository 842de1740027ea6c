"""The standard health service, `grpc.health.v1`: what load balancers and orchestrators of containers ask."""

from __future__ import annotations

import enum
from collections.abc import Iterable

import trio
from purerpc import Service

from trio_cogment.base.errors import NotFoundError, UnavailableError
from trio_cogment.rpc._protos.health_pb2 import (
    DESCRIPTOR,
    HealthCheckRequest,
    HealthCheckResponse,
    HealthListRequest,
    HealthListResponse,
)
from trio_cogment.rpc.calls import CallOpener, ServerCall
from trio_cogment.rpc.service import bind, methods_of


class ServingStatus(enum.Enum):
    """How a service is."""

    UNKNOWN = HealthCheckResponse.UNKNOWN
    SERVING = HealthCheckResponse.SERVING
    NOT_SERVING = HealthCheckResponse.NOT_SERVING
    SERVICE_UNKNOWN = HealthCheckResponse.SERVICE_UNKNOWN


class HealthService:
    """Answers how the services of a server are: `serve([..., health.service()], ..., health=health)`.

    Servers of one process may share it, with a `service` for each; they share the status of the server as a whole then.

    Args:
        services: full names that are SERVING from the start; the server as a whole, the empty name, always is.
    """

    def __init__(self, services: Iterable[str] = ()) -> None:
        self._statuses = dict.fromkeys(["", *services], ServingStatus.SERVING)
        self._claimed: set[str] = set()
        self._watchers = trio.lowlevel.ParkingLot()
        self._stopped = False

    def set_status(self, service: str, status: ServingStatus) -> None:
        """Set how a service is, and tell those who watch; after `stop` nothing happens."""
        if not self._stopped:
            self._statuses[service] = status
            self._watchers.unpark_all()

    def status(self, service: str = "") -> ServingStatus:
        """Return how a service is; SERVICE_UNKNOWN if nobody has said."""
        return self._statuses.get(service, ServingStatus.SERVICE_UNKNOWN)

    def stop(self) -> None:
        """Say NOT_SERVING for everything from now on. Those who watch are told, and then have their call ended."""
        if not self._stopped:
            for service in self._statuses:
                self._statuses[service] = ServingStatus.NOT_SERVING
            self._stopped = True
            self._watchers.unpark_all()

    def service(self, services: Iterable[str] | None = None) -> Service:
        """Return it for serving.

        Args:
            services: full names of what is served beside it. This server says nothing of those that were named for
                others then; names that belong to no server at all are told by each. Without them it says everything.
        """
        own = None if services is None else frozenset(services)
        self._claimed |= own or set()
        self._watchers.unpark_all()
        return bind(DESCRIPTOR.services_by_name["Health"], _Methods(self, own))

    def is_of_others(self, service: str, own: frozenset[str] | None) -> bool:
        """Whether only servers other than the one of these services have this one."""
        return own is not None and service not in own and service in self._claimed

    @property
    def statuses(self) -> dict[str, ServingStatus]:
        """Every status that has been set, by service."""
        return dict(self._statuses)

    @property
    def stopped(self) -> bool:
        """Whether `stop` has been called."""
        return self._stopped

    async def wait_change(self) -> None:
        """Return when a status may have changed."""
        await self._watchers.park()


async def ask_health(opener: CallOpener, service: str = "", *, timeout: float | None = None) -> ServingStatus:
    """Ask a server how one of its services is, or the server as a whole.

    Raises:
        RpcError: it did not say; UNIMPLEMENTED if it has no health service, NOT_FOUND if it knows no such service.
    """
    method = methods_of(DESCRIPTOR.services_by_name["Health"])["Check"]
    reply: HealthCheckResponse = await opener.unary(method, HealthCheckRequest(service=service), timeout=timeout)
    known = reply.status in HealthCheckResponse.ServingStatus.values()
    return ServingStatus(reply.status) if known else ServingStatus.UNKNOWN


def _response(status: ServingStatus) -> HealthCheckResponse:
    return HealthCheckResponse(status=status.value)


class _Methods:
    """The methods as the protocol names them, on one server."""

    def __init__(self, health: HealthService, own: frozenset[str] | None) -> None:
        self._health = health
        self._own = own

    def _status(self, service: str) -> ServingStatus:
        if self._health.is_of_others(service, self._own):
            return ServingStatus.SERVICE_UNKNOWN
        return self._health.status(service)

    async def Check(self, request: HealthCheckRequest, call: ServerCall) -> HealthCheckResponse:
        status = self._status(request.service)
        if status is ServingStatus.SERVICE_UNKNOWN:
            raise NotFoundError("unknown service")
        return _response(status)

    async def Watch(self, request: HealthCheckRequest, call: ServerCall) -> None:
        """Send the status now and whenever it changes; a slow reader gets the latest."""
        told: ServingStatus | None = None
        while True:
            status = self._status(request.service)
            if status is not told:
                await call.send(_response(status))
                told = status
            elif self._health.stopped:  # the call would hold up a drain until its grace is over
                raise UnavailableError("the server is stopping")
            else:
                await self._health.wait_change()

    async def List(self, request: HealthListRequest, call: ServerCall) -> HealthListResponse:
        health, own = self._health, self._own
        told = {name: status for name, status in health.statuses.items() if not health.is_of_others(name, own)}
        return HealthListResponse(statuses={name: _response(status) for name, status in told.items()})
