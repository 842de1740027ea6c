#!/usr/bin/env bash
# OpenTelemetry makes strings of numpy's numbers in attributes, but for float64.
#
# Versions:  opentelemetry-sdk==1.45.2, numpy==2.4.6
# Guessed:   an attribute of a type that OpenTelemetry does not know is left out with a warning, as it was in versions
#            before; a number of numpy is a number, or nothing.
# Behaviour: a reward of np.float32(0.5) is the string "0.5", np.int64(7) is "7", np.bool_(True) is "True", an array its
#            text. np.float64(0.5), which is a float of Python's, stays a number. A line of the log says so.
# Matters:   the attribute is there, under its name, and with the right digits: whoever asks for `reward > 0.4`, or sums
#            it, gets nothing. Whether it is one or the other depends on the environment's dtype.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install opentelemetry-sdk==1.45.2 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - 2>"$folder/errors" <<'PYTHON' || { tail -n 5 "$folder/errors" >&2; exit 1; }
import numpy as np
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
given = {"float32": np.float32(0.5), "int64": np.int64(7), "bool": np.bool_(True), "float64": np.float64(0.5)}
provider.get_tracer("one").start_span("step", attributes=given).end()
(span,) = exporter.get_finished_spans()
found = dict(span.attributes)
print({name: (type(value).__name__, value) for name, value in found.items()})
assert (found["float32"], found["int64"], found["bool"]) == ("0.5", "7", "True"), "it behaves otherwise now"
assert isinstance(found["float64"], float), "it behaves otherwise now"
PYTHON
