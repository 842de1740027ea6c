"""Eighteen points in which the reference can be done better; each is done better here, over the whole orchestrator."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from tests.helpers import HookScript, Script, actor_that_acts, bench, environment_of
from tests.servers.orchestrator.puppets import (
    CLIENT,
    HEARTBEAT,
    LAST,
    LAST_ACK,
    NORMAL,
    RUN_TRIAL,
    Puppet,
    settle,
    stage,
)
from tests.servers.orchestrator.test_reference_cases import params
from trio_cogment.api.common_pb2 import ActorInitialOutput, ActorRunTrialOutput, TrialState
from trio_cogment.api.hooks_pb2 import PreTrialParams
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import ServerCall, open_listeners
from trio_cogment.sdk import actor_params, trial_params

S = TrialState
Clock = trio.testing.MockClock


async def test_point_01_a_failed_start_is_unregistered(autojump_clock: Clock) -> None:
    async with stage() as play:
        states = await play.watched("z")
        for broken in (trial_params([]), params(actor_params("a", "cls", endpoint="nonsense://"))):
            with pytest.raises(RpcError):
                await play.start(broken, "z")
        assert not await play.table.controller.trial_infos()
        assert len(play.table.orchestrator.trials) == play.table.orchestrator.running_trials == 0
        # The watcher, who saw it begin, sees it end.
        assert states == [S.INITIALIZING, S.ENDED]
        assert await play.start(params("a"), "z") == "z"


@pytest.mark.parametrize("when", ["pending", "waiting for it", "before its actions"])
async def test_point_02_the_loss_of_an_environment_is_noticed_at_once(when: str, autojump_clock: Clock) -> None:
    async with stage() as play:
        await play.start(params("a"))
        await play["a"].ready()
        if when != "pending":
            await play["env"].ready()
            await play["env"].observe(indexes=[0])
        if when == "waiting for it":
            await play["a"].act()
        play["env"].leave()
        await settle()
        assert trio.current_time() == 0
        assert await play.state() == S.ENDED
        assert "environment 'env' left the trial" in str(play["a"].end)


async def test_point_02_an_environment_has_its_time_to_begin(autojump_clock: Clock) -> None:
    async with stage(config=OrchestratorConfig(environment_init_timeout_seconds=5)) as play:
        await play.start(params("a"))
        await trio.sleep(100)
        # It runs from when the environment is contacted.
        await play["a"].ready()
        await trio.sleep(4.9)
        assert await play.state() == S.PENDING
        await trio.sleep(0.2)
        assert await play.state() == S.ENDED


async def test_point_03_who_acted_is_a_set_and_not_a_count(autojump_clock: Clock) -> None:
    async with stage() as play:
        await play.play(params("a", "b"))
        await play["env"].observe(indexes=[0, 0])
        for _ in range(3):
            await play["a"].act(b"a")
        assert play["env"].take() == []
        await play["b"].act(b"b")
        assert list(play["env"].take_set().actions) == [b"a", b"b"]


async def test_point_04_staleness_has_a_timer_of_its_own(autojump_clock: Clock) -> None:
    async with stage() as play:
        states = await play.watched()
        await play.play(params("a", max_inactivity_seconds=30))
        # Everything but a heartbeat is activity: messages and rewards too.
        deeds: list[Callable[[], Awaitable[object]]] = [
            lambda: play["a"].tell("env"),
            lambda: play["env"].reward("a", (1, 1)),
            lambda: play["env"].observe(indexes=[0]),
            lambda: play["a"].act(),
            lambda: play["a"].say(),
        ]
        for deed in deeds:
            await trio.sleep(29)
            await deed()
        await trio.sleep(29)
        await play["a"].say(HEARTBEAT)
        assert states[-1] == S.RUNNING
        await trio.sleep(1.1)
        assert states[-1] == S.ENDED
        assert play["a"].end == "nothing happened for 30 s"


async def test_point_04_ended_trials_go_though_nobody_starts_another(autojump_clock: Clock) -> None:
    async with stage(config=OrchestratorConfig(ended_trial_age_seconds=3)) as play:
        await play.start(params("a"))
        await play.hard()
        await trio.sleep(3.1)
        assert len(play.table.orchestrator.trials) == 0


async def test_point_05_heartbeats_are_answered_after_init_and_sent_to_the_idle(autojump_clock: Clock) -> None:
    async with stage() as play:
        await play.play(params("a"))
        for name in ("a", "env"):
            await play[name].say(HEARTBEAT)
            assert play[name].kinds() == ["HEARTBEAT"]
        # Not to the one that the trial waits for: it may be about to speak.
        await trio.sleep(20.1)
        assert [play[name].kinds() for name in ("a", "env")] == [["HEARTBEAT"], []]
        await play["env"].observe(indexes=[0])
        play["a"].take()
        await trio.sleep(20.1)
        assert [play[name].kinds() for name in ("a", "env")] == [[], ["HEARTBEAT"]]


async def test_point_06_a_message_harms_neither_sender_nor_receiver(autojump_clock: Clock) -> None:
    async with stage() as play:
        late = actor_params("late", "cls", endpoint=CLIENT)
        gone = actor_params("gone", "cls", optional=True)
        await play.start(params("a", gone, late))
        await play["a"].ready()
        play["gone"].leave()
        await settle()
        for receiver in ("gone", "late", "env", "nobody", "*"):
            await play["a"].tell(receiver, receiver.encode())
        assert play["a"].end is None
        client = await play.join("late")
        assert [m.message.payload.value for m in client.take()[1:]] == [b"late", b"*"]
        await play["env"].ready()
        assert play["env"].got[-1].message.payload.value == b"env"
        assert await play.state() == S.PENDING


async def test_point_06_what_waits_for_a_late_joiner_is_bounded(autojump_clock: Clock) -> None:
    async with stage() as play:
        await play.start(params("a", actor_params("late", "cls", endpoint=CLIENT)))
        await play["a"].ready()
        for _ in range(400):
            await play["a"].tell("late")
        client = await play.join("late")
        assert len(client.take()) == 1 + 256
        assert play["a"].end is None


async def test_point_06_what_waits_is_no_more_than_the_late_joiner_can_be_sent(autojump_clock: Clock) -> None:
    config = OrchestratorConfig(max_outbox_messages=20, max_outbox_bytes=1024 * 1024)
    async with stage(config=config) as play:
        await play.start(params("a", actor_params("late", "cls", endpoint=CLIENT), "b"))
        await play["a"].ready()
        for _ in range(100):
            await play["a"].tell("late", bytes(100_000))
        # It has not read anything when all of it comes at once.
        client = await play.join("late")
        assert len(client.take()) == 1 + 5
        await play["b"].ready()
        for _ in range(400):
            await play["a"].tell("env")
        await play["env"].ready()
        assert len(play["env"].take()) == 1 + 20
        assert [client.end, play["a"].end, play["env"].end] == [None, None, None]


async def test_point_07_nothing_is_made_of_an_observation_set_that_is_wrong(autojump_clock: Clock) -> None:
    async with stage() as play:
        await play.play(params("a", "b"))
        wrong: list[dict[str, Any]] = [
            {"indexes": []},
            {"indexes": [0]},
            {"indexes": [0, 1]},
            {"indexes": [0, -1]},
            {"indexes": [0, 0], "tick_id": 1},
            {"indexes": [0, 0], "tick_id": -2},
        ]
        for options in wrong:
            await play["env"].observe(**options)
        assert await play.state() == S.PENDING
        await play["env"].observe(indexes=[0, 0], tick_id=0)
        assert await play.state() == S.RUNNING
        for name in ("a", "b"):
            assert [m.observation.tick_id for m in play[name].take()] == [0]


@pytest.mark.parametrize("trial_id", ["\x00", "ä", "a" * 513, " a"])
async def test_point_07_an_id_that_cannot_travel_is_refused(trial_id: str) -> None:
    async with stage() as play:
        with pytest.raises(RpcError) as caught:
            await play.start(params("a"), trial_id)
        assert caught.value.code is StatusCode.INVALID_ARGUMENT


async def test_point_08_a_watcher_that_left_is_forgotten_at_once(autojump_clock: Clock) -> None:
    async with stage() as play:
        async with play.table.controller.watch_trials():
            assert len(play.table.orchestrator.watchers._watches) == 1
        await settle()
        assert not play.table.orchestrator.watchers._watches


async def test_point_09_the_data_logs_stream_ends_with_the_trial(autojump_clock: Clock) -> None:
    ended: list[float] = []
    streams = 0

    async def log(call: ServerCall) -> None:
        nonlocal streams
        streams += 1
        async for _ in call:
            pass
        ended.append(trio.current_time())

    services = Script(environment_of(3, seconds_per_tick=1)).environment(), Script(actor_that_acts()).actor()
    async with bench(*services, Script(log).datalog()) as table:
        await table.controller.start_trial(params("a"), trial_id="t")
        await table.controller.wait_trial_state("t")
        await settle()
        assert ended == [pytest.approx(3)]
        # It is remembered still.
        assert len(table.orchestrator.trials) == 1
    assert streams == 1


async def test_point_09_a_hook_and_a_data_log_have_their_time(autojump_clock: Clock) -> None:
    async def hangs(request: PreTrialParams, _call: ServerCall) -> PreTrialParams:
        await trio.sleep(math.inf)
        return request

    class Hanging:
        def open(self, *_: Any) -> Any:
            return self

        async def __aenter__(self) -> Any:
            await trio.sleep_forever()

        async def __aexit__(self, *_: Any) -> bool | None:
            pass

    config = OrchestratorConfig(hook_timeout_seconds=4, datalog_connect_timeout_seconds=6)
    options: dict[str, Any] = {"pre_trial_hooks": ["cogment://discover"], "config": config, "sink": Hanging()}
    async with bench(HookScript(hangs).service(), **options) as table:
        for start, seconds in ((None, 4), (params("a"), 6)):
            before = trio.current_time()
            with pytest.raises(RpcError) as caught:
                await table.controller.start_trial(start, trial_id="t")
            assert caught.value.code is StatusCode.UNAVAILABLE
            assert trio.current_time() - before == pytest.approx(seconds)
            assert not await table.controller.trial_infos()


async def test_point_10_acknowledgements_are_awaited_side_by_side(autojump_clock: Clock) -> None:
    async with stage() as play:
        await play.play(params("a", "b", "c"))
        await play["env"].say(LAST)
        await play["env"].observe(indexes=[0, 0, 0])
        await play["env"].say(LAST_ACK)
        before = trio.current_time()
        await play.table.controller.wait_trial_state("t")
        # Three silent actors, and not three times as long.
        assert trio.current_time() - before == pytest.approx(30)
        assert play["a"].end == ""


async def test_point_11_a_client_that_half_closed_gets_its_end_and_its_call_is_over(autojump_clock: Clock) -> None:
    async with stage() as play:
        optional = actor_params("c", "cls", endpoint=CLIENT, optional=True)
        await play.play(params("a", optional))
        await play["env"].observe(indexes=[0, 0])
        await play["c"].call.done_sending()  # type: ignore[attr-defined]  # a client's
        await settle()
        assert play["c"].end == "it closed its side of the stream"
        assert play["c"].over
        assert play["c"].error is None
        assert await play.state() == S.RUNNING


async def test_point_12_shutdown_tells_everybody(autojump_clock: Clock) -> None:
    async with stage() as play:
        await play.play(params("a", actor_params("c", "cls", endpoint=CLIENT)))
        async with play.table.controller.watch_trials() as entries:
            await play.table.orchestrator.stop()
            with pytest.raises(RpcError) as caught:
                async for _ in entries:
                    pass
        assert caught.value.code is StatusCode.UNAVAILABLE
        assert [play[name].end for name in ("env", "a", "c")] == ["the orchestrator is stopping"] * 3
        assert play.samples[-1].info.state == S.ENDED
        with pytest.raises(RpcError) as caught:
            await play.start(params("a"), "late")
        assert caught.value.code is StatusCode.UNAVAILABLE


async def test_point_13_statuses_say_what_was_wrong(autojump_clock: Clock) -> None:
    async with stage() as play:
        await play.start(params("a", actor_params("c", "cls", endpoint=CLIENT)))
        for name, trial_id, code in (
            ("c", "nobody's", StatusCode.NOT_FOUND),
            ("nobody", "t", StatusCode.NOT_FOUND),
            ("a", "t", StatusCode.FAILED_PRECONDITION),
            ("", "t", StatusCode.INVALID_ARGUMENT),
        ):
            puppet = await play.join(name, trial_id)
            assert puppet.error is not None
            assert puppet.error.code is code
        await play.join("c")
        # What the SDKs depend on stays: a taken id is OK and empty, unknown trials are passed over.
        assert await play.start(params("a")) == ""
        await play.hard("nobody's")
        assert not await play.table.controller.trial_infos(["nobody's"])


async def test_point_14_an_end_happens_once(autojump_clock: Clock) -> None:
    async with stage() as play:
        states = await play.watched()
        await play.play(params("a", max_steps=1))
        for _ in range(2):
            await play["env"].observe(indexes=[0])
            await play["a"].act()
        await play.soft()
        await play.soft()
        await play["env"].say(LAST)
        await play["env"].observe(indexes=[0])
        await play.soft()
        for _ in range(3):
            await play["a"].say(LAST_ACK)
        assert [kind for kind in play["env"].kinds() if kind == "LAST"] == ["LAST"]
        assert [kind for kind in play["a"].kinds() if kind == "LAST"] == ["LAST"]
        await play["env"].say(LAST_ACK)
        await play.hard()
        assert states == [1, 2, 3, 4, 5]
        assert [play["env"].end, play["a"].end] == ["", ""]


async def test_point_15_the_environment_of_an_ended_trial_is_not_started(autojump_clock: Clock) -> None:
    async with stage() as play:
        await play.start(params("a"))
        await play.hard()
        await trio.sleep(100)
        assert "env" not in play
        # Neither when the last actor is lost instead.
        await play.start(params("a"), "u")
        play["a"].leave()
        await trio.sleep(100)
        assert await play.state("u") == S.ENDED
        assert "env" not in play


async def test_point_16_a_place_is_taken_once_whoever_comes_together(autojump_clock: Clock) -> None:
    async with stage() as play:
        await play.start(params(actor_params("c", "cls", endpoint=CLIENT)))
        puppets: list[Puppet] = []
        async with trio.open_nursery() as nursery:

            async def join() -> None:
                async with play.table.channel.call(RUN_TRIAL, metadata=[("trial-id", "t")]) as call:
                    puppet = Puppet(call, ActorRunTrialOutput)
                    puppets.append(puppet)
                    await puppet.call.send(
                        ActorRunTrialOutput(state=NORMAL, init_output=ActorInitialOutput(actor_class="cls"))
                    )
                    await puppet.read()

            for _ in range(50):
                nursery.start_soon(join)
            await settle()
            (winner,) = [puppet for puppet in puppets if puppet.error is None]
            assert winner.kinds() == ["NORMAL/init_input"]
            assert await play.state() == S.PENDING
            nursery.cancel_scope.cancel()
    for puppet in puppets:
        assert puppet is winner or (puppet.error and puppet.error.code is StatusCode.FAILED_PRECONDITION)


@pytest.mark.parametrize("soft", [True, False])
@pytest.mark.parametrize("half_closes", [True, False])
async def test_point_17_clients_survive_the_end_whatever_they_do_with_their_side(
    soft: bool, half_closes: bool, autojump_clock: Clock
) -> None:
    async with stage() as play:
        for number in range(20):
            trial_id = f"t{number}"
            await play.play(params(actor_params("c", "cls", endpoint=CLIENT)), trial_id)
            client = play["c"]
            await play["env"].observe(indexes=[0])
            if soft:
                await play["env"].say(LAST)
                await play["env"].observe(indexes=[0])
                await client.say(LAST_ACK)
                if half_closes:
                    await client.call.done_sending()  # type: ignore[attr-defined]  # a client's
                await play["env"].say(LAST_ACK)
            else:
                await play.hard(trial_id)
                if half_closes:
                    await client.call.done_sending()  # type: ignore[attr-defined]  # a client's
            await settle()
            assert await play.state(trial_id) == S.ENDED
            assert bool(client.end) is not soft
            assert client.end is not None
            assert client.over
            assert client.error is None


async def test_point_18_a_port_is_checked_by_binding_it() -> None:
    (listener,) = await open_listeners("127.0.0.1", 0)
    async with listener:
        port = listener.socket.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            await open_listeners("127.0.0.1", port)
        # A connection that we close lingers in the kernel's tables with this port.
        async with await trio.open_tcp_stream("127.0.0.1", port), await listener.accept() as accepted:
            await accepted.aclose()
    (again,) = await open_listeners("127.0.0.1", port)
    await again.aclose()


def test_every_point_has_its_test() -> None:
    numbers = {name.split("_")[2] for name in globals() if name.startswith("test_point_")}
    assert numbers == {f"{number:02d}" for number in range(1, 19)}
