"""Places of stored trials, as servers say them when they start, and where `serve` puts them."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.cli.process import PATIENCE_SECONDS, served, server
from trio_cogment import connect
from trio_cogment.sdk import (
    ActorSession,
    EnvironmentSession,
    Participants,
    actor_params,
    trial_params,
)

HERE = ("--host=127.0.0.1", "--port=0")
ELSEWHERE = "grpc://127.0.0.1:1"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            ("orchestrator", "--host=127.0.0.1", "--lifecycle_port=0", "--actor_port=0"),
            "stored only where their parameters name a data log (datalog.endpoint)",
        ),
        (
            ("trainer", *HERE, "--folder=runs", f"--orchestrator={ELSEWHERE}"),
            f"run by the orchestrator at {ELSEWHERE}, which says whether they are stored",
        ),
        (
            ("trainer", *HERE, "--folder=runs", f"--orchestrator={ELSEWHERE}", f"--datastore={ELSEWHERE}"),
            f"stored in the datastore at {ELSEWHERE}",
        ),
    ],
)
async def test_a_service_says_whether_trials_are_stored(command: tuple[str, ...], said: str, tmp_path: Path) -> None:
    async with server("services", *command, folder=tmp_path) as process:
        assert await process.trials() == said


@pytest.mark.parametrize("storage", ["", "none"])
async def test_what_serve_starts_is_stored_without_a_word_of_it(storage: str, tmp_path: Path) -> None:
    """The parameters of the trial name no data log, as those of most clients."""
    participants = Participants()

    async def world(session: EnvironmentSession) -> None:
        await session.start([("*", b"hello")])
        async for event in session.all_events():
            if event.actions is not None:
                await session.end([("*", b"goodbye")])

    async def actor(session: ActorSession) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                await session.do_action(b"")

    participants.register_environment(world)
    participants.register_actor(actor, "default")
    variables = {"TRIO_COGMENT_STORAGE": storage}
    async with (
        server("serve", *HERE, folder=tmp_path, variables=variables) as process,
        served(participants) as where,
    ):
        said = await process.trials()
        assert said == ("not stored (--storage=none)" if storage else f"{tmp_path}/.cogment/trial_datastore.db")
        params = trial_params([actor_params("ann", "player", endpoint=where)], environment_endpoint=where)
        with trio.fail_after(PATIENCE_SECONDS):
            async with connect(f"grpc://127.0.0.1:{process.port}", variables={}) as client:
                controller = await client.controller()
                await controller.wait_trial(await controller.start_trial(params, trial_id="t"))
                if not storage:
                    datastore = await client.datastore()
                    assert [trial.trial_id for trial in await datastore.trials()] == ["t"]
