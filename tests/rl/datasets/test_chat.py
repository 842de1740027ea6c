"""Stored trials as chats."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
from gymnasium.spaces import Text

import trio_cogment.rl as tc
from tests.rl.datasets.recorded import Duel, play, recording
from tests.rl.riddle import Riddle
from trio_cogment import ActorSession, EnvironmentSession, Participants, actor_params, open_platform, trial_params
from trio_cogment.base.errors import AlreadyExistsError, FailedPreconditionError, InvalidArgumentError
from trio_cogment.rl import Exported, export, export_async
from trio_cogment.spaces import SpaceError


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "chats.jsonl").read_text(encoding="utf-8").splitlines()]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def ask_for_tea(store: str, answers: tuple[str, ...]) -> None:
    env = tc.make(Riddle, store=store)
    env.reset()
    for answer in answers:
        env.step(answer)
    env.close()


def test_a_game_in_text_has_only_what_is_new_in_each_turn(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'trials.db'}"
    ask_for_tea(store, ("pie", "tea"))
    done = export(store, chat=tmp_path / "chats")
    assert done == Exported(trials=1, samples=3, steps=2, chat=tmp_path / "chats")
    (row,) = rows_of(tmp_path / "chats")
    system, *turns = row["messages"]
    assert system["role"] == "system"
    assert system["content"].startswith("You are ")
    assert "Your action is a text of 0 to 20 characters" in system["content"]
    assert turns == [
        {"role": "user", "content": "It has 3 letters."},
        {"role": "assistant", "content": "pie"},
        {"role": "user", "content": "pie? No."},
        {"role": "assistant", "content": "tea"},
    ]
    assert row["rewards"] == pytest.approx([-0.1, 1.0])
    assert row["return"] == pytest.approx(0.9)
    assert (row["terminated"], row["truncated"]) == (True, False)
    assert row["final_observation"] == "tea? Yes!"
    assert (row["is_human"], row["policy"]) == (False, "")


def test_a_trial_that_was_cut_off_says_so(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'trials.db'}"
    ask_for_tea(store, ("pie",))
    export(store, chat=tmp_path / "chats")
    (row,) = rows_of(tmp_path / "chats")
    assert (row["terminated"], row["truncated"]) == (False, True)
    assert len(row["messages"]) == 3


def test_actions_as_calls_of_a_tool_are_what_the_tool_of_a_seat_tells(tmp_path: Path) -> None:
    """The same game, played by the tool and exported with it: the same texts in the same order."""
    store = f"sqlite:{tmp_path / 'trials.db'}"
    tools = tc.environment_factory(Riddle, store=store)()
    texts = [tools.reset(), tools.act("pie"), tools.act("tea")]
    name = tools.env.agent
    tools.env.close()
    export(store, chat=tmp_path / "chats", chat_tools=True)
    (row,) = rows_of(tmp_path / "chats")
    calls = [
        [{"type": "function", "function": {"name": "act", "arguments": {"action": action}}}]
        for action in ("pie", "tea")
    ]
    first, *rest = row["messages"]
    assert first["role"] == "user"
    assert first["content"].startswith(f"You are {name} in ")
    assert first["content"].split(" Your action")[1] == texts[0].split(" Your action")[1]
    assert rest == [
        {"role": "assistant", "content": "", "tool_calls": calls[0]},
        {"role": "tool", "name": "act", "content": texts[1]},
        {"role": "assistant", "content": "", "tool_calls": calls[1]},
        {"role": "tool", "name": "act", "content": texts[2]},
    ]
    assert texts[2] == "tea? Yes!\n\nThe episode is over. Your return is 0.9."
    (tool,) = json.loads(row["tools"])
    about = tool["function"]
    method = inspect.getdoc(tc.TrialTools.act)
    assert method is not None
    assert about["name"] == "act"
    for text in (about["description"], *(each["description"] for each in about["parameters"]["properties"].values())):
        assert text in method
    assert (row["rewards"], row["final_observation"]) == (pytest.approx([-0.1, 1.0]), "tea? Yes!")


def test_calls_of_a_trial_that_was_cut_off(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'trials.db'}"
    ask_for_tea(store, ("pie",))
    export(store, chat=tmp_path / "chats", chat_tools=True)
    (row,) = rows_of(tmp_path / "chats")
    assert [message["role"] for message in row["messages"]] == ["user", "assistant", "tool"]
    assert row["messages"][-1]["content"] == "pie? No.\n\nThe episode is over. Your return is -0.1."
    assert (row["terminated"], row["truncated"]) == (False, True)
    with pytest.raises(InvalidArgumentError, match="chat_tools: expected a folder for chat"):
        export(store, parquet=tmp_path / "steps", chat_tools=True)


async def test_each_actor_is_a_row_and_values_are_json(tmp_path: Path) -> None:
    game = Duel(out_at=3)
    async with recording(game) as platform:
        await play(platform, game, "one", seed=7, properties={"policy.player_1": "rps@3"})
        await play(platform, game, "two")
        done = await export_async(platform, chat=tmp_path / "chats", parquet=tmp_path / "steps")
    rows = rows_of(tmp_path / "chats")
    assert [(row["trial_id"], row["actor"]) for row in rows] == [
        (trial_id, agent) for trial_id in ("one", "two") for agent in game.agents
    ]
    assert [row["policy"] for row in rows[:2]] == ["", "rps@3"]
    assert sum(len(row["rewards"]) for row in rows) <= done.steps
    for row in rows:
        answers = [message["content"] for message in row["messages"] if message["role"] == "assistant"]
        assert len(answers) == len(row["rewards"]) > 0
        assert {json.loads(answer) for answer in answers} <= {0, 1, 2}
        assert sum(row["rewards"]) == pytest.approx(row["return"])
        assert [message["role"] for message in row["messages"]][:3] == ["system", "user", "assistant"]


async def test_only_a_data_set_is_replaced(tmp_path: Path) -> None:
    game = Duel(out_at=3)
    target = tmp_path / "chats"
    async with recording(game) as platform:
        await play(platform, game)
        await export_async(platform, chat=target)
        with pytest.raises(AlreadyExistsError, match=r"overwrite=True"):
            await export_async(platform, chat=target)
        await export_async(platform, chat=target, overwrite=True)
        (target / "mine.txt").write_text("mine")
        with pytest.raises(FailedPreconditionError, match="is not a data set of chats alone"):
            await export_async(platform, chat=target, overwrite=True)
    assert names_in(tmp_path) == ["chats"]
    assert len(rows_of(target)) == len(game.agents)


async def test_bytes_are_no_chat(tmp_path: Path) -> None:
    async def environment(session: EnvironmentSession) -> None:
        await session.start([("*", b"seen")])
        async for event in session.all_events():
            if event.actions:
                await session.end([("*", b"seen")])

    async def actor(session: ActorSession) -> None:
        await session.start()
        async for event in session.all_events():
            if event.observation:
                await session.do_action(b"x")

    participants = Participants()
    participants.register_environment(environment, "e")
    participants.register_actor(actor, "a")
    async with open_platform(participants, store="memory:") as platform:
        params = trial_params([actor_params("a", "c", implementation="a")], environment="e")
        trial_id = await platform.controller.start_trial(params)
        await platform.controller.wait_trial(trial_id)
        words = "^actor 'a.*': expected values of spaces, or messages whose types the spec has"
        with pytest.raises(SpaceError, match=words):
            await export_async(platform, chat=tmp_path / "chats")
    assert names_in(tmp_path) == []


class Tea(Riddle):
    """A riddle in French."""

    def __init__(self) -> None:
        super().__init__("thé")
        self.observation_space = Text(2000, min_length=0, charset="It has3lers.é?YNo!\npi")
        self.action_space = Text(20, charset="thépi")


def test_text_of_every_alphabet_is_written_as_it_is(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'trials.db'}"
    env = tc.make(Tea, store=store)
    env.reset()
    env.step("thé")
    env.close()
    export(store, chat=tmp_path / "chats")
    assert '"content": "thé"' in (tmp_path / "chats" / "chats.jsonl").read_text(encoding="utf-8")
