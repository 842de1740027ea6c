"""The twenty sharpest edges of the reference, over the whole orchestrator; starred ones as they should be.

The docstrings say what was given, what happens, and, where the reference does worse, what it does.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio

from tests.helpers import until_given_up
from tests.servers.orchestrator.puppets import CLIENT, LAST, LAST_ACK, LOGGED, Stage, settle, stage
from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.sdk import actor_params, trial_params

S = TrialState
Clock = trio.testing.MockClock


def params(*actors: Any, **options: Any) -> TrialParams:
    listed = [actor if not isinstance(actor, str) else actor_params(actor, "cls") for actor in actors]
    return trial_params(listed, datalog_endpoint=LOGGED, **options)


async def whole_end(play: Stage, *actors: str) -> None:
    """Everybody acknowledges; the trial ends in good order."""
    for name in ("env", *actors):
        await play[name].say(LAST_ACK)
    assert await play.state() == S.ENDED
    assert [play[name].end for name in ("env", *actors)] == [""] * (1 + len(actors))


async def test_case_01_the_id_of_an_ended_trial_is_taken_until_it_is_collected(autojump_clock: Clock) -> None:
    """Reference: until a start collects. Ours: collected by time (and by a start, if that is configured)."""
    async with stage(config=OrchestratorConfig(ended_trial_age_seconds=30)) as play:
        assert await play.start(params("a")) == "t"
        await play.hard()
        assert await play.start(params("a")) == ""
        assert len(await play.table.controller.trial_infos()) == 1
        await trio.sleep(31)
        assert await play.start(params("a")) == "t"
    async with stage(config=OrchestratorConfig(gc_frequency=2)) as play:
        assert await play.start(params("a")) == "t"
        await play.hard()
        assert await play.start(params("a")) == ""
        assert await play.start(params("a"), "other") == "other"
        assert await play.start(params("a")) == "t"


async def test_case_02_a_start_that_fails_leaves_its_id_free(autojump_clock: Clock) -> None:
    """Reference: the trial stays INITIALIZING indefinitely, and its id is refused."""
    async with stage() as play:
        with pytest.raises(RpcError) as caught:
            await play.start(trial_params([]), "z")
        assert caught.value.code is StatusCode.INVALID_ARGUMENT
        assert not await play.table.controller.trial_infos()
        assert await play.start(params("a"), "z") == "z"


async def test_case_03_hard_end_before_all_actors_are_there(autojump_clock: Clock) -> None:
    async with stage() as play:
        states = await play.watched()
        await play.start(params("a", "b"))
        await play["a"].ready()
        await play.hard()
        assert states == [S.INITIALIZING, S.PENDING, S.ENDED]
        assert "external request" in str(play["a"].end)
        assert "external request" in str(play["b"].end)
        assert "env" not in play


async def test_case_04_each_actor_has_its_own_time_to_connect(autojump_clock: Clock) -> None:
    """Reference: who is late but there when it looks is accepted, and one endless wait hides all others."""
    waits = (
        actor_params("a", "cls", endpoint=CLIENT, initial_connection_timeout_seconds=0.3),
        actor_params("b", "cls", endpoint=CLIENT),
    )
    async with stage() as play:
        await play.start(params(*waits))
        await trio.sleep(1)
        assert await play.state() == S.ENDED
        late = await play.join("a")
        assert late.error is not None
        assert late.error.code is StatusCode.FAILED_PRECONDITION


async def test_case_05_one_optional_actor_that_never_comes(autojump_clock: Clock) -> None:
    """Reference: the trial ends, and the environment is contacted after that."""
    for default in (None, b"D"):
        absent = actor_params(
            "a", "cls", endpoint=CLIENT, optional=True, initial_connection_timeout_seconds=1, default_action=default
        )
        async with stage() as play:
            await play.start(params(absent))
            assert "env" not in play
            await trio.sleep(1.1)
            await play["env"].ready()
            for tick in range(3):
                play["env"].take()
                await play["env"].observe(indexes=[0])
                actions = play["env"].take_set()
                assert (actions.tick_id, list(actions.actions)) == (tick, [default or b""])
                assert list(actions.unavailable_actors) == ([] if default else [0])


async def test_case_06_a_silent_environment(autojump_clock: Clock) -> None:
    """Reference: PENDING indefinitely. Ours: its time to begin ends it."""
    async with stage() as play:
        await play.start(params("a"))
        await play["a"].ready()
        await play.soft()
        assert await play.state() == S.PENDING
        await play.hard()
        assert await play.state() == S.ENDED
        (sample,) = play.samples
        assert (sample.info.tick_id, sample.info.state) == (0, S.ENDED)
        assert [action.tick_id for action in sample.actions] == [-2]
    async with stage() as play:
        await play.start(params("a"))
        await play["a"].ready()
        await trio.sleep(59)
        assert await play.state() == S.PENDING
        await trio.sleep(2)
        assert await play.state() == S.ENDED
        assert "did not come in time" in str(play["a"].end)


async def test_case_07_one_step(autojump_clock: Clock) -> None:
    async with stage() as play:
        await play.play(params("a", max_steps=1))
        await play["env"].observe(indexes=[0])
        await play["a"].act()
        assert play["env"].take_set().tick_id == 0
        await play["env"].observe(indexes=[0])
        play["a"].take()
        await play["env"].reward("a", (1, 1))
        await play["a"].act()
        last, actions = play["env"].take()
        assert last.state == LAST
        assert actions.action_set.tick_id == 1
        await play["env"].observe(indexes=[0])
        assert play["a"].kinds() == ["NORMAL/reward", "LAST", "NORMAL/observation"]
        assert play["a"].got[-1].observation.tick_id == 2
        await whole_end(play, "a")
        assert (await play.info()).tick_id == 2
        assert [sample.info.state for sample in play.samples] == [S.RUNNING, S.TERMINATING, S.ENDED]


async def test_case_08_soft_end_within_a_tick(autojump_clock: Clock) -> None:
    async with stage() as play:
        await play.play(params("a", "b"))
        await play["env"].observe(indexes=[0, 0])
        await play.soft()
        assert await play.state() == S.RUNNING
        await play["a"].act()
        assert play["env"].take() == []
        await play["b"].act()
        assert play["env"].kinds() == ["LAST", "NORMAL/action_set"]
        assert await play.state() == S.TERMINATING
        play["a"].take()
        await play["env"].observe(indexes=[0, 0])
        assert play["a"].kinds() == ["LAST", "NORMAL/observation"]
        await whole_end(play, "a", "b")


async def test_case_09_actions_after_the_final_observation_go_nowhere(autojump_clock: Clock) -> None:
    """Reference: they make another action set, and a second LAST."""
    async with stage() as play:
        await play.play(params("a"))
        await play["env"].observe(indexes=[0])
        await play.soft()
        await play["a"].act()
        await play["env"].observe(indexes=[0])
        play["env"].take()
        await play["a"].act()
        assert play["env"].take() == []
        await whole_end(play, "a")
        assert play["env"].kinds() == ["END"]


async def test_case_10_a_set_after_the_final_one_is_ignored(autojump_clock: Clock) -> None:
    """Reference: everybody gets LAST again, and END with details at once."""
    async with stage() as play:
        await play.play(params("a"))
        await play["env"].observe(indexes=[0])
        await play["a"].act()
        await play["env"].say(LAST)
        await play["env"].observe(indexes=[0])
        play["a"].take()
        await play["env"].observe(indexes=[0])
        assert play["a"].take() == []
        await whole_end(play, "a")
        assert (await play.info()).tick_id == 1


async def test_case_11_each_actor_has_its_own_response_timer(autojump_clock: Clock) -> None:
    """Reference: one timer, for the longest."""
    first = actor_params("a", "cls", optional=True, response_timeout_seconds=0.4, default_action=b"D")
    second = actor_params("b", "cls", optional=True, response_timeout_seconds=1)
    for acts_late in (True, False):
        async with stage() as play:
            await play.play(params(first, second, "c"))
            await play["env"].observe(indexes=[0, 0, 0])
            await play["c"].act(b"c")
            await trio.sleep(0.6)
            if acts_late:
                # The set is not out yet: its action replaces the default one.
                await play["a"].act(b"a")
            await trio.sleep(0.3)
            assert play["env"].take() == []
            await trio.sleep(0.2)
            actions = play["env"].take_set()
            assert list(actions.actions) == [b"a" if acts_late else b"D", b"", b"c"]
            assert list(actions.unavailable_actors) == [1]
            await play["b"].act(b"b")
            assert play["env"].take() == []


async def test_case_12_a_late_action_never_counts_twice(autojump_clock: Clock) -> None:
    """Reference: it counts for b, who is killed for it."""
    hasty = actor_params("a", "cls", optional=True, response_timeout_seconds=0.3)
    async with stage() as play:
        await play.play(params(hasty, "b"))
        await play["env"].observe(indexes=[0, 0])
        await trio.sleep(0.6)
        await play["a"].act(b"late")
        assert play["env"].take() == []
        await trio.sleep(100)
        assert await play.state() == S.RUNNING
        play["env"].take()
        await play["b"].act(b"b")
        actions = play["env"].take_set()
        assert (list(actions.actions), list(actions.unavailable_actors)) == ([b"late", b"b"], [])


async def test_case_13_one_who_acted_and_left_does_not_count_for_another(autojump_clock: Clock) -> None:
    """Reference: the set goes out without c."""
    async with stage() as play:
        await play.play(params(actor_params("a", "cls", optional=True), "b", "c"))
        await play["env"].observe(indexes=[0, 0, 0])
        await play["a"].act()
        play["a"].leave()
        await play["b"].act(b"b")
        assert play["env"].take() == []
        await play["c"].act(b"c")
        actions = play["env"].take_set()
        assert (list(actions.actions), list(actions.unavailable_actors)) == ([b"", b"b", b"c"], [0])


async def test_case_14_rewards_for_other_ticks(autojump_clock: Clock) -> None:
    async with stage() as play:
        await play.play(params("a"))
        for _ in range(2):
            await play["env"].observe(indexes=[0])
            await play["a"].act()
        await play["env"].observe(indexes=[0])
        assert [sample.info.tick_id for sample in play.samples] == [0, 1]
        play["a"].take()
        for tick_id in (2, 1, 0, 3, -2):
            await play["env"].reward("a", (tick_id, 1), tick_id=tick_id)
        first, second = play.samples[2:]
        for tick_id, sample in ((1, first), (0, second)):
            assert (sample.info.tick_id, sample.info.out_of_sync, sample.info.state) == (tick_id, True, 0)
            assert [reward.tick_id for reward in sample.rewards] == [tick_id]
        await play["a"].act()
        await play["env"].observe(indexes=[0])
        assert play["a"].kinds() == ["NORMAL/reward", "NORMAL/observation"]
        assert play["a"].got[-2].reward.value == 2
        assert [reward.tick_id for reward in play.samples[4].rewards] == [2]


async def test_case_15_a_reward_is_a_weighted_mean(autojump_clock: Clock) -> None:
    async with stage() as play:
        await play.play(params("x", "y"))
        await play["env"].observe(indexes=[0, 0])
        await play["env"].reward("x", (1, 1), (8, 1), (10, 0))
        await play["y"].reward("x", (11, -1))
        await play["x"].act()
        await play["y"].act()
        play["x"].take()
        await play["env"].observe(indexes=[0, 0])
        message, observation = play["x"].take()
        assert observation.HasField("observation")
        assert (message.reward.value, message.reward.receiver_name) == (4.5, "x")
        sources = [(source.sender_name, source.value) for source in message.reward.sources]
        assert sources == [("env", 1), ("env", 8), ("env", 10), ("y", 11)]


async def test_case_16_receivers_of_messages(autojump_clock: Clock) -> None:
    everybody = {"a", "b", "c"}
    receivers = {
        "*": everybody,
        "cls.*": {"a", "b"},
        "cls.b": {"b"},
        "*.*": set(),
        "bogus": set(),
        "env": {"env"},
    }
    async with stage() as play:
        await play.play(params("a", "b", actor_params("c", "other")))
        await play["env"].observe(indexes=[0, 0, 0])
        for pattern, expected in receivers.items():
            for puppet in play.puppets.values():
                puppet.take()
            await play["a"].tell(pattern)
            for name, puppet in play.puppets.items():
                got = [(m.message.receiver_name, m.message.sender_name, m.message.tick_id) for m in puppet.take()]
                assert got == ([(name, "a", 0)] if name in expected else [])
        await play.hard()
        kept = [(message.sender_name, message.receiver_name) for message in play.samples[-1].messages]
        assert kept == [("a", pattern) for pattern in receivers]


async def test_case_17_a_message_to_a_client_that_has_not_joined_waits_for_it(autojump_clock: Clock) -> None:
    """Reference: the client can never join."""
    async with stage() as play:
        await play.start(params("a", actor_params("c", "cls", endpoint=CLIENT)))
        await play["a"].ready()
        await play["a"].tell("c", b"welcome")
        client = await play.join("c")
        init, message = client.take()
        assert init.HasField("init_input")
        assert message.message.payload.value == b"welcome"
        assert play["a"].end is None


@pytest.mark.parametrize("bad", [{"tick_id": 5}, {"indexes": [0]}, {"indexes": [0, 7]}])
async def test_case_18_a_bad_observation_set_costs_no_tick(bad: dict[str, Any], autojump_clock: Clock) -> None:
    """Reference: the tick is burnt, or the process crashes."""
    async with stage() as play:
        await play.play(params("a", "b"))
        await play["env"].observe(indexes=[0, 0])
        await play["a"].act()
        await play["b"].act()
        play["a"].take()
        await play["env"].observe(**{"indexes": [0, 0], **bad})
        assert play["a"].take() == []
        assert (await play.info()).tick_id == 0
        assert not play.samples
        await play["env"].observe(indexes=[0, 0])
        assert play["a"].got[-1].observation.tick_id == 1
        assert [sample.info.tick_id for sample in play.samples] == [0]


async def test_case_19_a_watcher_that_stops_reading_holds_up_nobody(autojump_clock: Clock) -> None:
    """Reference: every StartTrial hangs; and a shutdown waits for every watcher and client."""
    config = OrchestratorConfig(watch_queue_entries=5)
    async with stage(config=config) as play, play.table.controller.watch_trials() as watch:
        for number in range(200):
            assert await play.start(params("a"), str(number))
        await play.start(params(actor_params("c", "cls", endpoint=CLIENT)), "client")
        client = await play.join("c", "client")
        before = trio.current_time()
        await play.table.orchestrator.stop()
        assert trio.current_time() - before <= config.farewell_seconds
        await settle()
        assert client.over
        assert client.end == "the orchestrator is stopping"
        seen = await until_given_up(watch)
    # None of what it got is missing in between.
    changes = [(str(number), state) for number in range(200) for state in (S.INITIALIZING, S.PENDING)]
    assert config.watch_queue_entries < len(seen) < len(changes)
    assert seen == changes[: len(seen)]


async def test_case_20_an_optional_actor_that_comes_too_late_gets_its_end(autojump_clock: Clock) -> None:
    late = actor_params("late", "cls", optional=True, initial_connection_timeout_seconds=0.25)
    async with stage() as play:
        await play.start(params("a", late))
        await play["a"].ready()
        await trio.sleep(0.3)
        await play["env"].ready()
        await play["late"].ready()
        for puppet in play.puppets.values():
            puppet.take()
        await play["env"].observe(indexes=[0, 0])
        await play["late"].act(b"late")
        await play["a"].act(b"a")
        actions = play["env"].take_set()
        assert (list(actions.actions), list(actions.unavailable_actors)) == ([b"a", b""], [1])
        await play.soft()
        await play["env"].observe(indexes=[0, 0])
        await play["a"].act()
        await play["env"].observe(indexes=[0, 0])
        # Nobody waits for its LAST_ACK.
        await whole_end(play, "a")
        assert play["late"].kinds() == ["END"]
