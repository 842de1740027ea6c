"""One scripted game of two players, played as a plain trial and as environment of TRL, OpenEnv and verifiers.

What is stored is the same, and so is what each of them is told: every message, every reward.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Any

import pytest
import trio

import trio_cogment.rl as tc
from tests.ports import free_port
from trio_cogment.seats.rendering import Conversation

pytestmark = [
    pytest.mark.rl_peers,
    pytest.mark.timeout(600),  # two programs that import PyTorch or half of the field
    # TRL 1.16 uses names of transformers that go with version 6, and transformers' own.
    pytest.mark.filterwarnings("default::FutureWarning", "default::DeprecationWarning", "default::UserWarning"),
]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "rl-language-models.md"
#: The Python of an environment with verifiers, which cannot be installed beside OpenEnv.
VERIFIERS = "TRIO_COGMENT_VERIFIERS_PYTHON"
SEED = 3
#: What the players say, by game. The cards of Kuhn poker depend on the seed.
GAMES: Mapping[str, Mapping[str, Sequence[str]]] = {
    "textarena/KuhnPoker-v0": {
        "player_0": ("I have a bad hand.\n[check]", "[bet]", "[check]"),
        "player_1": ("[check]", "[call]", "[check]"),
    },
    "textarena/TicTacToe-v0": {"player_0": ("[0]", "[1]", "[2]"), "player_1": ("[3]", "[4]")},
}


class Scripted:
    """Says one thing after the other; an object for each trial."""

    replies: Sequence[str]

    def __init__(self) -> None:
        self._left = iter(self.replies)

    def __call__(self, _told: Any) -> str:
        return next(self._left)


def scripted(replies: Sequence[str]) -> tc.Seat:
    return tc.policy(type("Player", (Scripted,), {"replies": replies}))


def chats(store: str, folder: Path, *, tools: bool = False) -> list[dict[str, Any]]:
    """Return the stored trials as chats, without what is each trial's own."""
    tc.export(store, chat=folder, chat_tools=tools)
    rows = [json.loads(line) for line in (folder / "chats.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{key: row[key] for key in row.keys() - {"trial_id", "implementation"}} for row in rows]


def by_trl(
    game: str, replies: Mapping[str, Sequence[str]], store: str, folder: Path
) -> tuple[list[float], list[list[str]]]:
    """Let TRL's trainer play; return what its environments say is the reward, and what they have told."""
    from datasets import Dataset
    from transformers import Qwen3Config, Qwen3ForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    from tests.rl_peers.test_trl import tokenizer

    words = tokenizer()
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "head_dim": 16}
    config = Qwen3Config(vocab_size=len(words), num_attention_heads=2, num_key_value_heads=1, **sizes)
    calls = [json.dumps({"name": "act", "arguments": {"action": said}}) for said in replies["player_0"]]
    left = iter([*(f"<tool_call>\n{call}\n</tool_call><|im_end|>" for call in calls), "Done.<|im_end|>"])

    def say(_trainer: Any, prompt_ids: list[Any], *_args: Any, **_options: Any) -> tuple[list[list[int]], None]:
        said = words(next(left), add_special_tokens=False)["input_ids"]
        return [list(said) for _ in prompt_ids], None

    told: dict[int, list[str]] = {}

    def remembered(method: Any) -> Any:
        @wraps(method)  # TRL reads the signature and the docstring of a tool
        def call(tools: tc.TrialTools, *args: Any, **options: Any) -> str:
            text: str = method(tools, *args, **options)
            told.setdefault(id(tools), []).append(text)
            return text

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("reset", "act"):
            patch.setattr(tc.TrialTools, name, remembered(getattr(tc.TrialTools, name)))
        patch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
        patch.setattr(GRPOTrainer, "_generate_single_turn", say)
        trainer = GRPOTrainer(
            model=Qwen3ForCausalLM(config),
            args=GRPOConfig(
                output_dir=str(folder / "out"),
                per_device_train_batch_size=2,
                num_generations=2,
                max_steps=1,
                max_completion_length=4000,
                report_to=[],
                use_cpu=True,
                logging_steps=1,
                save_strategy="no",
            ),
            train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": "Play."}], "seed": SEED}] * 2),
            processing_class=words,
            environment_factory=tc.environment_factory(
                game, seats={"player_1": scripted(replies["player_1"])}, store=store
            ),
        )
        trainer.train()
    rewards = [tools.get_reward() for tools in trainer.environments]
    assert trainer.state.log_history[0]["rewards/TrialTools/mean"] == pytest.approx(sum(rewards) / len(rewards))
    texts = [told[id(tools)] for tools in trainer.environments]
    for tools in reversed(trainer.environments):
        tools.env.close()
    return rewards, texts


def by_openenv(game: str, replies: Mapping[str, Sequence[str]], store: str) -> dict[str, list[Any]]:
    """Let two of OpenEnv's own clients play, each in a thread; return the results that each was given."""
    from openenv.core.generic_client import GenericEnvClient

    told: dict[str, list[Any]] = {}

    def sit(url: str, seat: str) -> None:
        with GenericEnvClient(base_url=url).sync() as client:
            results = [client.reset(trial="duel", seat=seat, seed=SEED)]
            for said in replies[seat]:
                results.append(client.step({"value": said}))
            told[seat] = results

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            server = await nursery.start(partial(tc.serve_openenv, game, store=store))
            async with trio.open_nursery() as players:
                for seat in replies:
                    players.start_soon(trio.to_thread.run_sync, sit, server.url, seat)
            nursery.cancel_scope.cancel()

    trio.run(main)
    return told


def by_verifiers(game: str, replies: Mapping[str, Sequence[str]], store: str) -> dict[str, dict[str, Any]]:
    """Let verifiers play, in its own environment; return the trace of each agent."""
    asked = {"game": game, "store": store, "replies": replies, "seeds": [SEED]}
    command = [os.environ[VERIFIERS], "-m", "tests.rl_peers.verifiers_episode"]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (episode,) = json.loads(done.stdout)
    assert episode["ok"], episode["errors"]
    return {trace["agent"]["name"]: trace for trace in episode["traces"]}


def test_the_clients_of_the_documentation(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    command = re.search(r"^\$ (trio-cogment rl openenv .*)$", page, re.MULTILINE)
    player = re.search(r"```python\n(# player\.py.*?)```", page, re.DOTALL)
    assert command is not None
    assert player is not None
    port = free_port()
    assert "8000" in command[1]
    assert "8000" in player[1]
    (tmp_path / "player.py").write_text(player[1].replace("8000", str(port)), encoding="utf-8")
    words = shlex.split(command[1].replace("8000", str(port)))
    program = [str(Path(sys.executable).with_name(words[0])), *words[1:]]
    with subprocess.Popen(program, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            said = server.stdout.readline()  # it serves
            run = [sys.executable, "player.py"]
            players = [
                subprocess.Popen([*run, agent], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
                for agent in ("player_0", "player_1")
            ]
            ends = [one.communicate()[0] for one in players]
        finally:
            server.terminate()
    assert said, "it has not begun to serve"
    assert [one.returncode for one in players] == [0, 0]
    returns = [float(end.split()[-1]) for end in ends]
    assert returns in ([1.0, -1.0], [-1.0, 1.0])
    assert len(chats(f"sqlite:{tmp_path / 'duel.db'}", tmp_path / "chats")) == 2


@pytest.mark.parametrize("game", GAMES)
def test_the_transcript_and_the_rewards_are_the_same(game: str, tmp_path: Path) -> None:
    if VERIFIERS not in os.environ:
        pytest.fail(f"expected {VERIFIERS}: nox -s rl-peers sets it")
    replies = GAMES[game]
    stores = {way: f"sqlite:{tmp_path / way}.db" for way in ("plain", "trl", "openenv", "verifiers")}
    seats = {agent: scripted(said) for agent, said in replies.items()}
    results = tc.run_trials(1, environment=game, seats=seats, seeds=[SEED], store=stores["plain"])
    assert not results.failures
    told = by_openenv(game, replies, stores["openenv"])
    traces = by_verifiers(game, replies, stores["verifiers"])
    tools, told_by_tools = by_trl(game, replies, stores["trl"], tmp_path)

    stored = {way: chats(store, tmp_path / f"{way}-chats") for way, store in stores.items()}
    rows = stored["plain"]
    assert [row["actor"] for row in rows] == list(replies)
    assert all(row["terminated"] for row in rows)
    assert sorted(row["return"] for row in rows) == [-1.0, 1.0]
    assert stored["openenv"] == rows
    assert stored["verifiers"] == rows
    assert stored["trl"] == rows * 2  # a group of two, which begin with the same seed

    assert tools == [rows[0]["return"]] * 2
    calls = chats(stores["plain"], tmp_path / "calls", tools=True)[0]["messages"]
    of_model = [message["content"] for message in calls if message["role"] != "assistant"]
    assert told_by_tools == [of_model] * 2
    for row in rows:
        agent = row["actor"]
        trace = traces[agent]
        assert [node["message"] for node in trace["nodes"]] == row["messages"]
        assert trace["rewards"]["game"]["score"] == row["return"] == results.returns_of(agent)[0]
        about = trace["info"]["trial"]
        assert (about["rewards"], about["terminated"]) == (row["rewards"], True)
        assert about["final_observation"] == row["final_observation"]

        conversation = Conversation(None)
        heard = [conversation.told(result.observation["value"]) for result in told[agent]]
        asked = [message["content"] for message in row["messages"] if message["role"] == "user"]
        assert heard == [*asked, row["final_observation"]]
        assert [result.reward or 0.0 for result in told[agent]] == [0.0, *row["rewards"]]
        assert [result.done for result in told[agent]] == [*itertools.repeat(False, len(asked)), True]
