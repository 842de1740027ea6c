"""Errors that a server of dm_env_rpc answers instead of what it was asked for."""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.any_pb2 import Any as AnyMessage

from trio_cogment.api.dm_env_rpc.status_pb2 import Status
from trio_cogment.base.errors import CogmentError, StatusCode


class DmEnvRpcError(CogmentError):
    """A server has answered a request with an error: the request has had no effect, and the connection goes on.

    Attributes:
        request: what it was, such as `step`.
        code: the gRPC status; UNKNOWN where the server names none, or one that there is not.
        message: the server's text.
        details: further messages of the server.
    """

    def __init__(
        self, server: str, request: str, code: StatusCode, message: str, details: Sequence[AnyMessage] = ()
    ) -> None:
        super().__init__(f"{server}: {request}: {code.name}: {message}")
        self.request = request
        self.code = code
        self.message = message
        self.details = tuple(details)

    @classmethod
    def of(cls, server: str, request: str, status: Status) -> DmEnvRpcError:
        """Return the error that a status stands for."""
        # Servers whose errors have a text alone leave the code at 0, which would mean success.
        known = status.code in StatusCode.__members__.values() and status.code != StatusCode.OK
        code = StatusCode(status.code) if known else StatusCode.UNKNOWN
        # By fields: the class of another descriptor pool is another class.
        details = [AnyMessage(type_url=each.type_url, value=each.value) for each in status.details]
        return cls(server, request, code, status.message, details)
