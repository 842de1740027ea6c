"""A pre-trial hook on the published SDK of that time: `python old_hook.py --records FOLDER --port PORT`.

The environment is to end the trial with the tick that the trial's config says; the last actor gets 7 as its bonus.
"""

import argparse
from typing import Any

import cog_settings
import data_pb2
from cogment import GrpcServer, TrialHooks
from noting import save


def hook(folder: str) -> Any:
    class Hook(TrialHooks):
        VERSIONS = {"hook": "1.0"}  # noqa: RUF012  the SDK's own form

        def pre_trial(self, trial_id: str, user_id: str, params: Any) -> Any:
            classes = [actor.actor_class for actor in params.actors]
            endpoints = [params.environment.endpoint, *(actor.endpoint for actor in params.actors)]
            save(folder, f"{trial_id}.old-hook", {"user": user_id, "classes": classes, "endpoints": endpoints})
            params.environment.config = data_pb2.FieldConfig(last_tick=params.trial_config.last_tick)
            params.actors[-1].config = data_pb2.PlayerConfig(bonus=7)
            return params

    return Hook


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", required=True)
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    GrpcServer(hook(args.records), cog_settings, port=args.port).serve()
