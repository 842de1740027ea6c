"""Notes of the old programs: JSON, one file for each of them in each trial, whole or not at all."""

import json
import os
from typing import Any


def save(folder: str, name: str, story: Any) -> None:
    """Write a file that nobody sees before it is complete."""
    path = os.path.join(folder, f"{name}.json")
    with open(f"{path}.part", "w") as file:
        json.dump(story, file)
    os.replace(f"{path}.part", path)


def told(reward: Any) -> Any:
    """Return a reward: its value, and its feedbacks."""
    return [reward.value, [[each.actor_id, each.tick_id, each.value, each.confidence] for each in reward.feedbacks]]
