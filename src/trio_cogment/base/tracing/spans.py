"""Spans of a process, as the rest of the package makes them; OpenTelemetry's names are used here alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace import TracerProvider as SdkProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Link, SpanContext, Status, StatusCode, TracerProvider
from opentelemetry.trace import Span as Span
from opentelemetry.trace import SpanKind as SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from trio_cogment._version import __version__
from trio_cogment.base.config import TracingConfig
from trio_cogment.base.log_context import see_spans

#: Names of attributes: the field's are those of OpenTelemetry's semantic conventions.
TRIAL_ID = "trio_cogment.trial.id"
USER_ID = "user.id"
END_CAUSE = "trio_cogment.trial.end_cause"
TICKS = "trio_cogment.trial.ticks"
TICK_ID = "trio_cogment.tick.id"
MISSING = "trio_cogment.tick.missing_actors"
ACTOR_NAME = "trio_cogment.actor.name"
ACTOR_CLASS = "trio_cogment.actor.class"
IMPLEMENTATION = "trio_cogment.participant.implementation"

Attributes: TypeAlias = Mapping[str, str | int | float | bool | Sequence[str]]
#: The attributes of a span, and its events: each with its name, its attributes and when it was.
Description: TypeAlias = tuple[Attributes, Sequence[tuple[str, Attributes, int]]]

#: What every span of a call has.
RPC: Attributes = {"rpc.system.name": "grpc"}

Figures: TypeAlias = Callable[[], Mapping[str, int]]

#: So many spans that are over are handed over at once; or as many as there are, every second.
_AT_ONCE = 64
_SCHEMA = "https://opentelemetry.io/schemas/1.43.0"
_IDS = RandomIdGenerator()
_PROPAGATOR = TraceContextTextMapPropagator()
_HEADERS = frozenset(_PROPAGATOR.fields)
#: Statuses that are a server's own fault, as the semantic conventions for gRPC have it.
_FIRST_SERVER_FAULT = 500
_SERVER_FAULTS = frozenset(["UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"])


class Tracing:
    """Makes the spans of one Trio run; made by `open_tracing`.

    Args:
        provider: of OpenTelemetry.
        config: how many ticks are spans.
        figures: see below.
        take: takes spans that are over, where this process exports them by itself.

    Attributes:
        figures: returns how many spans have `ended`, were `sent`, and could not be: `failed`. What is none of the three
            waits, or was dropped. Nothing is known of the spans of a program's own provider.
        tick_interval: of the ticks of a recorded trial each so-manieth is a span; 0: none is.
        trials: the spans of the trials that go on, by their ids: records of the log are about them.
    """

    def __init__(
        self,
        provider: TracerProvider,
        config: TracingConfig,
        figures: Figures,
        take: Callable[[ReadableSpan], None] | None = None,
    ) -> None:
        self.figures = figures
        self._take = take
        self._waiting: list[tuple[str, Callable[[], Description], Span, int, int]] = []
        self._tracer = provider.get_tracer("trio_cogment", __version__, schema_url=_SCHEMA)
        self.tick_interval = round(1 / config.tick_ratio) if config.tick_ratio else 0
        self.trials: dict[str, Span] = {}

    def start(
        self,
        name: str,
        attributes: Attributes,
        *,
        parent: Span | None = None,
        remote: Iterable[tuple[str, str | bytes]] | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        links: Iterable[Span] = (),
        start_ns: int | None = None,
    ) -> Span:
        """Start a span; whoever does ends it.

        Args:
            name: of the span.
            attributes: of the span.
            parent: by default the current span.
            remote: metadata of a caller elsewhere: the span belongs to its trace, or to none if it says nothing.
            kind: of the span.
            links: spans of other traces that belong to it.
            start_ns: nanoseconds since the epoch; by default now.
        """
        context = None if parent is None else trace.set_span_in_context(parent)
        if remote is not None:
            context = _context_of(remote)
        contexts_of_links = [link.get_span_context() for link in links]
        return self._tracer.start_span(
            name,
            context,
            kind,
            attributes,
            [Link(each) for each in contexts_of_links if each.is_valid],
            start_ns,
            record_exception=False,
            set_status_on_exception=False,
        )

    def make_ended(
        self, name: str, describe: Callable[[], Description], *, parent: Span, start_ns: int, end_ns: int
    ) -> None:
        """Make a span of what is over.

        Args:
            name: of the span.
            describe: returns its attributes, and the events in it: each with its name, its attributes and when it was.
                The thread that sends the span calls it.
            parent: a span that is recorded.
            start_ns: nanoseconds since the epoch.
            end_ns: likewise.
        """
        if self._take is not None:
            self._waiting.append((name, describe, parent, start_ns, end_ns))
            if len(self._waiting) >= _AT_ONCE:
                self.hand_over()
            return
        attributes, events = describe()
        span = self.start(name, attributes, parent=parent, start_ns=start_ns)
        for event, about, at_ns in events:
            span.add_event(event, about, at_ns)
        span.end(end_ns)

    @property
    def waiting(self) -> int:
        """The number of spans that are over and were not handed over yet."""
        return len(self._waiting)

    def hand_over(self) -> None:
        """Give the spans that are over to what sends them: many at once cost less than each by itself."""
        waiting, self._waiting = self._waiting, []
        for details in waiting:
            assert self._take is not None
            self._take(EndedSpan(*details))

    @contextmanager
    def span(self, name: str, attributes: Attributes, **details: Any) -> Iterator[Span]:
        """Have a span for the time of a block, in which it is the current one. See `start`."""
        made = self.start(name, attributes, **details)
        try:
            with current(made):
                yield made
        except BaseException as error:
            failed(made, error)
            raise
        finally:
            made.end()


class EndedSpan(ReadableSpan):
    """A span of what is over, of which nothing is made until it is sent: see `Tracing.make_ended`.

    One that is opened, added to and ended costs a tick ten times as much: limits, locks, samplers, events one by one.
    """

    def __init__(
        self, name: str, describe: Callable[[], Description], parent: Span, start_ns: int, end_ns: int
    ) -> None:
        self._name = name
        self._describe = describe
        self._above = parent
        self._start_time = start_ns
        self._end_time = end_ns
        #: That of its parent, until it is made: it says that the span is recorded.
        self._context = parent.get_span_context()

    def made(self) -> ReadableSpan:
        """Return the span as OpenTelemetry's exporters take it."""
        parent = self._above
        assert isinstance(parent, ReadableSpan), "it is recorded"
        whole = parent.get_span_context()
        attributes, events = self._describe()
        return ReadableSpan(
            self._name,
            SpanContext(whole.trace_id, _IDS.generate_span_id(), False, whole.trace_flags, whole.trace_state),
            whole,
            parent.resource,
            attributes,
            [Event(event, about, at_ns) for event, about, at_ns in events],
            start_time=self._start_time,
            end_time=self._end_time,
            instrumentation_scope=parent.instrumentation_scope,
        )


