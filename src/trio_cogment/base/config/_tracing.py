"""Settings of traces."""

from __future__ import annotations

from trio_cogment.base.config.declarations import MINUTE, MINUTE_OR_NONE, Flag, Range, Settings, setting
from trio_cogment.base.records import record

_RATIO: Range = (0.0, 1.0)


@record(kw_only=True)
class TracingConfig(Settings):
    """How a process makes spans, and where it sends them."""

    endpoint: str = setting(
        "",
        "where spans are sent, by OTLP over HTTP, for example `http://localhost:4318`; `/v1/traces` is added where the "
        "URL has no path; empty: nowhere, and none are made",
        flag=Flag(
            "--tracing_endpoint",
            "COGMENT_TRACING_ENDPOINT",
            metavar="URL",
            text="Where spans of OpenTelemetry are sent, by OTLP over HTTP (http://localhost:4318); none unless given.",
        ),
    )
    sample_ratio: float = setting(
        1.0,
        "which share of the traces that begin here is recorded; callers that send a context have decided for theirs",
        within=_RATIO,
        flag=Flag("--tracing_sample_ratio", "COGMENT_TRACING_SAMPLE_RATIO"),
    )
    tick_ratio: float = setting(
        0.01,
        "which share of the ticks of a recorded trial are spans",
        within=_RATIO,
        flag=Flag("--tracing_tick_ratio", "COGMENT_TRACING_TICK_RATIO"),
    )
    max_queued_spans: int = setting(
        4096, "how many spans may wait to be sent; beyond that the oldest are dropped, and counted", of="process"
    )
    max_batch_spans: int = setting(512, "how many of them one request has at most", of="message")
    export_interval_seconds: float = setting(
        5.0, "how long a span waits for others to be sent with it, at most", within=MINUTE
    )
    export_timeout_seconds: float = setting(
        10.0, "how long sending a request may take, with all its repetitions", within=MINUTE
    )
    flush_seconds: float = setting(
        1.0, "how long the end of a process waits for what has not been sent", within=MINUTE_OR_NONE
    )
