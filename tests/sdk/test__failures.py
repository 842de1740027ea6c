"""Log records of participants whose trial is taken away from them."""

from __future__ import annotations

import logging
import sys
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from tests.cli.process import PATIENCE_SECONDS, served
from trio_cogment import EnvironmentSession, Participants, actor_params, open_platform, trial_params
from trio_cogment.base.errors import ResourceExhaustedError, StatusCode, UnavailableError, of_peer
from trio_cogment.base.outcome import EndCause
from trio_cogment.sdk._failures import failure_of, words_for

#: Runs a trial with the participants at an endpoint, and is killed.
ORCHESTRATES = """
import sys, trio
from trio_cogment import actor_params, open_platform, trial_params

async def main():
    at = sys.argv[1]
    async with open_platform() as platform:
        params = trial_params([actor_params("ann", "player", endpoint=at)], environment_endpoint=at)
        await platform.controller.start_trial(params, trial_id="t")
        await trio.sleep_forever()

trio.run(main)
"""


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("no idea\nwhat to do"), "ValueError: no idea"),
        (NotImplementedError(), "NotImplementedError"),
        (ExceptionGroup("tasks", [ValueError("no idea")]), "ValueError: no idea"),
        (
            ExceptionGroup("tasks", [ExceptionGroup("more", [ValueError("no idea"), KeyError("x")]), TypeError("y")]),
            "ValueError: no idea (and 2 more)",
        ),
        (ValueError("x" * 1000), f"ValueError: {'x' * 288}"),
    ],
)
def test_words_for_an_exception(error: Exception, words: str) -> None:
    assert words_for(error) == words


@pytest.mark.parametrize("has_caller", [False, True])
def test_where_there_is_no_room_no_traceback_is_made(has_caller: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever is refused a thousand times must not cost a thousand tracebacks."""
    caplog.set_level(logging.WARNING)
    error = ExceptionGroup("tasks", [ResourceExhaustedError("too many actors: max_seats is 2")])
    found = failure_of(error, "t", "actor 'ann'", tracebacks=True, has_caller=has_caller)
    assert (found.code, found.message) == (StatusCode.RESOURCE_EXHAUSTED, "too many actors: max_seats is 2")
    said = [(record.getMessage(), record.exc_info) for record in caplog.records]
    assert said == ([] if has_caller else [("trial t: actor 'ann': too many actors: max_seats is 2", None)])
    assert found.trailing_metadata == ()


def test_what_a_server_behind_a_gateway_does_is_a_line(caplog: pytest.LogCaptureFixture) -> None:
    error = of_peer(UnavailableError("grpc://old:1: Start: cannot connect"))
    found = failure_of(error, "t", "actor 'ann'", tracebacks=True)
    assert (found.code, found.message) == (
        StatusCode.UNKNOWN, "UnavailableError: grpc://old:1: Start: cannot connect",
    )  # fmt: skip
    [record] = caplog.records
    assert (record.levelname, record.exc_info) == ("WARNING", None)
    assert record.getMessage() == "trial t: actor 'ann': grpc://old:1: Start: cannot connect"


async def waits(session: Any) -> None:
    if isinstance(session, EnvironmentSession):
        await session.start([("*", b"o")])
    async for _ in session.all_events():
        await trio.sleep_forever()


async def test_who_cancels_everything_blames_no_participant(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    # Trio wakes cancelled tasks in any order: of several trials some would be told the wrong thing first.
    trials: list[str] = []
    with trio.CancelScope() as everything:
        async with open_platform() as platform:
            platform.participants.register_environment(waits)
            platform.participants.register_actor(waits, "player")
            for _ in range(5):
                params = trial_params([actor_params("ann", "player"), actor_params("bob", "player")])
                trials.append(await platform.controller.start_trial(params))
            await trio.testing.wait_all_tasks_blocked()
            everything.cancel()
            await trio.sleep_forever()
    for trial in platform.orchestrator.known(trials):
        assert trial.outcome is not None
        assert (trial.outcome.cause, trial.outcome.participant) == (EndCause.SERVER_STOPPED, "")
        assert trial.outcome.losses == ()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_lost_orchestrator_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    playing = trio.Event()

    async def plays(session: Any) -> None:
        if isinstance(session, EnvironmentSession):
            await session.start([("*", b"o")])
        async for _ in session.all_events():
            playing.set()

    participants = Participants()
    participants.register_environment(plays)
    participants.register_actor(plays, "player")
    lines: list[str] = []
    async with served(participants) as endpoint, trio.open_nursery() as nursery:
        run = partial(trio.run_process, [sys.executable, "-c", ORCHESTRATES, endpoint], check=False)
        process: trio.Process = await nursery.start(run)
        with trio.fail_after(PATIENCE_SECONDS):
            await playing.wait()
            process.kill()
            while len(lines) < 2:
                await trio.testing.wait_all_tasks_blocked(0.01)
                lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    lost = "the connection to the orchestrator was lost: CANCELLED: the connection to the caller is lost"
    assert sorted(lines) == [f"trial t: actor 'ann': {lost}", f"trial t: the environment 'env': {lost}"]
    assert "Traceback" not in caplog.text
