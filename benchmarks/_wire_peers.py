"""The other processes of `wire.py`: environment and actors, and a relay without logic, all on grpc.aio."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from trio_cogment.api import common_pb2, environment_pb2, orchestrator_pb2

#: Both can be changed before anything else is done; they are options of the processes.
ACTORS = 2
OBSERVATION_BYTES = 64
ACTION_BYTES = 8
ENVIRONMENT = "/cogmentAPI.EnvironmentSP/RunTrial"
ACTOR = "/cogmentAPI.ServiceActorSP/RunTrial"
LIFECYCLE = "/cogmentAPI.TrialLifecycleSP/"
#: A trial whose id begins with this ends itself after this many ticks.
SHORT = "short-"
SHORT_TICKS = 10


def trial_params(peers_port: int) -> common_pb2.TrialParams:
    """What the measured trials are started with."""
    endpoint = f"grpc://127.0.0.1:{peers_port}"
    return common_pb2.TrialParams(
        environment=common_pb2.EnvironmentParams(name="env", endpoint=endpoint),
        actors=[
            common_pb2.ActorParams(name=f"actor{index}", actor_class="player", endpoint=endpoint)
            for index in range(ACTORS)
        ],
    )


# --- the environment and the actors: constant answers, at once ---


class Peers:
    """Serves both; what it writes is serialised once, so that it delays neither program more than it must."""

    def __init__(self) -> None:
        self.ticks = 0
        self.longest_gap = 0.0
        self._ticked: dict[str, float] = {}
        self.port = 0
        #: trial id -> set with its first action set, and with its end
        self._first_ticks: dict[str, asyncio.Event] = {}
        self._ends: dict[str, asyncio.Event] = {}

    async def environment(self, _: Any, context: Any) -> None:
        output = environment_pb2.EnvRunTrialOutput
        normal, last = common_pb2.NORMAL, common_pb2.LAST
        trial_id = dict(context.invocation_metadata())["trial-id"]
        left = SHORT_TICKS if trial_id.startswith(SHORT) else -1
        observations = environment_pb2.ObservationSet(
            tick_id=-1, timestamp=1, observations=[bytes(OBSERVATION_BYTES)], actors_map=[0] * ACTORS
        )
        observation_set = output(state=normal, observation_set=observations).SerializeToString()
        await context.read()
        await context.write(output(state=normal, init_output=environment_pb2.EnvInitialOutput()).SerializeToString())
        await context.write(observation_set)
        while (message := await context.read()) is not grpc.aio.EOF and message.state != common_pb2.END:
            if message.WhichOneof("data") == "action_set":
                self.ticks += 1
                now = time.perf_counter()
                self.longest_gap = max(self.longest_gap, now - self._ticked.get(trial_id, now))
                self._ticked[trial_id] = now
                if left == SHORT_TICKS:
                    self._first_ticks[trial_id].set()
                left -= 1
                if left == 0:
                    await context.write(output(state=last).SerializeToString())
                await context.write(observation_set)
                if left == 0:
                    await context.write(output(state=common_pb2.LAST_ACK).SerializeToString())
            elif message.state == common_pb2.HEARTBEAT:
                await context.write(output(state=common_pb2.HEARTBEAT).SerializeToString())
        if trial_id in self._ends:
            self._ends[trial_id].set()

    async def actor(self, _: Any, context: Any) -> None:
        output = common_pb2.ActorRunTrialOutput
        normal, last = common_pb2.NORMAL, False
        action = common_pb2.Action(tick_id=-1, timestamp=1, content=bytes(ACTION_BYTES))
        answer = output(state=normal, action=action).SerializeToString()
        await context.read()
        await context.write(output(state=normal, init_output=common_pb2.ActorInitialOutput()).SerializeToString())
        while (message := await context.read()) is not grpc.aio.EOF and message.state != common_pb2.END:
            if message.WhichOneof("data") == "observation":
                await context.write(output(state=common_pb2.LAST_ACK).SerializeToString() if last else answer)
            elif message.state == common_pb2.LAST:
                last = True
            elif message.state == common_pb2.HEARTBEAT:
                await context.write(output(state=common_pb2.HEARTBEAT).SerializeToString())

    async def short_trials(self, port: int, lanes: int, trials: int, token: str = "") -> list[float]:
        """Let each lane start this many short trials, one after the other, at the orchestrator on `port`.

        Returns:
            for each trial, the seconds from its start being asked to its first action set.
        """
        metadata = (("authorization", f"Bearer {token}"),) if token else None
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            start = channel.unary_unary(
                LIFECYCLE + "StartTrial",
                orchestrator_pb2.TrialStartRequest.SerializeToString,
                orchestrator_pb2.TrialStartReply.FromString,
            )
            params = trial_params(self.port)

            async def lane(name: str) -> list[float]:
                found = []
                for number in range(trials):
                    trial_id = f"{SHORT}{name}-{number}"
                    first = self._first_ticks[trial_id] = asyncio.Event()
                    end = self._ends[trial_id] = asyncio.Event()
                    request = orchestrator_pb2.TrialStartRequest(trial_id_requested=trial_id, params=params)
                    started = time.perf_counter()
                    starting = asyncio.ensure_future(start(request, metadata=metadata))
                    await first.wait()
                    found.append(time.perf_counter() - started)
                    await end.wait()
                    await starting
                    del self._first_ticks[trial_id], self._ends[trial_id]
                return found

            series = f"{time.monotonic_ns()}"
            lists = await asyncio.gather(*(lane(f"{series}-{index}") for index in range(lanes)))
        return [seconds for found in lists for seconds in found]


async def serve_peers() -> None:
    """Answer lines of the standard input.

    * `ticks`;
    * `gap`: the longest between two ticks of a trial since it was asked last;
    * `short <port> <lanes> <trials in each> <token, if any>`.
    """
    peers = Peers()
    server = grpc.aio.server()
    add_stream(server, ENVIRONMENT, peers.environment, environment_pb2.EnvRunTrialInput)
    add_stream(server, ACTOR, peers.actor, common_pb2.ActorRunTrialInput)
    peers.port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(peers.port, flush=True)
    commands = await standard_input()
    while command := (await commands.readline()).split():
        if command[0] == b"short":
            async with asyncio.timeout(60):
                port, lanes, trials = map(int, command[1:4])
                token = b"".join(command[4:]).decode()
                print(json.dumps(await peers.short_trials(port, lanes, trials, token)), flush=True)
        elif command[0] == b"gap":
            print(peers.longest_gap, flush=True)
            peers.longest_gap = 0.0
        else:
            print(peers.ticks, flush=True)
    await server.stop(0)


def add_stream(server: grpc.aio.Server, path: str, handler: Callable[..., Any], request: Any) -> None:
    _, service, method = path.split("/")
    serving = grpc.stream_stream_rpc_method_handler(handler, request_deserializer=request.FromString)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: serving}),))


# --- the relay ---


async def relay_trial(channel: grpc.aio.Channel, trial_id: str) -> None:
    """Run one trial until it ends or is cancelled: observations to the actors, their actions to the environment.

    One actor after the other is cheaper here than tasks or `gather`: the actors work side by side all the same.
    """
    metadata = (("trial-id", trial_id),)
    normal = common_pb2.NORMAL
    environment_input, actor_input = environment_pb2.EnvRunTrialInput, common_pb2.ActorRunTrialInput
    environment = channel.stream_stream(
        ENVIRONMENT, environment_input.SerializeToString, environment_pb2.EnvRunTrialOutput.FromString
    )(metadata=metadata)
    call_actor = channel.stream_stream(ACTOR, actor_input.SerializeToString, common_pb2.ActorRunTrialOutput.FromString)
    actors = [call_actor(metadata=metadata) for _ in range(ACTORS)]
    for index, actor in enumerate(actors):
        init = common_pb2.ActorInitialInput(actor_name=f"actor{index}", actor_class="player", env_name="env")
        await actor.write(actor_input(state=normal, init_input=init))
        await actor.read()
    in_trial = [common_pb2.TrialActor(name=f"actor{index}", actor_class="player") for index in range(ACTORS)]
    await environment.write(
        environment_input(
            state=normal, init_input=environment_pb2.EnvInitialInput(name="env", actors_in_trial=in_trial)
        )
    )
    await environment.read()
    tick = 0
    while (output := await environment.read()).state == normal:
        received = output.observation_set
        for actor, index in zip(actors, received.actors_map, strict=True):
            observation = common_pb2.Observation(
                tick_id=tick, timestamp=received.timestamp, content=received.observations[index]
            )
            await actor.write(actor_input(state=normal, observation=observation))
        actions = environment_pb2.ActionSet(tick_id=tick, timestamp=time.time_ns())
        for actor in actors:
            actions.actions.append((await actor.read()).action.content)
        await environment.write(environment_input(state=normal, action_set=actions))
        tick += 1
    received = (await environment.read()).observation_set
    for actor, index in zip(actors, received.actors_map, strict=True):
        await actor.write(actor_input(state=common_pb2.LAST))
        observation = common_pb2.Observation(tick_id=tick, content=received.observations[index])
        await actor.write(actor_input(state=normal, observation=observation))
    for participant in (environment, *actors):
        await participant.read()  # its LAST_ACK
    await environment.write(environment_input(state=common_pb2.END))
    for actor in actors:
        await actor.write(actor_input(state=common_pb2.END))
    for participant in (environment, *actors):
        await participant.done_writing()


class Relay:
    """Trials started by command, and by `StartTrial`."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self._trials: set[asyncio.Task[None]] = set()

    def start(self, trial_id: str) -> None:
        trial = asyncio.create_task(relay_trial(self._channel, trial_id))
        self._trials.add(trial)
        trial.add_done_callback(self._trials.discard)

    async def stop(self) -> None:
        trials = list(self._trials)
        for trial in trials:
            trial.cancel()
        await asyncio.gather(*trials, return_exceptions=True)

    async def start_trial(self, request: Any, _: Any) -> Any:
        self.start(request.trial_id_requested)
        return orchestrator_pb2.TrialStartReply(trial_id=request.trial_id_requested)


