"""Trials with ticks at a rate, on a clock of the test's own: who is late, and what is stored."""

from __future__ import annotations

import itertools
from typing import Any

import trio
import trio.testing

from trio_cogment.base.metrics.prometheus import PrometheusMetrics
from trio_cogment.platform import open_platform
from trio_cogment.rl.datasets.ticks import tick_of
from trio_cogment.sdk import ActorSession, ActorStatus, DatalogSession, EnvironmentSession, LogSample, actor_params
from trio_cogment.sdk import trial_params as make_trial

HZ = 60.0
TRIALS = 8
TICKS = 102
#: The slow actor is late in every fifth tick.
LATE_EVERY = 5
LATE = len(range(LATE_EVERY - 1, TICKS, LATE_EVERY))


async def environment(session: EnvironmentSession[Any, Any, Any]) -> None:
    assert session.tick_hz == HZ
    await session.start([("*", b"o")])
    async for event in session.all_events():
        if event.actions is not None:
            shown = [("*", b"o%d" % (event.tick_id + 1))]
            if event.tick_id + 1 == TICKS:
                await session.end(shown)
            else:
                await session.produce_observations(shown)


async def prompt(session: ActorSession[Any, Any, Any]) -> None:
    await session.start()
    async for event in session.all_events():
        if event.observation is not None:
            await trio.sleep(0.4 / HZ)
            await session.do_action(b"p%d" % event.observation.tick_id)


async def slow(session: ActorSession[Any, Any, Any]) -> None:
    await session.start()
    async for event in session.all_events():
        if event.observation is not None:
            tick = event.observation.tick_id
            if tick % LATE_EVERY == LATE_EVERY - 1:
                await trio.sleep(1.2 / HZ)
            await session.do_action(b"s%d" % tick)


class Watching:
    """A data log: what is stored of each trial."""

    def __init__(self) -> None:
        self.samples: dict[str, list[LogSample]] = {}

    async def __call__(self, session: DatalogSession) -> None:
        async for sample in session:
            self.samples.setdefault(session.trial_id, []).append(sample)


async def test_eight_trials_at_60_hz_with_one_that_is_late_in_every_fifth_tick(
    autojump_clock: trio.testing.MockClock,
) -> None:
    metrics, log, times = PrometheusMetrics(), Watching(), []
    began = trio.current_time()
    async with open_platform(metrics=metrics) as platform:
        platform.participants.register_environment(environment, "e")
        platform.participants.register_actor(prompt, "prompt")
        platform.participants.register_actor(slow, "slow")
        platform.participants.register_datalog(log)
        controller = platform.controller
        actors = [actor_params("a", "c", implementation="prompt", default_action=b"D")]
        actors.append(actor_params("b", "c", implementation="slow", hold_action=True))
        params = make_trial(actors, environment="e", tick_hz=HZ, datalog_endpoint="cogment://discover")
        ids = [await controller.start_trial(params) for _ in range(TRIALS)]
        for trial_id in ids:
            outcome = await controller.wait_trial(trial_id)
            assert outcome.ticks == TICKS + 1
            times.append(trio.current_time() - began)
            (info,) = await controller.trial_infos([trial_id])
            rate = info.tick_rate
            late = LATE
            assert (rate.hz, rate.missed_ticks, rate.late_actions, rate.absent_actions) == (HZ, 0, late, late)
    for seconds in times:
        assert abs(seconds - TICKS / HZ) < 0.1, "no tick was waited for longer than its time"
    late = TRIALS * LATE
    assert (metrics.missed_ticks, metrics.late_actions, metrics.absent_actions) == (0, late, late)
    assert sorted(log.samples) == sorted(ids)
    for samples in log.samples.values():
        check(samples)


def check(samples: list[LogSample]) -> None:
    """What was taken in each tick is there, and says whose it is."""
    assert [sample.tick_id for sample in samples] == list(range(TICKS + 1))
    for sample in samples[:TICKS]:
        tick = sample.tick_id
        first, second = sample.action("a"), sample.action("b")
        assert first is not None
        assert second is not None
        assert (first.status, first.payload) == (ActorStatus.ACTIVE, b"p%d" % tick)
        if tick % LATE_EVERY == LATE_EVERY - 1:
            assert (second.status, second.payload) == (ActorStatus.HELD, b"s%d" % (tick - 1))
            assert second.tick_id == tick - 1
        else:
            assert (second.status, second.payload) == (ActorStatus.ACTIVE, b"s%d" % tick)
    assert samples[-1].message.info.special_events[-1] == (
        f"at 60 Hz: ticks missed: 0; late actions, dropped: {LATE}; actions made up: {LATE}"
    )


