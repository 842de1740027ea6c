"""Stored trials as chats: each actor of a trial as the messages of a conversation, which language models learn from.

A row is one actor of one trial. Its messages begin with what a language model is told of its place, and then go on in
turns: what the actor saw when it was to act, by the user, and its action, by the assistant, as `seats.text` would read
it. Where an observation is a text that begins with all that was there before (TextArena tells games so), the turn has
only what is new.

With tools, the messages are those of a model that acts by calling `act` of `environment_factory`: it is told its place
and what it sees, calls the tool, and what comes of that is the tool's answer.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from trio_cogment.base.errors import AlreadyExistsError, FailedPreconditionError
from trio_cogment.base.host.beside import make_folder_beside
from trio_cogment.rl.datasets.payloads import Form
from trio_cogment.rl.datasets.placing import Placement, is_empty, put_right
from trio_cogment.rl.datasets.step_columns import StepColumns
from trio_cogment.rl.datasets.steps import Step
from trio_cogment.rl.datasets.trials import TrialRecord
from trio_cogment.seats.rendering import Conversation, as_text, end_told, place_prompt, tool_prompt
from trio_cogment.spaces import Observation, SpaceError

#: The file of a data set, in its folder.
FILE = "chats.jsonl"
#: The tool of `TrialTools`, as trainers describe it to a model.
ACT = {
    "type": "function",
    "function": {
        "name": "act",
        "description": "Take your next action, and see what comes of it.",
        "parameters": {
            "type": "object",
            "properties": {"action": {"type": "string", "description": "Your action, as JSON."}},
            "required": ["action"],
        },
        "return": {
            "type": "string",
            "description": "What you observe next; or why this was no action, so that you can take another one.",
        },
    },
}


class _Chat:
    """One actor of a trial, on its way through it."""

    def __init__(self, trial: TrialRecord, name: str, form: Form, *, tools: bool) -> None:
        self._trial = trial
        self._name = name
        self._tools = tools
        self._conversation = Conversation(form.action_space)
        self._messages: list[dict[str, Any]] = []
        if not tools:
            place = place_prompt(trial.environment, name, form.action_space)
            self._messages.append({"role": "system", "content": place})
        self._rewards: list[float] = []
        self._sum = 0.0
        self._waiting = 0.0
        self._last: Step | None = None

    def add(self, step: Step) -> None:
        """Take the actor's next step."""
        if step.action is not None:
            self._messages.append(self._told(self._seen(step.observation)))
            self._messages.append(self._acted(as_text(step.action)))
            self._rewards.append(self._waiting)
            self._waiting = 0.0
        reward = step.reward or 0.0
        self._sum += reward
        if self._rewards:
            self._rewards[-1] += reward
        else:
            self._waiting += reward
        self._last = step

    def _told(self, text: str) -> dict[str, Any]:
        if not self._tools:
            return {"role": "user", "content": text}
        if self._messages:
            return {"role": "tool", "name": "act", "content": text}
        space = self._conversation.space
        return {"role": "user", "content": tool_prompt(self._trial.environment, self._name, space, text)}

    def _acted(self, text: str) -> dict[str, Any]:
        if not self._tools:
            return {"role": "assistant", "content": text}
        call = {"type": "function", "function": {"name": "act", "arguments": {"action": text}}}
        return {"role": "assistant", "content": "", "tool_calls": [call]}

    def _seen(self, observation: Observation) -> str:
        return self._conversation.told(observation.value, observation.action_mask)

    def row(self) -> dict[str, Any]:
        """Return the row of the data set."""
        actor = self._trial.actors[self._name]
        last = self._last
        is_over = last is not None and last.is_last
        final = self._seen(last.observation) if last is not None and is_over else ""
        if self._tools and is_over and self._messages:
            self._messages.append(self._told(end_told(final, self._sum)))
        tools = {"tools": json.dumps([ACT])} if self._tools else {}
        return {
            "trial_id": self._trial.stored.trial_id,
            "environment": self._trial.environment,
            "actor": self._name,
            "actor_class": actor.actor_class,
            "implementation": actor.implementation,
            "is_human": actor.is_human,
            "policy": actor.policy or "",
            "messages": self._messages,
            **tools,
            "rewards": self._rewards,
            "return": self._sum,
            "terminated": bool(last is not None and last.is_terminal),
            "truncated": bool(is_over and last is not None and not last.is_terminal),
            "final_observation": final,
        }


class ChatWriter:
    """Writes trials as chats; see `trials.Writer`.

    Args:
        target: the folder of the data set, which gets one file, `chats.jsonl`.
        overwrite: a data set that is there is replaced; any other folder is left alone.
        tools: actions are calls of a tool.

    Raises:
        AlreadyExistsError: there is something, and `overwrite` is not set.
        FailedPreconditionError: there is something else than such a data set, or the folder cannot be made.
    """

    def __init__(self, target: str | os.PathLike[str], *, overwrite: bool = False, tools: bool = False) -> None:
        self.path = Path(os.path.realpath(target) if os.path.islink(target) else target)
        self._overwrite = overwrite
        self._tools = tools
        put_right(self.path)
        self._check_target()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            folder, self._hold = make_folder_beside(str(self.path))
            self._folder = Path(folder)
            self._file: TextIO = (self._folder / FILE).open("w", encoding="utf-8", newline="\n")
        except OSError as error:
            raise FailedPreconditionError(f"chat: {self.path}: {error.strerror or error}") from error
        self._trial: TrialRecord | None = None
        self._chats: dict[str, _Chat] = {}

    def _check_target(self) -> None:
        if not self.path.exists() or is_empty(self.path):
            return
        if not self._overwrite:
            raise AlreadyExistsError(
                f"chat: {self.path} exists already; overwrite=True (--overwrite) replaces a data set"
            )
        if not self.path.is_dir() or os.listdir(self.path) != [FILE]:
            raise FailedPreconditionError(f"chat: {self.path} is not a data set of chats alone, so it is not replaced")

    def begin(self, trial: TrialRecord) -> None:
        """See `Writer.begin`."""
        self._trial, self._chats = trial, {}

    def add(self, steps: list[Step]) -> None:
        """See `Writer.add`."""
        assert self._trial is not None
        for step in steps:
            chat = self._chats.get(step.actor)
            if chat is None:
                if step.payloads.form.kind == "bytes":
                    text = "expected values of spaces, or messages whose types the spec has, for a chat; got bytes"
                    raise SpaceError(text, root=f"actor {step.actor!r}")
                chat = self._chats[step.actor] = _Chat(self._trial, step.actor, step.payloads.form, tools=self._tools)
            chat.add(step)

    def add_columns(self, columns: Sequence[StepColumns]) -> None:
        """Refuse: a chat is made of steps, one after the other."""
        raise NotImplementedError

    def end(self) -> None:
        """See `Writer.end`."""
        for chat in self._chats.values():
            self._file.write(json.dumps(chat.row(), ensure_ascii=False) + "\n")

    def finish(self) -> list[Placement]:
        """See `Writer.finish`."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        if self.path.exists():
            self._check_target()  # again: an export takes its time
        return [Placement(self._folder, self.path, self._overwrite, self._hold)]

    def close(self) -> None:
        """See `Writer.close`."""
        try:
            self._file.close()
        except OSError:
            pass  # the file goes anyway
        shutil.rmtree(self._folder, ignore_errors=True)
        self._hold.release()
