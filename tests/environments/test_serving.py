"""Environments of the field serve trials: everywhere the same episodes, and what goes wrong ends its trial alone."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import trio
import trio.lowlevel

from tests.environments import _fragile
from tests.environments._fragile import Fragile
from tests.environments._games import Countdown, Rps
from tests.environments._samples import Inventory
from tests.environments._trials import Policy, open_table
from trio_cogment.api import rl_pb2
from trio_cogment.base.errors import InvalidArgumentError, TrialFailedError
from trio_cogment.environments.errors import EnvironmentFailedError
from trio_cogment.environments.hosts import InlineHost, ThreadHost
from trio_cogment.environments.making import Recipe
from trio_cogment.environments.pool import Key, Pool
from trio_cogment.environments.process_host import ProcessHost
from trio_cogment.environments.serving import Hosting, environment
from trio_cogment.environments.spec import PLAYER
from trio_cogment.environments.stage import Opening
from trio_cogment.sdk import actor_params, trial_params
from trio_cogment.spaces import Box, Discrete, Observation, encode_action, encode_value

ROOT = Path(__file__).parents[2]
HOSTINGS: list[Hosting] = ["inline", "thread", "process"]
ONE = ["player_0"]


def config(**fields: Any) -> rl_pb2.EnvironmentConfig:
    found = rl_pb2.EnvironmentConfig()
    for name, value in fields.items():
        if isinstance(value, dict):
            getattr(found, name).CopyFrom(encode_value(value).dict)
        elif isinstance(value, list):
            getattr(found, name).extend(value)
        else:
            setattr(found, name, value)
    return found


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    _fragile.MADE.clear()
    yield
    for made in _fragile.MADE:
        made.stopped.set()


def first_then(*kinds: str) -> Policy:
    """Return a policy whose actions are these, and then nothing that goes wrong."""
    left = list(kinds)
    return lambda name, observation: Fragile.KINDS.index(left.pop(0) if left else "nothing")


@pytest.mark.parametrize(
    ("hosting", "sockets"),
    [("inline", False), ("inline", True), ("thread", False), ("thread", True), ("process", True)],
)
async def test_an_episode_is_that_of_the_bare_environment(hosting: Hosting, sockets: bool) -> None:
    bare = gymnasium.make("Pendulum-v1", max_episode_steps=20)
    served = environment("Pendulum-v1", hosting=hosting, arguments={"max_episode_steps": 20})
    async with open_table(served, sockets=sockets) as table:
        for seed in (3, 4):
            generator = np.random.default_rng(seed)
            actions: list[Any] = []

            def act(_name: str, _observation: Observation) -> Any:
                actions.append(generator.uniform(-2, 2, 1).astype(np.float32))  # noqa: B023  one trial at a time
                return actions[-1]  # noqa: B023  likewise

            seen = (await table.play(ONE, act, config=config(seed=seed)))["player_0"]
            value, _ = bare.reset(seed=seed)
            assert np.array_equal(seen[0].value, value)
            assert seen[0].observation_space is not None
            assert len(seen) == 21
            for action, found in zip(actions, seen[1:], strict=True):
                value, reward, terminated, truncated, _ = bare.step(action)
                assert np.array_equal(found.value, value)
                assert found.reward == reward, "all 64 bits"
                assert (found.terminated, found.truncated) == (terminated, truncated)
            assert seen[-1].truncated
            rewards = next(iter(table.rewards.values()))["player_0"] if len(table.rewards) == 1 else None
            if rewards is not None:
                assert rewards == [np.float32(found.reward or 0) for found in seen[1:]]


@pytest.mark.parametrize("sockets", [False, True])
async def test_games_of_several(sockets: bool) -> None:
    async with open_table({"rps": environment(Rps), "heap": environment(Countdown)}, sockets=sockets) as table:
        found = await table.play(["player_1", "player_0"], lambda name, _: int(name[-1]), environment="rps")
        assert [one.reward for one in found["player_1"]] == [None, 1.0, 1.0, 1.0]
        assert [one.value for one in found["player_0"]] == [3, 1, 1, 1]
        assert found["player_0"][-1].truncated

        def greedy(_name: str, observation: Observation) -> Any:
            return int(observation.action_mask[1])

        five = config(arguments={"heap": 5})
        found = await table.play(["p_0", "p_1", "p_2"], greedy, environment="heap", config=five)
        assert {name: [one.active for one in seen] for name, seen in found.items()} == {
            "p_0": [True, False, False, False],
            "p_1": [False, True, False, False],
            "p_2": [False, False, True, False],
        }
        assert [found[name][-1].reward for name in ("p_0", "p_1", "p_2")] == [-1.0, -1.0, 10.0]
        assert all(seen[-1].terminated for seen in found.values())


async def test_options_arguments_and_a_function() -> None:
    async with open_table(environment(Inventory, arguments={"length": 9})) as table:
        found = await table.play(
            ONE,
            lambda _name, _observation: {"move": 1, "push": np.ones(2)},
            config=config(arguments={"length": 2}, options={"level": 3}),
        )
        seen = found["player_0"]
        assert len(seen) == 3
        assert seen[0].info["options"] == {"level": 3}
        assert seen[-1].info == {"steps": 2}


@pytest.mark.parametrize("hosting", ["inline", "thread"])
async def test_a_trial_that_ends_before_the_episode_is_truncated(hosting: Hosting) -> None:
    async with open_table(environment(Countdown, hosting=hosting)) as table:
        found = await table.play(["p_0", "p_1", "p_2"], lambda *_: 0, max_steps=2)
        for seen in found.values():
            assert not any(one.terminated or one.truncated for one in seen[:-1])
            assert (seen[-1].terminated, seen[-1].truncated) == (False, True)
            assert not seen[-1].active
            assert not seen[-1].alive
        assert sorted(seen[-1].reward or 0 for seen in found.values()) == [0, 0, 1], "the last reward"


@pytest.mark.parametrize("sockets", [False, True])
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("raise", "ValueError: the dice fell off the table"),
        ("nan", "environment 'Fragile', actor 'player_0': observation[0]: expected a number, got NaN"),
        ("reward", "environment 'Fragile', actor 'player_0': reward: expected a number, got NaN"),
        (
            "tuple",
            "environment 'Fragile', actor 'player_0': step: expected (observation, reward, terminated",
        ),
        ("exit", "environment 'Fragile', expected no exit of the program, got SystemExit(3)"),
    ],
)
@pytest.mark.parametrize("hosting", ["inline", "thread"])
async def test_one_that_goes_wrong_ends_its_trial_alone(hosting: Hosting, kind: str, text: str, sockets: bool) -> None:
    async with open_table(environment(Fragile, hosting=hosting), sockets=sockets) as table:
        await table.play(ONE, first_then())
        other = await table.start(ONE, first_then())
        with pytest.raises(TrialFailedError) as caught:
            await table.play(ONE, first_then("nothing", kind))
        assert text in str(caught.value)
        await table.platform.controller.wait_trial(other)
        found = await table.play(ONE, first_then())
        assert len(found["player_0"]) == 4
        with trio.fail_after(30):
            while not any(made.closed for made in _fragile.MADE):  # noqa: ASYNC110  a thread closes it
                await trio.sleep(0.01)
        broken = [made for made in _fragile.MADE if made.closed]
        assert len(broken) == 1, "what is broken is closed, and nothing else"
        assert len(_fragile.MADE) == 2 or len(_fragile.MADE) == 3


@pytest.mark.parametrize(
    ("kind", "text", "sockets"),
    [
        ("raise", "environment 'Fragile': ValueError: the dice fell off the table", False),
        ("nan", "environment 'Fragile', actor 'player_0': observation[0]: expected a number, got NaN", False),
        ("kill", "environment 'Fragile': step: its process was ended by SIGKILL", True),
    ],
)
async def test_so_does_a_process(kind: str, text: str, sockets: bool) -> None:
    async with open_table(environment(Fragile, hosting="process"), sockets=sockets) as table:
        found = await table.play(ONE, first_then())
        process = found["player_0"][0].value[2]
        with pytest.raises(TrialFailedError) as caught:
            await table.play(ONE, first_then("nothing", kind))
        assert text in str(caught.value)
        found = await table.play(ONE, first_then())
        assert found["player_0"][0].value[0] == 1, "a new one, at its first reset"
        assert found["player_0"][0].value[2] != process


@pytest.mark.parametrize("hosting", HOSTINGS)
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("raise", "environment 'fragile_at_birth': ValueError: the dice were never cast"),
        ("exit", "environment 'fragile_at_birth': SystemExit: 3"),
    ],
)
async def test_so_does_one_that_cannot_be_made(hosting: Hosting, kind: str, text: str) -> None:
    served = environment(_fragile.fragile_at_birth, hosting=hosting)
    async with open_table(served) as table:
        with pytest.raises(TrialFailedError) as caught:
            await table.play(ONE, first_then(), config=config(arguments={"kind": kind}))
        assert text in str(caught.value)
        assert len((await table.play(ONE, first_then()))["player_0"]) == 4
    served = environment(_fragile.fragile_at_birth, hosting=hosting, arguments={"kind": kind})
    for ask in (served.describe, served.prepare):
        with pytest.raises(EnvironmentFailedError, match=text) as failed:
            await ask()
        if hosting == "process":
            assert "sys.exit(3)" in failed.value.__notes__[0] or "raise ValueError" in failed.value.__notes__[0]
        else:
            assert isinstance(failed.value.__cause__, ValueError | SystemExit)


@pytest.mark.parametrize("hosting", HOSTINGS)
async def test_a_description_leaves_nothing_behind(hosting: Hosting) -> None:
    described = await environment(_fragile.fragile_at_birth, hosting=hosting).describe()
    assert (described.name, described.agents) == ("Fragile", ("player_0",))
    assert described.action_spaces == {"player_0": Discrete(8)}
    assert described.observation_spaces == {"player_0": Box(-1e9, 1e9, (4,), "float64")}
    assert all(made.closed == 1 for made in _fragile.MADE)
    assert all((made.thread == threading.get_ident()) == (hosting == "inline") for made in _fragile.MADE)
    assert len(_fragile.MADE) == (hosting != "process")
    with pytest.raises(InvalidArgumentError, match="got one that is made already"):
        await environment(Fragile()).describe()


async def test_a_process_that_ends_between_trials_fails_none() -> None:
    async with open_table(environment(Fragile, hosting="process")) as table:
        process = int((await table.play(ONE, first_then()))["player_0"][0].value[2])
        os.kill(process, signal.SIGKILL)
        # Until it has ended, and without taking its exit status from the one who waits for it.
        await trio.to_thread.run_sync(os.waitid, os.P_PID, process, os.WEXITED | os.WNOWAIT)
        found = await table.play(ONE, first_then())
        assert len(found["player_0"]) == 4
        assert found["player_0"][0].value[2] != process


@pytest.mark.parametrize("hosting", HOSTINGS)
async def test_a_wrong_action_ends_its_trial_and_not_the_environment(hosting: Hosting) -> None:
    async with open_table(environment(Fragile, hosting=hosting)) as table:
        with pytest.raises(TrialFailedError, match=r"environment 'Fragile', actor 'player_0': action: expected 0 to 7"):
            await table.play(ONE, lambda *_: 70)
        with pytest.raises(TrialFailedError, match=r"action: expected a value of Discrete\(8\), got none"):
            await table.play(ONE, lambda *_: None)
        found = await table.play(ONE, first_then())
        assert found["player_0"][0].value[0] == 3, "the same environment, reset for the third time"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"actors": ["me"]}, "environment 'Fragile': actors: expected 'player_0', which are its agents; got 'me'"),
        ({"config": config(id="Other-v0")}, "environment config: id: expected none, because there is one environment"),
        ({"config": config(frames_for=["me"])}, "environment 'Fragile': frames_for: expected actors"),
        ({"config": config(arguments={"size": 3})}, "unexpected keyword argument 'size'"),
    ],
)
async def test_configurations_that_make_no_sense(settings: dict[str, Any], text: str) -> None:
    async with open_table(environment(Fragile)) as table:
        with pytest.raises(TrialFailedError) as caught:
            await table.play(settings.pop("actors", ONE), first_then(), **settings)
        assert text in str(caught.value)


async def test_environments_by_the_trials_id() -> None:
    async with open_table(environment()) as table:
        found = await table.play(ONE, lambda *_: 0, config=config(id="CartPole-v1", seed=1))
        assert found["player_0"][-1].terminated
        for name in ("", "os:Thing-v0", "pettingzoo.classic.rps_v2"):
            with pytest.raises(TrialFailedError, match=r"id: expected the id of an environment, without a module"):
                await table.play(ONE, lambda *_: 0, config=config(id=name))
        with pytest.raises(TrialFailedError, match=r"environment 'Nothing-v0'"):
            await table.play(ONE, lambda *_: 0, config=config(id="Nothing-v0"))
    with pytest.raises(InvalidArgumentError, match=r"hosting: expected 'inline', 'thread', 'process'; got 'moon'"):
        environment("CartPole-v1", hosting="moon")  # type: ignore[arg-type]  # that is the test


# Who keeps which environment


@pytest.mark.parametrize("hosting", ["inline", "thread"])
async def test_environments_are_used_again_and_instances_keep_theirs(hosting: Hosting) -> None:
    async with open_table(environment(Fragile, hosting=hosting)) as table:

        async def resets(**fields: Any) -> float:
            found = await table.play(ONE, first_then(), config=config(**fields))
            value = found["player_0"][0].value
            assert value[3] != -1, "the thread that made it"
            return float(value[0])

        assert [await resets(), await resets()] == [1, 2]
        assert [await resets(instance="a"), await resets(instance="b"), await resets(instance="a")] == [1, 1, 2]
        assert [await resets(arguments={"number": 1}), await resets()] == [1, 3]


async def test_a_successor_waits_for_its_instance() -> None:
    async with open_table(environment(Fragile)) as table:
        stopped, gate = trio.Event(), trio.Event()
        count = 0

        async def slow(session: Any) -> None:
            nonlocal count
            async for event in session.all_events():
                if event.observation is not None:
                    count += 1
                    if count == 2:
                        stopped.set()
                        await gate.wait()
                    await session.do_action(encode_action(0))

        table.platform.participants.register_actor(slow, "slow")
        controller = table.platform.controller
        params = trial_params(
            [actor_params("player_0", PLAYER, implementation="slow")], environment_config=config(instance="a")
        )
        first = await controller.start_trial(params)
        await stopped.wait()
        second = await table.start(ONE, first_then(), config=config(instance="a"))
        await table.play(ONE, first_then(), config=config(instance="b"))
        assert not table.seen.get(second, {}).get("player_0")
        gate.set()
        await controller.wait_trial(first)
        await controller.wait_trial(second)
        assert table.seen[second]["player_0"][0].value[0] == 2, "the same object"


async def test_the_pool_closes_what_is_idle_for_long_or_too_much(autojump_clock: trio.testing.MockClock) -> None:
    pool = Pool(max_idle=2, idle_seconds=60)

    async def make() -> InlineHost:
        return InlineHost(_recipe())

    hosts = [await pool.acquire(Key(), make) for _ in range(3)]
    for host in hosts:
        await pool.release(Key(), host)
    assert [made.closed for made in _fragile.MADE] == [1, 0, 0]
    await trio.sleep(30)
    used = await pool.acquire(Key(), make)
    assert used is hosts[2]
    await trio.sleep(31)
    assert [made.closed for made in _fragile.MADE] == [1, 1, 0]
    await pool.release(Key(), used)
    await trio.sleep(61)
    assert [made.closed for made in _fragile.MADE] == [1, 1, 1]


def test_the_end_of_the_run_closes_them_all() -> None:
    before = threading.active_count()

    async def run() -> None:
        pool = Pool(max_idle=9, idle_seconds=1e6)
        for _ in range(2):
            await pool.release(Key(), await pool.acquire(Key(), lambda: ThreadHost.open(_recipe())))
            await pool.release(Key(instance="a"), await pool.acquire(Key(instance="a"), lambda: _inline()))

    trio.run(run)
    assert [made.closed for made in _fragile.MADE] == [1, 1]
    for thread in threading.enumerate():
        if thread.name == "trio-cogment environment":
            thread.join(5)
    assert threading.active_count() == before


def _recipe() -> Any:

    return Recipe(Fragile, {})


async def _inline() -> InlineHost:
    return InlineHost(_recipe())


# Ends from outside


@pytest.mark.parametrize("hosting", ["thread", "process"])
async def test_a_trial_that_is_ended_leaves_nothing_behind(hosting: Hosting, tmp_path: Path) -> None:
    before = set(threading.enumerate())
    mark = tmp_path / "hanging"
    process = 0

    def act(_name: str, observation: Observation) -> Any:
        nonlocal process
        process = int(observation.value[2])
        return Fragile.KINDS.index("hang")

    arguments = {"mark": str(mark), "nested": hosting == "process"}
    async with open_table(environment(Fragile, hosting=hosting, arguments=arguments)) as table:
        trial = await table.start(ONE, act)
        while not mark.exists():
            await trio.lowlevel.checkpoint()
        await table.platform.controller.terminate_trial(trial, hard=True)
        await table.platform.controller.wait_trial(trial)
        found = await table.play(ONE, first_then())
        assert found["player_0"][0].value[0] == 1, "a new one"
        if hosting == "process":
            assert not _is_running(process)
            with trio.fail_after(30):
                while _is_running(int(mark.read_text())):  # noqa: ASYNC110  the end of a grandchild sets no event
                    await trio.sleep(0.01)
        else:
            assert _fragile.MADE[0].closed == 0, "its step is under way"
            _fragile.MADE[0].stopped.set()
    for thread in set(threading.enumerate()) - before:
        if thread.name == "trio-cogment environment":
            thread.join(10)
            assert not thread.is_alive()
    assert [made.closed for made in _fragile.MADE] == ([1, 1] if hosting == "thread" else [])


async def test_signals_for_all_processes_of_a_program_end_no_environment() -> None:
    host = await ProcessHost.open(Recipe(Fragile, {}))
    process = host._process.pid
    assert os.getpgid(process) == process, "Control-C reaches the group of the program"
    os.kill(process, signal.SIGTERM)
    turn = await host.begin(Opening(("player_0",)))
    assert not turn.over
    await host.aclose()
    assert host._process.returncode == 0, "it was closed, not killed"


async def test_the_process_ends_with_whoever_needed_it(tmp_path: Path) -> None:
    """A program that is killed, and cannot close anything, leaves no process."""
    program = textwrap.dedent("""
        import os, trio
        from tests.environments._fragile import Fragile
        from trio_cogment.environments.making import Recipe
        from trio_cogment.environments.process_host import ProcessHost

        async def main():
            host = await ProcessHost.open(Recipe(Fragile, {}))
            print(host._process.pid, flush=True)
            os._exit(0)

        trio.run(main)
    """)
    done = await trio.run_process([sys.executable, "-c", program], capture_stdout=True, cwd=ROOT)
    with trio.fail_after(30):
        while _is_running(int(done.stdout)):  # noqa: ASYNC110  the end of a grandchild sets no event
            await trio.sleep(0.01)


def _is_running(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_slow_step_elsewhere_holds_up_nobody() -> None:
    environments = {"slow": environment(Fragile, hosting="thread"), "quick": environment("CartPole-v1")}
    async with open_table(environments) as table:
        slow = await table.start(ONE, first_then("hang"), environment="slow")
        while not (_fragile.MADE and _fragile.MADE[0].hanging.is_set()):
            await trio.lowlevel.checkpoint()
        assert (await table.play(ONE, lambda *_: 0, environment="quick"))["player_0"][-1].terminated
        _fragile.MADE[0].stopped.set()
        await table.platform.controller.wait_trial(slow)


async def test_functions_that_another_process_cannot_import() -> None:
    async with open_table(environment(lambda: Fragile(), hosting="process")) as table:
        with pytest.raises(TrialFailedError, match=r"hosting in a process: expected an id, or a function of a module"):
            await table.play(ONE, first_then())
    served = environment("Missing-v0", hosting="process")
    async with open_table(served) as table:
        with pytest.raises(TrialFailedError, match=r"environment 'Missing-v0'"):
            await table.play(ONE, first_then())


# Pictures


@pytest.mark.parametrize("hosting", ["inline", "thread"])
async def test_frames_are_for_those_who_look(hosting: Hosting) -> None:
    async with open_table(environment(Rps, hosting=hosting)) as table:
        found = await table.play(["player_0", "player_1"], lambda *_: 0, config=config(frames_for=["player_1"]))
        assert [one.frame is None for one in found["player_0"]] == [True] * 4
        assert [one.frame and one.frame.data for one in found["player_1"]] == [b"round %d" % n for n in range(4)]
        found = await table.play(["player_0", "player_1"], lambda *_: 0)
        assert [one.frame is None for one in found["player_1"]] == [True] * 4


async def test_nothing_is_rendered_for_nobody() -> None:
    games: list[Rps] = []

    def make(render_mode: str | None = None) -> Rps:
        games.append(Rps(render_mode=render_mode))
        return games[-1]

    async with open_table(environment(make)) as table:
        await table.play(["player_0", "player_1"], lambda *_: 0)
        assert [(game.render_mode, game.rendered) for game in games] == [(None, 0)]
        await table.play(["player_0", "player_1"], lambda *_: 0, config=config(frames_for=["*"]))
        assert [(game.render_mode, game.rendered) for game in games[1:]] == [(None, 0), ("ansi", 4)]
        assert games[1].closed == 1, "it was made to ask for its modes"
