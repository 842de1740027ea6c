#!/usr/bin/env bash
# OpenTelemetry's instrumentation of grpc.aio servers fails every call of a stream handler that is a coroutine.
#
# Versions:  opentelemetry-instrumentation-grpc==0.66b2, grpcio==1.85.3
# Guessed:   instrumenting a server of grpc.aio adds spans, whichever of grpc.aio's two forms its handlers have.
# Behaviour: a stream handler that yields its responses works; one that is a coroutine and calls context.write, which
#            grpc.aio takes just as well, fails each call with UNKNOWN, and its caller gets no response.
# Matters:   the published SDK of Cogment has such handlers: a participant that is instrumented, as the documents of
#            OpenTelemetry show it, takes part in no trial any more.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install opentelemetry-instrumentation-grpc==0.66b2 grpcio==1.85.3 'setuptools<81'
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import asyncio
import logging

import grpc
from opentelemetry.instrumentation.grpc import aio_server_interceptor


async def written(requests, context):
    async for request in requests:
        await context.write(request)


async def yielded(requests, context):
    async for request in requests:
        yield request


async def outcome(interceptors, handler):
    server = grpc.aio.server(interceptors=interceptors)
    method = grpc.stream_stream_rpc_method_handler(handler)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("x.Y", {"Echo": method})])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.stream_stream("/x.Y/Echo")(iter([b"one"]))
            return [reply async for reply in call][0].decode()
    except grpc.aio.AioRpcError as error:
        return error.code().name
    finally:
        await server.stop(0)


async def main():
    traced = [aio_server_interceptor()]
    found = {
        "coroutine": (await outcome([], written), await outcome(traced, written)),
        "generator": (await outcome([], yielded), await outcome(traced, yielded)),
    }
    for form, (bare, instrumented) in found.items():
        print(f"{form}: bare {bare}, instrumented {instrumented}")
    assert found == {"coroutine": ("one", "UNKNOWN"), "generator": ("one", "one")}, "it behaves otherwise now"


logging.disable(logging.CRITICAL)  # the traceback of the call that fails
asyncio.run(asyncio.wait_for(main(), 60))
PYTHON
