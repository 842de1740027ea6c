"""What `trio-cogment client trial_datastore` does."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from google.protobuf.json_format import MessageToDict

from trio_cogment._version import __version__
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.api.trial_datastore_pb2 import RetrieveTrialsReply, RetrieveTrialsRequest
from trio_cogment.cli._client_run import channel_to, columns, run_client, show
from trio_cogment.cli._settings import ClientSettings
from trio_cogment.cli._transfer import open_source, open_target, patience_of, progress, report
from trio_cogment.config import RpcConfig
from trio_cogment.rpc import Channel
from trio_cogment.sdk import DatastoreClient, Transferred, export_trials, import_samples

#: How many trials are asked for at a time.
_PAGE = 1000

#: A sample with a picture in it may be larger than what a server would take.
_RPC = RpcConfig(max_receive_message_bytes=256 * 1024 * 1024, max_send_message_bytes=256 * 1024 * 1024)


def _channel(settings: ClientSettings, endpoint: str) -> Channel:
    return channel_to(settings, endpoint, flag="--endpoint", config=_RPC)


def list_stored_trials(
    settings: ClientSettings, endpoint: str, *, count: int, properties: Mapping[str, str], handle: str
) -> None:
    """Print so many trials, and the handle of the next ones."""

    async def ask() -> RetrieveTrialsReply:
        whole = RetrieveTrialsReply(next_trial_handle=handle)
        async with _channel(settings, endpoint) as channel:
            client = DatastoreClient(channel)
            while missing := count - len(whole.trial_infos):
                request = RetrieveTrialsRequest(
                    trials_count=min(missing, _PAGE), properties=properties, trial_handle=whole.next_trial_handle
                )
                reply = await client.page_of_trials(request)
                whole.MergeFrom(reply)
                if len(reply.trial_infos) < request.trials_count:
                    break
        return whole

    reply = run_client(settings, ask)
    show(settings, _table(reply), MessageToDict(reply))


def _table(reply: RetrieveTrialsReply) -> str:
    rows = [("TRIAL", "STATE", "SAMPLES", "USER")]
    for info in reply.trial_infos:
        state = TrialState.Name(info.last_state) if info.last_state in TrialState.values() else str(info.last_state)
        if info.ended_abnormally:
            state += " (abnormally)"
        rows.append((info.trial_id, state, str(info.samples_count), info.user_id))
    return f"{columns(rows)}\nnext: --from {reply.next_trial_handle}"


def delete_stored_trials(settings: ClientSettings, endpoint: str, trial_ids: Sequence[str]) -> None:
    """Delete trials, and say so."""

    async def ask() -> None:
        async with _channel(settings, endpoint) as channel:
            await DatastoreClient(channel).delete_trials(trial_ids)

    run_client(settings, ask)
    message = f"deleted: {', '.join(trial_ids)}"
    show(settings, message, {"message": message, "trial_ids": list(trial_ids)})


def export_to_file(settings: ClientSettings, endpoint: str, trial_ids: Sequence[str], path: Path | None) -> None:
    """Write the samples of trials to a file."""

    async def write() -> Transferred:
        async with _channel(settings, endpoint) as channel, patience_of(settings) as patience:
            client = DatastoreClient(channel)
            export = await export_trials(client, trial_ids, version=__version__, timestamp=time.time_ns())
            async with export, open_target(path) as target:
                with progress("export", export.samples_count) as on_progress:
                    async for piece in export:
                        await target.write(piece)
                        on_progress(export.done.samples_count)
                        patience.renew()
        return export.done

    done = run_client(settings, write, bounded=False)
    message = f"{done.samples_count} samples of {len(done.samples)} trials exported"
    data = {
        "bytes": done.size_bytes,
        "message": message,
        "trial_ids": list(done.samples),
        "filepath": "" if path is None else str(path),
    }
    report(settings, message, data, to_stderr=path is None)


def import_from_file(settings: ClientSettings, endpoint: str, path: Path | None, *, prefix: str, user_id: str) -> None:
    """Store the trials of a file."""

    async def store() -> Transferred:
        async with (
            _channel(settings, endpoint) as channel,
            open_source(path) as (read, size),
            patience_of(settings) as patience,
        ):
            with progress("import", size) as show_progress:

                def on_progress(done: Transferred) -> None:
                    show_progress(done.size_bytes)
                    patience.renew()

                return await import_samples(
                    DatastoreClient(channel), read, prefix=prefix, user_id=user_id, on_progress=on_progress
                )

    done = run_client(settings, store, bounded=False)
    message = f"{done.samples_count} samples of {len(done.samples)} trials imported"
    trials = [{"trial_id": trial_id, "samples_count": count} for trial_id, count in done.samples.items()]
    data = {
        "message": message,
        "samples_count": done.samples_count,
        "trials": trials,
        "filepath": "" if path is None else str(path),
    }
    report(settings, message, data)
