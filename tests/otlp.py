"""A receiver of OTLP over HTTP, on a real socket: what a collector is to the processes that send it spans."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True)
class Received:
    """A span, as it was sent."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    status: int
    attributes: dict[str, Any]
    events: tuple[tuple[str, dict[str, Any]], ...]
    links: tuple[tuple[str, str], ...]
    state: str
    began: int
    ended: int


@dataclass
class Receiver:
    """What has come, in the order in which it came."""

    port: int = 0
    spans: list[Received] = field(default_factory=list)
    requests: int = 0
    paths: set[str] = field(default_factory=set)
    changed: threading.Condition = field(default_factory=threading.Condition)
    stop: Callable[[], None] = lambda: None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait(self, enough: Callable[[list[Received]], bool], seconds: float = 40) -> list[Received]:
        """Return the spans as soon as they are enough."""
        with self.changed:
            if not self.changed.wait_for(lambda: enough(self.spans), seconds):
                raise AssertionError(f"not enough spans: {sorted(span.name for span in self.spans)}")
            return list(self.spans)

    def named(self, name: str) -> list[Received]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> Received:
        [found] = self.named(name)
        return found

    def parent_of(self, span: Received) -> Received:
        [found] = [each for each in self.spans if each.span_id == span.parent_id and each.trace_id == span.trace_id]
        return found

    def take(self, path: str, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        found = []
        for resource in request.resource_spans:
            service = _attributes(resource.resource.attributes)["service.name"]
            for scope in resource.scope_spans:
                found += [
                    Received(
                        service=service,
                        name=span.name,
                        trace_id=span.trace_id.hex(),
                        span_id=span.span_id.hex(),
                        parent_id=span.parent_span_id.hex(),
                        kind=span.kind,
                        status=span.status.code,
                        attributes=_attributes(span.attributes),
                        events=tuple((event.name, _attributes(event.attributes)) for event in span.events),
                        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
                        state=span.trace_state,
                        began=span.start_time_unix_nano,
                        ended=span.end_time_unix_nano,
                    )
                    for span in scope.spans
                ]
        with self.changed:
            self.requests += 1
            self.paths.add(path)
            self.spans += found
            self.changed.notify_all()


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)


@contextmanager
def receiving(port: int = 0) -> Iterator[Receiver]:
    """Listen for the time of a block, on a free port unless one is given."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.take(self.path, self.rfile.read(int(self.headers["content-length"])))
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    receiver.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    receiver.stop = stop
    try:
        yield receiver
    finally:
        if thread.is_alive():
            stop()
