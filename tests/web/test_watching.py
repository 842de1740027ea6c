"""A watch of trials by gRPC-Web lives for as long as its page does, however little happens."""

from __future__ import annotations

from functools import partial

import pytest
import trio
import trio.testing

from tests.web.clients import Connect, Forward, channel_over, over_http, over_websocket
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.platform import Platform, open_platform
from trio_cogment.rpc import open_listeners, serve, serve_stream
from trio_cogment.sdk import ActorSession, Controller, EnvironmentSession, actor_params, trial_params
from trio_cogment.web import WebSide

FORMS: dict[str, Forward] = {
    "binary": over_http,
    "text": partial(over_http, text=True),
    "websocket": over_websocket,
}


async def at_once(session: EnvironmentSession) -> None:
    await session.start([("*", b"begin")])
    async for event in session.all_events():
        if event.actions is not None:
            await session.end([("*", b"end")])


async def anybody(session: ActorSession) -> None:
    async for event in session.all_events():
        if event.observation is not None:
            await session.do_action(b"act")


async def watch(platform: Platform, connect: Connect, forward: Forward, seconds: float) -> None:
    """Watch for so long, in which nothing happens; then a trial is started and ends."""
    platform.participants.register_environment(at_once)
    platform.participants.register_actor(anybody, "anybody")
    async with (
        channel_over(connect, platform.services, forward) as channel,
        Controller(channel).watch_trials() as trials,
    ):
        await trio.sleep(seconds)
        trial_id = await platform.controller.start_trial(trial_params([actor_params("ann", "player")]))
        seen = []
        async for entry in trials:
            assert entry.trial_id == trial_id
            seen.append(entry.state)
            if entry.state == TrialState.ENDED:
                break
    assert seen[0] == TrialState.INITIALIZING
    assert seen == sorted(seen)


@pytest.mark.parametrize("form", FORMS)
async def test_an_hour_without_a_word(form: str, autojump_clock: object) -> None:
    async with open_platform() as platform, trio.open_nursery() as nursery:

        async def connect() -> trio.abc.Stream:
            ours, theirs = trio.testing.memory_stream_pair()
            nursery.start_soon(partial(serve_stream, web=WebSide()), platform.services, theirs)
            return ours

        await watch(platform, connect, FORMS[form], 3600)
        nursery.cancel_scope.cancel()


@pytest.mark.soak
@pytest.mark.parametrize("form", FORMS)
async def test_a_minute_over_sockets(form: str) -> None:
    async with open_platform() as platform, trio.open_nursery() as nursery:
        listeners = await open_listeners("127.0.0.1")
        serving = await nursery.start(partial(serve, web=WebSide()), platform.services, listeners)
        await watch(platform, partial(trio.open_tcp_stream, "127.0.0.1", serving.port), FORMS[form], 60)
        nursery.cancel_scope.cancel()
