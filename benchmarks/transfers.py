"""Small messages beside a large transfer on one connection: how long a ping-pong takes meanwhile.

`python benchmarks/transfers.py` lets a server send a gigabyte in messages of 1 MiB to a client, which asks for small
echoes on the same connection meanwhile, one after the other. It prints the time of an echo (p50, p99 and the longest)
without and with the transfer, and the megabytes a second, for this package at both ends and for grpc.aio at both ends,
in alternated rounds. Wall time: whatever else the machine does is part of it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one flat JSON object on the last line")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mebibytes", type=int, default=1024, help="of the transfer")
    parser.add_argument("--server", choices=list(SERVERS), help=argparse.SUPPRESS)
    parser.add_argument("--client", choices=list(CLIENTS), help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.server:
        SERVERS[args.server]()
        return
    if args.client:
        print(json.dumps(CLIENTS[args.client](args.port, args.mebibytes)))
        return
    values: Any = benchmark(args.rounds, args.mebibytes)
    if args.json:
        print_json(values)


if __name__ == "__main__":
    main()
