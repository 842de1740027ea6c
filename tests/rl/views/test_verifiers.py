"""Trials as episodes of verifiers: a small package stands for it here; `nox -s rl-peers` has the real one."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

import trio_cogment.rl as tc
from tests.gateways.openenv.games import RockPaperScissors, Table, TakingTurns, Walk
from trio_cogment.base.errors import CogmentError, FailedPreconditionError, InvalidArgumentError, MissingExtraError
from trio_cogment.environments.errors import InvalidEnvironmentError

_HOME = "trio_cogment.rl.views.verifiers"


class Generic:
    def __class_getitem__(cls, _: Any) -> type:
        return cls


class Fields(Generic):
    """Data by keyword, as of pydantic."""

    prompt_text = ""
    prompt: Any = None
    system_prompt: Any = None

    def __init__(self, **fields: Any) -> None:
        vars(self).update(fields)


class EnvConfig(Fields):
    model_fields: ClassVar[dict[str, Any]] = {"id": None, "timeout": None}


class Task(Generic):
    def __init__(self, data: Any, config: Any = None) -> None:
        self.data, self.config = data, config

    def with_data(self, **update: Any) -> Task:
        return type(self)(Fields(**{**vars(self.data), **update}), self.config)


class Taskset(Generic):
    config = SimpleNamespace(task=None)


class Trace:
    def __init__(self) -> None:
        self.rewards: dict[str, float] = {}
        self.metrics: dict[str, float] = {}
        self.info: dict[str, Any] = {}

    def record_reward(self, name: str, value: float) -> None:
        self.rewards[name] = value

    def record_metric(self, name: str, value: float) -> None:
        self.metrics[name] = value


class Interaction:
    """A run of an agent that says what it is told to say; None ends it."""

    def __init__(self, task: Task, say: Callable[[str], Awaitable[str | None]]) -> None:
        self.trace = Trace()
        self.told: list[str] = []
        self.system = task.data.system_prompt
        self._say = say

    async def turn(self, message: str) -> Any:
        self.told.append(message)
        said = await self._say(message)
        return SimpleNamespace(terminated=said is None, last_reply=said or "")


class Agents:
    """The agents of an episode, by their names."""

    def __init__(self, **says: Callable[[str], Awaitable[str | None]]) -> None:
        self.runs: dict[str, Interaction] = {}
        for name, say in says.items():
            setattr(self, name, SimpleNamespace(interaction=self._opener(name, say)))

    def _opener(self, name: str, say: Callable[[str], Awaitable[str | None]]) -> Any:
        @asynccontextmanager
        async def interaction(task: Task) -> AsyncIterator[Interaction]:
            run = self.runs[name] = Interaction(task, say)
            yield run

        return interaction


def saying(*replies: str | None) -> Callable[[str], Awaitable[str | None]]:
    """Return what gives these replies, the last one for ever."""
    left = itertools.chain(replies, itertools.repeat(replies[-1]))

    async def say(_: str) -> str | None:
        await asyncio.sleep(0)
        return next(left)

    return say


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[Any, Any]]]:
    """Return `verifiers_plugin`, over the small package."""
    package, small = ModuleType("verifiers"), ModuleType("verifiers.v1")
    kinds = {"Env": Generic, "Taskset": Taskset, "Task": Task, "TaskData": Fields, "EnvConfig": EnvConfig}
    others = dict.fromkeys(("AgentConfig", "SubprocessConfig", "State", "TaskConfig", "TasksetConfig"), Fields)
    vars(small).update(kinds | others)
    vars(package)["v1"] = small
    monkeypatch.setitem(sys.modules, "verifiers", package)
    monkeypatch.setitem(sys.modules, "verifiers.v1", small)
    sys.modules.pop(_HOME, None)
    try:
        yield importlib.import_module(_HOME).verifiers_plugin
    finally:
        sys.modules.pop(_HOME, None)


def episode(plugin: tuple[Any, Any], agents: Agents, number: int = 0) -> dict[str, Interaction]:
    """Play one episode; return the agents' runs."""

    async def main() -> None:
        taskset, env = plugin[0](), plugin[1]()
        task = next(itertools.islice(taskset.load(), number, None))
        await env.start()
        try:
            await env.run(task, agents)
        finally:
            await env.stop()

    asyncio.run(main())
    return agents.runs


def test_each_seat_s_turns_are_an_agent_s(plugin: Any, tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'trials.db'}"
    runs = episode(
        plugin(RockPaperScissors, store=store), Agents(player_0=saying("0"), player_1=saying("paper: 1", "2"))
    )
    one, two = runs["player_0"], runs["player_1"]
    place = ["You are player_1 in rps_v2.", "Your action is a whole number from 0 to 2."]
    assert two.system.splitlines() == [*place, "Answer with the action alone, as JSON."]
    assert one.told == ["3", "1", "2", "2", "2"]
    assert two.told == ["3", "0", "0", "0", "0"]
    assert one.trace.rewards == {"game": 3.0}
    assert two.trace.rewards == {"game": -3.0}
    assert one.trace.metrics == {"refused_replies": 0}
    told = dict(one.trace.info["trial"])
    trial_id = told.pop("trial_id")
    assert told == {
        "rewards": [-1.0, 1.0, 1.0, 1.0, 1.0],
        "terminated": False,
        "truncated": True,
        "final_observation": "2",
        "left": "",
    }
    assert two.trace.info["trial"]["trial_id"] == trial_id
    assert tc.export(store, chat=tmp_path / "chats").trials == 1


