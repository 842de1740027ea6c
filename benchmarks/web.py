"""CPU per message of gRPC over WebSockets, beside native gRPC, to the same handlers on the same port.

`python benchmarks/web.py` measures, in alternated rounds, the CPU (user and system time of all threads) that a server
spends for each exchange of two messages of 100 bytes:

* `ws`: one call over a WebSocket, one message in flight; the handler pulls;
* `ws_push`: the same with a consumer, as trials have it;
* `ws_stream`: one call that answers with many messages of 1 KiB;
* `web_unary`: calls of gRPC-Web by one connection, one after the other, beside unary calls of native gRPC;
* `native`, `native_push`, `native_unary`: native gRPC to a server that has the web side, beside one that has not.

The clients are in this process, and cost nothing that is counted. A ratio is the median over the rounds of the CPU by
one way divided by that of native gRPC (this package's own channel) in the same round; with --json the last line holds
them by these names with `_ratio`. Linux only: the time comes from /proc.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial

import h11
import trio
from _children import Child, cpu_ns
from _report import number, print_json, print_table
from _rpc_peers import BENCH, PREFIX, SMALL, OurPushServicer, OurServicer, Packet
from wsproto import ConnectionType, WSConnection
from wsproto.events import BytesMessage
from wsproto.events import Request as Handshake

from trio_cogment.rpc import Channel, bind, methods_of, open_listeners, serve
from trio_cogment.web import WebSide

#: Operations of a round.
OPERATIONS = {
    "ws": 2000,
    "ws_push": 2000,
    "ws_stream": 4000,
    "web_unary": 500,
    "native": 2000,
    "native_push": 2000,
    "native_unary": 1000,
}
GATES = {"ws": 1.5, "ws_push": 1.5, "native": 1.03, "native_push": 1.03, "native_unary": 1.03}
METHODS = methods_of(BENCH)
FRAME = b"\x00" + (len(Packet(content=SMALL).SerializeToString())).to_bytes(4, "big")
REQUEST = FRAME + Packet(content=SMALL).SerializeToString()

Work = Callable[[int], Awaitable[None]]


def run_server(role: str) -> None:
    servicer = OurPushServicer() if "push" in role else OurServicer()
    side = None if "plain" in role else WebSide()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            listeners = await open_listeners("127.0.0.1")
            serving = await nursery.start(partial(serve, web=side), [bind(BENCH, servicer)], listeners)
            print(serving.port, flush=True)

    trio.run(main)


def native(channel: Channel, workload: str) -> Work:
    async def echo(operations: int) -> None:
        async with channel.call(METHODS["Echo"]) as call:
            message = Packet(content=SMALL)
            for _ in range(operations):
                await call.send(message)
                await call.receive()

    async def down(operations: int) -> None:
        async with channel.call(METHODS["Down"]) as call:
            await call.send(Packet(number=operations))
            await call.done_sending()
            async for _ in call:
                pass

    async def unary(operations: int) -> None:
        for _ in range(operations):
            await channel.unary(METHODS["Unary"], Packet(content=SMALL))

    return {"ws_stream": down, "web_unary": unary, "native_unary": unary}.get(workload, echo)


@asynccontextmanager
async def socket_to(port: int, method: str) -> AsyncIterator[Callable[[bytes, int], Awaitable[int]]]:
    """Open a call over a WebSocket; give what sends a message and waits for this many bytes."""
    client = WSConnection(ConnectionType.CLIENT)
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        stream.setsockopt(6, 1, 1)  # TCP_NODELAY
        handshake = Handshake(host=f"127.0.0.1:{port}", target=PREFIX + method, subprotocols=["grpc-websockets"])
        await stream.send_all(client.send(handshake))
        data = b""
        while b"\r\n\r\n" not in data:
            data += await stream.receive_some()
        client.receive_data(data)
        list(client.events())
        await stream.send_all(client.send(BytesMessage(data=b"content-type: application/grpc-web+proto\r\n")))

        async def exchange(message: bytes, size: int) -> int:
            await stream.send_all(client.send(BytesMessage(data=message)))
            got = 0
            while got < size:
                got += len(await stream.receive_some())
            return got

        yield exchange


def over_websocket(port: int, workload: str) -> Work:
    async def echo(operations: int) -> None:
        async with socket_to(port, "Echo") as exchange:
            await exchange(b"\x00" + REQUEST, 1)
            for _ in range(operations - 1):
                await exchange(b"\x00" + REQUEST, len(REQUEST) + 2)

    async def down(operations: int) -> None:
        body = Packet(number=operations).SerializeToString()
        async with socket_to(port, "Down") as exchange:
            request = b"\x00\x00" + len(body).to_bytes(4, "big") + body
            await exchange(request, 0)
            await exchange(b"\x01", operations * (1024 + 9))

    return down if workload == "ws_stream" else echo


def over_http(port: int) -> Work:
    async def unary(operations: int) -> None:
        client = h11.Connection(h11.CLIENT)
        headers = [
            ("host", f"127.0.0.1:{port}"),
            ("content-type", "application/grpc-web+proto"),
            ("x-grpc-web", "1"),
            ("content-length", str(len(REQUEST))),
        ]
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            for _ in range(operations):
                data = client.send(h11.Request(method="POST", target=PREFIX + "Unary", headers=headers)) or b""
                await stream.send_all(data + (client.send(h11.Data(data=REQUEST)) or b""))
                client.send(h11.EndOfMessage())
                while type(event := client.next_event()) is not h11.EndOfMessage:
                    if event is h11.NEED_DATA:
                        client.receive_data(bytes(await stream.receive_some()))
                client.start_next_cycle()

    return unary


async def measured(pid: int, work: Work, operations: int) -> float:
    """Return the microseconds of CPU for each operation."""
    before = sum(cpu_ns(pid).values())
    with trio.fail_after(60):
        await work(operations)
    return (sum(cpu_ns(pid).values()) - before) / 1000 / operations


@asynccontextmanager
async def compared(workload: str) -> AsyncIterator[tuple[tuple[int, Work], tuple[int, Work]]]:
    """Give the process and the work that a workload is measured by: of native gRPC, and of what it is about."""
    role = "push" if "push" in workload else "pull"
    plain = f"{role}-plain" if workload.startswith("native") else role
    with ExitStack() as stack:
        children = [stack.enter_context(Child([sys.executable, __file__, f"--role={name}"])) for name in (plain, role)]
        ports = [int(child.read()) for child in children]
        async with Channel("127.0.0.1", ports[0]) as base, Channel("127.0.0.1", ports[1]) as other:
            if workload.startswith("native"):
                work = native(other, workload)
            else:
                work = over_http(ports[1]) if workload == "web_unary" else over_websocket(ports[1], workload)
            yield (children[0].pid, native(base, workload)), (children[1].pid, work)


async def benchmark(rounds: int, workloads: Sequence[str]) -> dict[str, float | None]:
    rows = []
    values: dict[str, float | None] = {}
    for workload in workloads:
        operations = OPERATIONS[workload]
        async with compared(workload) as both:
            for _, work in both:
                await work(operations // 4)  # connect, fill caches
            pairs = []
            for index in range(rounds):
                found = [0.0, 0.0]
                for which in (0, 1) if index % 2 else (1, 0):
                    found[which] = await measured(*both[which], operations)
                pairs.append(found)
        ratio = statistics.median(two / one for one, two in pairs)
        values[f"{workload}_ratio"] = ratio
        medians = [statistics.median(column) for column in zip(*pairs, strict=True)]
        rows.append([workload, *map(number, medians), number(ratio), number(GATES.get(workload))])
    print(f"CPU per operation in microseconds; medians of {rounds} alternated rounds")
    print_table(["workload", "base", "measured", "ratio", "gate"], rows)
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one flat JSON object on the last line")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--workloads", default=",".join(OPERATIONS), help="comma-separated (default: all)")
    parser.add_argument("--role", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.role:
        run_server(args.role)
        return
    values = trio.run(benchmark, args.rounds, args.workloads.split(","))
    if args.json:
        print_json(values)


if __name__ == "__main__":
    main()
