"""Records of what a participant saw, as JSON."""

import json
import os
from typing import Any

import data_pb2


class Record:
    """The story of one participant in one trial; `save` writes it to `<trial>.<participant>.json`."""

    def __init__(self, folder: str, trial_id: str, name: str, **facts: Any) -> None:
        self._path = os.path.join(folder, f"{trial_id}.{name}.json")
        self._story: dict[str, Any] = {"trial": trial_id, "name": name, **facts, "events": []}
        #: Kind, tick and timestamp of what has one; in a file of their own.
        self._times: list[list[Any]] = []

    def add(self, event: Any) -> None:
        seen: dict[str, Any] = {"type": event.type.name}
        if event.observation is not None:
            seen["observation"] = {
                "tick": event.observation.tick_id,
                "step": event.observation.observation.step,
            }
            self._times.append(["observation", event.observation.tick_id, event.observation.timestamp])
        if event.actions:
            seen["actions"] = [
                {"actor": action.actor_index, "tick": action.tick_id, "status": action.status.name}
                | ({} if action.action is None else {"action": content_of(action.action)})
                for action in event.actions
            ]
            self._times.append(["actions", event.actions[0].tick_id, event.actions[0].timestamp])
        if event.rewards:
            seen["rewards"] = [reward_of(reward) for reward in event.rewards]
        if event.messages:
            seen["messages"] = [message_of(message) for message in event.messages]
        self._story["events"].append(seen)

    def save(self) -> None:
        save(self._path.removesuffix("json") + "times.json", self._times)
        save(self._path, self._story)


def save(path: str, content: Any) -> None:
    """Write a JSON file so that a reader sees it whole or not at all."""
    with open(path + ".part", "w") as file:
        json.dump(content, file, indent=1)
    os.replace(path + ".part", path)


def content_of(message: Any) -> Any:
    return message.number if hasattr(message, "number") else message.verdict


def text_of(packed: Any) -> str | None:
    note = data_pb2.Note()
    return note.text if packed.Unpack(note) else None


def reward_of(reward: Any) -> dict[str, Any]:
    return {
        "tick": reward.tick_id,
        "receiver": reward.receiver_name,
        "value": reward.value,
        "sources": [
            {
                "sender": source.sender_name,
                "value": source.value,
                "confidence": source.confidence,
                "note": text_of(source.user_data),
            }
            for source in reward.all_sources()
        ],
    }


def message_of(message: Any) -> dict[str, Any]:
    return {
        "tick": message.tick_id,
        "receiver": message.receiver_name,
        "sender": message.sender_name,
        "text": text_of(message.payload),
    }
