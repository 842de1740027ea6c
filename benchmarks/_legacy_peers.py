"""The peers of `legacy.py`, on grpc.aio: an environment and an actor of today and of the legacy API."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import _wire_peers
import grpc
import grpc.aio
from _wire_peers import ACTION_BYTES, ACTOR, ENVIRONMENT, OBSERVATION_BYTES, Peers, add_stream, standard_input

from trio_cogment.api import common_pb2, environment_pb2
from trio_cogment.api.legacy import agent_pb2
from trio_cogment.api.legacy import environment_pb2 as old_environment_pb2


class OldPeers:
    """Serves both of the legacy API; the replies are serialised once."""

    def __init__(self) -> None:
        self.ticks = 0
        seen: Any = old_environment_pb2.ObservationSet(actors_map=[0])
        seen.observations.add(content=bytes(OBSERVATION_BYTES), snapshot=True)
        decision: Any = agent_pb2.AgentDecideReply()
        decision.action.content = bytes(ACTION_BYTES)
        self._started = old_environment_pb2.EnvStartReply(observation_set=seen).SerializeToString()
        self._updated = old_environment_pb2.EnvUpdateReply(observation_set=seen).SerializeToString()
        self._decided = decision.SerializeToString()

    def services(self) -> dict[str, dict[str, Callable[[Any, Any], Awaitable[bytes]]]]:
        """Return what answers, by service and method."""
        nothing = self._answering(b"")
        return {
            "cogment.Agent": {"Start": nothing, "End": nothing, "Decide": self._answering(self._decided)},
            "cogment.Environment": {"Start": self._answering(self._started), "End": nothing, "Update": self._update},
        }

    def _answering(self, reply: bytes) -> Callable[[Any, Any], Awaitable[bytes]]:
        async def answer(_request: Any, _context: Any) -> bytes:
            return reply

        return answer

    async def _update(self, request: bytes, _context: Any) -> bytes:
        old_environment_pb2.EnvUpdateRequest.FromString(request)
        self.ticks += 1
        return self._updated


async def serve() -> None:
    """Answer each line on the standard input with the number of ticks so far."""
    _wire_peers.ACTORS = 1
    peers, old = Peers(), OldPeers()
    server = grpc.aio.server()
    add_stream(server, ENVIRONMENT, peers.environment, environment_pb2.EnvRunTrialInput)
    add_stream(server, ACTOR, peers.actor, common_pb2.ActorRunTrialInput)
    for service, methods in old.services().items():
        handlers = {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    commands = await standard_input()
    while await commands.readline():
        print(peers.ticks + old.ticks, flush=True)
    await server.stop(0)


if __name__ == "__main__":
    asyncio.run(serve())
