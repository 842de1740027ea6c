"""The process of one environment: `python -m trio_cogment.environments.child DESCRIPTOR`.

It makes the environment that it is told to, and answers one request after the other on the socket that it has
inherited, until the other end closes. Messages are pickles after their length: both ends are the same program, of the
same user.
"""

from __future__ import annotations

import pickle
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from trio_cogment.environments.stage import Description, Stage

#: The length of a message, before it.
LENGTH = struct.Struct("<Q")


def packed(message: Any) -> bytes:
    """Return a message with its length."""
    content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(content)) + content


def failure(error: Exception) -> tuple[str, tuple[str | int, ...], str]:
    """Return an exception as its kind, what makes another, and its traceback: it may not be possible to pickle it."""
    from trio_cogment.base import errors
    from trio_cogment.environments.errors import (
        EnvironmentFailedError,
        InvalidActionError,
        InvalidEnvironmentError,
        TakingUpError,
    )

    made = isinstance(error, EnvironmentFailedError) and error.__cause__ is not None
    lines = "".join(traceback.format_exception(error.__cause__ if made else error))
    if isinstance(error, InvalidActionError | InvalidEnvironmentError):
        return type(error).__name__, (error.environment, error.actor, error.reason), lines
    if isinstance(error, TakingUpError):
        return type(error).__name__, (error.environment, error.actor, error.tick, error.reason), lines
    if isinstance(error, EnvironmentFailedError):
        return type(error).__name__, (str(error),), lines
    for kind in type(error).__mro__:
        if issubclass(kind, errors.CogmentError) and getattr(errors, kind.__name__, None) is kind:
            return kind.__name__, (str(error),), lines
    return "", (f"{type(error).__name__}: {error}",), lines


class _Answers:
    """Does what the other end asks for."""

    def __init__(self) -> None:
        self._stage: Stage | None = None

    def make(self, path: list[str], recipe: bytes) -> Description:
        """Make the environment, with the modules that the other end finds; return its description."""
        sys.path[:] = path
        from trio_cogment.environments.stage import Description, Stage

        self._stage = Stage(pickle.loads(recipe))
        return Description.of(self._stage.environment)

    def begin(self, opening: Any, taken_up: bytes | None) -> Any:
        """See `Stage.begin`; messages come serialized, as they cannot be pickled."""
        assert self._stage is not None, "it has been made"
        if taken_up is not None:
            from trio_cogment.api.common_pb2 import TakenUp

            opening = replace(opening, taken_up=TakenUp.FromString(taken_up))
        return self._stage.begin(opening)

    def advance(self, actions: Any, cut: bool, save: bool) -> Any:
        """See `Stage.advance`."""
        assert self._stage is not None, "it has been made"
        return self._stage.advance(actions, cut, save)

    def close(self) -> None:
        """Close the environment, if there is one."""
        if self._stage is not None:
            self._stage.close()


def answer(requests: BinaryIO, reply: Callable[[bytes], object]) -> None:
    """Answer requests until there are no more."""
    answers = _Answers()
    try:
        while head := requests.read(LENGTH.size):
            method, arguments = pickle.loads(requests.read(LENGTH.unpack(head)[0]))
            call: Callable[..., Any] = getattr(answers, method)
            try:
                result = True, call(*arguments)
            except Exception as error:  # noqa: BLE001  the boundary of the user's environment
                result = False, failure(error)
            reply(packed(result))
    finally:
        answers.close()


def main() -> None:
    """Serve the environment of this process."""
    # A supervisor sends it to all processes of a service; the one that needs the environment decides when it ends.
    # By a function, because what the environment starts would inherit SIG_IGN, and could not be terminated.
    signal.signal(signal.SIGTERM, lambda *_: None)
    with socket.socket(fileno=int(sys.argv[1])) as connection, connection.makefile("rb") as requests:
        try:
            answer(requests, connection.sendall)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the other end has gone


if __name__ == "__main__":
    main()
