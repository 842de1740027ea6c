"""`DirectorySP`: registering, deregistering, inquiring."""

from __future__ import annotations

import logging
from collections.abc import Callable

from purerpc import Service
from typing_extensions import override

from trio_cogment.access import reach_of
from trio_cogment.api.directory_pb2 import (
    DeregisterReply,
    DeregisterRequest,
    InquireReply,
    InquireRequest,
    RegisterReply,
    RegisterRequest,
)
from trio_cogment.base.about import About
from trio_cogment.base.errors import CogmentError
from trio_cogment.base.services import AUTHENTICATION_TOKEN, SERVICES, ServiceKind
from trio_cogment.budget.refusals import refusals
from trio_cogment.rpc import ServerCall, bind
from trio_cogment.servers.directory._requests import inquiry_of, service_of
from trio_cogment.servers.directory._server import DirectoryServer

_log = logging.getLogger(__name__)


def directory_services(directory: DirectoryServer) -> list[Service]:
    """Return the services of a directory: `DirectorySP`."""
    return [bind(SERVICES[ServiceKind.DIRECTORY].descriptor(), DirectoryService(directory))]


class DirectoryService(About):
    """The service, in front of a directory.

    A request that fails is answered with FAILED and a text, and the stream goes on. When the directory stops, the
    stream ends with an error.
    """

    def __init__(self, directory: DirectoryServer) -> None:
        self._directory = directory

    @override
    def statuses(self) -> dict[str, Callable[[], str]]:
        balancing = "enabled" if self._directory.config.load_balancing else "disabled"
        return super().statuses() | {
            "nb_entries": lambda: str(self._directory.count),
            "load_balancing": lambda: balancing,
        }

    async def Register(self, call: ServerCall) -> None:
        """Answer each registration in order, when it is durable."""
        async for request in call:
            await call.send(await self._registered(request, call))

    async def _registered(self, request: RegisterRequest, call: ServerCall) -> RegisterReply:
        try:
            service = service_of(request, max_bytes=self._directory.config.max_entry_bytes)
            service_id, secret = await self._directory.register(
                service,
                permanent=request.permanent,
                token=_token(call),
                caller=call.identity,
                reach=reach_of(call.identity, call.peer),
            )
        except CogmentError as error:
            if self._directory.stopping:
                raise
            refusals().add("refused registrations", _log, "%s could not register: %s", call.peer, error)
            return RegisterReply(status=RegisterReply.FAILED, error_msg=str(error))
        return RegisterReply(status=RegisterReply.OK, service_id=service_id, secret=secret)

    async def Deregister(self, call: ServerCall) -> None:
        """Answer each deregistration in order, when it is durable."""
        async for request in call:
            await call.send(await self._deregistered(request, _token(call), call.peer))

    async def _deregistered(self, request: DeregisterRequest, token: str, peer: str) -> DeregisterReply:
        try:
            await self._directory.deregister(request.service_id, request.secret, token=token)
        except CogmentError as error:
            if self._directory.stopping:
                raise
            refusals().add("refused deregistrations", _log, "%s could not deregister: %s", peer, error)
            return DeregisterReply(status=DeregisterReply.FAILED, error_msg=str(error))
        return DeregisterReply(status=DeregisterReply.OK)

    async def Inquire(self, request: InquireRequest, call: ServerCall) -> None:
        """Send every registration that matches, the preferred one first."""
        for entry in await self._directory.find(inquiry_of(request), token=_token(call), caller=call.identity):
            await call.send(InquireReply(data=entry.data()))


def _token(call: ServerCall) -> str:
    return next(iter(call.metadata.texts(AUTHENTICATION_TOKEN)), "")
