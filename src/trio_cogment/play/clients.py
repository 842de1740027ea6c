"""Clients that take seats: serving the platform to them, and joining trial after trial."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import trio

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.base.endpoints import GrpcEndpoint
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.platform import Platform
from trio_cogment.play.human_pages import page_doors
from trio_cogment.rpc import HealthService, OwnNursery, RunningServer, open_listeners, serve, standard_services
from trio_cogment.sdk import ActorImplementation, Client, Controller
from trio_cogment.seats.base import Seat
from trio_cogment.seats.remote import HumanSeat

#: Addresses that mean this machine, to a browser on it.
_HERE = ("127.0.0.1", "0.0.0.0", "::", "::1", "localhost")
#: How many trials in which the seat was not to be had are remembered, so that they are not tried again and again.
_REMEMBERED_TRIALS = 1024
#: What joining a trial ends with when another has taken the seat, or the trial has begun or ended meanwhile.
_NOT_TO_BE_HAD = (
    StatusCode.NOT_FOUND,
    StatusCode.FAILED_PRECONDITION,
    StatusCode.INVALID_ARGUMENT,
    StatusCode.ALREADY_EXISTS,
    StatusCode.ABORTED,
    StatusCode.CANCELLED,
)


@asynccontextmanager
async def serve_clients(platform: Platform, seats: Iterable[Seat]) -> AsyncIterator[None]:
    """Serve the platform on the ports of these seats for the time of an `async with` block.

    Seats with the same address and port have one server. Leaving the block, also by a cancellation, closes the
    connections and the sockets. Seats that need no server may be among them.

    Args:
        platform: what clients join.
        seats: of one view, or of several.

    Raises:
        OSError: a port is in use.
    """
    places: dict[tuple[str, int], list[HumanSeat]] = {}
    for seat in seats:
        if isinstance(seat, HumanSeat) and seat.port is not None:
            places.setdefault((seat.address, seat.port), []).append(seat)
    opened: list[HumanSeat] = []
    async with OwnNursery() as nursery, AsyncExitStack() as stack:
        try:
            for (address, port), sharing in places.items():
                health = HealthService(service.name for service in platform.services)
                services = [*platform.services, *standard_services(platform.services, health)]
                doors = await stack.enter_async_context(page_doors(platform, sharing))
                listeners = await open_listeners(address, port)
                served = partial(serve, services, listeners, web=None if doors is None else doors.side)
                serving: RunningServer = await nursery.start(served)
                if doors is not None:
                    doors.tell(f"http://{'localhost' if address in _HERE else address}:{serving.port}")
                for seat in sharing:
                    seat.endpoint = str(GrpcEndpoint(address, serving.port))
                    opened.append(seat)
            yield
        finally:
            for seat in opened:
                seat.endpoint = ""
            nursery.cancel_scope.cancel()


async def join_trials(client: Client, agent: str, implementation: ActorImplementation) -> None:
    """Take a `human` seat in one trial after the other, until cancelled.

    A trial is joined as soon as it waits for an actor of this name. After `Cancelled` the client has left its trial.

    Args:
        client: of `trio_cogment.connect`, with `RL_SPEC` as its spec.
        agent: the actor's name.
        implementation: what plays there: `async def implementation(session: ActorSession)`.

    Raises:
        RpcError: the orchestrator cannot be reached, or was lost.
        Exception: whatever the implementation raised.
    """
    controller = await client.controller()
    refused: deque[str] = deque(maxlen=_REMEMBERED_TRIALS)
    while True:
        trial_id = await _waiting_trial(controller, agent, refused)
        refused.append(trial_id)
        try:
            await client.join_trial(trial_id, implementation, actor_name=agent)
        except RpcError as error:
            if error.code not in _NOT_TO_BE_HAD:
                raise
            await trio.lowlevel.checkpoint()


async def _waiting_trial(controller: Controller, agent: str, refused: Iterable[str]) -> str:
    """Return the id of a trial that waits for participants and has an actor of this name."""
    while True:
        # A new watch each time: it tells the trials of the moment first.
        async with controller.watch_trials([TrialState.INITIALIZING, TrialState.PENDING]) as watch:
            async for entry in watch:
                if entry.trial_id in refused:
                    continue
                infos = await controller.trial_infos([entry.trial_id], actors=True)
                if any(actor.name == agent for info in infos for actor in info.actors_in_trial):
                    found: str = entry.trial_id
                    return found
        await trio.lowlevel.checkpoint()
