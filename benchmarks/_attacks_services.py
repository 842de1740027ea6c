"""Attacks on the services: requests that any client may make, of sizes and in numbers that nobody honest needs."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import grpc
import grpc.aio
from _attack_target import (
    CLIENT,
    LOCAL_DATALOG,
    MIB,
    Participants,
    Target,
    Tarpit,
    method,
    short_names,
    starting,
    terminating,
    trial_params,
)

from trio_cogment.api import common_pb2, directory_pb2, model_registry_pb2, orchestrator_pb2
from trio_cogment.api import trial_datastore_pb2 as datastore_pb2

MODEL = "attacked"
PROPERTY = "v" * 60_000

# --- starts ---


async def start_with_tarpits(target: Target) -> None:
    """A trial of 30,000 actors at as many endpoints that accept and never answer."""
    with Tarpit() as places:
        actors = [f"grpc://{place}" for place in itertools.islice(places, target.many(30_000))]
        async with target.channel() as channel:
            await target.attempt(starting(channel, trial_params(actors[0], actors)))
            await asyncio.sleep(target.seconds_left)


async def starts_with_tarpits(target: Target) -> None:
    """1,000 trials of 30 actors, all of them at endpoints of their own that accept and never answer."""
    with Tarpit() as places:
        async with target.channel() as channel:

            def start(_: int) -> Any:
                actors = [f"grpc://{place}" for place in itertools.islice(places, 30)]
                return starting(channel, trial_params(actors[0], actors))

            await target.in_lanes(32, start, target.many(1000))
            await asyncio.sleep(target.seconds_left)


async def start_with_clients(target: Target) -> None:
    """A trial of 149,000 client actors, three times."""
    params = trial_params("grpc://127.0.0.1:9", [CLIENT] * target.many(149_000))
    async with target.channel() as channel:
        await target.in_lanes(1, lambda _: starting(channel, params), 3)
        await asyncio.sleep(target.seconds_left)


async def many_trials(target: Target) -> None:
    """20,000 trials that wait for a client."""
    params = trial_params("grpc://127.0.0.1:9", [CLIENT])
    async with target.channel() as channel:
        await target.in_lanes(64, lambda _: starting(channel, params), target.many(20_000))
        await asyncio.sleep(target.seconds_left)


async def large_trials(target: Target) -> None:
    """200 trials with 3 MiB of parameters that wait for a client."""
    params = trial_params("grpc://127.0.0.1:9", [CLIENT])
    params.trial_config.content = bytes(3 * MIB)
    async with target.channel() as channel:
        await target.in_lanes(8, lambda _: starting(channel, params), target.many(200))
        await asyncio.sleep(target.seconds_left)


async def ended_trials(target: Target) -> None:
    """200 trials with 1 MiB of parameters that were started and terminated."""
    params = trial_params("grpc://127.0.0.1:9", [CLIENT])
    params.trial_config.content = bytes(MIB)
    async with target.channel() as channel:
        for _ in range(target.many(200)):
            reply = await target.attempt(starting(channel, params))
            if reply is not None:
                await target.attempt(terminating(channel, [reply.trial_id]))
        await asyncio.sleep(target.seconds_left)


# --- what is asked ---


async def huge_replies(target: Target) -> None:
    """200 trials with 60 KiB of properties and observations of 3 MiB, and six calls of 2 bytes that ask for all."""
    async with AsyncExitStack() as stack:
        channel = await stack.enter_async_context(target.channel())
        endpoint = await stack.enter_async_context(Participants(observation=bytes(3 * MIB)).serving())
        params = trial_params(endpoint, [endpoint], properties={"p": PROPERTY})
        await target.in_lanes(8, lambda _: starting(channel, params), target.many(200))
        others = [await stack.enter_async_context(target.channel()) for _ in range(6)]
        request = orchestrator_pb2.TrialInfoRequest(get_latest_observation=True)
        while target.seconds_left:
            await target.together(method(other, "TrialLifecycleSP/GetTrialInfo")(request) for other in others)


async def many_ids(target: Target) -> None:
    """Requests that name 400,000 ids: of models, of trials."""
    count = target.many(400_000)
    ids = [str(number) for number in range(count)]
    async with target.channel() as channel:
        info = model_registry_pb2.ModelInfo(model_id=MODEL)
        create = method(channel, "ModelRegistrySP/CreateOrUpdateModel")
        await target.attempt(create(model_registry_pb2.CreateOrUpdateModelRequest(model_info=info)))
        requests: list[tuple[str, Any]] = [
            (
                "ModelRegistrySP/RetrieveModels",
                model_registry_pb2.RetrieveModelsRequest(model_ids=[MODEL] * count),
            ),
            ("TrialDatastoreSP/RetrieveTrials", datastore_pb2.RetrieveTrialsRequest(trial_ids=ids)),
            ("TrialDatastoreSP/DeleteTrials", datastore_pb2.DeleteTrialsRequest(trial_ids=ids)),
        ]
        for path, request in requests * 2:
            await target.attempt(method(channel, path)(request))
        watch = method(channel, "TrialLifecycleSP/WatchTrials")
        samples = method(channel, "TrialDatastoreSP/RetrieveSamples")
        calls = [
            watch(orchestrator_pb2.TrialListRequest(trial_ids=ids)),
            samples(datastore_pb2.RetrieveSamplesRequest(trial_ids=ids)),
        ]
        await asyncio.sleep(target.seconds_left)
        for call in calls:
            call.cancel()


async def deaf_watchers(target: Target) -> None:
    """200 watchers that do not read, beside trials with 60 KiB of properties that start and end."""
    request = orchestrator_pb2.TrialListRequest(full_info=True)
    params = trial_params("grpc://127.0.0.1:9", [CLIENT], properties={"p": PROPERTY})
    async with AsyncExitStack() as stack:
        channel = await stack.enter_async_context(target.channel())
        calls = []
        for _ in range(target.many(20)):
            other = await stack.enter_async_context(target.channel())
            calls += [method(other, "TrialLifecycleSP/WatchTrials")(request) for _ in range(10)]
        await asyncio.sleep(0.1)
        while target.seconds_left:
            reply = await target.attempt(starting(channel, params))
            if reply is None:
                await asyncio.sleep(0.05)
            else:
                await target.attempt(terminating(channel, [reply.trial_id]))


# --- what participants do ---


async def wildcard_messages(target: Target) -> None:
    """400 actors in a trial, each of which says 512 KiB to everybody at each tick."""
    async with AsyncExitStack() as stack:
        channel = await stack.enter_async_context(target.channel())
        speakers = await stack.enter_async_context(Participants(said=bytes(MIB // 2), ticks=100).serving())
        listeners = await stack.enter_async_context(Participants(ticks=100).serving())
        params = trial_params(listeners, [speakers] * 4 + [listeners] * target.many(400))
        await target.attempt(starting(channel, params))
        await asyncio.sleep(target.seconds_left)


async def wildcard_messages_unread(target: Target) -> None:
    """One actor that says 1 MiB to 500 others, again and again; each has its own connection and does not read."""
    await _speak_to_the_deaf(target, itertools.repeat("*"))


async def messages_unread(target: Target) -> None:
    """As `wildcard_messages_unread`, but it says something else to each of them."""
    await _speak_to_the_deaf(target, itertools.cycle(itertools.islice(short_names(), 1, target.many(500))))


async def _speak_to_the_deaf(target: Target, receivers: Iterator[str]) -> None:
    async with AsyncExitStack() as stack:
        channel = await stack.enter_async_context(target.channel())
        count = target.many(500)
        environment = await stack.enter_async_context(Participants(ticks=1).serving())
        reply = await target.attempt(starting(channel, trial_params(environment, [CLIENT] * (count + 1))))
        if reply is None:
            await asyncio.sleep(target.seconds_left)
            return
        init = common_pb2.ActorRunTrialOutput(state=common_pb2.NORMAL)
        init.init_output.actor_class = "p"
        calls = []
        for number in range(count + 1):
            own = await stack.enter_async_context(
                target.channel(grpc_http2_lookahead_bytes=1024, grpc_http2_bdp_probe=0)
            )
            join = own.stream_stream(
                "/cogmentAPI.ClientActorSP/RunTrial",
                common_pb2.ActorRunTrialOutput.SerializeToString,
                common_pb2.ActorRunTrialInput.FromString,
            )
            call = join(metadata=[("trial-id", reply.trial_id)])
            calls.append(call)
            if number % 50 == 0:
                await asyncio.sleep(0.01)
            await target.attempt(call.write(init))
        said = common_pb2.ActorRunTrialOutput(state=common_pb2.NORMAL)
        said.message.tick_id = -1
        said.message.payload.value = bytes(MIB)
        for receiver in itertools.islice(receivers, 1000):
            said.message.receiver_name = receiver
            await calls[0].write(said)
            await asyncio.sleep(0.02)
        await asyncio.sleep(target.seconds_left)


async def buffered_ticks(target: Target) -> None:
    """10 trials that keep 10,000 ticks back, with 1 MiB in each."""
    async with AsyncExitStack() as stack:
        channel = await stack.enter_async_context(target.channel())
        mine = Participants(observation=bytes(MIB), ticks=10_000)
        endpoint = await stack.enter_async_context(mine.serving())
        params = trial_params(endpoint, [endpoint], nb_buffered_ticks=10_000)
        params.datalog.endpoint = LOCAL_DATALOG
        await target.in_lanes(10, lambda _: starting(channel, params), target.many(10))
        await asyncio.sleep(target.seconds_left)


async def large_ticks(target: Target) -> None:
    """100 trials whose actors do not read observations of 3 MiB, and do without."""
    async with AsyncExitStack() as stack:
        channel = await stack.enter_async_context(target.channel())
        mine = Participants(observation=bytes(3 * MIB), ticks=1000)
        endpoint = await stack.enter_async_context(mine.serving())
        params = trial_params(endpoint, [endpoint] + [CLIENT] * 3)
        for actor in params.actors:
            actor.optional = True
            actor.response_timeout = 0.1
            actor.initial_connection_timeout = 0.1
        await target.in_lanes(10, lambda _: starting(channel, params), target.many(100))
        await asyncio.sleep(target.seconds_left)


# --- stores ---


async def _prepared_model(target: Target, channel: grpc.aio.Channel, size: int) -> None:
    info = model_registry_pb2.ModelInfo(model_id=MODEL)
    create = method(channel, "ModelRegistrySP/CreateOrUpdateModel")
    await target.attempt(create(model_registry_pb2.CreateOrUpdateModelRequest(model_info=info)))
    if size:
        await target.attempt(_upload(channel, size, bytes(MIB), 0.0))


def _upload(channel: grpc.aio.Channel, size: int, piece: bytes, pause_s: float, *, archived: bool = True) -> Any:
    """Upload `size` bytes in pieces, with a pause after each."""
    chunk = model_registry_pb2.CreateVersionRequestChunk
    info = model_registry_pb2.ModelVersionInfo(model_id=MODEL, archived=archived, data_size=size)

    async def chunks() -> AsyncIterator[Any]:
        yield chunk(header=chunk.Header(version_info=info))
        for _ in range(0, size, len(piece)):
            yield chunk(body=chunk.Body(data_chunk=piece))
            await asyncio.sleep(pause_s)

    return method(channel, "ModelRegistrySP/CreateVersion")(chunks())


async def waiting_uploads(target: Target) -> None:
    """400 uploads over 100 connections, each with 3 MiB under way."""
    async with AsyncExitStack() as stack:
        channels = [await stack.enter_async_context(target.channel()) for _ in range(target.many(100))]
        await _prepared_model(target, channels[0], 0)
        await target.together(_upload(channel, 64 * MIB, bytes(3 * MIB), 5) for channel in channels * 4)


async def cached_uploads(target: Target) -> None:
    """400 versions of 4 MiB that are not archived."""
    async with target.channel() as channel:
        await _prepared_model(target, channel, 0)
        size = 4 * MIB
        piece = bytes(MIB)
        await target.in_lanes(4, lambda _: _upload(channel, size, piece, 0, archived=False), target.many(400))
        await asyncio.sleep(target.seconds_left)


async def slow_transfers(target: Target) -> None:
    """32 uploads of 1 byte in 5 s, and 32 downloads that nobody reads."""
    async with AsyncExitStack() as stack:
        channel = await stack.enter_async_context(target.channel())
        await _prepared_model(target, channel, 16 * MIB)
        request = model_registry_pb2.RetrieveVersionDataRequest(model_id=MODEL, version_number=-1)
        download = method(channel, "ModelRegistrySP/RetrieveVersionData")
        calls = [download(request) for _ in range(target.many(32))]
        await target.together(_upload(channel, MIB, b"x", 5) for _ in range(target.many(32)))
        for call in calls:
            call.cancel()


async def samples_unread(target: Target) -> None:
    """1,000 calls for samples of 1 MiB that nobody reads, over 100 connections."""
    async with AsyncExitStack() as stack:
        wanted = await _stored_samples(target, await stack.enter_async_context(target.channel()))
        calls = []
        for _ in range(target.many(100)):
            own = await stack.enter_async_context(target.channel())
            calls += [method(own, "TrialDatastoreSP/RetrieveSamples")(wanted) for _ in range(10)]
            await asyncio.sleep(0)
        await asyncio.sleep(target.seconds_left)
        for call in calls:
            call.cancel()


async def samples_unread_by_pages(target: Target) -> None:
    """As `samples_unread`, by gRPC-Web, over 1,000 connections."""
    async with target.channel() as channel:
        wanted = (await _stored_samples(target, channel)).SerializeToString()
    body = b"\0" + len(wanted).to_bytes(4, "big") + wanted
    head = (
        "POST /cogmentAPI.TrialDatastoreSP/RetrieveSamples HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        f"content-type: application/grpc-web+proto\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    writers = []
    for _ in range(target.many(1000)):
        reader, writer = await target.connect()
        writers.append(writer)
        writer.write(head.encode() + body)
        if len(writers) == 1:
            status = (await reader.readline()).decode()
            target.count("OK" if " 200 " in status else "INTERNAL", status)
    await asyncio.sleep(target.seconds_left)
    for writer in writers:
        writer.close()


async def _stored_samples(target: Target, channel: grpc.aio.Channel) -> datastore_pb2.RetrieveSamplesRequest:
    """Store a trial with 30 samples of 1 MiB that does not end; return the request for them."""
    metadata = [("trial-id", "attacked")]
    params = trial_params(CLIENT, [CLIENT])
    add = method(channel, "TrialDatastoreSP/AddTrial")
    await target.attempt(add(datastore_pb2.AddTrialRequest(trial_params=params), metadata=metadata))
    request = datastore_pb2.AddSampleRequest()
    request.trial_sample.payloads.append(bytes(MIB))
    request.trial_sample.actor_samples.add(actor=0, observation=0)

    async def samples() -> AsyncIterator[Any]:
        for tick_id in range(target.many(30)):
            request.trial_sample.tick_id = tick_id
            yield request

    await target.attempt(method(channel, "TrialDatastoreSP/AddSample")(samples(), metadata=metadata))
    return datastore_pb2.RetrieveSamplesRequest(trial_ids=["attacked"])


async def registrations(target: Target) -> None:
    """20,000 registrations in a directory, of servers that accept and never answer."""
    with Tarpit() as places:

        async def requests() -> AsyncIterator[Any]:
            for place in itertools.islice(places, target.many(20_000)):
                request = directory_pb2.RegisterRequest(permanent=True)
                host, _, port = place.partition(":")
                request.endpoint.protocol = directory_pb2.ServiceEndpoint.GRPC
                request.endpoint.host, request.endpoint.port = host, int(port)
                request.details.type = directory_pb2.ACTOR_SERVICE
                yield request

        async with target.channel() as channel:
            async for reply in method(channel, "DirectorySP/Register")(requests()):
                target.count(directory_pb2.RegisterReply.Status.Name(reply.status), reply.error_msg)
            await asyncio.sleep(target.seconds_left)
