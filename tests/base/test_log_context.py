"""The trial that a line of the log is about."""

from __future__ import annotations

import ast
import logging
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.helpers import actor_that_acts, bench, environment_of, params_of
from trio_cogment import open_platform
from trio_cogment.base.config import PlatformConfig
from trio_cogment.base.endpoints import CLIENT
from trio_cogment.base.log_context import PREFIX, TrialFilter, bind_trial, bound_trial, trial_bound
from trio_cogment.sdk import (
    ActorSession,
    DatalogSession,
    EnvironmentSession,
    PreTrialSession,
    actor_params,
    join_trial,
    trial_params,
)

SOURCE = Path(__file__).resolve().parents[2] / "src" / "trio_cogment"
user_log = logging.getLogger("somebody's own program")


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Capture every line as a handler with our filter sees it."""
    caplog.set_level(logging.DEBUG)
    caplog.handler.addFilter(TrialFilter())
    return caplog


def trials_of(caplog: pytest.LogCaptureFixture, logger: str) -> set[tuple[str, str]]:
    """Return (what the message is about, trial id) of a logger's lines."""
    records = [record for record in caplog.records if record.name.startswith(logger)]
    return {(record.getMessage().split(":")[0], record.__dict__["trial_id"]) for record in records}


def test_a_message_about_a_trial_says_so_itself(lines: pytest.LogCaptureFixture) -> None:
    user_log.info(PREFIX + "%s is 100%%", "t 1", "this")
    user_log.info("trial %s: ")
    user_log.info("nothing")
    user_log.info({"not": "a text"})
    with trial_bound("t 2"):
        user_log.info("inside")
        user_log.info(PREFIX + "another", "t 3")
        assert bound_trial() == "t 2"
    assert [record.__dict__["trial_id"] for record in lines.records] == ["t 1", "", "", "", "t 2", "t 3"]


async def test_tasks_inherit_it(lines: pytest.LogCaptureFixture) -> None:
    async def work(name: str) -> None:
        bind_trial(name)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)
        await trio.to_thread.run_sync(user_log.info, "thread")

    async def child() -> None:
        user_log.info("child")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work, "a")
        nursery.start_soon(work, "b")
    assert trials_of(lines, user_log.name) == {("child", "a"), ("child", "b"), ("thread", "a"), ("thread", "b")}
    assert bound_trial() == ""


async def test_what_participants_log_has_their_trial(lines: pytest.LogCaptureFixture) -> None:
    """Four trials at once, with every kind of participant in process: no line is about the wrong one, or none."""

    async def world(session: EnvironmentSession) -> None:
        user_log.info("%s: environment", session.trial_id)
        await session.start([("*", b"x")])
        async for event in session.all_events():
            if event.actions is not None:
                user_log.info("%s: acted", session.trial_id)
                await session.end([("*", b"y")])

    async def actor(session: ActorSession) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                user_log.info("%s: observed", session.trial_id)
                await session.do_action(b"a")

    async def hook(session: PreTrialSession) -> None:
        user_log.info("%s: hook", session.trial_id)

    async def datalog(session: DatalogSession) -> None:
        async for _ in session:
            user_log.info("%s: sample", session.trial_id)

    defaults = trial_params([actor_params("here", "c"), actor_params("joined", "c", endpoint=CLIENT)])
    defaults.datalog.endpoint = "cogment://discover"
    with trio.fail_after(40):
        config = PlatformConfig(default_params=defaults, pre_trial_hooks=("cogment://discover",))
        async with open_platform(config=config) as platform:
            registry = platform.participants
            registry.register_environment(world)
            registry.register_actor(actor, "actor")
            registry.register_pre_trial_hook(hook)
            registry.register_datalog(datalog)

            async def play(name: str) -> None:
                await platform.controller.start_trial(trial_id=name)
                await join_trial(platform.channel, name, actor, actor_name="joined")
                assert bound_trial() == ""
                user_log.info("outside")
                await platform.controller.wait_trial(name)

            async with trio.open_nursery() as nursery:
                for name in ("a", "b", "c", "d"):
                    nursery.start_soon(play, name)
    names = ["a", "b", "c", "d"]
    expected = {(name, name) for name in names} | {("outside", "")}
    assert trials_of(lines, user_log.name) == expected
    kinds = {record.getMessage() for record in lines.records if record.name == user_log.name}
    whats = ("environment", "acted", "observed", "hook", "sample")
    assert kinds == {f"{name}: {what}" for name in names for what in whats} | {"outside"}


@pytest.mark.parametrize("wire", [False, True], ids=["in process", "wire"])
async def test_lines_of_a_trial_have_its_id(
    wire: bool, lines: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    from tests.helpers import Script

    services = (Script(environment_of(ticks=3)).environment(), Script(actor_that_acts()).actor())
    async with bench(*services, wire=wire) as table:
        for number in range(3):
            await table.controller.start_trial(params_of("a"), trial_id=f"t{number}")
        await table.controller.terminate_trial("t1", hard=True)
        await trio.sleep(1)
    found = trials_of(lines, "trio_cogment.servers.orchestrator")
    assert found == {(f"trial t{number}", f"t{number}") for number in range(3)}


@pytest.mark.parametrize("path", sorted((SOURCE / "servers" / "orchestrator").glob("*.py")), ids=lambda path: path.name)
def test_every_line_of_the_orchestrator_begins_with_its_trial(path: Path) -> None:
    """Its code runs in whatever task brings an input, so the message itself must say which trial it is about."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if isinstance(node.func.value, ast.Name) and node.func.value.id == "_log":
            message = node.args[1 if node.func.attr == "log" else 0]
            assert isinstance(message, ast.Constant), f"{path.name}:{node.lineno}"
            assert str(message.value).startswith(PREFIX), f"{path.name}:{node.lineno}"
