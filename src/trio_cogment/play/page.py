"""A page at the other end of a WebSocket: what it is sent, and what it says.

A page gets the newest state, and not each one: what comes while it has not taken the last one replaces what it has not
been sent. Notices (messages, rewards, answers to pings) are sent each, in order; when too many wait for a slow page,
the oldest are dropped, and it is told how many. So a page that never reads costs a trial nothing.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import trio

from trio_cogment.base.config import PlayConfig
from trio_cogment.base.errors import CogmentError, InvalidArgumentError
from trio_cogment.play.page_messages import Allowance, Ping, parse
from trio_cogment.play.views import page_message

_log = logging.getLogger(__name__)

#: A page that has sent so much nonsense is not one of ours.
_MAX_REFUSED = 20
_MAX_REASON_CHARACTERS = 500


class PageSocket(Protocol):
    """The WebSocket of a page; that of `trio_cogment.web` is one."""

    async def send(self, data: bytes) -> None:
        """Send a message; wait while the page does not read."""

    async def receive(self) -> bytes:
        """Return the next message."""


class Page:
    """One page.

    Args:
        config: limits.

    Attributes:
        latency_seconds: as the page has measured it last; None before.
        greeting: what is to be in the state that it is sent first.
    """

    def __init__(self, config: PlayConfig) -> None:
        self.latency_seconds: float | None = None
        self.greeting: dict[str, Any] | None = None
        self._config = config
        self._render: Callable[[Page], bytes] | None = None
        self._notices: deque[dict[str, Any]] = deque()
        self._lost = 0
        self._closing = False
        self._more = trio.Event()
        self._form: Any = None

    # --- what it is sent ---

    def refresh(self, render: Callable[[Page], bytes]) -> None:
        """Have the page get the newest state, which is made when it can be sent."""
        self._render = render
        self._more.set()

    def notify(self, notice: dict[str, Any]) -> None:
        """Have the page get a notice."""
        if len(self._notices) >= self._config.max_notices:
            self._notices.popleft()
            self._lost += 1
        self._notices.append(notice)
        self._more.set()

    def welcome(self, greeting: dict[str, Any]) -> None:
        """Have the page get a greeting with the state; what its `history` has is not a notice any more."""
        self.greeting = greeting
        told = set(map(id, greeting["history"]))
        self._notices = deque(each for each in self._notices if id(each) not in told)

    def close(self) -> None:
        """Close the page once it has been sent what there is."""
        self._closing = True
        self._more.set()

    def new_form(self, form: Any) -> bool:
        """Remember the form that a page has; return whether it is another one than before."""
        changed, self._form = form != self._form, form
        return bool(changed)

    def take(self) -> bytes | None:
        """Return what is to be sent next; None: nothing."""
        if self._lost:
            lost, self._lost = self._lost, 0
            return page_message({"type": "lost", "count": lost})
        render, self._render = self._render, None
        if render is not None:
            return render(self)
        return page_message(self._notices.popleft()) if self._notices else None

    # --- its connection ---

    async def serve(
        self,
        socket: PageSocket,
        on_message: Callable[[Any], None],
        parse: Callable[[bytes], Any] = parse,
    ) -> None:
        """Send and receive until the page is closed, by either end, or has not been heard of for too long.

        What it says that makes no sense is answered with why; too much of that, or too much at all, ends it.

        Args:
            socket: to the page.
            on_message: takes what it says. A `CogmentError` that it raises is told to the page.
            parse: makes messages of what it says; raises InvalidArgumentError.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._receive, socket, on_message, parse, nursery.cancel_scope)
            await self._send(socket)
            nursery.cancel_scope.cancel()

    async def _send(self, socket: PageSocket) -> None:
        while True:
            data = self.take()
            if data is not None:
                await socket.send(data)
            elif self._closing:
                return
            else:
                self._more = trio.Event()
                await self._more.wait()

    async def _receive(
        self,
        socket: PageSocket,
        on_message: Callable[[Any], None],
        parse: Callable[[bytes], Any],
        scope: trio.CancelScope,
    ) -> None:
        config, refused = self._config, 0
        allowance = Allowance(config.page_messages_per_second, config.page_burst, trio.current_time())
        while refused < _MAX_REFUSED:
            data = b""
            with trio.move_on_after(config.page_silence_seconds) as silence:
                data = await socket.receive()
            if silence.cancelled_caught:
                break
            if not allowance.take(trio.current_time()):
                _log.info("a page sends more than %g messages a second", config.page_messages_per_second)
                break
            try:
                if len(data) > config.max_page_message_bytes:
                    raise InvalidArgumentError(f"expected {config.max_page_message_bytes} bytes at most")
                message = parse(data)
            except InvalidArgumentError as error:
                refused += 1
                self._refuse(error)
                continue
            try:
                self._take(message, on_message)
            except CogmentError as error:
                self._refuse(error)
        scope.cancel()

    def _refuse(self, error: CogmentError) -> None:
        self.notify({"type": "refused", "reason": str(error)[:_MAX_REASON_CHARACTERS]})

    def _take(self, message: Any, on_message: Callable[[Any], None]) -> None:
        if isinstance(message, Ping):
            self.latency_seconds = None if message.took is None else message.took / 1000
            self.notify({"type": "pong", "sent": message.sent})
        else:
            on_message(message)
