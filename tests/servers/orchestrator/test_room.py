"""Room of trials in the server: each limit refuses with its name, and what was taken comes back."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from tests.helpers import (
    Script,
    actor_that_acts,
    bench,
    environment_of,
    observation_set,
    params_of,
    start_environment,
    wait_ended,
)
from trio_cogment.api.common_pb2 import SerializedMessage, TrialParams
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.errors import CogmentError, ResourceExhaustedError, RpcError, StatusCode
from trio_cogment.servers.orchestrator import _fair_turns
from trio_cogment.servers.orchestrator._room import Room, check_counts, estimated_bytes

NOTHING = (0, 0, 0)


def service(count: int, **changes: Any) -> tuple[Any, ...]:
    return Script(environment_of(count)).environment(), Script(actor_that_acts()).actor()


def at_endpoints(*endpoints: str) -> TrialParams:
    params = params_of(*(f"a{number}" for number in range(len(endpoints))))
    for actor, endpoint in zip(params.actors, endpoints, strict=True):
        actor.endpoint = endpoint
    return params


def test_actors_and_endpoints_are_counted_before_anything_else_is_done_with_them() -> None:
    config = OrchestratorConfig(max_trial_actors=4, max_trial_endpoints=2)
    places = [f"grpc://127.0.0.1:{port}" for port in (1, 2, 3)]
    check_counts(at_endpoints(*places[:2], places[0], "cogment://client"), config)
    with pytest.raises(ResourceExhaustedError, match=r"^actors: 3 different endpoints; max_trial_endpoints is 2$"):
        check_counts(at_endpoints(*places), config)
    with pytest.raises(ResourceExhaustedError, match=r"^actors: 5; max_trial_actors is 4$"):
        check_counts(at_endpoints(*["cogment://client"] * 5), config)


@pytest.mark.parametrize(
    ("limits", "accounts", "name"),
    [
        ({"max_trials": 2}, ["a", "b", ""], "max_trials is 2"),
        ({"max_starting_trials": 1}, ["a", ""], "max_starting_trials is 1"),
        ({"max_peer_trials": 1}, ["a", "b", "", "", "a"], "max_peer_trials is 1"),
        ({"max_peer_starting_trials": 1}, ["a", "b", "", "", "b"], "max_peer_starting_trials is 1"),
    ],
)
def test_there_is_room_for_so_many_trials(limits: dict[str, Any], accounts: list[str], name: str) -> None:
    room = Room(OrchestratorConfig(**limits))
    *admitted, refused = accounts
    holdings = [room.enter(account) for account in admitted]
    with pytest.raises(ResourceExhaustedError, match=name):
        room.enter(refused)
    for holding in holdings:
        holding.leave()
        holding.leave()
    assert room.used == NOTHING
    room.enter(refused).leave()
    assert room.used == NOTHING


def test_one_that_has_started_leaves_its_place_among_the_starting() -> None:
    room = Room(OrchestratorConfig(max_peer_starting_trials=1))
    first = room.enter("a")
    first.started()
    first.started()
    second = room.enter("a")
    assert room.used == (2, 1, 0)
    first.leave()
    second.leave()
    assert room.used == NOTHING


def test_bytes_are_counted_for_the_peer_and_for_all() -> None:
    room = Room(OrchestratorConfig(max_peer_trials_bytes=100, max_trials_bytes=150))
    first, second, own = room.enter("a"), room.enter("b"), room.enter("")
    first.take(60)
    with pytest.raises(ResourceExhaustedError, match="max_peer_trials_bytes is 100"):
        first.take(41)
    second.take(80)
    with pytest.raises(ResourceExhaustedError, match="max_trials_bytes is 150"):
        own.take(11)
    own.take(10)
    assert room.used[2] == 150
    first.leave()
    first.take(1000)  # it is over: nothing is counted any more
    own.take(60)
    assert room.used[2] == 150
    second.leave()
    own.leave()
    assert room.used == NOTHING


def test_an_estimate_grows_with_what_there_is() -> None:
    clients, services = at_endpoints("cogment://client"), at_endpoints("grpc://h:1")
    assert estimated_bytes(clients) < estimated_bytes(services)
    large = at_endpoints("cogment://client")
    large.trial_config.content = bytes(10_000)
    assert estimated_bytes(large) > estimated_bytes(clients) + 10_000


def test_an_estimate_is_what_the_page_says() -> None:
    params = at_endpoints("cogment://client", "grpc://h:1", "grpc://h:2")
    kib = 1024
    assert estimated_bytes(params) == 10 * kib + 2 * kib + 3 * 6 * kib + 2 * params.ByteSize()


def test_who_holds_back_many_ticks_is_promised_a_ninth_of_what_is_left() -> None:
    kib = 1024
    room = Room(OrchestratorConfig(max_held_back_bytes=150 * kib, max_all_held_back_bytes=1800 * kib))
    assert [room.enter("").hold_back(ticks) for ticks in (0, 1, 2)] == [None, None, None]
    assert room.held_back.used == 0
    holdings = [room.enter("") for _ in range(20)]
    promised = [holding.hold_back(3) for holding in holdings]
    left, expected = 1800 * kib, list[int]()
    for _ in holdings:
        expected.append(max(64 * kib, min(150 * kib, left // 9)))
        left -= expected[-1]
    assert promised == expected
    assert expected[0] == 150 * kib
    assert room.held_back.used == sum(expected)
    for holding in holdings:
        holding.leave()
        assert holding.hold_back(3) is None
    assert room.held_back.used == 0


@pytest.mark.parametrize("wire", [False, True])
async def test_a_refused_start_leaves_nothing_and_the_next_one_is_welcome(wire: bool) -> None:
    config = OrchestratorConfig(max_trial_actors=2, max_trials=1)
    async with bench(*service(1), config=config, wire=wire) as table:
        with pytest.raises(RpcError, match="max_trial_actors is 2") as refused:
            await table.controller.start_trial(params_of("a", "b", "c"), trial_id="t")
        assert refused.value.code is StatusCode.RESOURCE_EXHAUSTED
        assert table.orchestrator.room.used == NOTHING
        assert not await table.controller.trial_infos()
        waiting = at_endpoints("cogment://client")
        await table.controller.start_trial(waiting, trial_id="t")
        with pytest.raises(RpcError, match="max_trials is 1"):
            await table.controller.start_trial(waiting)
        await table.orchestrator.stop()
        assert table.orchestrator.room.used == NOTHING


async def test_whatever_becomes_of_trials_their_room_comes_back(autojump_clock: trio.testing.MockClock) -> None:
    """Ones that end, ones that cannot start, ones whose starter goes away, and ones that are terminated."""
    config = OrchestratorConfig(datalog_connect_timeout_seconds=1, max_connecting=2, max_peer_connecting=1)
    async with bench(*service(1), config=config) as table:
        start = table.orchestrator.start_trial

        async def leave_early(seconds: float, params: TrialParams, account: str) -> None:
            with trio.move_on_after(seconds):
                try:
                    await start(params=params, account=account)
                except CogmentError:
                    pass

        lost = params_of("a")
        lost.datalog.endpoint = "grpc://127.0.0.1:9"
        away = at_endpoints("grpc://127.0.0.1:9", "grpc://127.0.0.1:10", "grpc://127.0.0.1:11")
        async with trio.open_nursery() as nursery:
            for number in range(30):
                account = ("", "x", "y")[number % 3]
                for params in (params_of("a"), lost, away, at_endpoints("cogment://client")):
                    nursery.start_soon(leave_early, number / 20, params, account)
        trials, starting, size = table.orchestrator.room.used
        assert (trials > 0, starting, size > 0) == (True, 0, True)
        await table.orchestrator.stop()
        await trio.sleep(60)
        assert table.orchestrator.running_trials == 0
        assert table.orchestrator.room.used == NOTHING


async def test_streams_elsewhere_are_opened_so_many_at_a_time(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    most = 0
    release = _fair_turns.FairTurns.release

    def spy(self: _fair_turns.FairTurns, account: str) -> None:
        nonlocal most
        most = max(most, self.taken)
        release(self, account)

    monkeypatch.setattr(_fair_turns.FairTurns, "release", spy)
    config = OrchestratorConfig(max_connecting=3, max_peer_connecting=2)
    async with bench(config=config) as table:
        places = [f"grpc://127.0.0.1:{port}" for port in range(1, 21)]
        await table.orchestrator.start_trial(trial_id="t", params=at_endpoints(*places), account="x")
        (run,) = table.orchestrator.runs
        # Not a task for each that waits.
        assert len(run.task_names) < 6
        await wait_ended(table.orchestrator, "t")
    assert most == 2


async def test_an_ended_trial_keeps_its_properties_and_none_of_its_configs() -> None:
    async with bench(*service(1)) as table:
        params = at_endpoints("cogment://client")
        params.properties["colour"] = "blue"
        params.trial_config.CopyFrom(SerializedMessage(content=bytes(100_000)))
        params.actors[0].config.content = bytes(100_000)
        params.actors[0].default_action.content = bytes(100_000)
        await table.controller.start_trial(params, trial_id="t")
        trial = table.orchestrator.trials.get("t")
        assert trial is not None
        assert trial.machine.params is not None
        assert trial.machine.params.ByteSize() > 300_000
        trial.hard_end("over")
        assert trial.machine.params.ByteSize() < 100
        info = trial.info(actors=True)
        assert dict(info.properties) == {"colour": "blue"}
        assert [(actor.name, actor.actor_class) for actor in info.actors_in_trial] == [("a0", "player")]


def test_observations_are_kept_while_there_is_room_and_their_room_comes_back() -> None:
    large = 40 * 1024
    room = Room(OrchestratorConfig(max_peer_observations_bytes=2 * large, max_observations_bytes=3 * large))
    first, second, third, other, own = (room.enter(account) for account in ("a", "a", "a", "b", ""))
    assert [holding.observe(large) for holding in (first, second, third, other, own)] == [
        True, True, False, True, False,
    ]  # fmt: skip
    assert own.observe(10)  # a small one always is
    assert first.observe(large)  # the next one, of the same size
    assert not first.observe(2 * large)
    assert room.observed_bytes == 2 * large
    assert third.observe(large)
    for holding in (first, second, third, other, own):
        holding.leave()
        assert not holding.observe(large)
    assert room.observed_bytes == 0


async def test_a_trial_goes_on_without_its_observation_being_kept() -> None:
    config = OrchestratorConfig(max_observations_bytes=100_000)
    content = bytes(80_000)
    acted = trio.Event()

    async def environment(call: Any) -> None:
        await start_environment(call)
        await call.send(observation_set(1, content))
        async for message in call:
            if message.WhichOneof("data") == "action_set":
                acted.set()

    services = Script(environment).environment(), Script(actor_that_acts()).actor()
    async with bench(*services, config=config) as table:
        for trial_id in ("one", "two"):
            acted = trio.Event()
            await table.controller.start_trial(params_of("a"), trial_id=trial_id)
            await acted.wait()
        one, two = await table.controller.trial_infos(latest_observation=True)
        assert list(one.latest_observation.observations) == [content]
        assert (list(two.latest_observation.observations), two.latest_observation.timestamp > 0) == ([], True)
        await table.orchestrator.stop()
    assert table.orchestrator.room.observed_bytes == 0


def test_a_peer_has_its_limit_and_this_process_only_that_of_all() -> None:
    room = Room(OrchestratorConfig(max_peer_trials_bytes=100, max_trials_bytes=300))
    peer, other, own, second = room.enter("a"), room.enter("b"), room.enter(""), room.enter("")
    peer.take(100)
    with pytest.raises(ResourceExhaustedError) as refused:
        peer.take(1)
    assert str(refused.value) == (
        "the trials that run hold 100 bytes and this would add 1: max_peer_trials_bytes is 100; "
        "try again when some have ended"
    )
    own.take(150)
    second.take(50)
    for holding in (own, other):
        with pytest.raises(
            ResourceExhaustedError, match="hold 300 bytes and this would add 1: max_trials_bytes is 300"
        ):
            holding.take(1)
    assert (peer.size, other.size, own.size, second.size) == (100, 0, 150, 50)
    own.leave()
    other.take(100)
    for holding in (peer, other, second):
        holding.leave()
    assert room.used == NOTHING
