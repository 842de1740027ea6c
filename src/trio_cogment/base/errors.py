"""One exception tree, and the one table from exception to gRPC status.

Every exception that this package raises deliberately derives from `CogmentError`, and its text may be shown to a peer.
Any other exception is a bug, in this package or in the user's code: it is logged with its traceback, and the peer gets
UNKNOWN with a fixed text.

This module depends neither on Trio nor on the wire format, so that pure modules can use it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from trio_cogment.base.outcome import TrialOutcome


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
    """Base class of all exceptions that this package raises deliberately. The text may be shown to a peer.

    They can be pickled, since libraries bring them from one process to another.

    Attributes:
        is_of_peer: a server behind a gateway is at fault: the text says all, and the log needs no traceback.
    """

    is_of_peer = False

    def __reduce__(self) -> tuple[Any, ...]:
        # Not the class itself, whose arguments may be others than those of the exception.
        reduced: tuple[Any, ...] = super().__reduce__()  # type: ignore[assignment]  # it is never a string for exceptions
        return (_made_again, reduced[:2], *reduced[2:])


_Error = TypeVar("_Error", bound=CogmentError)


def of_peer(error: _Error) -> _Error:
    """Mark an error as the fault of a server behind a gateway, and return it; see `CogmentError.is_of_peer`."""
    error.is_of_peer = True
    return error


def _made_again(kind: type[CogmentError], arguments: tuple[Any, ...]) -> CogmentError:
    return kind.__new__(kind, *arguments)


class InvalidArgumentError(CogmentError):
    """The input is invalid, whatever the state of the system; the text names the field and what was expected."""


class EndpointError(InvalidArgumentError):
    """An endpoint does not follow the grammar, or cannot be used where it was given."""


class NotFoundError(CogmentError):
    """The requested object does not exist."""


class AlreadyExistsError(CogmentError):
    """The object to create exists already."""


class FailedPreconditionError(CogmentError):
    """The input is valid, but the state of the system does not allow the operation."""


class MissingExtraError(FailedPreconditionError, ImportError):
    """A package that only an extra of this one needs is not installed; the text has the command that installs it."""

    @classmethod
    def of(cls, package: str, extra: str, *, needed_for: str = "") -> MissingExtraError:
        """Return the error about a package that is not installed, and, if that is not obvious, what needs it."""
        reason = f", and {needed_for} needs it" if needed_for else ""
        error = cls(f"{package} is not installed{reason}; the extra {extra!r} brings it: {install_command(extra)}")
        error.name = package
        return error

    @classmethod
    def plain(cls, package: str) -> MissingExtraError:
        """Return the error about a package that is not installed, and that no extra brings."""
        error = cls(f"{package} is not installed: pip install {package}")
        error.name = package
        return error


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """Let the block's error name an extra if NumPy is missing: several bring it, and this one is what is wanted.

    Raises:
        MissingExtraError: NumPy is not installed.
    """
    try:
        yield
    except ImportError as error:
        if error.name != "numpy":
            raise
        raise MissingExtraError.of("numpy", extra) from error


def install_command(*extras: str) -> str:
    """Return the command that installs extras of this package, from an index and from a copy of the repository."""
    names = ",".join(extras)
    return f"pip install 'trio-cogment[{names}]', or in a copy of the repository pip install -e '.[{names}]'"


class UnauthenticatedError(CogmentError):
    """The caller has not said who it is, or not in a way that is accepted."""


class PermissionDeniedError(CogmentError):
    """The caller is known, and may not do this."""


class ResourceExhaustedError(CogmentError):
    """A limit was reached; the text names it."""


class QuotaError(ResourceExhaustedError):
    """An account has used up a quota; the text names it. Others are not affected, and waiting does not help."""


class DataLossError(CogmentError):
    """The requested object existed, and is lost for good."""


class UnavailableError(CogmentError):
    """A peer that is needed cannot be reached, or the server is stopping; a retry may succeed."""


class UnimplementedError(CogmentError):
    """The method or option exists in the API, but is not implemented here."""


class TrialFailedError(CogmentError):
    """A trial that was waited for has failed, or not all of its samples were stored.

    The last lines of the participant's traceback, if they are known, are a note of the error: Python prints it below
    the error, and it is not part of the text, which a peer may get.

    Attributes:
        outcome: how it ended.
    """

    def __init__(self, outcome: TrialOutcome) -> None:
        super().__init__(outcome)
        self.outcome = outcome
        if outcome.traceback:
            self.add_note(outcome.traceback)


class TrialIncompleteError(CogmentError):
    """A stored trial was to be read whole, and some of its samples are not stored, or not yet."""


class ProtocolError(CogmentError):
    """A protocol was violated; raised only as one of its two subclasses."""

    def __init__(self, *args: object) -> None:
        if type(self) is ProtocolError:
            raise TypeError("raise LocalProtocolError or RemoteProtocolError")
        super().__init__(*args)


class LocalProtocolError(ProtocolError):
    """Local code, in this package or in the user's program, violated the protocol of a call or a state machine."""


