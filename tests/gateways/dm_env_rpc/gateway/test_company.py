"""Agents of dm_env_rpc with others in a trial: of PettingZoo, service actors, clients of the SDK; and over a bridge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import trio

from tests.environments._games import Rps
from tests.gateways.dm_env_rpc.gateway.games import Game, joined, params_of, playing, step
from tests.gateways.dm_env_rpc.gateway.worlds import game_params, gateway_over_games
from tests.gateways.dm_env_rpc.servers import served
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.environments.serving import environment
from trio_cogment.gateways.dm_env_rpc import Connection, State, open_connection
from trio_cogment.gateways.dm_env_rpc.client.requests import Step
from trio_cogment.gateways.dm_env_rpc.gateway.templates import WorldTemplate
from trio_cogment.sdk import ActorSession, actor_params
from trio_cogment.spaces import decode_observation, encode_action

RUNNING, TERMINATED, INTERRUPTED = State.RUNNING, State.TERMINATED, State.INTERRUPTED
BOTH = ("player_0", "player_1")


async def side_by_side(connections: tuple[Connection, ...], *actions: dict[str, Any]) -> list[Step]:
    """Make a step with each connection; who has no actions any more makes none."""
    found: dict[int, Step] = {}

    async def one(index: int) -> None:
        found[index] = await connections[index].step(actions[index] if actions else {})

    async with trio.open_nursery() as nursery:
        for index in range(len(actions) or len(connections)):
            nursery.start_soon(one, index)
    return [found[index] for index in sorted(found)]


async def test_two_agents_of_pettingzoo() -> None:
    """Rock, paper, scissors for two clients, twice: the second time the environment object is the same one."""
    made: list[Rps] = []

    def rps() -> Rps:
        made.append(Rps(rounds=2))
        return made[-1]

    game = environment(rps)
    async with playing(game, BOTH) as platform, joined(platform, *BOTH) as (one, two):
        for _ in range(2):
            steps = await side_by_side((one, two))
            assert [int(each.observations["observation"]) for each in steps] == [3, 3]
            steps = await side_by_side((one, two), {"action": 0}, {"action": 2})
            assert [float(each.observations["reward"]) for each in steps] == [1.0, -1.0]
            assert [int(each.observations["observation"]) for each in steps] == [2, 0]
            steps = await side_by_side((one, two), {"action": 1}, {"action": 1})
            assert [each.state for each in steps] == [INTERRUPTED] * 2  # the game says truncated
    await game.aclose()
    assert len(made) == 1


async def test_an_agent_against_a_service_actor() -> None:
    seen: list[int] = []

    async def paper(session: ActorSession) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                seen.append(int(decode_observation(event.observation.payload).value))
                await session.do_action(encode_action(np.int64(1)))

    game = environment(lambda: Rps(rounds=3))
    params = params_of("player_0", actor_params("player_1", "player", implementation="paper"))
    async with playing(game, params) as platform:
        platform.participants.register_actor(paper, "paper")
        async with joined(platform, "player_0") as (one,):
            await one.step()
            rewards = [float((await one.step({"action": each})).observations["reward"]) for each in (0, 1, 2)]
            assert one.state is INTERRUPTED
    await game.aclose()
    assert rewards == [-1.0, 0.0, 1.0]
    assert seen[-4:] == [3, 0, 1, 2]


async def test_a_client_of_cogment_beside_an_agent() -> None:
    """It joins each trial of the world, as an actor that is not a slot."""
    game = Game(length=2)
    heard: list[int] = []

    async def play(session: ActorSession) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                heard.append(int(decode_observation(event.observation.payload).value))
                await session.do_action(encode_action(np.int64(7)))

    async with playing(game, params_of("ann", "cleo"), other_clients=["cleo"]) as platform:

        async def join_every_trial() -> None:
            async with platform.controller.watch_trials([TrialState.PENDING]) as watch:
                async for entry in watch:
                    nursery.start_soon(join, entry.trial_id)

        async def join(trial_id: str) -> None:
            await platform.join_trial(trial_id, play, actor_name="cleo")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(join_every_trial)
            async with joined(platform, "ann") as (ann,):
                assert (await ann.read_property("trial.actors")).tolist() == ["ann", "cleo"]
                assert (await ann.read_property("worlds.w")).tolist() == []
                for _ in range(2):
                    assert [(await step(ann, 4))[0] for _ in range(3)] == [RUNNING, RUNNING, TERMINATED]
            nursery.cancel_scope.cancel()
    assert game.actions == [[4, 7]] * 4
    assert heard[:3] == [0, 1, 2]


def test_other_clients_are_clients() -> None:
    params = params_of("ann", "cleo", actor_params("bot", "player", implementation="bot"))
    assert list(WorldTemplate(params=params, other_clients=["cleo"]).slots) == ["ann"]
    with pytest.raises(InvalidArgumentError, match="other_clients: expected some of 'ann', 'cleo'; got 'bot'"):
        WorldTemplate(params=params, other_clients=["bot"])
    with pytest.raises(InvalidArgumentError, match="that is not among other_clients, got none"):
        WorldTemplate(params=params, other_clients=["ann", "cleo"])


# A bridge


async def duel(connections: tuple[Connection, ...]) -> list[list[tuple[str, list[int], float]]]:
    """Play a duel to the end of both; return what each was told."""
    told: list[list[tuple[str, list[int], float]]] = [[], []]

    def note(steps: list[Step], players: list[int]) -> None:
        for player, each in zip(players, steps, strict=True):
            last = each.observations["last"].tolist()
            told[player].append((each.state.value, last, float(each.observations["reward"])))

    note(await side_by_side(connections), [0, 1])
    for turn in range(1, 5):
        players = [player for player in (0, 1) if told[player][-1][0] == "running"]
        if players:
            acting = tuple(connections[player] for player in players)
            note(await side_by_side(acting, *({"number": turn + 3 * player} for player in players)), players)
    return told


async def test_two_agents_over_a_bridge_are_told_what_the_server_tells() -> None:
    """One is INTERRUPTED after two steps, the other goes on to its TERMINATED; both ends are kept."""
    async with served() as (url, _, _), open_connection(url) as one, open_connection(url) as two:
        world = await one.create_world({"game": "duel"})
        await one.join_world(world, {"slot": 0})
        await two.join_world(world, {"slot": 1})
        alone = [await duel((one, two)) for _ in range(2)]
    params = game_params(BOTH, game="duel")
    async with gateway_over_games(params) as (platform, _), joined(platform, *BOTH) as (one, two):
        behind = [await duel((one, two)) for _ in range(2)]
    assert [each[-1][0] for each in alone[0]] == ["interrupted", "terminated"]
    for found in (*alone, *behind):
        for player in found:
            player[0] = (*player[0][:2], 0.0)  # the first reward means nothing
    assert behind == alone


@pytest.mark.parametrize("limit", [1, 2])
async def test_a_limit_of_steps_over_a_bridge_interrupts(limit: int) -> None:
    async with (
        gateway_over_games(game_params(max_steps=limit)) as (platform, _),
        joined(platform, "player_0") as (one,),
    ):
        states = [(await one.step()).state]
        while states[-1] is RUNNING:
            states.append((await one.step()).state)
    assert states == [RUNNING] * (limit + 1) + [INTERRUPTED]
