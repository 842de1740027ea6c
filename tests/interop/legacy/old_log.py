"""A data log on the published messages of that time: `python old_log.py --records FOLDER --port PORT`."""

import argparse
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import data_pb2
import grpc
from cogment.api.data_pb2 import LogReply
from cogment.api.data_pb2_grpc import LogExporterServicer, add_LogExporterServicer_to_server
from noting import save, told


class Log(LogExporterServicer):
    """Writes down each trial's samples, by the ids of its players."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def Log(self, messages: Any, context: Any) -> Any:
        story: Any = {"classes": [], "samples": []}
        for message in messages:
            if message.WhichOneof("msg") == "trial_params":
                story["classes"] = [actor.actor_class for actor in message.trial_params.actors]
                continue
            sample = message.sample
            seen = sample.observations
            story["trial"], story["user"] = sample.trial_id, sample.user_id
            story["samples"].append(
                {
                    "tick": seen.tick_id,
                    "observations": [
                        data_pb2.PlayerObservation.FromString(seen.observations[place].content).step
                        for place in seen.actors_map
                    ],
                    "actions": [data_pb2.PlayerAction.FromString(each.content).number for each in sample.actions],
                    "rewards": [told(reward) for reward in sample.rewards],
                }
            )
        save(self._folder, f"{story['trial']}.old-log", story)
        return LogReply()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", required=True)
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    server = grpc.server(ThreadPoolExecutor(max_workers=4))
    add_LogExporterServicer_to_server(Log(args.records), server)
    server.add_insecure_port(f"[::]:{args.port}")
    server.start()
    print(f"listening on port {args.port}", flush=True)
    server.wait_for_termination()
