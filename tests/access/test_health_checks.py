"""A directory's health checks say who asks, by a token that grants nothing: whoever registers a service gets it."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from tests.access.keys import KEYS, NOW, control
from trio_cogment.access import AccessControl, Grant, Identity, Rules
from trio_cogment.api.common_pb2 import StatusReply, StatusRequest
from trio_cogment.api.directory_pb2 import ServiceEndpoint
from trio_cogment.base.services import SERVICES, ServiceKind
from trio_cogment.budget.refusals import refusals
from trio_cogment.rpc import ServerCall, bind, open_listeners, serve
from trio_cogment.servers.directory import DirectoryServer, Service

PATIENCE_SECONDS = 30
STORE = SERVICES[ServiceKind.DATASTORE]


class Answering:
    """Remembers who asks."""

    def __init__(self) -> None:
        self.asked = trio.Event()
        self.callers: list[Identity] = []

    async def Status(self, _request: StatusRequest, call: ServerCall) -> StatusReply:
        self.callers.append(call.identity)
        self.asked.set()
        return StatusReply()


@pytest.mark.parametrize("access", [control(), control(Rules()), None], ids=["keys", "no keys", "none"])
async def test_who_asks(access: AccessControl | None) -> None:
    service = Answering()
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            listeners = await open_listeners("127.0.0.1")
            serve_it = partial(serve, [bind(STORE.descriptor(), service)], listeners, access=control(Rules(keys=KEYS)))
            running = await nursery.start(serve_it)
            async with DirectoryServer(access=access) as directory:
                await directory.register(
                    Service(
                        kind=STORE.directory_type, protocol=ServiceEndpoint.GRPC, host="127.0.0.1", port=running.port
                    )
                )
                if access is not None and access.mint(Grant(name="x"), 1, ()):
                    await service.asked.wait()
                    assert service.callers[0].grant == Grant(name="server:directory")
                    # Long enough that one is seldom made, short enough that nobody keeps it.
                    assert service.callers[0].expires_at == NOW + 3600
                else:
                    while not refusals().counts["unauthenticated calls"]:
                        await trio.lowlevel.checkpoint()
                    assert service.callers == []
            nursery.cancel_scope.cancel()
