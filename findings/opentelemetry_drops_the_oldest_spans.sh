#!/usr/bin/env bash
# A full queue of OpenTelemetry's BatchSpanProcessor in Python throws its oldest spans away, and keeps the newest.
#
# Versions:  opentelemetry-sdk==1.45.2
# Guessed:   when the queue is full, the span that ends then is dropped, as the specification's maxQueueSize has it ("after
#            the size is reached spans are dropped") and as the SDKs of other languages do; the log says "dropping Span".
# Behaviour: the new span is queued, and the oldest one goes: of ten that ended while the exporter stood still, a queue of
#            four has the last four.
# Matters:   in an outage of the collector a service in Python keeps the end of what happened, and those in other languages
#            its beginning: there is no time for which a trace through both is whole, and the spans that show how it began
#            are gone.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install opentelemetry-sdk==1.45.2
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import threading

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult


class Slow(SpanExporter):
    def __init__(self) -> None:
        self.names: list[str] = []
        self.begun, self.go_on = threading.Event(), threading.Event()

    def export(self, spans):
        self.begun.set()
        self.go_on.wait()
        self.names += [span.name for span in spans]
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        pass


exporter, provider = Slow(), TracerProvider()
provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=4, max_export_batch_size=1, schedule_delay_millis=50))
tracer = provider.get_tracer("one")
tracer.start_span("first").end()
assert exporter.begun.wait(30)
for number in range(10):
    tracer.start_span(str(number)).end()
exporter.go_on.set()
provider.shutdown()
print(exporter.names)
assert exporter.names == ["first", "6", "7", "8", "9"], "it behaves otherwise now"
PYTHON
