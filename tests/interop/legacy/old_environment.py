"""An environment on the published SDK of that time: `python old_environment.py --records FOLDER --port PORT`.

Each actor sees 100 times its id, and the tick. Its config says with which tick it ends the trial. At each tick it gives
every actor a feedback (the tick), and sends a note to actor 0.
"""

import argparse
from typing import Any

import cog_settings
import data_pb2
from cogment import Environment, GrpcServer
from noting import save


def environment(folder: str, deltas: bool) -> Any:
    class Field(Environment):
        VERSIONS = {"field": "1.0"}  # noqa: RUF012  the SDK's own form

        def start(self, config: Any) -> Any:
            self.last_tick = 0 if config is None else config.last_tick
            self.tick = 0
            self.story: Any = {
                "counts": list(self.trial.actor_counts),
                "trial_config": None if self.trial.trial_config is None else self.trial.trial_config.last_tick,
                "actions": [],
                "messages": [],
            }
            return self._seen()

        def _seen(self) -> Any:
            table = self.trial.new_observation_table()
            for actor_id, seen in enumerate(table.player):
                if deltas and self.tick:
                    seen.delta.step = 1
                else:
                    seen.snapshot.step = 100 * actor_id + self.tick
            for number, seen in enumerate(table.referee):
                seen.snapshot.step = 100 * (len(table.player) + number) + self.tick
                seen.snapshot.strict = True
            return table

        def update(self, actions: Any) -> Any:
            self.story["actions"].append(
                [[one.number for one in actions.player], [one.verdict for one in actions.referee]]
            )
            for actor in self.trial.actors.all:
                actor.add_feedback(value=float(self.tick), confidence=1.0)
            self.trial.actors.all[0].send_message(data_pb2.Note(text=f"from the field at {self.tick}"))
            self.tick += 1
            self.end_trial = self.tick == self.last_tick
            return self._seen()

        def on_message(self, *message: Any) -> None:
            sender, note = message
            self.story["messages"].append([sender, note.text])

        def end(self) -> None:
            save(folder, f"{self.trial.id}.old-field", self.story)

    return Field


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--deltas", action="store_true")
    args = parser.parse_args()
    GrpcServer(environment(args.records, args.deltas), cog_settings, port=args.port).serve()
