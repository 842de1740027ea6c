"""An environment in a process of its own."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import trio

from trio_cogment.base import errors
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.base.host.processes import signal_name
from trio_cogment.base.shared_message import Content
from trio_cogment.environments.child import LENGTH, packed
from trio_cogment.environments.episode import Turn
from trio_cogment.environments.errors import (
    EnvironmentFailedError,
    EnvironmentLostError,
    InvalidActionError,
    InvalidEnvironmentError,
    TakingUpError,
)
from trio_cogment.environments.hosts import CLOSE_SECONDS
from trio_cogment.environments.making import Recipe
from trio_cogment.environments.stage import Description, Opening

_CHILD = "trio_cogment.environments.child"
_CHUNK = 65536
#: Exceptions that the process names by their class, besides those of `trio_cogment.base.errors`.
_OWN: dict[str, Any] = {
    kind.__name__: kind for kind in (EnvironmentFailedError, InvalidActionError, InvalidEnvironmentError, TakingUpError)
}


class ProcessHost:
    """Runs an environment in a process of its own; see `Host`.

    A process that ends, whoever ends it, fails the call that is under way. Whoever is cancelled in a
    call closes the host, which kills the process.
    """

    description: Description

    def __init__(self, process: trio.Process, stream: trio.SocketStream, name: str) -> None:
        """Use a process and the socket to it; `open` makes both, and the environment there."""
        self._process = process
        self._stream = stream
        self._name = name
        self._ready = True

    @classmethod
    async def open(cls, recipe: Recipe) -> ProcessHost:
        """Start a process that makes an environment. After `Cancelled` there is none.

        Raises:
            InvalidArgumentError: the recipe cannot be sent to another process.
            EnvironmentLostError: the process ended while it made the environment.
            Exception: see `Recipe.make`.
        """
        content = _pickled(recipe)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            number = theirs.fileno()
            command = [sys.executable, "-m", _CHILD, str(number)]
            # A group of its own: Control-C is for the program alone, which decides when the environment ends.
            process = await trio.lowlevel.open_process(
                command, pass_fds=[number], stdin=subprocess.DEVNULL, process_group=0
            )
            stream = trio.SocketStream(trio.socket.from_stdlib_socket(socket.socket(fileno=ours.detach())))
        host = cls(process, stream, recipe.name)
        try:
            host.description = await host._ask("make", sys.path, content)
            host._name = host.description.name
        finally:
            if not host._ready:  # it has failed, or was cancelled
                await host._kill()
        return host

    @property
    def usable(self) -> bool:
        """See `Host.usable`. A process that has ended while it was idle is not."""
        return self._ready and self._process.returncode is None

    async def begin(self, opening: Opening) -> Turn:
        """See `Host.begin`."""
        taken_up = None if opening.taken_up is None else opening.taken_up.SerializeToString()
        found: Turn = await self._ask("begin", replace(opening, taken_up=None), taken_up)
        return found

    async def advance(self, actions: Sequence[Content | None], cut: bool, save: bool = False) -> Turn:
        """See `Host.advance`."""
        found: Turn = await self._ask("advance", list(actions), cut, save)
        return found

    async def aclose(self) -> None:
        """See `Host.aclose`. Its process has ended when this returns."""
        was_usable, self._ready = self.usable, False
        if was_usable:
            # Without its other end the process closes the environment and ends.
            await self._stream.aclose()
            with trio.move_on_after(CLOSE_SECONDS):
                await self._process.wait()
        await self._kill()

    async def _kill(self) -> None:
        with trio.CancelScope(deadline=trio.current_time() + CLOSE_SECONDS, shield=True):
            await trio.aclose_forcefully(self._stream)
            if self._process.returncode is None:
                # With the processes that the environment has started, which are of its group.
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()

    async def _ask(self, method: str, *arguments: Any) -> Any:
        self._ready = False
        try:
            await self._stream.send_all(packed((method, arguments)))
            (length,) = LENGTH.unpack(await self._received(LENGTH.size))
            done, reply = pickle.loads(await self._received(length))
        except (trio.BrokenResourceError, EOFError):
            raise await self._lost(method) from None
        if done:
            self._ready = True
            return reply
        error = self._rebuilt(*reply)
        self._ready = isinstance(error, InvalidArgumentError)
        raise error

    async def _received(self, count: int) -> bytes:
        content = bytearray()
        while len(content) < count:
            chunk = await self._stream.receive_some(min(count - len(content), _CHUNK))
            if not chunk:
                raise EOFError
            content += chunk
        return bytes(content)

    async def _lost(self, method: str) -> EnvironmentLostError:
        with trio.move_on_after(CLOSE_SECONDS):
            await self._process.wait()
        code = self._process.returncode
        how = "closed its connection"
        if code is not None:
            how = f"ended with exit code {code}" if code >= 0 else f"was ended by {signal_name(-code)}"
        return EnvironmentLostError(f"environment {self._name!r}: {_DOING[method]}: its process {how}")

    def _rebuilt(self, kind: str, values: tuple[str, ...], lines: str) -> Exception:
        error: Exception
        if kind in _OWN:
            error = _OWN[kind](*values)
        elif kind:
            error = getattr(errors, kind)(*values)
        else:
            error = EnvironmentFailedError(f"environment {self._name!r}: {values[0]}")
        error.add_note(f"in the environment's process:\n{lines.rstrip()}")
        return error


_DOING = {"make": "while it was made", "begin": "reset", "advance": "step"}


def _pickled(recipe: Recipe) -> bytes:
    target = recipe.target
    expected = "expected an id, or a function of a module that another process can import"
    if getattr(target, "__module__", "") == "__main__":
        where = f"one of the program itself ({os.path.basename(sys.argv[0])})"
        raise InvalidArgumentError(f"environment: hosting in a process: {expected}; got {where}")
    try:
        return pickle.dumps(recipe)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InvalidArgumentError(f"environment: hosting in a process: {expected}: {error}") from None
