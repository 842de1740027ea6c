"""Calls everything that the SDK can, with one token after the other: `python rights.py ENDPOINT < tokens.json`.

Reads an object of tokens by name from stdin ("" stands for none); writes, by name and method, how each call ended.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import cog_settings
import cogment
import grpc.aio
from cogment.api.model_registry_pb2 import RetrieveVersionDataRequest
from cogment.directory import ServiceType
from connecting import add_options, endpoint

#: A call that goes on was let in.
PATIENCE_SECONDS = 2.0
NOBODY = SimpleNamespace(trial_id="nobody", parameters=None)
#: The statuses of a call that may not be made.
REFUSED = ("UNAUTHENTICATED", "PERMISSION_DENIED")
#: How often a call is made whose end says nothing.
TRIES = 30

Calls = dict[str, Callable[[], Awaitable[Any]]]


async def every(stream: Any) -> None:
    async for _ in stream:
        pass


async def calls(args: argparse.Namespace, token: str) -> Calls:
    """What a holder of a token may try, by the name of the method."""
    metadata = cogment.GrpcMetadata()
    if token:
        metadata.add("authorization", f"Bearer {token}")
    context = cogment.Context(user_id="rights", cog_settings=cog_settings, metadata=metadata)
    where = endpoint(args, args.endpoint)
    controller, datastore = context.get_controller(where), context.get_datastore(where)
    directory, models = context.get_directory(where), await context.get_model_registry_v2(where)
    return {
        "TrialLifecycleSP/StartTrial": lambda: controller.start_trial(trial_id_requested=f"of {token[-8:]}"),
        "TrialLifecycleSP/TerminateTrial": lambda: controller.terminate_trial(["nobody"]),
        "TrialLifecycleSP/GetTrialInfo": lambda: controller.get_trial_info(["nobody"]),
        "TrialLifecycleSP/WatchTrials": lambda: every(controller.watch_trials()),
        "TrialLifecycleSP/Version": controller.get_remote_versions,
        "TrialDatastoreSP/RetrieveTrials": datastore.get_trials,
        "TrialDatastoreSP/RetrieveSamples": lambda: every(datastore.all_samples([NOBODY])),
        "TrialDatastoreSP/DeleteTrials": lambda: datastore.delete_trials(["nobody"]),
        "DirectorySP/Register": lambda: directory.register_host(ServiceType.OTHER, "127.0.0.1", 1),
        "DirectorySP/Inquire": lambda: directory.inquire_by_type(ServiceType.OTHER, {}),
        "DirectorySP/Deregister": lambda: directory.deregister_service(1, "nothing"),
        "ModelRegistrySP/CreateOrUpdateModel": lambda: models.update_model_info(f"of {token[-8:]}", {}),
        "ModelRegistrySP/CreateVersion": lambda: models.publish_model(f"of {token[-8:]}", b"weights"),
        "ModelRegistrySP/RetrieveModels": models.list_models,
        "ModelRegistrySP/RetrieveVersionInfos": lambda: models.list_iterations("nobody"),
        # Its own method takes every error for a model that is not there.
        "ModelRegistrySP/RetrieveVersionData": lambda: every(
            models._model_registry_stub.RetrieveVersionData(
                RetrieveVersionDataRequest(model_id="nobody"), metadata=metadata.to_grpc_metadata()
            )
        ),
        "ModelRegistrySP/VersionUpdate": lambda: every(models.iteration_updates("nobody")),
        "ModelRegistrySP/DeleteModel": lambda: models.remove_model(f"of {token[-8:]}"),
        "ClientActorSP/RunTrial": lambda: context.join_trial("nobody", where, impl_name="idle", actor_name="nobody"),
    }


async def outcome(call: Callable[[], Awaitable[Any]]) -> str:
    """How a call ended: refused, and for which reason, or let in."""
    for _ in range(TRIES):
        # Of a stream that is refused while its first message is being written grpc.aio says that the write has failed,
        # and not how the server has ended the call.
        if (found := await said(call)) != "":
            return found
    return "REACHED"


async def said(call: Callable[[], Awaitable[Any]]) -> str:
    """How it ended; empty: the SDK does not say."""
    try:
        await asyncio.wait_for(call(), PATIENCE_SECONDS)
    except TimeoutError:
        return "REACHED"
    except grpc.aio.AioRpcError as error:
        code = error.code().name
        if code == "INTERNAL":
            return ""
        return code if code in REFUSED else "REACHED"
    except Exception as error:  # noqa: BLE001  the SDK wraps some errors, and has many
        return next((code for code in REFUSED if code in repr(error)), "")
    return "REACHED"


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("endpoint")
    add_options(parser)
    args = parser.parse_args()
    tokens = json.load(sys.stdin)
    found = {}
    for name, token in tokens.items():
        found[name] = {method: await outcome(call) for method, call in (await calls(args, token)).items()}
    print(json.dumps(found))


asyncio.run(main())
