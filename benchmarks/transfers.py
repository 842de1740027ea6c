"""Small messages beside large transfers: echoes on the same connection, trials in the same process; and memory.

`python benchmarks/transfers.py` lets a server send a gigabyte in messages of 1 MiB to a client, which asks for small
echoes on the same connection meanwhile, one after the other. It prints the time of an echo (p50, p99 and the longest)
without and with the transfer, and the megabytes a second, for this package at both ends and for grpc.aio at both ends,
in alternated rounds. Wall time: whatever else the machine does is part of it.

With --trials, eight clients take a version of a model from `trio-cogment serve` again and again, in which four trials
of two actors tick; the actors are grpc.aio's, in a process of their own. It prints the longest gap between two ticks of
a trial, without transfers and with them.

With --memory, it prints what a connection with one open call adds to the resident memory of a server, of this package
and of grpc.aio: idle, after a message of 1 MiB that was echoed, and what a trial adds to an orchestrator whose actors
see observations of 100 KiB. Linux only: the sizes come from /proc.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import _wire_peers
import wire
from _children import Child
from _report import number, print_json, print_table
from _rpc_peers import SIZES, SMALL, GrpcAioClient, OurClient, OurServicer, Packet, serve_grpc_aio, serve_ours

MESSAGE = bytes(SIZES["1m"])
#: Echoes of a round without a transfer.
ALONE = 2000


def quantiles(times: list[float]) -> dict[str, float]:
    """In milliseconds."""
    times = sorted(times)
    return {
        "p50_ms": 1000 * statistics.median(times),
        "p99_ms": 1000 * times[int(0.99 * (len(times) - 1))],
        "longest_ms": 1000 * times[-1],
    }


def result(alone: list[float], beside: list[float], seconds: float, mebibytes: int) -> dict[str, float]:
    found = {f"alone_{name}": value for name, value in quantiles(alone).items()}
    found |= {f"beside_{name}": value for name, value in quantiles(beside).items()}
    return found | {"mib_per_s": mebibytes / seconds, "echoes": len(beside)}


def measure_ours(port: int, mebibytes: int) -> dict[str, float]:
    import trio

    from trio_cogment.rpc import Channel, RpcConfig

    async def main() -> dict[str, float]:
        config = RpcConfig(max_receive_message_bytes=4 * len(MESSAGE))
        async with Channel("127.0.0.1", port, config=config) as channel:
            client = OurClient(channel)
            async with channel.call(client.methods["Echo"]) as call:

                async def echo() -> float:
                    began = time.perf_counter()
                    await call.send(Packet(number=1, content=SMALL))
                    await call.receive()
                    return time.perf_counter() - began

                alone = [await echo() for _ in range(ALONE)]
                beside: list[float] = []
                began = time.perf_counter()
                async with trio.open_nursery() as nursery:

                    async def transfer() -> None:
                        await client.down(mebibytes, MESSAGE)
                        nursery.cancel_scope.cancel()

                    nursery.start_soon(transfer)
                    while True:
                        beside.append(await echo())
                return result(alone, beside, time.perf_counter() - began, mebibytes)

    return trio.run(main)


def measure_grpc_aio(port: int, mebibytes: int) -> dict[str, float]:
    async def main() -> dict[str, float]:
        client = GrpcAioClient(port)
        call = client._echo()

        async def echo() -> float:
            began = time.perf_counter()
            await call.write(Packet(number=1, content=SMALL))
            await call.read()
            return time.perf_counter() - began

        alone = [await echo() for _ in range(ALONE)]
        beside: list[float] = []
        began = time.perf_counter()
        transfer = asyncio.ensure_future(client.down(mebibytes, MESSAGE))
        while not transfer.done():
            beside.append(await echo())
        seconds = time.perf_counter() - began
        call.cancel()
        return result(alone, beside, seconds, mebibytes)

    return asyncio.run(main())


SERVERS: dict[str, Callable[[], None]] = {"ours": lambda: serve_ours(OurServicer()), "grpc.aio": serve_grpc_aio}
CLIENTS: dict[str, Callable[[int, int], dict[str, float]]] = {"ours": measure_ours, "grpc.aio": measure_grpc_aio}


def benchmark(rounds: int, mebibytes: int) -> dict[str, float | None]:
    found: dict[str, list[dict[str, float]]] = {name: [] for name in SERVERS}
    for number_of_round in range(rounds):
        for name in list(SERVERS)[:: -1 if number_of_round % 2 else 1]:
            server = Child([sys.executable, __file__, f"--server={name}"])
            try:
                command = [sys.executable, __file__, f"--client={name}", f"--port={server.read()}"]
                ran = subprocess.run([*command, f"--mebibytes={mebibytes}"], check=True, capture_output=True, text=True)
            finally:
                server.stop()
            found[name].append(json.loads(ran.stdout))
    keys = list(found["ours"][0])
    values: dict[str, float | None] = {}
    for name, rows in found.items():
        prefix = "" if name == "ours" else "grpc_aio_"
        values |= {prefix + key: statistics.median(row[key] for row in rows) for key in keys}
    print(f"an echo of 100 bytes beside a transfer of {mebibytes} MiB; medians of {rounds} alternated rounds")
    print_table(
        ["", *SERVERS],
        [[key, number(values[key]), number(values[f"grpc_aio_{key}"])] for key in keys],
    )
    return values


# --- trials beside transfers ---

TRIALS = 4
TRANSFERS = 8
VERSION_MIB = 256


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def started(command: list[str], folder: Path, stack: ExitStack) -> subprocess.Popen[bytes]:
    """Start servers and wait until their status file says that they are ready."""
    status = folder / "status"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "trio_cogment", *command, f"--status_file={status}"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    stack.callback(process.wait, 10)
    stack.callback(process.send_signal, signal.SIGTERM)
    deadline = time.monotonic() + 60
    while not (status.exists() and "R" in status.read_text()):
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the servers do not start:\n{(folder / 'log').read_text()}")
        time.sleep(0.02)
    return process


def take_models(port: int, seconds: float) -> None:
    """Store a version, say so, and when a line has come take it again and again in eight tasks; print the MiB taken."""
    import trio

    from trio_cogment.rpc import Channel
    from trio_cogment.sdk import ModelRegistryClient

    async def main() -> None:
        taken = 0
        async with AsyncExitStack() as stack:
            channels = [await stack.enter_async_context(Channel("127.0.0.1", port)) for _ in range(TRANSFERS)]
            clients = [ModelRegistryClient(channel) for channel in channels]
            block = os.urandom(1 << 20)
            await clients[0].store("m", [block] * VERSION_MIB, size=VERSION_MIB << 20)
            print("stored", flush=True)
            await trio.to_thread.run_sync(sys.stdin.readline)

            async def take(client: ModelRegistryClient) -> None:
                nonlocal taken
                while True:
                    async for chunk in client.stream("m"):
                        taken += len(chunk)

            with trio.move_on_after(seconds):
                async with trio.open_nursery() as nursery:
                    for client in clients:
                        nursery.start_soon(take, client)
        print(taken >> 20, flush=True)

    trio.run(main)


def trials_beside_transfers(rounds: int, seconds: float) -> dict[str, float | None]:
    found: dict[str, list[float]] = {"gap_alone_ms": [], "gap_beside_ms": [], "mib_per_s": []}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        peers = Child(wire.peers_command("peers"))
        stack.callback(peers.stop)
        port = free_port()
        started(["serve", f"--port={port}"], folder, stack)
        side = wire.Driven(port, int(peers.read()))
        side.start(TRIALS)
        stack.callback(side.stop)
        for _ in range(rounds):
            child = Child([sys.executable, __file__, "--client=models", f"--port={port}", f"--for={seconds}"])
            stack.callback(child.stop)
            child.read()
            time.sleep(1)
            peers.ask("gap")
            time.sleep(seconds)
            found["gap_alone_ms"].append(1000 * float(peers.ask("gap")))
            found["mib_per_s"].append(float(child.ask("go")) / seconds)
            found["gap_beside_ms"].append(1000 * float(peers.ask("gap")))
    values: dict[str, float | None] = {name: statistics.median(numbers) for name, numbers in found.items()}
    print(f"{TRIALS} trials beside {TRANSFERS} transfers in one process; medians of {rounds} rounds of {seconds:g} s")
    print_table(list(values), [[number(value) for value in values.values()]])
    return values


# --- memory ---

CONNECTIONS = 100
OBSERVATION = 102_400


def resident_kib(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def hold_connections(port: int) -> None:
    """Open connections with a call each; on a line, send a message of 1 MiB over each, and a small one; stay then."""
    import trio

    from trio_cogment.rpc import Channel, RpcConfig

    async def main() -> None:
        config = RpcConfig(max_receive_message_bytes=4 * len(MESSAGE))
        async with AsyncExitStack() as stack:
            calls = []
            for _ in range(CONNECTIONS):
                channel = await stack.enter_async_context(Channel("127.0.0.1", port, config=config))
                call = await stack.enter_async_context(channel.call(OurClient(channel).methods["Echo"]))
                await call.send(Packet(number=1, content=SMALL))
                await call.receive()
                calls.append(call)
            print("open", flush=True)
            await trio.to_thread.run_sync(sys.stdin.readline)
            for call in calls:
                for content in (MESSAGE, SMALL):  # the handler has the latest one still
                    await call.send(Packet(number=1, content=content))
                    await call.receive()
            print("sent", flush=True)
            await trio.to_thread.run_sync(sys.stdin.readline)

    trio.run(main)


def memory() -> dict[str, float | None]:
    values: dict[str, float | None] = {}
    for name in SERVERS:
        prefix = "" if name == "ours" else "grpc_aio_"
        server = Child([sys.executable, __file__, f"--server={name}"])
        try:
            port = server.read()
            before = resident_kib(server.pid)
            with Child([sys.executable, __file__, "--client=connections", f"--port={port}"]) as client:
                client.read()
                values[f"{prefix}connection_kib"] = (resident_kib(server.pid) - before) / CONNECTIONS
                client.ask("go")
                values[f"{prefix}connection_after_1m_kib"] = (resident_kib(server.pid) - before) / CONNECTIONS
        finally:
            server.stop()
    with ExitStack() as stack:
        _wire_peers.OBSERVATION_BYTES = OBSERVATION
        peers = Child(wire.peers_command("peers"))
        stack.callback(peers.stop)
        ours = wire.Ours(int(peers.read()), Path(stack.enter_context(tempfile.TemporaryDirectory())))
        stack.callback(ours.close)
        ours.start(1)
        time.sleep(1)
        before = resident_kib(ours.pid)
        ours.start(32)
        time.sleep(2)
        values["trial_kib"] = (resident_kib(ours.pid) - before) / 32
    print(f"KiB of a connection, of {CONNECTIONS}, and of a trial of 2 actors that see {OBSERVATION} bytes, of 32")
    print_table(list(values), [[number(value) for value in values.values()]])
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one flat JSON object on the last line")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mebibytes", type=int, default=1024, help="of the transfer")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--trials", action="store_true", help="gaps of trials beside eight transfers")
    kind.add_argument("--memory", action="store_true", help="resident memory of connections and trials")
    parser.add_argument("--for", dest="seconds", type=float, default=5.0, help="the seconds of a round of --trials")
    parser.add_argument("--server", choices=list(SERVERS), help=argparse.SUPPRESS)
    parser.add_argument("--client", choices=[*CLIENTS, "models", "connections"], help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.server:
        SERVERS[args.server]()
        return
    if args.client == "models":
        take_models(args.port, args.seconds)
        return
    if args.client == "connections":
        hold_connections(args.port)
        return
    if args.client:
        print(json.dumps(CLIENTS[args.client](args.port, args.mebibytes)))
        return
    values: Any
    if args.trials:
        values = trials_beside_transfers(args.rounds, args.seconds)
    elif args.memory:
        values = memory()
    else:
        values = benchmark(args.rounds, args.mebibytes)
    if args.json:
        print_json(values)


if __name__ == "__main__":
    main()
