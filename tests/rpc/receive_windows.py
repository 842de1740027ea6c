"""A receive window alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trio_cogment.base.config import RpcConfig
from trio_cogment.budget.memory import ConnectionMemory
from trio_cogment.rpc._receive_window import ReceiveWindow
from trio_cogment.rpc._streams import Stream


def nothing() -> None:
    """Do nothing."""


def receive_window(
    config: RpcConfig,
    streams: Mapping[int, Stream],
    send_update: Callable[[int, int], None],
    on_wait: Callable[[], None] = nothing,
    *,
    memory: ConnectionMemory | None = None,
    on_credit: Callable[[], None] = nothing,
) -> ReceiveWindow:
    """Return a window that borrows from `memory`, or from as much as it wants."""
    memory = memory or ConnectionMemory()
    return ReceiveWindow(
        config,
        streams,
        send_update,
        on_wait,
        held=memory.messages.loan(),
        promised=memory.windows.loan(),
        on_credit=on_credit,
    )
