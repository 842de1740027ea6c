"""Seats of clients and of services elsewhere, over real sockets."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.cli.process import served
from tests.seats.games import NAME, Duel, play, playing, start
from trio_cogment import connect, rl
from trio_cogment.base.endpoints import CLIENT
from trio_cogment.base.errors import EndpointError, InvalidArgumentError
from trio_cogment.sdk import ActorSession, Participants

PATIENCE_SECONDS = 30


def taking(number: int, seen: list[str] | None = None) -> Any:
    """Return what plays as a client of any SDK would: with the implementation of a local seat."""
    actor = rl.policy(lambda _value: number).actor(rl.SeatContext(NAME, "player_1"))

    async def implementation(session: ActorSession[Any, Any, Any]) -> None:
        if seen is not None:
            seen.append(session.trial_id)
        await actor(session)

    return implementation


async def test_a_client_joins_one_trial_after_the_other_over_a_socket() -> None:
    human = rl.human("ann", port=0)
    seats, seen = {"player_0": rl.random(1), "player_1": human}, list[str]()
    game = Duel()
    with trio.fail_after(PATIENCE_SECONDS):
        async with playing(game, seats) as platform, rl.serve_clients(platform, seats.values()):
            assert human.endpoint.startswith("grpc://127.0.0.1:")
            async with connect(human.endpoint, spec=rl.RL_SPEC) as client, trio.open_nursery() as nursery:
                nursery.start_soon(rl.join_trials, client, "player_1", taking(3, seen))
                trials = [await start(platform, seats) for _ in range(2)]
                for trial_id in trials:
                    await platform.controller.wait_trial(trial_id)
                nursery.cancel_scope.cancel()
        assert human.endpoint == ""
    assert sorted(seen) == sorted(trials)
    assert [taken["player_1"] for taken in game.taken] == [[3] * 5] * 2


async def test_a_client_that_leaves_loses_its_seat_and_joins_the_next_trial(quiet: None) -> None:
    seats = {"player_0": rl.random(1), "player_1": rl.human()}
    joined: list[str] = []

    async def leaving(session: ActorSession[Any, Any, Any]) -> None:
        joined.append(session.trial_id)
        if len(joined) > 1:
            await taking(1)(session)

    with trio.fail_after(PATIENCE_SECONDS):
        async with (
            playing(Duel(), seats) as platform,
            trio.open_nursery() as nursery,
            rl.serve_clients(platform, [rl.random(), guest := rl.human(port=0)]),
            connect(guest.endpoint, spec=rl.RL_SPEC) as client,
        ):
            nursery.start_soon(rl.join_trials, client, "player_1", leaving)
            first = await start(platform, seats)
            assert (await platform.controller.wait_trial(first, check=False)).failed
            second = await start(platform, seats)
            await platform.controller.wait_trial(second)
            assert joined == [first, second]
            nursery.cancel_scope.cancel()


async def test_seats_share_a_port_and_free_it() -> None:
    async with playing(Duel(), {}) as platform:
        one = rl.human(port=0)
        async with rl.serve_clients(platform, [one]):
            port = int(one.endpoint.rpartition(":")[2])
        first, second = rl.human(port=port), rl.human(port=port)
        async with rl.serve_clients(platform, [first, second, rl.human(), rl.random()]):
            assert first.endpoint == second.endpoint == f"grpc://127.0.0.1:{port}"
            with pytest.raises(OSError, match=str(port)):
                async with rl.serve_clients(platform, [rl.human(port=port)]):
                    pass
        with pytest.raises(KeyError):
            async with rl.serve_clients(platform, [first]):
                raise KeyError(1)
        assert first.endpoint == ""


async def test_nobody_joins(autojump_clock: MockClock, quiet: None) -> None:
    seats: dict[str, rl.Seat] = {"player_0": rl.random(), "player_1": rl.human(join_timeout_seconds=60)}
    game = Duel()
    async with playing(game, seats) as platform:
        assert (await play(platform, seats, check=False)).failed
        assert trio.current_time() >= 60
    seats["player_1"] = rl.human(join_timeout_seconds=60, optional=True, default=2)
    async with playing(game, seats) as platform:
        await play(platform, seats)
    assert game.taken[-1]["player_1"] == [2] * 5


async def test_a_service_actor_elsewhere() -> None:
    participants = Participants(rl.RL_SPEC)
    participants.register_actor(taking(1), "one")
    participants.register_actor(taking(2), "two")
    game = Duel()
    with trio.fail_after(PATIENCE_SECONDS):
        async with served(participants) as address:
            seats = {"player_0": rl.endpoint(address), "player_1": rl.endpoint(address, "two")}
            async with playing(game, seats) as platform:
                await play(platform, seats)
    assert game.taken == [{"player_0": [1] * 3, "player_1": [2] * 5}]


def test_parameters() -> None:
    params = rl.human("ann").actor_params("player_1", environment=NAME, implementation="x", endpoint="grpc://a:1")
    assert (params.endpoint, params.implementation, params.actor_class) == (CLIENT, "human:ann", "player")
    params = rl.endpoint("cogment://discover").actor_params("player_1", environment=NAME, implementation="x")
    assert (params.endpoint, params.implementation) == ("cogment://discover", "")
    params = rl.random().actor_params("player_1", environment=NAME, implementation="x", endpoint=CLIENT)
    assert (params.endpoint, params.implementation) == (CLIENT, "x")


@pytest.mark.parametrize("address", ["client", CLIENT, "http://a:1", "grpc://a"])
def test_endpoints_that_are_none(address: str) -> None:
    with pytest.raises(EndpointError):
        rl.endpoint(address)


@pytest.mark.parametrize("port", [-1, 65536, "8080", True])
def test_ports_that_are_none(port: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="port: expected 0 to 65535, or None"):
        rl.human(port=port)
