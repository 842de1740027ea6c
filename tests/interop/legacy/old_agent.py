"""Agents on the published SDK of that time: `python old_agent.py --records FOLDER --port PORT --actor-class CLASS`.

A player acts with what it sees. At each tick an agent gives actor 0 the feedback 10 for the latest tick, if that is not
itself, and sends the environment a note.
"""

import argparse
from typing import Any

import cog_settings
import data_pb2
from cogment import Agent, GrpcServer
from noting import save, told


def agent(folder: str, class_name: str) -> Any:
    class Player(Agent):
        actor_class = getattr(cog_settings.actor_classes, class_name)

        def __init__(self, trial: Any, actor: Any, config: Any) -> None:
            super().__init__(trial, actor, config)
            self.story: Any = {
                "counts": list(trial.actor_counts),
                "bonus": None if config is None else config.bonus,
                "observations": [],
                "actions": [],
                "rewards": [],
                "messages": [],
            }

        def decide(self, observation: Any) -> Any:
            tick = self.trial.tick_id
            self.story["observations"].append([tick, observation.step])
            if self.actor_id != 0:
                self.trial.actors.all[0].add_feedback(value=10.0, confidence=1.0)
            self.trial.env.all[0].send_message(data_pb2.Note(text=f"from {self.actor_id} at {tick}"))
            if class_name == "player":
                self.story["actions"].append(observation.step)
                return data_pb2.PlayerAction(number=observation.step)
            self.story["actions"].append(f"fair {tick}")
            return data_pb2.RefereeAction(verdict=f"fair {tick}")

        def reward(self, reward: Any) -> None:
            self.story["rewards"].append(told(reward))

        def on_message(self, *message: Any) -> None:
            sender, note = message
            self.story["messages"].append([sender, note.text])

        def end(self) -> None:
            save(folder, f"{self.trial.id}.old-{self.actor_id}", self.story)

    return Player


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--actor-class", default="player")
    args = parser.parse_args()
    GrpcServer(agent(args.records, args.actor_class), cog_settings, port=args.port).serve()