def test_agents_take_turns_and_leave_one_after_the_other(plugin: Any) -> None:
    runs = episode(plugin(TakingTurns), Agents(player_0=saying("0", "1"), player_1=saying("0", "0", "1")))
    one, two = (runs[name].trace for name in ("player_0", "player_1"))
    assert one.info["trial"]["terminated"]
    assert two.info["trial"]["terminated"]
    assert len(one.info["trial"]["rewards"]) == len(runs["player_0"].told) == 2
    assert len(two.info["trial"]["rewards"]) == len(runs["player_1"].told) == 3
    assert sum(two.info["trial"]["rewards"]) == two.rewards["game"]


def test_other_seats_and_a_seed_of_the_task(plugin: Any) -> None:
    made = plugin(RockPaperScissors, seats={"player_1": tc.random()})
    firsts = [episode(made, Agents(player_0=saying("0")), number)["player_0"].told for number in (1, 1, 2)]
    assert firsts[0] == firsts[1] != firsts[2]
    with pytest.raises(InvalidArgumentError, match="expected an agent for the view, but all have other seats"):
        plugin(RockPaperScissors, seats=dict.fromkeys(("player_0", "player_1"), tc.random()))


def test_a_reply_that_is_no_action_is_told_so(plugin: Any) -> None:
    runs = episode(plugin(Walk), Agents(player_0=saying("I do not know", "7", "1")))
    told = runs["player_0"].told
    assert told[1] == "That was refused: action: expected a whole number from -1 to 1; found none in the answer"
    assert told[2] == "That was refused: action: expected -1 to 1, got 7"
    assert runs["player_0"].trace.metrics == {"refused_replies": 2}
    assert runs["player_0"].trace.info["trial"]["terminated"]


@pytest.mark.parametrize(
    ("replies", "left"),
    [(("1", "no", "no", "no"), "no action in 3 replies"), (("1", None), "the agent's run ended before the game")],
)
def test_an_agent_that_leaves_ends_the_trial_and_keeps_what_was_got(plugin: Any, replies: Any, left: str) -> None:
    runs = episode(plugin(RockPaperScissors), Agents(player_0=saying(*replies), player_1=saying("0")))
    one, two = (runs[name].trace.info["trial"] for name in ("player_0", "player_1"))
    assert (one["left"], one["rewards"]) == (left, [1.0])
    assert (two["left"], two["terminated"]) == ("", False)
    assert two["rewards"][0] == -1.0
    assert runs["player_1"].trace.rewards == {"game": -1.0}


def test_an_environment_that_fails_is_the_episode_s_error(plugin: Any) -> None:
    with pytest.raises(CogmentError, match="the floor is gone"):
        episode(plugin(Walk, options={"fail": True}), Agents(player_0=saying("1")))


def test_a_cancelled_episode_ends_its_trial_and_others_go_on(plugin: Any) -> None:
    asked = asyncio.Event()

    async def never(_: str) -> str:
        asked.set()
        await asyncio.sleep(3600)
        raise AssertionError

    async def main() -> Agents:
        taskset, env = (made() for made in plugin(Walk))
        task = next(taskset.load())
        await env.start()
        try:
            stuck = asyncio.create_task(env.run(task, Agents(player_0=never)))
            await asked.wait()
            agents = Agents(player_0=saying("1"))
            await env.run(task, agents)
            stuck.cancel()
            with pytest.raises(asyncio.CancelledError):
                await stuck
        finally:
            await env.stop()
        return agents

    assert asyncio.run(main()).runs["player_0"].trace.info["trial"]["terminated"]


def test_what_cannot_be_an_episode_of_verifiers(plugin: Any) -> None:
    class Oddly(Table):
        agents = ("player_0", "timeout")
        observation_spaces = action_spaces = dict.fromkeys(agents, RockPaperScissors.action_spaces["player_0"])

    with pytest.raises(InvalidArgumentError, match="agent 'timeout': expected a name that can be that of a field"):
        plugin(Oddly)
    with pytest.raises(InvalidArgumentError, match="expected one that runs in this process"):
        plugin("grpc://localhost:9000")
    with pytest.raises(InvalidArgumentError, match="retries: expected a number that is not negative, got -1"):
        plugin(Walk, retries=-1)
    with pytest.raises((InvalidEnvironmentError, CogmentError), match="nothing-v0"):
        plugin("nothing-v0")
    taskset, env = plugin(Walk)
    with pytest.raises(FailedPreconditionError, match=r"expected `async with env.serving\(\)`"):
        asyncio.run(env().run(next(taskset().load()), Agents(player_0=saying("1"))))


def test_without_verifiers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "verifiers", None)
    with pytest.raises(MissingExtraError, match=r"'verifiers>=0.4' is not installed: pip install 'verifiers>=0.4'"):
        importlib.import_module(_HOME)
