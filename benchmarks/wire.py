"""CPU per tick of our orchestrator over gRPC, beside a relay on grpc.aio that has no logic.

`python benchmarks/wire.py` runs, for 1 and for 32 concurrent trials of 2 actors, alternated rounds of two programs
against the same environment and service actors (grpc.aio, in a third process):

* ours: `trio-cogment services orchestrator`;
* the relay: it parses and serialises the same messages with the same generated classes and passes them on; no more.

CPU is user and system time of all threads of the program during a window, divided by the ticks done in that window. The
ratio is the median over the rounds of ours divided by the relay's. Linux only: the time comes from /proc.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from _report import number, print_json, print_table

from trio_cogment.api import common_pb2, environment_pb2, orchestrator_pb2

ACTORS = 2
SIZES = (1, 32)
OBSERVATION_BYTES = 64
ACTION_BYTES = 8
ENVIRONMENT = "/cogmentAPI.EnvironmentSP/RunTrial"
ACTOR = "/cogmentAPI.ServiceActorSP/RunTrial"
LIFECYCLE = "/cogmentAPI.TrialLifecycleSP/"


# --- the environment and the actors: constant answers, at once ---


class Peers:
    """Serves both; what it writes is serialised once, so that it delays neither program more than it must."""

    def __init__(self) -> None:
        self.ticks = 0

    async def environment(self, _: Any, context: Any) -> None:
        output = environment_pb2.EnvRunTrialOutput
        normal, heartbeat, end = common_pb2.NORMAL, common_pb2.HEARTBEAT, common_pb2.END
        observations = environment_pb2.ObservationSet(
            tick_id=-1, timestamp=1, observations=[bytes(OBSERVATION_BYTES)], actors_map=[0] * ACTORS
        )
        observation_set = output(state=normal, observation_set=observations).SerializeToString()
        await context.read()
        await context.write(output(state=normal, init_output=environment_pb2.EnvInitialOutput()).SerializeToString())
        await context.write(observation_set)
        while (message := await context.read()) is not grpc.aio.EOF and message.state != end:
            if message.WhichOneof("data") == "action_set":
                self.ticks += 1
                await context.write(observation_set)
            elif message.state == heartbeat:
                await context.write(output(state=heartbeat).SerializeToString())

    async def actor(self, _: Any, context: Any) -> None:
        output = common_pb2.ActorRunTrialOutput
        normal, heartbeat, end = common_pb2.NORMAL, common_pb2.HEARTBEAT, common_pb2.END
        action = common_pb2.Action(tick_id=-1, timestamp=1, content=bytes(ACTION_BYTES))
        answer = output(state=normal, action=action).SerializeToString()
        await context.read()
        await context.write(output(state=normal, init_output=common_pb2.ActorInitialOutput()).SerializeToString())
        while (message := await context.read()) is not grpc.aio.EOF and message.state != end:
            if message.WhichOneof("data") == "observation":
                await context.write(answer)
            elif message.state == heartbeat:
                await context.write(output(state=heartbeat).SerializeToString())


async def serve_peers() -> None:
    peers = Peers()
    server = grpc.aio.server()
    for path, handler, message in (
        (ENVIRONMENT, peers.environment, environment_pb2.EnvRunTrialInput),
        (ACTOR, peers.actor, common_pb2.ActorRunTrialInput),
    ):
        _, service, method = path.split("/")
        serving = grpc.stream_stream_rpc_method_handler(handler, request_deserializer=message.FromString)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: serving}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    commands = await standard_input()
    while await commands.readline():
        print(peers.ticks, flush=True)
    await server.stop(0)


# --- the relay ---


async def relay_trial(channel: grpc.aio.Channel, trial_id: str) -> None:
    """Run one trial until cancelled: observations to the actors, their actions to the environment.

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
    while True:
        received = (await environment.read()).observation_set
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


