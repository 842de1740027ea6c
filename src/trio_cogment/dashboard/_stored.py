"""Stored trials for pages: found, described, read for a replay, downloaded."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

from google.protobuf.json_format import MessageToDict

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.base.errors import InvalidArgumentError, NotFoundError
from trio_cogment.dashboard._views import REWARD_FIELDS, SAMPLE_FIELDS, sample_row
from trio_cogment.sdk import DatastoreClient, StoredTrial, export_trials
from trio_cogment.web.json_text import json_text
from trio_cogment.web.replies import Reply, Send, Streamed, json_data
from trio_cogment.web.routing import AnyRoute, Route, Visit

_READ_TRIALS = "/cogmentAPI.TrialDatastoreSP/RetrieveTrials"
_READ_SAMPLES = "/cogmentAPI.TrialDatastoreSP/RetrieveSamples"
#: Of a list: what is found is the newest.
_MAX_FOUND = 200
#: Trials that a search looks at, from the oldest.
_MAX_SEARCHED = 50_000
_PAGE = 500
_PIECE_BYTES = 64 * 1024


class StoredPages:
    """See the module.

    Args:
        datastore_of: returns the datastore, for the calls of a visitor.
        version: of the program, for files.
        wall_clock: nanoseconds since the epoch.
    """

    def __init__(
        self,
        datastore_of: Callable[[Visit], Awaitable[DatastoreClient]],
        *,
        version: str,
        wall_clock: Callable[[], int],
    ) -> None:
        self._datastore_of = datastore_of
        self._version = version
        self._wall_clock = wall_clock

    def routes(self, prefix: str) -> list[AnyRoute]:
        """Return the routes.

        Args:
            prefix: of their paths.
        """
        return [
            Route("GET", f"{prefix}/stored", self.find, right=_READ_TRIALS),
            Route("GET", f"{prefix}/stored/{{trial_id}}", self.describe, right=_READ_TRIALS),
            Route("GET", f"{prefix}/stored/{{trial_id}}/samples", self.samples, right=_READ_SAMPLES),
            Route("GET", f"{prefix}/stored/{{trial_id}}/download", self.download, right=_READ_SAMPLES),
        ]

    async def find(self, visit: Visit) -> Reply:
        """Answer with the newest trials that match `search` (in ids, users, names) and `property` (`NAME=VALUE`)."""
        search, properties = visit.query.get("search", ""), _properties(visit.query.get("property", ""))
        found: deque[StoredTrial] = deque(maxlen=_MAX_FOUND)
        looked = matched = 0
        datastore = await self._datastore_of(visit)
        trials = datastore.all_trials(properties=properties, page=_PAGE)
        async with aclosing(trials):
            async for trial in trials:
                looked += 1
                if search in _text_of(trial):
                    matched += 1
                    found.append(trial)
                if looked >= _MAX_SEARCHED:
                    break
        rows = [_row(trial) for trial in reversed(found)]
        return json_data({"trials": rows, "matched": matched, "all": looked < _MAX_SEARCHED})

    async def describe(self, visit: Visit) -> Reply:
        """Answer with a trial and its parameters."""
        trial = await self._trial(visit)
        params = json.loads(json.dumps(MessageToDict(trial.params, preserving_proto_field_name=True)))
        return json_data(_row(trial) | {"params": params, "actors": trial.actor_names})

    async def _trial(self, visit: Visit) -> StoredTrial:
        trial_id = visit.parameters["trial_id"]
        datastore = await self._datastore_of(visit)
        trial = await datastore.trial(trial_id)
        if trial is None:
            raise NotFoundError(f"trial {trial_id!r}: it is not stored here")
        return trial

    async def samples(self, visit: Visit) -> Streamed:
        """Answer with the samples that are stored, each as JSON on a line; with `payloads=0` the rewards alone."""
        trial = await self._trial(visit)
        payloads = visit.query.get("payloads", "1") != "0"
        datastore = await self._datastore_of(visit)

        async def write(send: Send) -> None:
            fields = SAMPLE_FIELDS if payloads else REWARD_FIELDS
            piece: list[str] = []
            size = 0
            async with datastore.samples(trial, partial=True, fields=fields) as samples:
                async for sample in samples:
                    line = json_text(sample_row(sample, payloads=payloads))
                    piece.append(line)
                    size += len(line)
                    if size >= _PIECE_BYTES:
                        await send(("\n".join(piece) + "\n").encode())
                        piece, size = [], 0
            if piece:
                await send(("\n".join(piece) + "\n").encode())

        return Streamed(200, b"application/x-ndjson", write)

    async def download(self, visit: Visit) -> Streamed:
        """Answer with a file of samples, as `trio-cogment client trial_datastore export` writes it."""
        trial_id = visit.parameters["trial_id"]
        client = await self._datastore_of(visit)
        export = await export_trials(client, [trial_id], version=self._version, timestamp=self._wall_clock())

        async def write(send: Send) -> None:
            async with export:
                async for piece in export:
                    await send(piece)

        return Streamed(200, b"application/octet-stream", write, (attachment(f"{trial_id}.samples"),))


def attachment(name: str) -> tuple[bytes, bytes]:
    """Return the field that makes a browser save an answer under a name, whatever characters that has."""
    return b"content-disposition", f"attachment; filename*=UTF-8''{quote(name, safe='')}".encode("ascii")


def _properties(text: str) -> dict[str, str]:
    found = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, separator, value = part.partition("=")
        if not (name and separator):
            raise InvalidArgumentError(f"property: expected NAME=VALUE, got {part[:64]!r}")
        found[name.strip()] = value.strip()
    return found


def _text_of(trial: StoredTrial) -> str:
    params = trial.params
    return "\n".join([trial.trial_id, trial.user_id, params.environment.name, params.environment.implementation])


def _row(trial: StoredTrial) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": trial.trial_id,
        "user": trial.user_id,
        "state": TrialState.Name(trial.state),
        "samples": trial.samples_count,
        "complete": trial.is_complete,
        "environment": trial.params.environment.implementation or trial.params.environment.name,
        "properties": dict(trial.params.properties),
    }
    if trial.storage_trouble:
        row["trouble"] = trial.storage_trouble
    if trial.outcome is not None:
        row["end"] = {"cause": trial.outcome.cause.name, "reason": trial.outcome.reason}
        if trial.outcome.samples_lost:
            row["lost"] = trial.outcome.samples_lost
    return row
