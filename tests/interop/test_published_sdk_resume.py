"""An actor of the published SDK in a trial whose server is killed: it is opened anew, as at a start, and plays on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import trio

from tests.cli.process import PATIENCE_SECONDS, served, server
from tests.interop.processes import Stage
from tests.ports import free_port
from trio_cogment.api.spaces_pb2 import Action
from trio_cogment.sdk import EnvironmentSession, Participants, actor_params, connect, trial_params
from trio_cogment.spaces import Observation, decode_action, encode_observation

pytestmark = pytest.mark.interop

_LAST_TICK = 30
_TICK_SECONDS = 0.05


def told(total: int) -> list[tuple[str, bytes]]:
    return [("*", encode_observation(Observation(np.array([total]))).SerializeToString())]


def number(content: bytes) -> int:
    return int(decode_action(Action.FromString(content)))


class Adding:
    """An environment that shows the sum of the numbers that its actor has said; it can be taken up.

    Attributes:
        reached: set when an action of its eighth tick has come.
    """

    def __init__(self) -> None:
        self.reached = trio.Event()

    async def play(self, session: EnvironmentSession) -> None:
        taken = session.take_up()
        total = 0 if taken is None else sum(number(tick.actions[0]) for tick in taken.past[:-1])
        await session.start(told(total))
        async for event in session.all_events():
            if event.actions is not None:
                total += number(event.actions[0].payload)
                if session.tick_id == 8:
                    self.reached.set()
                await trio.sleep(_TICK_SECONDS)
                finish = session.end if session.tick_id + 1 == _LAST_TICK else session.produce_observations
                await finish(told(total))


async def test_an_actor_of_the_published_sdk_is_opened_anew(
    foreign_python: str, rl_project: Path, tmp_path: Path
) -> None:
    def lines() -> list[list[object]]:
        return [json.loads(line) for line in (tmp_path / "numbers.lines").read_text().splitlines()]

    participants, environment = Participants(), Adding()
    participants.register_environment(environment.play, "adding")
    port = free_port()
    flags = ["serve", f"--port={port}", "--resume", f"--storage=sqlite:{tmp_path}/trials.db"]
    with Stage(tmp_path) as stage, trio.fail_after(4 * PATIENCE_SECONDS):
        stage.start("numbers", foreign_python, str(rl_project / "numbers_agent.py"), str(tmp_path))
        agent = f"grpc://127.0.0.1:{stage.port('numbers')}"
        async with served(participants) as endpoint:
            actor = actor_params("ann", "player", implementation="numbers", endpoint=agent)
            params = trial_params([actor], environment="adding", environment_endpoint=endpoint)
            async with server(*flags) as first, connect(f"grpc://127.0.0.1:{port}") as client:
                await first.wait_serving()
                await (await client.controller()).start_trial(params, trial_id="t")
                await environment.reached.wait()
                first.process.kill()
                await first.process.wait()
            async with server(*flags) as second, connect(f"grpc://127.0.0.1:{port}") as client:
                await second.wait_serving()
                datastore = await client.datastore()
                samples = [sample async for sample in datastore.samples(["t"], follow=True)]
                (trial,) = await datastore.trials(["t"])
        assert trial.params.properties["resume.attempt"] == "2"
        assert not trial.ended_abnormally
        # Whoever follows a trial gets the tick a second time with which it goes on.
        assert sorted({sample.tick_id for sample in samples}) == list(range(_LAST_TICK + 1))
        begun = int(trial.params.properties["resume.tick"])
        ticks = [line[1] for line in lines()]
        again = ticks.index(begun, 1 + ticks.index(begun))
        assert ticks[:again] == list(range(again)), "up to the death"
        assert ticks[again:] == list(range(begun, _LAST_TICK + 1)), "as at a start, with that tick"
        # What it sees and says is what it would be without a death.
        total = 0
        seen = {line[1]: line[2:4] for line in lines()}
        for tick in range(_LAST_TICK):
            assert seen[tick] == [[total], (total * 3 + 1) % 10]
            total += (total * 3 + 1) % 10
