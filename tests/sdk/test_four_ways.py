"""The same functions in process, over sockets, found by a directory, and simulated: everybody sees the same."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio

from tests.cli.process import listening
from tests.sdk.test_sessions import (
    PLAYERS,
    TICKS,
    game_params,
    played_in_process,
    played_over_sockets,
    recording_game,
    sorted_messages,
)
from trio_cogment import EventType, connect, open_platform, serve_participants
from trio_cogment.servers.directory import DirectoryServer
from trio_cogment.testing import World, simulate

Seen = dict[str, list[Any]]


async def played_by_discovery(seed: int) -> Seen:
    """Everything over sockets, and everything found by a directory: the orchestrator too."""
    participants, seen = recording_game(seed)
    with trio.fail_after(60):
        async with (
            DirectoryServer() as directory,
            open_platform(directory=directory) as platform,
            listening(*platform.services) as endpoint,
            connect(endpoint, directory=endpoint) as client,
            trio.open_nursery() as nursery,
        ):
            assert client.directory is not None
            serve = partial(serve_participants, participants, address="127.0.0.1", directory=client.directory)
            serving = await nursery.start(serve)
            while True:
                if len(await client.directory.inquire()) == len(participants.offers(serving.port)):
                    break
                await trio.sleep(0.01)
            controller = await client.controller()
            trial_id = await controller.start_trial(game_params())
            await controller.wait_trial(trial_id)
            await wait_final(seen)
            nursery.cancel_scope.cancel()
    return seen


async def wait_final(seen: Seen) -> None:
    """Wait until everybody has been told of the end."""
    while True:
        if all(seen.get(name) and seen[name][-1][0] is EventType.FINAL for name in ("env", *PLAYERS)):
            return
        await trio.sleep(0.01)


def played_simulated(seed: int) -> Seen:
    async def scenario(world: World) -> Seen:
        participants, seen = recording_game(seed)
        async with world.open_platform(participants) as platform:
            await platform.controller.wait_trial(await platform.controller.start_trial(game_params()))
            await wait_final(seen)
        return seen

    return simulate(seed, scenario).value


def with_trio(play: Callable[[int], Awaitable[Seen]]) -> Callable[[int], Seen]:
    return lambda seed: trio.run(play, seed)


WAYS: dict[str, Callable[[int], Seen]] = {
    "sockets": with_trio(played_over_sockets),
    "directory": with_trio(played_by_discovery),
    "simulated": played_simulated,
}


@pytest.mark.parametrize("way", WAYS)
def test_everybody_sees_the_same_as_in_process(way: str) -> None:
    here = sorted_messages(trio.run(played_in_process, 4))
    there = sorted_messages(WAYS[way](4))
    assert here == there
    for name in PLAYERS:
        assert (EventType.FINAL, TICKS) in here[name]
        assert len([event for event in here[name] if event[0] in (EventType.ACTIVE, EventType.ENDING)]) == TICKS + 1
