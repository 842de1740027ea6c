"""One exception tree, and the one table from exception to gRPC status.

What we raise on purpose derives from `CogmentError` and carries a text that may be shown to a peer. Any other
exception that escapes is a bug of ours (or of the user's code): it is logged whole, and the peer is told UNKNOWN with
a fixed text.

This module knows nothing of Trio or of the wire, so that the pure parts may raise from it.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence


class StatusCode(enum.IntEnum):
    """gRPC status codes, by their numbers on the wire (gRPC `statuscodes.md`)."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class CogmentError(Exception):
    """Root of everything this package raises on purpose. Its text may be shown to a peer."""


class InvalidArgumentError(CogmentError):
    """The caller's input is wrong whatever the state of the system; the text names the field and what was expected."""


class EndpointError(InvalidArgumentError):
    """An endpoint does not follow the grammar, or cannot be used where it was given."""


class NotFoundError(CogmentError):
    """What the caller names does not exist."""


class AlreadyExistsError(CogmentError):
    """What the caller wants to create is there already."""


class FailedPreconditionError(CogmentError):
    """The input is fine, the system is not in a state that allows it."""


class ResourceExhaustedError(CogmentError):
    """A named limit was reached."""


class DataLossError(CogmentError):
    """What the caller names was there, and is gone for good."""


class UnavailableError(CogmentError):
    """A peer that is needed cannot be reached, or we are stopping; trying again later may help."""


class UnimplementedError(CogmentError):
    """The method or option exists in the API but not here."""


class ProtocolError(CogmentError):
    """A rule of a protocol was broken; raised only as one of its two children."""

    def __init__(self, *args: object) -> None:
        if type(self) is ProtocolError:
            raise TypeError("raise LocalProtocolError or RemoteProtocolError")
        super().__init__(*args)


class LocalProtocolError(ProtocolError):
    """Our own code (or the user's, through us) used a call or a machine against its rules."""


class RemoteProtocolError(ProtocolError):
    """The peer broke the rules; it is told so, and nobody else notices."""


#: Trailing metadata with a serialized `google.rpc.Status`; the one name beginning with `grpc-` that errors may carry.
STATUS_DETAILS = "grpc-status-details-bin"


class RpcError(CogmentError):
    """A call ended with a status other than OK.

    Attributes:
        code: the gRPC status.
        message: the text that came (or goes) with it.
        trailing_metadata: (name, value) pairs the server sent with the status, in order.
    """

    def __init__(
        self, code: StatusCode, message: str = "", trailing_metadata: Sequence[tuple[str, str | bytes]] = ()
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.trailing_metadata = tuple(trailing_metadata)

    @property
    def details(self) -> bytes:
        """The serialized `google.rpc.Status` that came (or goes) with it, or nothing; see `rpc.details`."""
        for name, value in self.trailing_metadata:
            if name == STATUS_DETAILS and isinstance(value, bytes):
                return value
        return b""

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}" if self.message else self.code.name


UNEXPECTED_FAILURE = "unexpected failure in the handler; the server's log has the details"

#: The nearest listed ancestor decides.
STATUS_OF: dict[type[Exception], StatusCode] = {
    InvalidArgumentError: StatusCode.INVALID_ARGUMENT,
    NotFoundError: StatusCode.NOT_FOUND,
    AlreadyExistsError: StatusCode.ALREADY_EXISTS,
    FailedPreconditionError: StatusCode.FAILED_PRECONDITION,
    ResourceExhaustedError: StatusCode.RESOURCE_EXHAUSTED,
    DataLossError: StatusCode.DATA_LOSS,
    UnavailableError: StatusCode.UNAVAILABLE,
    UnimplementedError: StatusCode.UNIMPLEMENTED,
    RemoteProtocolError: StatusCode.INVALID_ARGUMENT,
    LocalProtocolError: StatusCode.INTERNAL,
}


def status_of(error: Exception) -> tuple[StatusCode, str]:
    """Return the status and the text a peer gets for `error`; internals never leak into the text."""
    if isinstance(error, RpcError):
        return error.code, error.message
    for ancestor in type(error).__mro__:
        code = STATUS_OF.get(ancestor)
        if code is not None:
            return code, str(error)
    return StatusCode.UNKNOWN, UNEXPECTED_FAILURE
