"""The datastore on real sockets, with grpcio's client as a foreign peer, on a file."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import trio

from tests.servers.datastore.harness import (
    DATA_LOG,
    ENDED,
    LOG_EXPORTER,
    RUNNING,
    TRIALS,
    params_with,
    sample_of,
    whole,
)
from trio_cogment.api.datalog_pb2 import LogExporterSampleRequest, RunTrialDatalogInput
from trio_cogment.api.trial_datastore_pb2 import (
    AddSampleRequest,
    AddTrialRequest,
    DeleteTrialsRequest,
    RetrieveSamplesRequest,
    RetrieveTrialsRequest,
    StoredTrialSample,
    StoredTrialSampleField,
)
from trio_cogment.rpc import Method, open_listeners, serve
from trio_cogment.servers.datastore import Datastore, datastore_services, open_store

METADATA = (("trial-id", "t"), ("user-id", "ann"))
SECONDS = 30


class Client:
    """Calls by grpcio, in a thread."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def __call__(self, method: Method, request: Any, *metadata: tuple[str, str]) -> Any:
        """Make a call: unary in and out, or by what the request is."""
        kinds = {
            (False, False): self._channel.unary_unary,
            (False, True): self._channel.unary_stream,
            (True, False): self._channel.stream_unary,
            (True, True): self._channel.stream_stream,
        }
        streamed_in = not hasattr(request, "SerializeToString")
        streamed_out = "STREAM" in method.cardinality.name.split("_")[1]
        call = kinds[streamed_in, streamed_out](method.path, _bytes_of, method.response_type.FromString)
        return call(request, metadata=metadata, timeout=SECONDS)


def _bytes_of(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


@asynccontextmanager
async def served(path: Path) -> AsyncIterator[int]:
    with trio.fail_after(2 * SECONDS):
        async with (
            open_store(f"sqlite:{path}") as store,
            Datastore(store) as datastore,
            trio.open_nursery() as nursery,
        ):
            serving = await nursery.start(serve, datastore_services(datastore), await open_listeners("127.0.0.1"))
            yield serving.port
            nursery.cancel_scope.cancel()


async def run(path: Path, function: Callable[[Client], None]) -> None:
    async with served(path) as port:

        def in_thread() -> None:
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                function(Client(channel))

        await trio.to_thread.run_sync(in_thread)


def inputs(kind: Any, samples: list[Any]) -> Iterator[Any]:
    yield kind(trial_params=params_with("c0.ann.x", "c1.bob.y"))
    for sample in samples:
        yield kind(sample=sample)


async def test_a_trial_is_logged_listed_and_read(tmp_path: Path) -> None:
    def calls(client: Client) -> None:
        replies = list(client(DATA_LOG, inputs(RunTrialDatalogInput, whole(300)), *METADATA))
        assert len(replies) == 301
        client(LOG_EXPORTER, inputs(LogExporterSampleRequest, whole(2)), ("trial-id", "u"))
        trials = client(TRIALS["RetrieveTrials"], RetrieveTrialsRequest(trials_count=10))
        assert [(info.trial_id, info.user_id, info.samples_count) for info in trials.trial_infos] == [
            ("t", "ann", 300),
            ("u", "", 2),
        ]
        samples = [
            reply.trial_sample for reply in client(TRIALS["RetrieveSamples"], RetrieveSamplesRequest(trial_ids=["t"]))
        ]
        assert [sample.tick_id for sample in samples] == list(range(300))
        request = RetrieveSamplesRequest(
            trial_ids=["t"],
            actor_classes=["c1"],
            selected_sample_fields=[StoredTrialSampleField.STORED_TRIAL_SAMPLE_FIELD_ACTION],
        )
        chosen = [reply.trial_sample for reply in client(TRIALS["RetrieveSamples"], request)]
        assert [actor.actor for sample in chosen for actor in sample.actor_samples] == [1] * 300
        assert {tuple(sample.payloads) for sample in chosen} == {(b"", b"", b"a1")}

    await run(tmp_path / "trials", calls)


async def test_a_running_trial_is_followed(tmp_path: Path) -> None:
    def calls(client: Client) -> None:
        seen = [threading.Event() for _ in range(20)]

        def send() -> Iterator[Any]:
            """Send each sample when the one before it has been read."""
            yield from inputs(RunTrialDatalogInput, [])
            for tick in range(20):
                yield RunTrialDatalogInput(sample=sample_of(tick, ENDED if tick == 19 else RUNNING))
                assert seen[tick].wait(SECONDS)

        log = client(DATA_LOG, send(), *METADATA)
        next(log)
        for reply in client(TRIALS["RetrieveSamples"], RetrieveSamplesRequest(trial_ids=["t"])):
            seen[reply.trial_sample.tick_id].set()
        assert all(event.is_set() for event in seen)
        assert len(list(log)) == 20

    await run(tmp_path / "trials", calls)


async def test_by_hand_and_after_a_restart(tmp_path: Path) -> None:
    def write(client: Client) -> None:
        client(TRIALS["AddTrial"], AddTrialRequest(user_id="bob", trial_params=params_with("ann")), ("trial-id", "t"))
        samples = [StoredTrialSample(tick_id=tick, state=ENDED if tick == 2 else RUNNING) for tick in range(3)]
        client(
            TRIALS["AddSample"], iter([AddSampleRequest(trial_sample=sample) for sample in samples]), ("trial-id", "t")
        )

    def read(client: Client) -> None:
        replies = list(client(TRIALS["RetrieveSamples"], RetrieveSamplesRequest(trial_ids=["t"])))
        assert [reply.trial_sample.tick_id for reply in replies] == [0, 1, 2]
        client(TRIALS["DeleteTrials"], DeleteTrialsRequest(trial_ids=["t"]))
        with pytest.raises(grpc.RpcError) as caught:
            list(client(TRIALS["RetrieveSamples"], RetrieveSamplesRequest(trial_ids=["t"])))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND

    await run(tmp_path / "trials", write)
    await run(tmp_path / "trials", read)
