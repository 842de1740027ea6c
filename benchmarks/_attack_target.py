"""Tools of the attacks of `attack.py`: calls by name, participants of their own, bare connections."""

from __future__ import annotations

import asyncio
import itertools
import re
import socket
import string
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
from _wire_peers import ACTOR, ENVIRONMENT, add_stream

from trio_cogment.api import common_pb2, directory_pb2, environment_pb2, model_registry_pb2, orchestrator_pb2
from trio_cogment.api import trial_datastore_pb2 as datastore_pb2

MIB = 2**20
CLIENT = "cogment://client"
LOCAL_DATALOG = "cogment://discover"
_FILES = (orchestrator_pb2, model_registry_pb2, datastore_pb2, directory_pb2)
_SERVICES = {name: service for file in _FILES for name, service in file.DESCRIPTOR.services_by_name.items()}
_UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
#: A connection of its own for each channel; grpc shares them otherwise.
OWN_CONNECTION = ("grpc.use_local_subchannel_pool", 1)


class Target:
    """The server, as an attacker sees it.

    Args:
        port: where it listens.
        scale: what the numbers of an attack are multiplied with.
        seconds: how long the attack may last.
        link: of a lobby there, if there is one.

    Attributes:
        outcomes: how often each kind of answer came: a status and what it says, or OK.
    """

    def __init__(self, port: int, scale: float, seconds: float, link: str = "") -> None:
        self.port = port
        self.link = link
        self.seconds = seconds
        self.outcomes: Counter[str] = Counter()
        self._scale = scale
        self._ends_at = time.monotonic() + seconds
        self._limit: asyncio.Timeout | None = None

    def many(self, number: int) -> int:
        """Return the number for this scale, one at least."""
        return max(1, round(number * self._scale))

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._ends_at - time.monotonic())

    def channel(self, **options: int) -> grpc.aio.Channel:
        """Open a connection of its own; its options are written with `_` instead of `.`."""
        given = [(name.replace("_", ".", 1), value) for name, value in options.items()]
        return grpc.aio.insecure_channel(f"127.0.0.1:{self.port}", options=[*_UNLIMITED, OWN_CONNECTION, *given])

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a bare connection; nothing is read from it beyond 4 KiB unless somebody does."""
        return await asyncio.open_connection("127.0.0.1", self.port, limit=2048)

    def until_answered(self, limit: asyncio.Timeout) -> None:
        """Let the attack end with its first answer, but not before its time is over."""
        self._limit = limit

    def count(self, code: str, text: str = "") -> None:
        if self._limit is not None:
            ends_in = asyncio.get_running_loop().time() + self.seconds_left
            self._limit.reschedule(ends_in)
            self._limit = None
        # Numbers and ids in a text would make a kind of each.
        self.outcomes[re.sub(r"trial '[^']*': |\d+", "", f"{code} {text}")[:120].strip()] += 1

    async def attempt(self, awaitable: Any) -> Any:
        """Await a call and count what came of it; None if it failed."""
        try:
            answer = await awaitable
        except grpc.aio.AioRpcError as error:
            self.count(error.code().name, error.details() or "")
            return None
        except (OSError, EOFError) as error:
            self.count(type(error).__name__)
            return None
        self.count("OK")
        return answer

    async def together(self, awaitables: Iterable[Any]) -> list[Any]:
        """Attempt all of them at once."""
        return list(await asyncio.gather(*map(self.attempt, awaitables)))

    async def in_lanes(self, lanes: int, make: Callable[[int], Any], count: int) -> list[Any]:
        """Attempt `make(0)` to `make(count - 1)`, this many at a time."""
        numbers = iter(range(count))
        found = []

        async def lane() -> None:
            for number in numbers:
                found.append(await self.attempt(make(number)))

        await asyncio.gather(*(lane() for _ in range(lanes)))
        return found


def method(channel: grpc.aio.Channel, path: str) -> Any:
    """Return what calls `Service/Method` over a channel."""
    service, name = path.split("/")
    descriptor = _SERVICES[service].methods_by_name[name]
    streams = (descriptor.client_streaming, descriptor.server_streaming)
    kind = "_".join("stream" if stream else "unary" for stream in streams)
    request, reply = descriptor.input_type._concrete_class, descriptor.output_type._concrete_class
    return getattr(channel, kind)(f"/cogmentAPI.{path}", request.SerializeToString, reply.FromString)


def starting(channel: grpc.aio.Channel, params: common_pb2.TrialParams, **options: Any) -> Any:
    request = orchestrator_pb2.TrialStartRequest(user_id="attacker", params=params)
    return method(channel, "TrialLifecycleSP/StartTrial")(request, **options)


def terminating(channel: grpc.aio.Channel, trial_ids: Iterable[str]) -> Any:
    request = orchestrator_pb2.TerminateTrialRequest(hard_termination=True)
    metadata = [("trial-id", trial_id) for trial_id in trial_ids]
    return method(channel, "TrialLifecycleSP/TerminateTrial")(request, metadata=metadata)


def trial_params(environment: str, actors: Iterable[str], **fields: Any) -> common_pb2.TrialParams:
    """Parameters with an actor for each of these endpoints."""
    return common_pb2.TrialParams(
        environment=common_pb2.EnvironmentParams(name="-", endpoint=environment),
        actors=[
            common_pb2.ActorParams(name=name, actor_class="p", endpoint=endpoint)
            for name, endpoint in zip(short_names(), actors, strict=False)
        ],
        **fields,
    )


def short_names() -> Iterator[str]:
    """Return as many names as anybody needs, the shortest first."""
    letters = string.ascii_letters + string.digits
    for length in itertools.count(1):
        yield from map("".join, itertools.product(letters, repeat=length))


def long_field(number: int, content: bytes) -> bytes:
    """Return a field of a message as it is written, with content that its type may know nothing of."""
    size = bytearray()
    rest = len(content)
    while rest >= 128:
        size.append(rest & 127 | 128)
        rest >>= 7
    size.append(rest)
    return bytes((number << 3 | 2,)) + bytes(size) + content


class Participants:
    """An environment and actors in the attacker's hands.

    Args:
        observation: what the environment gives every actor at each tick; None: it stays away.
        action: what each actor does.
        ticks: how many ticks there are, then the environment falls silent.
        said: a message that every actor says to everybody with each of its actions.
        reward: what the environment sends before its first observations.
    """

    def __init__(
        self,
        *,
        observation: bytes = b"",
        action: bytes = b"",
        ticks: int = 1,
        said: bytes = b"",
        reward: common_pb2.Reward | None = None,
    ) -> None:
        self._observation = observation
        self._action = action
        self._ticks = ticks
        self._said = said
        self._reward = reward
        self.endpoint = ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        server = grpc.aio.server(options=_UNLIMITED)
        add_stream(server, ENVIRONMENT, self._environment, environment_pb2.EnvRunTrialInput)
        add_stream(server, ACTOR, self._actor, common_pb2.ActorRunTrialInput)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            yield f"grpc://127.0.0.1:{port}"
        finally:
            await server.stop(0)

    async def _environment(self, _: Any, context: Any) -> None:
        output, normal = environment_pb2.EnvRunTrialOutput, common_pb2.NORMAL
        actors = len((await context.read()).init_input.actors_in_trial)
        await context.write(output(state=normal, init_output=environment_pb2.EnvInitialOutput()).SerializeToString())
        observations = environment_pb2.ObservationSet(
            tick_id=-1, timestamp=1, observations=[self._observation], actors_map=[0] * actors
        )
        message = output(state=normal, observation_set=observations).SerializeToString()
        if self._reward is not None:
            await context.write(output(state=normal, reward=self._reward).SerializeToString())
        await context.write(message)
        left = self._ticks - 1
        while (got := await context.read()) is not grpc.aio.EOF and got.state != common_pb2.END:
            if left and got.WhichOneof("data") == "action_set":
                left -= 1
                await context.write(message)

    async def _actor(self, _: Any, context: Any) -> None:
        output, normal = common_pb2.ActorRunTrialOutput, common_pb2.NORMAL
        await context.read()
        await context.write(output(state=normal, init_output=common_pb2.ActorInitialOutput()).SerializeToString())
        action = common_pb2.Action(tick_id=-1, timestamp=1, content=self._action)
        answer = output(state=normal, action=action).SerializeToString()
        while (got := await context.read()) is not grpc.aio.EOF and got.state != common_pb2.END:
            if got.WhichOneof("data") == "observation":
                if self._said:
                    message = common_pb2.Message(tick_id=-1, receiver_name="*")
                    message.payload.value = self._said
                    await context.write(output(state=normal, message=message).SerializeToString())
                await context.write(answer)


class Tarpit:
    """Listeners whose connections are made, by the kernel, and then nothing comes: nobody accepts them."""

    def __init__(self) -> None:
        self._listeners = [socket.create_server(("0.0.0.0", 0), backlog=4096) for _ in range(10)]
        self._ports = [listener.getsockname()[1] for listener in self._listeners]

    def __enter__(self) -> Iterator[str]:
        """Return endpoints, each of them another one."""
        return (f"{address}:{port}" for address in loopback_addresses() for port in self._ports)

    def __exit__(self, *_: object) -> None:
        for listener in self._listeners:
            listener.close()


def loopback_addresses() -> Iterator[str]:
    """All of them: 127.0.0.1, 127.0.0.2, and so on."""
    for number in range(1, 2**24 - 1):
        yield f"127.{number >> 16}.{number >> 8 & 255}.{number & 255}"