async def run_relay(peers_port: int) -> None:
    """Print the port of `StartTrial`, then obey `start <number of trials>` and `stop` on the standard input."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{peers_port}") as channel:
        relay = Relay(channel)
        server = grpc.aio.server()
        start = grpc.unary_unary_rpc_method_handler(
            relay.start_trial,
            request_deserializer=orchestrator_pb2.TrialStartRequest.FromString,
            response_serializer=orchestrator_pb2.TrialStartReply.SerializeToString,
        )
        service = LIFECYCLE.strip("/")
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"StartTrial": start}),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        print(port, flush=True)
        commands = await standard_input()
        while command := (await commands.readline()).split():
            await relay.stop()
            for number in range(int(command[1]) if command[0] == b"start" else 0):
                relay.start(f"relay-{number}")
            print("done", flush=True)
        await server.stop(0)


async def standard_input() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


def main() -> None:
    global ACTORS, OBSERVATION_BYTES
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["peers", "relay"])
    parser.add_argument("--peers-port", type=int)
    parser.add_argument("--actors", type=int, default=ACTORS)
    parser.add_argument("--payload", type=int, default=OBSERVATION_BYTES)
    args = parser.parse_args()
    ACTORS, OBSERVATION_BYTES = args.actors, args.payload
    asyncio.run(serve_peers() if args.role == "peers" else run_relay(args.peers_port))


if __name__ == "__main__":
    main()