async def test_an_environment_that_is_late_misses_ticks(autojump_clock: trio.testing.MockClock) -> None:
    """Each set of observations takes two and a half periods: each third time is used, and none is made up for."""
    metrics = PrometheusMetrics()

    async def late(session: EnvironmentSession[Any, Any, Any]) -> None:
        await session.start([("*", b"")])
        ends = []
        async for event in session.all_events():
            if event.actions is not None:
                ends.append(trio.current_time())
                await trio.sleep(2.5 / HZ)
                await (session.end if len(ends) == 10 else session.produce_observations)([("*", b"")])
        gaps = [after - before for before, after in itertools.pairwise(ends)]
        assert all(abs(gap - 3 / HZ) < 1e-6 for gap in gaps), gaps

    async with open_platform(metrics=metrics) as platform:
        platform.participants.register_environment(late, "e")
        platform.participants.register_actor(prompt, "prompt")
        controller = platform.controller
        params = make_trial([actor_params("a", "c", implementation="prompt")], environment="e", tick_hz=HZ)
        outcome = await controller.wait_trial(await controller.start_trial(params))
    assert outcome.ticks == 11
    assert (metrics.missed_ticks, metrics.late_actions) == (18, 0)


async def test_a_slow_actor_is_observed_every_fifth_tick(autojump_clock: trio.testing.MockClock) -> None:
    """It takes three periods for an answer, and is never late."""
    metrics, log = PrometheusMetrics(), Watching()
    seen: list[int] = []

    async def thinker(session: ActorSession[Any, Any, Any]) -> None:
        assert (session.tick_hz, session.observe_every) == (HZ, 5)
        await session.start()
        async for event in session.all_events():
            if event.observation is not None:
                seen.append(event.observation.tick_id)
                await trio.sleep(3.5 / HZ)
                await session.do_action(b"t%d" % event.observation.tick_id)

    async with open_platform(metrics=metrics) as platform:
        platform.participants.register_environment(environment, "e")
        platform.participants.register_actor(prompt, "prompt")
        platform.participants.register_actor(thinker, "thinker")
        platform.participants.register_datalog(log)
        controller = platform.controller
        actors = [actor_params("a", "c", implementation="prompt")]
        actors.append(
            actor_params("b", "c", implementation="thinker", observe_every=5, hold_action=True, default_action=b"D")
        )
        params = make_trial(actors, environment="e", tick_hz=HZ, datalog_endpoint="cogment://discover")
        await controller.wait_trial(await controller.start_trial(params))
    assert seen == [*range(0, TICKS, 5), TICKS], "the last observation is for everybody"
    (samples,) = log.samples.values()
    taken = []
    for sample in samples[:15]:
        action = sample.action("b")
        assert action is not None
        taken.append(action.payload)
    assert taken == [b"D"] * 3 + [b"t0"] * 5 + [b"t5"] * 5 + [b"t10"] * 2
    assert (metrics.missed_ticks, metrics.late_actions) == (0, 0)


async def test_what_is_stored(autojump_clock: trio.testing.MockClock) -> None:
    """The datastore has what was taken, and whose last action it was; a data set says so, too."""
    async with open_platform(store="memory:") as platform:
        platform.participants.register_environment(environment, "e")
        platform.participants.register_actor(prompt, "prompt")
        platform.participants.register_actor(slow, "slow")
        controller = platform.controller
        actors = [actor_params("a", "c", implementation="prompt", default_action=b"D")]
        actors.append(actor_params("b", "c", implementation="slow", hold_action=True))
        trial_id = await controller.start_trial(make_trial(actors, environment="e", tick_hz=HZ))
        await controller.wait_trial(trial_id)
        stored = [sample async for sample in platform.datastore_client().samples(trial_id)]
    assert len(stored) == TICKS + 1
    for sample in stored[:TICKS]:
        tick = sample.tick_id
        is_late = tick % LATE_EVERY == LATE_EVERY - 1
        assert sample.held_actors == (["b"] if is_late else [])
        assert sample.actors["a"].action_bytes == b"p%d" % tick
        assert sample.actors["b"].action_bytes == b"s%d" % (tick - is_late)
        assert tick_of(sample).actors["b"].held_action == is_late
