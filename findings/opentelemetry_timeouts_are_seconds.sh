#!/usr/bin/env bash
# OpenTelemetry's exporters in Python read OTEL_EXPORTER_OTLP_TIMEOUT as seconds, and the specification has milliseconds.
#
# Versions:  opentelemetry-sdk==1.45.2, opentelemetry-exporter-otlp-proto-grpc==1.45.2,
#            opentelemetry-exporter-otlp-proto-http==1.45.2
# Guessed:   OTEL_EXPORTER_OTLP_TIMEOUT=2000 is two seconds, as the specification says of it, and as it is to the SDKs of
#            other languages that read the same variable of the same deployment.
# Behaviour: by gRPC it is 2000 seconds, and by HTTP an export to a collector that does not answer still waits after six;
#            with 2 it gives up after two.
# Matters:   one line in a compose file or chart is for all services of a platform. What is right for those in Go and Java
#            lets the ones in Python hold their telemetry for half an hour when the collector hangs, and stop as late.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install opentelemetry-sdk==1.45.2 opentelemetry-exporter-otlp-proto-grpc==1.45.2 \
  opentelemetry-exporter-otlp-proto-http==1.45.2
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import os
import socket
import threading
import time

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as ByGrpc
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as ByHttp
from opentelemetry.sdk.trace import TracerProvider

span = TracerProvider().get_tracer("one").start_span("one")
span.end()


def seconds_until_given_up(setting: str, most: float) -> float | None:
    os.environ["OTEL_EXPORTER_OTLP_TIMEOUT"] = setting
    silent = socket.create_server(("127.0.0.1", 0))  # connections wait in its queue, and nobody answers
    exporter = ByHttp(endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}/v1/traces")
    done = threading.Thread(target=exporter.export, args=([span],), daemon=True)
    began = time.monotonic()
    done.start()
    done.join(most)
    return None if done.is_alive() else time.monotonic() - began


os.environ["OTEL_EXPORTER_OTLP_TIMEOUT"] = "2000"
by_grpc = ByGrpc(endpoint="http://127.0.0.1:9", insecure=True)._timeout
long, short = seconds_until_given_up("2000", 6), seconds_until_given_up("2", 60)
print(f"2000: by gRPC {by_grpc} s, by HTTP not within 6 s: {long is None}; 2: by HTTP after {short and round(short, 1)} s")
assert by_grpc == 2000 and long is None and short is not None, "it behaves otherwise now"
os._exit(0)  # the one that waits does not end
PYTHON
