"""Clients that call a service at the same time, and note what they ask and are answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.testing import CallLog

#: How long a client waits for an answer; after that it does not know what has become of its call.
PATIENCE_SECONDS = 20.0
#: What says nothing about whether a call has happened.
NO_ANSWER = (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED)

NOT_FOUND = "NOT_FOUND"


async def ask(log: CallLog, client: str, request: Any, call: Callable[[], Awaitable[Any]]) -> Any:
    """Make a call and note how it went; return the answer, which may be NOT_FOUND, or None if there is none."""
    number = log.begin(client, request)
    try:
        with trio.fail_after(PATIENCE_SECONDS):
            answer = await call()
    except trio.TooSlowError:
        return None
    except RpcError as error:
        if error.code in NO_ANSWER:
            return None
        if error.code is not StatusCode.NOT_FOUND:
            raise
        answer = NOT_FOUND
    log.end(number, answer)
    return answer
