"""`services orchestrator --resume` with a datastore in a process of its own, as in docs/resuming.md.

What dies is the orchestrator, the datastore, or both, by kill -9; or one of two orchestrators is stopped.
"""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

import pytest
import trio

from tests.cli.process import PATIENCE_SECONDS, Server, run, served, server
from tests.cli.services.test_resume import LAST_TICK, Party, check, params
from tests.ports import free_port
from trio_cogment.rpc import open_listeners, serve
from trio_cogment.sdk import StoredSample, StoredTrial, connect
from trio_cogment.servers.datastore import Datastore, datastore_services
from trio_cogment.servers.datastore._memory import MemoryStore

_ORCHESTRATOR, _DATASTORE = "orchestrator", "trial_datastore"


class Site:
    """A datastore and orchestrators, each a process at a port that it keeps.

    Attributes:
        datastore: the endpoint of the datastore.
        orchestrators: the endpoints of the orchestrators.
        running: the processes by their endpoints.
    """

    def __init__(self, folder: Path, orchestrators: int, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._flags: dict[str, list[str]] = {}
        self.datastore = self._add(_DATASTORE, "--port={}", f"--file_storage={folder}/trials.db")
        resumes = ("--lifecycle_port={0}", "--actor_port={0}", "--resume", f"--datastore={self.datastore}")
        self.orchestrators = [self._add(_ORCHESTRATOR, *resumes) for _ in range(orchestrators)]
        self.running: dict[str, Server] = {}

    def _add(self, service: str, *flags: str) -> str:
        port = free_port()
        endpoint = f"grpc://127.0.0.1:{port}"
        self._flags[endpoint] = ["services", service, "--host=127.0.0.1", *(flag.format(port) for flag in flags)]
        return endpoint

    async def start(self, *endpoints: str) -> None:
        for endpoint in endpoints or self._flags:
            self.running[endpoint] = await self._nursery.start(self._run, self._flags[endpoint])

    async def _run(self, flags: list[str], *, task_status: trio.TaskStatus[Server]) -> None:
        async with server(*flags) as process:
            await process.wait_serving()
            task_status.started(process)
            await trio.sleep_forever()

    async def kill(self, *endpoints: str) -> None:
        for endpoint in endpoints:
            self.running[endpoint].process.kill()
        for endpoint in endpoints:
            await self.running[endpoint].process.wait()

    async def over(self, names: list[str]) -> tuple[list[StoredTrial], dict[str, list[StoredSample]]]:
        """Wait until the trials have ended; return them and their samples."""
        async with connect(self.datastore) as client:
            datastore = await client.datastore()
            async for _ in datastore.samples(names, follow=True):
                pass
            samples = {name: [sample async for sample in datastore.samples([name])] for name in names}
            return await datastore.trials(names), samples


async def interrupted(folder: Path, trials: int, kinds: tuple[str, ...]) -> float:
    """Kill processes in the middle of trials and start them again; return how long the last trial took to go on."""
    party, names = Party(), [f"t{number}" for number in range(trials)]
    async with trio.open_nursery() as processes, served(party.participants()) as endpoint:
        site = Site(folder, 1, processes)
        [orchestrator] = site.orchestrators
        await site.start()
        async with connect(orchestrator) as client, trio.open_nursery() as nursery:
            controller = await client.controller()
            for index, name in enumerate(names):
                joins = index % 2
                await controller.start_trial(params(endpoint, "cogment://client" if joins else endpoint), trial_id=name)
                if joins:
                    nursery.start_soon(partial(client.join_trial, name, party.actor, actor_name="ann"))
            await party.wait_ticks(trials, 10)
            killed = [{_ORCHESTRATOR: orchestrator, _DATASTORE: site.datastore}[kind] for kind in kinds]
            await site.kill(*killed)
            party.restarted = trio.current_time()
            await site.start(*killed)
            found, samples = await site.over(names)
        processes.cancel_scope.cancel()
    assert len(found) == trials
    for trial in found:
        if _ORCHESTRATOR in kinds:
            check(trial, samples[trial.trial_id])
        else:
            assert "resume.attempt" not in trial.params.properties
            assert [sample.tick_id for sample in samples[trial.trial_id]] == list(range(LAST_TICK + 1))
        # Nobody was lost, and each attempt was asked in order.
        assert sorted(set(party.seen[trial.trial_id])) == list(range(LAST_TICK + 1))
    return max(party.back.values())


_KILLED = [(_ORCHESTRATOR,), (_DATASTORE,), (_DATASTORE, _ORCHESTRATOR)]


@pytest.mark.parametrize("kinds", _KILLED, ids=" and ".join)
async def test_trials_go_on_whoever_is_killed(kinds: tuple[str, ...], tmp_path: Path) -> None:
    """Each is stored with every tick once, as if nothing had happened."""
    with trio.fail_after(3 * PATIENCE_SECONDS):
        await interrupted(tmp_path, 4, kinds)


@pytest.mark.soak
@pytest.mark.parametrize("kinds", _KILLED, ids=" and ".join)
async def test_many_trials_go_on_within_10_s(kinds: tuple[str, ...], tmp_path: Path) -> None:
    seconds = await interrupted(tmp_path, 20, kinds)
    print(f"the last of 20 trials went on {seconds:.2f} s after the restart")
    assert seconds <= 10


async def drained(folder: Path, trials: int) -> float:
    """Stop one of two orchestrators in the middle of trials; return the longest time that one of them stood still."""
    party, names = Party(), [f"t{number}" for number in range(trials)]
    async with trio.open_nursery() as processes, served(party.participants()) as endpoint:
        site = Site(folder, 2, processes)
        await site.start()
        first, _ = site.orchestrators
        async with connect(first) as client:
            controller = await client.controller()
            for name in names:
                await controller.start_trial(params(endpoint, endpoint), trial_id=name)
            await party.wait_ticks(trials, 10)
        party.restarted = trio.current_time()
        assert await site.running[first].stop(signal.SIGTERM) == 0
        found, samples = await site.over(names)
        processes.cancel_scope.cancel()
    assert len(found) == trials
    for trial in found:
        check(trial, samples[trial.trial_id])
        seen = party.seen[trial.trial_id]
        # The tick that was under way is asked again, and no other.
        assert sorted(set(seen)) == list(range(LAST_TICK + 1))
        assert len(seen) <= LAST_TICK + 2
    return party.longest_gap


async def test_one_of_two_orchestrators_hands_its_trials_over(tmp_path: Path) -> None:
    """At the other one each goes on with the tick that was under way."""
    with trio.fail_after(3 * PATIENCE_SECONDS):
        await drained(tmp_path, 4)


@pytest.mark.soak
async def test_fifty_trials_are_handed_over(tmp_path: Path) -> None:
    """None of them stands still for more than a second."""
    seconds = await drained(tmp_path, 50)
    print(f"the longest gap of 50 trials: {seconds:.2f} s")
    assert seconds <= 1


async def test_a_datastore_that_does_not_count_is_refused_in_one_sentence() -> None:
    store = MemoryStore(1 << 20)
    async with Datastore(store) as datastore, trio.open_nursery() as nursery:
        older = [service for service in datastore_services(datastore) if "Attempts" not in service.name]
        running = await nursery.start(serve, older, await open_listeners("127.0.0.1"))
        endpoint = f"grpc://127.0.0.1:{running.port}"
        ended = await run(
            "services", "orchestrator", "--lifecycle_port=0", "--actor_port=0", "--resume", f"--datastore={endpoint}"
        )
        nursery.cancel_scope.cancel()
    assert ended.code == 1
    assert f"the trial datastore at {endpoint} does not count the attempts of trials" in ended.err
    assert len(ended.err.splitlines()) == 1


async def test_what_goes_on_needs_a_datastore() -> None:
    ended = await run("services", "orchestrator", "--resume")
    assert ended.code
    assert "--resume: expected --datastore, too" in ended.err
