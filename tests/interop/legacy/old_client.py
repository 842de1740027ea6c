"""Clients on the published SDK of that time: `python old_client.py --records FOLDER --endpoint HOST:PORT ...`.

The first one starts a trial; with `--second` another one joins it in a thread. Each acts with what it sees, and at each
tick gives actor `--praises` a feedback of 7 and sends it a note. A client ends the trial after `--ticks` actions,
unless the trial is over before.
"""

import argparse
import threading
from typing import Any

import cog_settings
import data_pb2
from cogment.api.orchestrator_pb2 import TrialHeartbeatRequest, TrialJoinRequest
from cogment.client import ClientTrial, Connection
from cogment.delta_encoding import DecodeObservationData
from noting import save, told

PLAYER = cog_settings.actor_classes.player


def joined(connection: Any, trial_id: str, actor_id: int) -> Any:
    """Join a trial; the SDK's own function for it lacks an argument."""
    reply = connection.stub.Join(TrialJoinRequest(trial_id=trial_id, actor_id=actor_id))
    seen = DecodeObservationData(PLAYER, reply.observation.data)
    trial = ClientTrial(connection, reply, cog_settings, PLAYER, reply.actor_counts, seen, "second", None)
    trial.plugins = []
    return trial


def play(trial: Any, args: Any) -> None:
    """Play to the end, and write down what came."""
    over: list[bool] = []
    trial.set_on_trial_end_event_listener(lambda: over.append(True))
    story: Any = {"observations": [], "rewards": [], "messages": [], "actions": []}
    story["counts"] = list(trial.actor_counts)
    seen = trial.observation
    story["observations"].append([trial.tick_id, seen.step])
    if args.stream:
        trial.begin_actions_stream()
    while not over and len(story["actions"]) != args.ticks:
        if args.praises is not None:
            trial.actors.all[args.praises].add_feedback(value=7.0, confidence=1.0)
            trial.actors.all[args.praises].send_message(data_pb2.Note(text=f"from {trial.actor_id} at {trial.tick_id}"))
        story["actions"].append(seen.step)
        seen, reward, _ = trial.do_action(
            data_pb2.PlayerAction(number=seen.step),
            on_message=lambda sender, note: story["messages"].append([sender, note.text]),
        )
        story["observations"].append([trial.tick_id, seen.step])
        story["rewards"].append(told(reward))
    trial.connection.stub.Heartbeat(TrialHeartbeatRequest(trial_id=trial.id))
    story["over"] = bool(over)
    trial.end()
    save(args.records, f"{trial.id}.old-client-{trial.actor_id}", story)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", required=True)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--second", type=int)
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--ticks", type=int, default=-1)
    parser.add_argument("--praises", type=int)
    args = parser.parse_args()

    connection = Connection(cog_settings, args.endpoint)
    trial = connection.start_trial(PLAYER, data_pb2.TrialConfig(last_tick=3))
    threads = []
    if args.second is not None:
        other = Connection(cog_settings, args.endpoint)

        def second() -> None:
            play(joined(other, trial.id, args.second), args)

        threads.append(threading.Thread(target=second))
        threads[0].start()
        reply = connection.stub.Join(TrialJoinRequest(trial_id=trial.id, actor_id=trial.actor_id))
        trial.observation = DecodeObservationData(PLAYER, reply.observation.data)
    play(trial, args)
    for thread in threads:
        thread.join()
    save(args.records, "old-client", {"trial": trial.id})


if __name__ == "__main__":
    main()
