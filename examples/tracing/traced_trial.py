"""A trial that is a trace, and a receiver that prints it: one program, so that nothing has to be set up."""

import argparse
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import trio
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import trio_cogment
from trio_cogment.base.config import TracingConfig
from trio_cogment.base.tracing import open_tracing

TICKS = 3


async def counting(session):
    await session.start([("*", b"0")])
    async for event in session.all_events():
        if event.actions:
            last = session.tick_id == TICKS - 1
            await (session.end if last else session.produce_observations)([("*", b"%d" % session.tick_id)])


async def quick(session):
    async for event in session.all_events():
        if event.observation is not None:
            await session.do_action(b"")


async def slow(session):
    async for event in session.all_events():
        if event.observation is not None:
            await trio.sleep(0.02)
            await session.do_action(b"")


async def run_trial(endpoint):
    config = TracingConfig(endpoint=endpoint, tick_ratio=1.0)
    async with open_tracing(config, service="my-game"), trio_cogment.open_platform(store="memory:") as platform:
        platform.participants.register_environment(counting)
        platform.participants.register_actor(quick, "quick")
        platform.participants.register_actor(slow, "slow")
        actors = [
            trio_cogment.actor_params("ann", "player", implementation="quick"),
            trio_cogment.actor_params("bob", "player", implementation="slow"),
        ]
        trial_id = await platform.controller.start_trial(trio_cogment.trial_params(actors))
        await platform.controller.wait_trial(trial_id)


received = []


class Receiver(BaseHTTPRequestHandler):
    """Takes spans as a collector does."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                received.extend(scope.spans)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_arguments):
        pass


def print_below(parent, spans, depth=0):
    """Print the spans whose parent this is, in the order in which they began."""
    for span in sorted(spans, key=lambda span: span.start_time_unix_nano):
        if span.parent_span_id == parent:
            acted = [event.attributes[0].value.string_value for event in span.events]
            print("  " * depth + span.name + (f": {', then '.join(acted)}" if acted else ""))
            print_below(span.span_id, spans, depth + 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoint", help="of a collector or Jaeger, http://localhost:4318, in place of the receiver")
    endpoint = parser.parse_args().endpoint
    if endpoint:
        trio.run(run_trial, endpoint)
        return
    server = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    trio.run(run_trial, f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    print_below(b"", received)


if __name__ == "__main__":
    main()
