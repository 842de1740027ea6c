"""Participants of the published SDK in a trial with a rate, one of which is late."""

from __future__ import annotations

import json

import pytest
import trio

from tests.interop.scenes import Scene, action_sets, observations
from trio_cogment.api.common_pb2 import ActorParams
from trio_cogment.api.orchestrator_pb2 import TickRate
from trio_cogment.sdk import actor_params, connect, trial_params

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

LAST_TICK = 15
HZ = 10.0
SLOW_TICK = 2
DEFAULT = 77


def config(number: int, **script: object) -> bytes:
    """Return the config of a player or of the field: fields 1 and 2 of their messages in app/data.proto."""
    text = json.dumps(script).encode()
    assert number < 128 > len(text)
    return bytes([8, number, 18, len(text)]) + text


def player(name: str, endpoint: str, bonus: int, **script: object) -> ActorParams:
    return actor_params(
        name,
        "player",
        implementation="scripted",
        endpoint=endpoint,
        config=config(bonus, **script),
        default_action=bytes([8, DEFAULT]),
    )


def test_an_actor_that_is_late_in_a_trial_at_a_rate(scene: Scene) -> None:
    """Each late action is dropped, and never taken for another tick; the default one takes its place."""
    cast = scene.participants()
    orchestrator = scene.orchestrator()
    actors = [player("ann", cast, 20), player("late", cast, 40, slow={str(SLOW_TICK): 6 / HZ})]
    params = trial_params(
        actors,
        environment="scripted_field",
        environment_name="field",
        environment_endpoint=cast,
        environment_config=config(LAST_TICK),
        tick_hz=HZ,
    )

    async def play() -> TickRate:
        async with connect(orchestrator.lifecycle) as client:
            controller = await client.controller()
            trial_id = await controller.start_trial(params=params, trial_id="some")
            await controller.wait_trial(trial_id)
            (info,) = await controller.trial_infos([trial_id])
            return info.tick_rate

    rate = trio.run(play)
    world = scene.record("some.field")
    sets = action_sets(world)
    assert [tick for tick, _, _ in sets] == list(range(LAST_TICK))
    made_up = 0
    for tick, _, row in sets:
        for (_, action), bonus in zip(row, (20, 40), strict=True):
            assert action in (bonus + tick, DEFAULT)
            made_up += action == DEFAULT
    assert sets[SLOW_TICK][2][1][1] == DEFAULT
    assert (rate.hz, rate.absent_actions) == (HZ, made_up)
    # Each of these was sent, but maybe not before the end.
    assert 1 <= rate.late_actions <= made_up
    for name in ("ann", "late"):
        assert [tick for tick, _ in observations(scene.record(f"some.{name}"))] == list(range(LAST_TICK + 1))
    scene.end(orchestrator)