async def run_relay(port: int) -> None:
    """Obey `start <number of trials>` and `stop` on the standard input."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        commands = await standard_input()
        trials: list[asyncio.Task[None]] = []
        while command := (await commands.readline()).split():
            for trial in trials:
                trial.cancel()
            await asyncio.gather(*trials, return_exceptions=True)
            wanted = int(command[1]) if command[0] == b"start" else 0
            trials = [asyncio.create_task(relay_trial(channel, f"relay-{number}")) for number in range(wanted)]
            print("done", flush=True)


async def standard_input() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


# --- the measurement ---


class Child:
    """A process that answers each line with a line."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self.pid = self._process.pid

    def read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a helper process ended with {self._process.wait(10)}")
        return line.strip()

    def ask(self, line: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self.read()

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(10)


class Relay:
    """The relay's process."""

    def __init__(self, peers_port: int) -> None:
        self._child = Child([sys.executable, __file__, "--role=relay", f"--peers-port={peers_port}"])
        self.pid = self._child.pid

    def start(self, trials: int) -> None:
        self._child.ask(f"start {trials}")

    def stop(self) -> None:
        self._child.ask("stop")

    def close(self) -> None:
        self._child.stop()


class Ours:
    """Our orchestrator's process, driven by its lifecycle service."""

    def __init__(self, peers_port: int, folder: Path) -> None:
        self._peers = f"grpc://127.0.0.1:{peers_port}"
        self._trials: list[str] = []
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        status, self._log = folder / "status", folder / "log"
        script = Path(sys.executable).with_name("trio-cogment")
        command = [str(script)] if script.exists() else [sys.executable, "-m", "trio_cogment"]
        options = [f"--lifecycle_port={port}", f"--actor_port={port}", f"--status_file={status}"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "services", "orchestrator", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.pid = self._process.pid
        deadline = time.monotonic() + 30
        while not (status.exists() and "R" in status.read_text()):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise SystemExit(f"our orchestrator does not start:\n{self._log.read_text()}")
            time.sleep(0.02)
        channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self._start = channel.unary_unary(
            LIFECYCLE + "StartTrial",
            orchestrator_pb2.TrialStartRequest.SerializeToString,
            orchestrator_pb2.TrialStartReply.FromString,
        )
        self._terminate = channel.unary_unary(
            LIFECYCLE + "TerminateTrial",
            orchestrator_pb2.TerminateTrialRequest.SerializeToString,
            orchestrator_pb2.TerminateTrialReply.FromString,
        )

    def start(self, trials: int) -> None:
        params = common_pb2.TrialParams(
            environment=common_pb2.EnvironmentParams(name="env", endpoint=self._peers),
            actors=[
                common_pb2.ActorParams(name=f"actor{index}", actor_class="player", endpoint=self._peers)
                for index in range(ACTORS)
            ],
        )
        request = orchestrator_pb2.TrialStartRequest(user_id="benchmark", params=params)
        self._trials = [self._start(request, timeout=30).trial_id for _ in range(trials)]

    def stop(self) -> None:
        request = orchestrator_pb2.TerminateTrialRequest(hard_termination=True)
        self._terminate(request, metadata=[("trial-id", trial) for trial in self._trials], timeout=30)

    def close(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)


def cpu_ns(pid: int) -> dict[str, int]:
    """Time on a CPU of each thread of a process."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            found[task.name] = int((task / "schedstat").read_text().split()[0])
        except FileNotFoundError:  # the thread has just ended
            pass
    return found


@dataclass(frozen=True)
class Round:
    ticks_per_s: float
    cpu_us_per_tick: float


def measure(side: Relay | Ours, peers: Child, trials: int, warm_s: float, window_s: float) -> Round:
    """Run trials, let them warm up, and look at one window."""
    first = int(peers.ask("ticks"))
    side.start(trials)
    deadline = time.monotonic() + 30
    time.sleep(warm_s)
    while int(peers.ask("ticks")) < first + 20 * trials:
        if time.monotonic() > deadline:
            raise SystemExit(f"{type(side).__name__}: {trials} trials do not tick")
        time.sleep(0.02)
    ticks, cpu, started = int(peers.ask("ticks")), cpu_ns(side.pid), time.perf_counter()
    time.sleep(window_s)
    ticks, cpu_after, seconds = int(peers.ask("ticks")) - ticks, cpu_ns(side.pid), time.perf_counter() - started
    side.stop()
    spent = sum(ns - cpu.get(thread, 0) for thread, ns in cpu_after.items())
    if not ticks:
        raise SystemExit(f"{type(side).__name__}: {trials} trials stopped ticking")
    return Round(ticks / seconds, spent / 1000 / ticks)


def benchmark(rounds: int, warm_s: float, window_s: float, relay_only: bool) -> dict[str, float | None]:
    values: dict[str, float | None] = {}
    rows = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        peers = Child([sys.executable, __file__, "--role=peers"])
        stack.callback(peers.stop)
        port = int(peers.read())
        relay = Relay(port)
        stack.callback(relay.close)
        ours = None if relay_only else Ours(port, folder)
        if ours is not None:
            stack.callback(ours.close)
        for trials in SIZES:
            relays: list[Round] = []
            our_rounds: list[Round] = []
            for number_of_round in range(rounds):
                # Whoever goes first has no lasting advantage.
                sides: list[Relay | Ours] = [relay] if ours is None else [ours, relay]
                for side in sides[:: -1 if number_of_round % 2 else 1]:
                    (relays if side is relay else our_rounds).append(measure(side, peers, trials, warm_s, window_s))
            found: dict[str, float | None] = {
                "relay_ticks_per_s": statistics.median(one.ticks_per_s for one in relays),
                "relay_cpu_us_per_tick": statistics.median(one.cpu_us_per_tick for one in relays),
            }
            if our_rounds:
                found["ticks_per_s"] = statistics.median(one.ticks_per_s for one in our_rounds)
                found["cpu_us_per_tick"] = statistics.median(one.cpu_us_per_tick for one in our_rounds)
                pairs = zip(our_rounds, relays, strict=True)
                found["cpu_ratio"] = statistics.median(
                    one.cpu_us_per_tick / other.cpu_us_per_tick for one, other in pairs
                )
            values |= {f"{name}_{trials}": value for name, value in found.items()}
            columns = ("ticks_per_s", "cpu_us_per_tick", "relay_ticks_per_s", "relay_cpu_us_per_tick", "cpu_ratio")
            rows.append([str(trials), *(number(found.get(name)) for name in columns)])
    print(f"{ACTORS} actors a trial, medians of {rounds} alternated rounds of {window_s:g} s")
    print_table(["trials", "ours ticks/s", "ours CPU us/tick", "relay ticks/s", "relay CPU us/tick", "CPU ratio"], rows)
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one flat JSON object on the last line")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--warm", type=float, default=0.4, metavar="SECONDS")
    parser.add_argument("--window", type=float, default=1.5, metavar="SECONDS")
    parser.add_argument("--relay-only", action="store_true", help="leave our orchestrator out")
    parser.add_argument("--role", choices=["peers", "relay"], help=argparse.SUPPRESS)
    parser.add_argument("--peers-port", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.role:
        asyncio.run(serve_peers() if args.role == "peers" else run_relay(args.peers_port))
        return
    values = benchmark(args.rounds, args.warm, args.window, args.relay_only)
    if args.json:
        print_json(values)


if __name__ == "__main__":
    main()