def of_peer(peer: str) -> dict[str, Any]:
    """Return the attributes of who calls, whose name is in gRPC's notation: `ipv4:127.0.0.1:9000`."""
    kind, _, where = peer.partition(":")
    host, _, port = where.rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdecimal():
        return {"network.peer.address": peer}
    return {"network.peer.address": host.strip("[]"), "network.peer.port": int(port)}


def current_span() -> Span:
    """Return the current span of the task; one that records nothing if there is none."""
    return trace.get_current_span()


@contextmanager
def current(span: Span) -> Iterator[None]:
    """Have a span be the current one for a block, and for the tasks that are started there."""
    token = contexts.attach(trace.set_span_in_context(span))
    try:
        yield
    finally:
        contexts.detach(token)


def carrying(span: Span, metadata: Iterable[tuple[str, str | bytes]]) -> list[tuple[str, str | bytes]]:
    """Return metadata by which a callee knows the span that it belongs to (W3C Trace Context).

    Args:
        span: of the caller.
        metadata: what else is sent; a context in it gives way.
    """
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, trace.set_span_in_context(span))
    return [*(pair for pair in metadata if pair[0] not in _HEADERS), *carrier.items()]


def leave_spans() -> None:
    """Let the current task be in no span any more: it serves others than who has started it."""
    contexts.attach(Context())


def _context_of(metadata: Iterable[tuple[str, str | bytes]]) -> Context:
    carrier: dict[str, str] = {}
    for name, value in metadata:
        if name in _HEADERS and isinstance(value, str):
            carrier[name] = f"{carrier[name]},{value}" if name in carrier else value
    return _PROPAGATOR.extract(carrier, Context())


def failed(span: Span, error: BaseException | str) -> None:
    """Say of a span that what it stands for has failed."""
    if span.is_recording():
        kind = error if isinstance(error, str) else type(error).__qualname__
        span.set_attribute("error.type", kind)
        span.set_status(Status(StatusCode.ERROR, "" if isinstance(error, str) else str(error)))


def answered(span: Span, code: str, message: str = "", *, server: bool = False) -> None:
    """Say of the span of a call with which status it has ended, and end the span.

    Args:
        span: of a call by gRPC.
        code: the name of the status.
        message: of the status.
        server: it is the span of who has answered, whose faults are not those of its callers.
    """
    if span.is_recording():
        span.set_attribute("rpc.response.status_code", code)
        if code in _SERVER_FAULTS or not (server or code == "OK"):
            span.set_attribute("error.type", code)
            span.set_status(Status(StatusCode.ERROR, message))
    span.end()


