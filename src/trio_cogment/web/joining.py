"""Notices to an actor in a browser when its part ends otherwise than by END.

The JavaScript SDK drops the status of `RunTrial`: who is refused, or whose call fails, is never told. It does hear an
END. So over a WebSocket a call that fails ends with END, which has the reason in its details, and then with its status.
"""

from __future__ import annotations

from typing import Any

from trio_cogment.api.common_pb2 import ActorRunTrialInput, CommunicationState
from trio_cogment.base.errors import RpcError
from trio_cogment.rpc import Method


class Farewell:
    """Whether one call still owes its caller an END.

    Args:
        method: that is called; most have nothing of the kind.
    """

    def __init__(self, method: Method) -> None:
        self._owed = method.response_type is ActorRunTrialInput

    def sent(self, message: Any) -> None:
        """Learn what the caller is told."""
        if self._owed and message.state == CommunicationState.END:
            self._owed = False

    def owed(self, error: RpcError | None) -> Any:
        """Return what the caller is to be told before the status; None: nothing."""
        if not self._owed or error is None:
            return None
        self._owed = False
        return ActorRunTrialInput(state=CommunicationState.END, details=error.message or error.code.name)
