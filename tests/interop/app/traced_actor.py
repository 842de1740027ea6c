"""An actor with OpenTelemetry: `python traced_actor.py --endpoint URL --port-file FILE`.

The field's instrumentation of gRPC (opentelemetry-instrumentation-grpc 0.66b2) takes the handlers of streams for
generators, and those of the SDK are coroutines. So the interceptor here is its own; what it does is the same.
"""

import argparse
import asyncio
import functools
import logging
import signal
from typing import Any

import grpc.aio
from opentelemetry import propagate
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind

parser = argparse.ArgumentParser()
parser.add_argument("--endpoint", required=True)
parser.add_argument("--port-file", required=True)
args = parser.parse_args()

provider = TracerProvider(resource=Resource({"service.name": "published-actor"}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(args.endpoint), schedule_delay_millis=100))
tracer = provider.get_tracer("published-actor")


class Interceptor(grpc.aio.ServerInterceptor):
    """Has each stream be a span of its caller's trace."""

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = await continuation(details)
        if handler is None or handler.stream_stream is None:
            return handler
        parent = propagate.extract(dict(details.invocation_metadata))

        async def traced(requests: Any, context: Any) -> None:
            with tracer.start_as_current_span(details.method, parent, SpanKind.SERVER):
                await handler.stream_stream(requests, context)

        return grpc.stream_stream_rpc_method_handler(traced, handler.request_deserializer, handler.response_serializer)


# Before the SDK makes its server.
grpc.aio.server = functools.partial(grpc.aio.server, interceptors=[Interceptor()])

import cog_settings  # noqa: E402 - see above
import cogment  # noqa: E402 - see above
import data_pb2  # noqa: E402 - see above
from serving import serve  # noqa: E402 - see above


async def act(session: Any) -> None:
    session.start()
    async for event in session.all_events():
        if event.observation is not None and event.type == cogment.EventType.ACTIVE:
            session.do_action(data_pb2.PlayerAction(number=event.observation.tick_id))


async def main() -> None:
    context = cogment.Context(user_id="actors", cog_settings=cog_settings)
    context.register_actor(impl=act, impl_name="traced", actor_classes=["player"])
    serving = asyncio.create_task(serve(context, args.port_file))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    try:
        await serving
    except asyncio.CancelledError:
        pass
    provider.shutdown()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main())