class RemoteProtocolError(ProtocolError):
    """The peer violated the protocol; it gets the error, and other peers are not affected."""


#: Trailing metadata with a serialized `google.rpc.Status`: the only name with the prefix `grpc-` that errors may have.
STATUS_DETAILS = "grpc-status-details-bin"


#: Trailing metadata with the last lines of a traceback: a participant's, for an orchestrator of its own process.
TRACEBACK = "trio-cogment-traceback-bin"


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


#: Trailing metadata of a data log that is there, and whose storage cannot take samples now.
STORAGE_FAILED = "trio-cogment-storage-failed"


class StorageFailedError(RpcError, UnavailableError):
    """A data log cannot store samples now: its disk is full, or fails. They may be sent again."""

    def __init__(self, message: str) -> None:
        super().__init__(StatusCode.UNAVAILABLE, message, [(STORAGE_FAILED, "true")])

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[type[StorageFailedError], tuple[str]]:
        return type(self), (self.message,)


def is_storage_failure(error: Exception) -> bool:
    """Whether an error says that a data log, here or elsewhere, is there and cannot store samples now."""
    return isinstance(error, RpcError) and any(name == STORAGE_FAILED for name, _ in error.trailing_metadata)


UNEXPECTED_FAILURE = "unexpected failure in the handler; the server's log has the details"

#: The nearest ancestor in this table decides.
STATUS_OF: dict[type[Exception], StatusCode] = {
    InvalidArgumentError: StatusCode.INVALID_ARGUMENT,
    NotFoundError: StatusCode.NOT_FOUND,
    AlreadyExistsError: StatusCode.ALREADY_EXISTS,
    FailedPreconditionError: StatusCode.FAILED_PRECONDITION,
    UnauthenticatedError: StatusCode.UNAUTHENTICATED,
    PermissionDeniedError: StatusCode.PERMISSION_DENIED,
    ResourceExhaustedError: StatusCode.RESOURCE_EXHAUSTED,
    DataLossError: StatusCode.DATA_LOSS,
    UnavailableError: StatusCode.UNAVAILABLE,
    UnimplementedError: StatusCode.UNIMPLEMENTED,
    TrialFailedError: StatusCode.ABORTED,
    TrialIncompleteError: StatusCode.FAILED_PRECONDITION,
    RemoteProtocolError: StatusCode.INVALID_ARGUMENT,
    LocalProtocolError: StatusCode.INTERNAL,
}


def status_of(error: Exception) -> tuple[StatusCode, str]:
    """Return the status and the text that a peer gets for `error`; the text never contains internals."""
    if isinstance(error, RpcError):
        return error.code, error.message
    for ancestor in type(error).__mro__:
        code = STATUS_OF.get(ancestor)
        if code is not None:
            return code, str(error)
    return StatusCode.UNKNOWN, UNEXPECTED_FAILURE
