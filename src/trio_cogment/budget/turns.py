"""Fair turns between the connections of a run of Trio: see `turn_order` for the rules, here are the tasks.

All servers and channels of a run share one `Turns`, because they share its loop: what a datastore's connections do
delays the trials of an orchestrator beside it.

A message is decoded in one piece, and a large one may take a hundred times as long as another of its size. Accounts
that send such messages are remembered for a while (`slow`): their large messages are decoded one at a time, with a rest
after each that is longer than it took. Those of all others are decoded at once.

While there are units for everybody, nobody waits and no task runs. When somebody has to wait, a task is started that
gives out units, once in each pass of Trio's loop, until nobody waits any more. Its time is that of the thread's
processor, which does not grow when other processes are busy.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

import trio
from google.protobuf.message import Message

from trio_cogment.budget.turn_order import Lane, TurnOrder

T = TypeVar("T", bound=Message)

#: A compressed message of this size is at most a megabyte.
_SMALL_COMPRESSED_BYTES = 1024
#: Decompressing takes a third of the time that is given for it.
_UNPACKED_BYTES_PER_SECOND = 80 * 1024 * 1024
#: A message from this size on may take a hundred times as long to decode as another one: two million messages of
#: nothing are within it.
LARGE_BYTES: Final = 256 * 1024
_UNITS_PER_SECOND = 10_000
#: Who has sent a message that takes longer than this is slow, for so long after each.
_SLOW_DECODE_SECONDS = 0.005
_SLOW_FOR_SECONDS = 10.0
#: A slow message is followed by a rest of this many times what it took.
_REST = 2.0


class Turns:
    """See the module.

    Args:
        clock: measures passes, in seconds.

    Attributes:
        slow: accounts whose messages take long to decode, and until when that counts, on Trio's clock.
    """

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        self._order = order = TurnOrder()
        self._giving = False
        self._unpacking = trio.Lock()
        self._decoding = trio.Lock()
        self._rests_until = 0.0
        self._deferred: deque[Callable[[], None]] = deque()
        self._serving = False
        self.slow: dict[str, float] = {}
        self.take = order.take
        self.charge = order.charge
        self.leave = order.leave

    async def turn(self, lane: Lane, units: int = 1) -> None:
        """Return when the caller may do so much work: at once and without a checkpoint when nobody waits."""
        if self.take(lane, units):
            return
        task = trio.lowlevel.current_task()

        def abort(_: Any) -> trio.lowlevel.Abort:
            self.leave(lane, task)
            return trio.lowlevel.Abort.SUCCEEDED

        self.wait(lane, task, lambda: trio.lowlevel.reschedule(task), units)
        await trio.lowlevel.wait_task_rescheduled(abort)

    def decode_large(self, payload: bytes, decode: Callable[[bytes], T], account: str) -> T:
        """Decode a large message at once; what that takes is charged, so that as much time is left for others.

        Args:
            payload: the message, which may be compressed.
            decode: returns what is in it.
            account: of its sender, who is slow if it takes long.
        """
        began = self._clock()
        try:
            return decode(payload)
        finally:
            seconds = self._clock() - began
            self.charge(Lane.OTHERS, int(seconds * _UNITS_PER_SECOND))
            if seconds > _SLOW_DECODE_SECONDS:
                self._note_slow(account, seconds)

    def _note_slow(self, account: str, seconds: float) -> None:
        now = trio.current_time()
        self._rests_until = max(self._rests_until, now) + _REST * seconds
        for name in [name for name, until in self.slow.items() if until <= now]:
            del self.slow[name]
        self.slow[account] = now + _SLOW_FOR_SECONDS

    def waits(self, payload: bytes, account: str) -> bool:
        """Whether a message is to be decoded after `large_turn` only.

        A payload of another type than `bytes` is one that has not been decompressed yet: nobody knows how large it is.
        """
        if not self.slow or (len(payload) < LARGE_BYTES and type(payload) is bytes):
            return False
        return trio.current_time() < self.slow.get(account, -math.inf)

    async def large_turn(self) -> None:
        """Return when a message of a slow account may be decoded; that must be done before the next checkpoint."""
        async with self._decoding:
            while trio.current_time() < self._rests_until:  # noqa: ASYNC110  somebody else may become slow meanwhile
                await trio.sleep_until(self._rests_until)

    def after_rest(self, go: Callable[[], None]) -> None:
        """Have `go` called when a message of a slow account may be decoded, which it does. It must not raise."""
        self._deferred.append(go)
        if not self._serving:
            self._serving = True
            trio.lowlevel.spawn_system_task(self._serve_deferred, name="slow messages")

    async def _serve_deferred(self) -> None:
        try:
            while self._deferred:
                await self.large_turn()
                self._deferred.popleft()()
        finally:
            self._serving = False

    async def unpack(self, size: int, decode: Callable[[], T]) -> T:
        """Decode a compressed message of this many bytes, which may become a thousand times as many.

        That cannot be done by halves, so large ones come one at a time, and rest in proportion to what they turn out to
        be: trials tick meanwhile.
        """
        if size <= _SMALL_COMPRESSED_BYTES:
            await self.turn(Lane.OTHERS, 1 + size // 64)
            return decode()
        async with self._unpacking:
            await self.turn(Lane.OTHERS, 1 + size // 64)
            message = decode()
            await trio.sleep(message.ByteSize() / _UNPACKED_BYTES_PER_SECOND)
            return message

    def wait(self, lane: Lane, owner: object, go: Callable[[], None], units: int = 1) -> None:
        """Have `go` called when it is the owner's turn. It must not raise, and may call this again."""
        self._order.wait(lane, owner, go, units)
        if not self._giving:
            self._giving = True
            trio.lowlevel.spawn_system_task(self._give, name="turns of connections")

    async def _give(self) -> None:
        order, clock = self._order, self._clock
        try:
            while order.crowded:
                order.next_pass()
                began = clock()
                await trio.lowlevel.checkpoint()
                order.adapt(clock() - began)
        finally:
            self._giving = False


_turns: trio.lowlevel.RunVar[Turns] = trio.lowlevel.RunVar("trio_cogment.rpc turns")


def turns_of_run() -> Turns:
    """Return the turns of this run of Trio."""
    try:
        return _turns.get()
    except LookupError:
        turns = Turns()
        _turns.set(turns)
        return turns


def measure_turns_by(clock: Callable[[], float]) -> None:
    """Measure passes by another clock in this run: a simulation must not depend on how fast the machine is.

    Call it before the first connection is made.
    """
    _turns.set(Turns(clock))
