"""Every cell of role x RPC over a socket, asked by grpcio: what the table refuses never reaches a handler.

The services here have no handlers: a call that is let in ends with UNIMPLEMENTED.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from functools import partial

import grpc
import pytest
import trio
from google.protobuf.descriptor import FileDescriptor, ServiceDescriptor

import trio_cogment.api
import trio_cogment.rpc._protos
from tests.access.keys import FOREIGN, KEYS, NOW, control, grant, token_text
from trio_cogment.access import RIGHTS, Revoked, Role, Rules, Source
from trio_cogment.rpc import bind, open_listeners, serve

PATIENCE_SECONDS = 60
REACHED = grpc.StatusCode.UNIMPLEMENTED
REFUSED = grpc.StatusCode.PERMISSION_DENIED
UNKNOWN = grpc.StatusCode.UNAUTHENTICATED


def services() -> Iterator[ServiceDescriptor]:
    for package in (trio_cogment.api, trio_cogment.rpc._protos):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            descriptor = getattr(importlib.import_module(module.name), "DESCRIPTOR", None)
            if isinstance(descriptor, FileDescriptor):
                yield from descriptor.services_by_name.values()


PATHS = {
    f"/{service.full_name}/{method.name}": (method.client_streaming, method.server_streaming)
    for service in services()
    for method in service.methods
}


def code_of(channel: grpc.Channel, path: str, token: str | None) -> grpc.StatusCode:
    """Make a call with an empty request, and return how it ended."""
    shape = PATHS[path]
    makers = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, False): channel.stream_unary,
        (True, True): channel.stream_stream,
    }
    call = makers[shape](path, lambda request: request, lambda reply: reply)
    metadata = None if token is None else (("authorization", f"Bearer {token}"),)
    requests = iter([b""]) if shape[0] else b""
    try:
        found = call(requests, metadata=metadata, timeout=PATIENCE_SECONDS)
        if shape[1]:
            list(found)
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return grpc.StatusCode.OK


async def codes_with(tokens: Mapping[str, str | None]) -> dict[str, dict[str, grpc.StatusCode]]:
    """Return how each call ended with each of these tokens."""
    access = control(Rules(keys=KEYS, revoked=Revoked.parse("gone\nname=mallory")))
    everything = [bind(service, object()) for service in services()]

    def ask(port: int) -> dict[str, dict[str, grpc.StatusCode]]:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            return {name: {path: code_of(channel, path, token) for path in PATHS} for name, token in tokens.items()}

    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            listeners = await open_listeners("127.0.0.1")
            running = await nursery.start(partial(serve, everything, listeners, access=access))
            found = await trio.to_thread.run_sync(ask, running.port)
            nursery.cancel_scope.cancel()
            return found
    raise AssertionError("unreachable")


@pytest.mark.parametrize("role", [*Role, None], ids=lambda role: "no role" if role is None else role.value)
async def test_every_cell(role: Role | None) -> None:
    roles = () if role is None else (role,)
    found = await codes_with({"it": token_text(grant(*roles))})
    # What every other role may do, too, is open to who has none.
    for service, methods in RIGHTS.items():
        for method, row in methods.items():
            allowed = role in row if role is not None else all(each in row for each in Role)
            path = f"/{service}/{method}"
            assert found["it"][path] is (REACHED if allowed else REFUSED), path


async def test_nobody_gets_in_without_a_good_token() -> None:
    admin = grant(Role.ADMIN)
    bad = {
        "none": None,
        "empty": "",
        "forged": token_text(admin)[:-2],
        "foreign": token_text(admin, keys=FOREIGN),
        "expired": token_text(admin, expires_at=NOW),
        "revoked": token_text(admin, token_id="gone"),
        "of a revoked holder": token_text(grant(Role.ADMIN, name="mallory")),
        "derived": control().mint(admin, 60, (Source("gone", "ann"),)),
        "derived of a revoked holder": control().mint(admin, 60, (Source("x", "mallory"),)),
    }
    found = await codes_with(bad)
    for name, codes in found.items():
        for path, code in codes.items():
            open_to_all = name in ("none", "empty") and path == "/grpc.health.v1.Health/Check"
            assert code is (REACHED if open_to_all else UNKNOWN), (name, path)
