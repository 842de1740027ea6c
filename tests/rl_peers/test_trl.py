"""TRL trains a model whose environment is a seat in trials; and reads trials as chats.

The model is tiny and knows nothing. What it says is scripted, where it would be drawn: the rest is TRL's own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import trio_cogment.rl as tc

pytestmark = [
    pytest.mark.rl_peers,
    # TRL 1.16 uses names of transformers that go with version 6, and transformers' own.
    pytest.mark.filterwarnings("default::FutureWarning", "default::DeprecationWarning", "default::UserWarning"),
]

_CALL = '<tool_call>\n{{"name": "act", "arguments": {{"action": {}}}}}\n</tool_call><|im_end|>'
#: Rock in JSON, then an action that is none, then paper twice, with words around it: rounds against rock.
ANSWERS = (_CALL.format('"0"'), _CALL.format('"7"'), _CALL.format('"I take 1"'), _CALL.format('"1"'), "Done.<|im_end|>")


def tokenizer() -> Any:
    """Return a tokenizer that is made here, with the chat template of a model that calls tools."""
    import trl
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    template = (Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja").read_text(encoding="utf-8")
    pieces = Tokenizer(models.BPE())
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pieces.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    training = trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=alphabet)
    pieces.train_from_iterator([template], training)
    made = PreTrainedTokenizerFast(tokenizer_object=pieces, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    made.chat_template = template
    made.add_tokens(["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"])
    return made


def test_a_training_step_of_grpo_plays_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    from datasets import Dataset, load_dataset
    from transformers import Qwen3Config, Qwen3ForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    words = tokenizer()
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "head_dim": 16}
    config = Qwen3Config(vocab_size=len(words), num_attention_heads=2, num_key_value_heads=1, **sizes)
    left = iter(ANSWERS)

    def say(_trainer: Any, prompt_ids: list[Any], *_args: Any, **_options: Any) -> tuple[list[list[int]], None]:
        said = words(next(left), add_special_tokens=False)["input_ids"]
        return [list(said) for _ in prompt_ids], None

    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", say)
    store = f"sqlite:{tmp_path / 'trials.db'}"
    rock = tc.policy(lambda _observation: 0)
    trainer = GRPOTrainer(
        model=Qwen3ForCausalLM(config),
        args=GRPOConfig(
            output_dir=str(tmp_path / "out"),
            per_device_train_batch_size=2,
            num_generations=2,
            max_steps=1,
            max_completion_length=500,
            report_to=[],
            use_cpu=True,
            logging_steps=1,
            save_strategy="no",
        ),
        train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": "Play."}], "seed": 3}] * 2),
        processing_class=words,
        environment_factory=tc.environment_factory("rps_v2", seats={"player_1": rock}, max_cycles=3, store=store),
    )
    trainer.train()
    logged = trainer.state.log_history[0]
    assert logged["rewards/TrialTools/mean"] == 2.0
    assert logged["tools/call_frequency"] == 4.0
    assert logged["tools/failure_frequency"] == 0.0
    assert [tools.get_reward() for tools in trainer.environments] == [2.0, 2.0]
    for tools in reversed(trainer.environments):
        tools.env.close()

    check_calls(store, tmp_path, words)
    assert tc.export(store, chat=tmp_path / "chats").trials == 2
    chats = load_dataset("json", data_files=str(tmp_path / "chats" / "chats.jsonl"), cache_dir=str(tmp_path / "cache"))
    rows = [row for row in chats["train"] if row["actor"] == "player_0"]
    assert [row["return"] for row in rows] == [2.0, 2.0]
    answers = [message["content"] for message in rows[0]["messages"] if message["role"] == "assistant"]
    assert answers == ["0", "1", "1"]
    assert rows[0]["rewards"] == [0.0, 1.0, 1.0]
    assert words.apply_chat_template(rows[0]["messages"], tokenize=False).count("<|im_start|>assistant") == 3


def check_calls(store: str, folder: Path, words: Any) -> None:
    """Let `datasets` and the template of a model that calls tools read the trials as calls."""
    from datasets import load_dataset
    from transformers.utils import get_json_schema

    tc.export(store, chat=folder / "calls", chat_tools=True)
    file = str(folder / "calls" / "chats.jsonl")
    rows = load_dataset("json", data_files=file, cache_dir=str(folder / "cache"))["train"]
    row = next(row for row in rows if row["actor"] == "player_0")
    tools = json.loads(row["tools"])
    assert tools == [get_json_schema(tc.TrialTools.act)]
    text = words.apply_chat_template(row["messages"], tools=tools, tokenize=False)
    # One is in the template's own words about tools.
    assert text.count('<tool_call>\n{"name": "act", "arguments": {"action": "') == 3
    assert text.count("<tool_response>") == 3
    assert row["messages"][-1]["content"].endswith("The episode is over. Your return is 2.")
