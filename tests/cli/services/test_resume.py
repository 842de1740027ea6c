"""`serve --resume`, as in docs/resuming.md: its trials go on after kill -9 and after a stop, with all who took part."""

from __future__ import annotations

import itertools
import math
import signal
from collections import defaultdict
from functools import partial
from pathlib import Path

import pytest
import trio

from tests.cli.process import PATIENCE_SECONDS, served, server
from tests.ports import free_port
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.sdk import (
    ActorSession,
    Client,
    EnvironmentSession,
    Participants,
    StoredSample,
    StoredTrial,
    actor_params,
    connect,
    trial_params,
)
from trio_cogment.servers.datastore import open_store

LAST_TICK = 60
_TICK_SECONDS = 0.03
#: With it a trial waits for all others, so that none is over when the server is killed.
_TICK_OF_ALL = 10
#: After the start of the next process all trials go on within this time: a promise, which the long test holds it to.
_BACK_SECONDS = 10.0


class Party:
    """Environments and actors elsewhere, which outlive the server; half of the trials have an actor that joins.

    Attributes:
        seen: the ticks that the actors of each trial have seen, in the order of time.
        times: when that was.
        restarted: when the next server has been started.
        back: how long after that each trial had its first observation.
    """

    def __init__(self) -> None:
        self.seen: defaultdict[str, list[int]] = defaultdict(list)
        self.times: defaultdict[str, list[float]] = defaultdict(list)
        self.restarted = math.inf
        self.back: dict[str, float] = {}
        self._waiting = trio.Event()
        #: On a busy machine the first trials would be over before the last one has begun.
        self._all_there = trio.Event()

    async def environment(self, session: EnvironmentSession) -> None:
        taken = session.take_up()
        past = () if taken is None else taken.past[:-1]
        total = sum(int(tick.actions[0]) for tick in past)
        await session.start([("*", b"%d" % total)])
        async for event in session.all_events():
            if event.actions is not None:
                total += int(event.actions[0].payload)
                if session.tick_id == _TICK_OF_ALL:
                    await self._all_there.wait()
                await trio.sleep(_TICK_SECONDS)
                finish = session.end if session.tick_id + 1 == LAST_TICK else session.produce_observations
                await finish([("*", b"%d" % total)])

    async def actor(self, session: ActorSession) -> None:
        await session.start()
        async for event in session.all_events():
            if event.observation is not None:
                tick_id = event.observation.tick_id
                self.seen[session.trial_id].append(tick_id)
                self.times[session.trial_id].append(trio.current_time())
                if (passed := trio.current_time() - self.restarted) > 0:
                    self.back.setdefault(session.trial_id, passed)
                self._waiting.set()
                await session.do_action(b"%d" % tick_id)

    async def wait_ticks(self, trials: int, ticks: int) -> None:
        """Wait until so many trials have had so many ticks."""
        while sum(len(seen) >= ticks for seen in self.seen.values()) < trials:
            self._waiting = trio.Event()
            await self._waiting.wait()
        self._all_there.set()

    @property
    def longest_gap(self) -> float:
        """How long a trial stood still since the restart, or the stop, beside the time of a tick."""
        gaps = [
            later - earlier
            for times in self.times.values()
            for earlier, later in itertools.pairwise(times)
            if later > self.restarted
        ]
        return max(gaps) - _TICK_SECONDS

    def participants(self) -> Participants:
        made = Participants()
        made.register_environment(self.environment, "sum")
        made.register_actor(self.actor, "adds")
        return made


def params(endpoint: str, actor_endpoint: str) -> TrialParams:
    return trial_params(
        [actor_params("ann", "cls", implementation="adds", endpoint=actor_endpoint)],
        environment="sum",
        environment_endpoint=endpoint,
    )


async def wait_over(client: Client, names: list[str]) -> None:
    datastore = await client.datastore()
    async for _ in datastore.samples(names, follow=True):
        pass


async def stored(client: Client, names: list[str]) -> tuple[list[StoredTrial], dict[str, list[StoredSample]]]:
    datastore = await client.datastore()
    samples = {name: [sample async for sample in datastore.samples([name])] for name in names}
    return await datastore.trials(names), samples


async def durable(path: Path, names: list[str]) -> dict[str, int]:
    """Return the last tick of each trial that a process which is gone has stored."""
    async with open_store(f"sqlite:{path}") as store:
        found = await store.trials(after=0, limit=len(names), ids=names)
    return {trial.trial_id: trial.samples_count - 1 for trial in found}


async def interrupted(folder: Path, trials: int, number: signal.Signals) -> float:
    """Kill or stop a server in the middle of trials and start it again; return how long the last one took to go on."""
    party, port = Party(), free_port()
    flags = ["serve", f"--port={port}", "--resume", f"--storage=sqlite:{folder}/trials.db"]
    names = [f"t{number}" for number in range(trials)]
    async with served(party.participants()) as endpoint, connect(f"grpc://127.0.0.1:{port}") as client:
        async with trio.open_nursery() as nursery:
            async with server(*flags) as first:
                await first.wait_serving()
                controller = await client.controller()
                for index, name in enumerate(names):
                    joins = index % 2
                    who = params(endpoint, "cogment://client" if joins else endpoint)
                    await controller.start_trial(who, trial_id=name)
                    if joins:
                        nursery.start_soon(partial(client.join_trial, name, party.actor, actor_name="ann"))
                await party.wait_ticks(trials, 10)
                if number is signal.SIGKILL:
                    first.process.kill()
                    await first.process.wait()
                else:
                    await first.stop(number)
            last = await durable(folder / "trials.db", names)
            party.restarted = trio.current_time()
            async with server(*flags) as second:
                await second.wait_serving()
                async with connect(f"grpc://127.0.0.1:{port}") as again:
                    await wait_over(again, names)
                    found, samples = await stored(again, names)
        # Every client actor has come back by itself, and its part is over.
        for trial in found:
            check(trial, samples[trial.trial_id])
            seen = party.seen[trial.trial_id]
            assert seen[-1] == LAST_TICK
            assert sorted(set(seen)) == list(range(LAST_TICK + 1))
            # Few ticks were seen twice: those that were not stored yet, of which two are held back by the trial.
            begun = int(trial.params.properties["resume.tick"])
            assert begun in seen
            assert begun - last[trial.trial_id] in (0, 1)
    assert party.back.keys() == set(names)
    return max(party.back.values())


def check(trial: StoredTrial, samples: list[StoredSample]) -> None:
    """Check that a trial is stored with every tick once, as if nothing had happened, and says that it went on."""
    ticks = [sample.tick_id for sample in samples]
    assert ticks == list(range(LAST_TICK + 1))
    totals = [sample.actors["ann"].observation for sample in samples]
    assert totals == [b"%d" % sum(range(tick)) for tick in ticks]
    assert trial.params.properties["resume.attempt"] == "2"
    assert 0 < int(trial.params.properties["resume.tick"]) <= LAST_TICK
    assert not trial.ended_abnormally


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_its_trials_go_on(number: signal.Signals, tmp_path: Path) -> None:
    """Each is stored with every tick once, as if nothing had happened; actors that joined come back by themselves."""
    with trio.fail_after(3 * PATIENCE_SECONDS):
        await interrupted(tmp_path, 4, number)


@pytest.mark.soak
async def test_many_trials_go_on_after_kill_9(tmp_path: Path) -> None:
    for attempt in range(5):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        seconds = await interrupted(folder, 20, signal.SIGKILL)
        print(f"the last of 20 trials went on {seconds:.2f} s after the restart")
        assert seconds <= _BACK_SECONDS