@contextmanager
def request_span(
    tracing: Tracing, method: str, route: str, headers: Iterable[tuple[bytes, bytes]], peer: str
) -> Iterator[Callable[[int], None]]:
    """Have a request of HTTP be a span for the time of a block, which says the status of the answer.

    Its path is not among the attributes, since a link to a seat has a token in it.

    Args:
        tracing: makes the span.
        method: of HTTP.
        route: the pattern of its path.
        headers: of the request; the context of the caller is among them.
        peer: who asks.
    """
    attributes = {"http.request.method": method, "http.route": route, **of_peer(peer)}
    remote = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
    with tracing.span(f"{method} {route}", attributes, remote=remote, kind=SpanKind.SERVER) as span:

        def answered_with(status: int) -> None:
            span.set_attribute("http.response.status_code", status)
            if status >= _FIRST_SERVER_FAULT:
                failed(span, str(status))

        yield answered_with


@contextmanager
def logged(tracing: Tracing) -> Iterator[None]:
    """Have records of the log carry the ids of spans for the time of a block."""

    def ids(trial_id: str) -> tuple[str, str]:
        now = trace.get_current_span().get_span_context()
        of_trial = tracing.trials.get(trial_id)
        if of_trial is not None and of_trial.get_span_context().trace_id != now.trace_id:
            now = of_trial.get_span_context()
        return (f"{now.trace_id:032x}", f"{now.span_id:016x}") if now.is_valid else ("", "")

    with see_spans(ids):
        yield


def exporting(config: TracingConfig, service: str, attributes: Mapping[str, str]) -> tuple[Tracing, Callable[[], None]]:
    """Return what makes spans that are sent by OTLP, and what sends the last ones, which blocks."""
    # Variables of the environment come first, as in every program with OpenTelemetry.
    whole = Resource.create({"service.name": service, **attributes}).merge(OTELResourceDetector().detect())
    resource = _Resource(whole.attributes, whole.schema_url)
    provider = SdkProvider(
        sampler=ParentBased(TraceIdRatioBased(config.sample_ratio)), resource=resource, shutdown_on_exit=False
    )
    endpoint = config.endpoint
    if urlsplit(endpoint).path in ("", "/"):
        endpoint = endpoint.rstrip("/") + "/v1/traces"
    exporter = _CountingExporter(endpoint, timeout=config.export_timeout_seconds)
    processor = _CountingProcessor(
        exporter,
        max_queue_size=config.max_queued_spans,
        max_export_batch_size=min(config.max_batch_spans, config.max_queued_spans),
        schedule_delay_millis=config.export_interval_seconds * 1000,
    )
    provider.add_span_processor(processor)
    for name in _TALKATIVE:
        logging.getLogger(name).addFilter(_once_a_minute)

    def figures() -> dict[str, int]:
        return {"ended": processor.ended + tracing.waiting, "sent": exporter.sent, "failed": exporter.failed}

    tracing = Tracing(provider, config, figures, processor.on_end)
    return tracing, provider.shutdown


class _Resource(Resource):
    """A resource that knows its hash: the exporter asks for it for each span, and it is that of a JSON document."""

    def __init__(self, attributes: Any, schema_url: str | None = None) -> None:
        super().__init__(attributes, schema_url)
        self._hash = super().__hash__()

    def __hash__(self) -> int:
        return self._hash


class _CountingProcessor(BatchSpanProcessor):
    ended = 0

    def on_end(self, span: ReadableSpan) -> None:
        self.ended += 1
        super().on_end(span)


class _CountingExporter(OTLPSpanExporter):
    sent = failed = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export([span.made() if type(span) is EndedSpan else span for span in spans])
        if result is SpanExportResult.SUCCESS:
            self.sent += len(spans)
        else:
            self.failed += len(spans)
        return result


#: Loggers that have a record for each span that is dropped, and for each attempt to send some.
_TALKATIVE = ("opentelemetry.sdk._shared_internal", "opentelemetry.exporter.otlp.proto.http.trace_exporter")
_SECONDS = 60.0
_said: dict[str, float] = {}


def _once_a_minute(record: logging.LogRecord) -> bool:
    """Let a kind of record pass at most once a minute: a receiver that is away must not fill the log."""
    key = str(record.msg)
    if record.created - _said.get(key, -_SECONDS) < _SECONDS:
        return False
    _said[key] = record.created
    return True
