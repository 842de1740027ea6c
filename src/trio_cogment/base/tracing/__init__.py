"""Traces by OpenTelemetry: a trial is one, and its ticks, participants, calls and requests are spans of it.

`open_tracing` switches them on for a Trio run, and `tracing_of_run` is what the rest of the package asks: without the
former there is nothing, and whoever has asked once makes no spans. Only `spans` imports OpenTelemetry.

What decides which spans there are is made once, where a trace begins: a span whose parent is not recorded is not
recorded either, in any process, because the decision travels with the context (`traceparent`, of W3C Trace Context) in
the metadata of calls. Ticks are too many for that, so of the ticks of a recorded trial every n-th is a span; the first
of them is drawn from the id of the trace.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from trio_cogment.base.config import TracingConfig
from trio_cogment.base.errors import InvalidArgumentError, MissingExtraError

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from trio_cogment.base.tracing.spans import Tracing

__all__ = ["annotate", "open_tracing", "tracing_of_run"]

#: How long a span that is over waits at most until it is among those to be sent.
_HAND_OVER_SECONDS = 1.0

_tracing: trio.lowlevel.RunVar[Tracing | None] = trio.lowlevel.RunVar("trio_cogment.base.tracing", None)


def tracing_of_run() -> Tracing | None:
    """Return what makes the spans of this Trio run; None: there are none."""
    return _tracing.get()


def annotate(**attributes: str | int | float | bool) -> None:
    """Give attributes to the current span, with `trio_cogment.` and dots in place of `_` of their names, if any."""
    if _tracing.get() is None:
        return
    from trio_cogment.base.tracing.spans import current_span

    named = {f"trio_cogment.{name.replace('_', '.')}": value for name, value in attributes.items()}
    current_span().set_attributes(named)


@asynccontextmanager
async def open_tracing(
    config: TracingConfig | None = None,
    *,
    service: str = "trio-cogment",
    attributes: Mapping[str, str] | None = None,
    provider: TracerProvider | None = None,
) -> AsyncIterator[Tracing]:
    """Make spans of what this Trio run does, for the time of an `async with` block.

    Open it around everything else: who has begun before it makes no spans. They are sent by a thread, in batches; what
    finds no room in its queue is dropped, and nothing waits for it. At the end the block waits `flush_seconds` for what
    is left, also when it is cancelled.

    Args:
        config: where spans are sent, and how many there are.
        service: the name of this process in traces, unless `OTEL_SERVICE_NAME` has one.
        attributes: others of its resource, beside those of `OTEL_RESOURCE_ATTRIBUTES`.
        provider: of a program that has set OpenTelemetry up by itself: makes the spans in place of one that sends them
            to `config.endpoint`. It stays open, and its sampler counts in place of `config.sample_ratio`.

    Raises:
        InvalidArgumentError: there is neither an endpoint nor a provider, or the endpoint is not a URL.
        MissingExtraError: OpenTelemetry is not installed.
        RuntimeError: there is tracing in this run already.
    """
    config = config or TracingConfig()
    if _tracing.get() is not None:
        raise RuntimeError("open_tracing: this run has tracing already")
    if provider is None and not config.endpoint.startswith(("http://", "https://")):
        raise InvalidArgumentError(
            f"tracing.endpoint: expected a URL such as http://localhost:4318, got {config.endpoint!r}"
        )
    try:
        from trio_cogment.base.tracing.spans import Tracing, exporting, logged
    except ImportError as error:
        raise MissingExtraError.of(error.name or "opentelemetry", "otel", needed_for="tracing") from error
    close: Callable[[], None] | None = None
    if provider is None:
        tracing, close = exporting(config, service, attributes or {})
    else:
        tracing = Tracing(provider, config, dict)
    _tracing.set(tracing)
    handing_over = trio.CancelScope()
    if close is not None:
        trio.lowlevel.spawn_system_task(_hand_over, tracing, handing_over)
    try:
        with logged(tracing):
            yield tracing
    finally:
        _tracing.set(None)
        handing_over.cancel()
        tracing.hand_over()
        if close is not None:
            # Shielded: what the end of a cancelled program looks like is what one wants to see.
            with trio.move_on_after(config.flush_seconds, shield=True):
                await trio.to_thread.run_sync(close, abandon_on_cancel=True)


async def _hand_over(tracing: Tracing, scope: trio.CancelScope) -> None:
    """Give spans that are over to what sends them, until the scope is cancelled."""
    with scope:
        while True:
            await trio.sleep(_HAND_OVER_SECONDS)
            tracing.hand_over()
