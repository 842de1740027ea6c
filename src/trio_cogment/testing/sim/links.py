"""Links between simulated hosts: their properties, the path of each, and one direction of a connection (`Flow`).

Nothing here has a task. A segment knows when it arrives; a reader sleeps until the first one does. Whatever changes
that (another segment, a cut, a reset) moves the deadline of the sleeper, which takes no step of any task.
"""

from __future__ import annotations

import enum
import math
import random
from collections import deque
from dataclasses import dataclass
from typing import Protocol

import trio


class Marker(enum.Enum):
    """How a direction ends: an orderly end, or a reset."""

    END = "end"
    BREAK = "break"


END = Marker.END
BREAK = Marker.BREAK


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The properties of the path between two hosts, in each direction.

    Attributes:
        latency_seconds: the shortest time that a segment takes; more than 0, or virtual time could stand still.
        jitter_seconds: the most that is added to it, drawn for each segment; order is kept.
        bytes_per_second: shared by all connections between the two hosts.
        buffer_bytes: how many bytes may be under way or unread on one connection before its sender waits.
        loss: the probability that a segment is lost. It is sent again, so loss means delay.
        retransmit_seconds: the time before it is sent again; doubled each time.
        fragments: the probability that a read returns only a part of what has arrived.
        give_up_seconds: how long an end sends again what does not arrive, before its connection is broken.
    """

    latency_seconds: float = 0.001
    jitter_seconds: float = 0.002
    bytes_per_second: float = math.inf
    buffer_bytes: int = 64 * 1024
    loss: float = 0.0
    retransmit_seconds: float = 0.2
    fragments: float = 0.0
    give_up_seconds: float = 900.0

    def __post_init__(self) -> None:
        positive = ("latency_seconds", "bytes_per_second", "buffer_bytes", "retransmit_seconds", "give_up_seconds")
        for name in positive:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: expected more than 0, got {getattr(self, name)}")
        for name in ("latency_seconds", "jitter_seconds", "retransmit_seconds"):
            if getattr(self, name) == math.inf:
                raise ValueError(f"{name}: expected a number that is finite, got {getattr(self, name)}")
        if not self.jitter_seconds >= 0:
            raise ValueError(f"jitter_seconds: expected 0 or more, got {self.jitter_seconds}")
        for name in ("loss", "fragments"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}: expected a probability below 1, got {getattr(self, name)}")


class Path:
    """The path from one host to another, which all connections between them share.

    Attributes:
        link: its properties.
        is_cut: whether it is cut: nothing gets through.
        flows: the directions of connections that use it, in the order of their beginning.
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        self.is_cut = False
        self.flows: dict[Flow, None] = {}
        self._free_at = -math.inf

    def delay(self, rng: random.Random) -> float:
        """Draw how long a segment is under way."""
        link = self.link
        seconds = link.latency_seconds + rng.uniform(0, link.jitter_seconds)
        again = link.retransmit_seconds
        while link.loss and rng.random() < link.loss:
            seconds += again
            again *= 2
        return seconds

    def sent_at(self, size: int) -> float:
        """Return when the last byte of a segment has left, with others before it."""
        now = trio.current_time()
        if self.link.bytes_per_second == math.inf:
            return now
        self._free_at = max(now, self._free_at) + size / self.link.bytes_per_second
        return self._free_at

    def cut(self) -> None:
        """Let nothing through; what is under way is lost, and sent again after `heal`."""
        if not self.is_cut:
            self.is_cut = True
            for flow in self.flows:
                flow.hold()

    def heal(self) -> None:
        """Let everything through again."""
        if self.is_cut:
            self.is_cut = False
            for flow in self.flows:
                flow.release()


@dataclass(slots=True)
class _Segment:
    """Something under way, and when it arrives: `math.inf` while nothing gets through."""

    arrival: float
    content: bytes | Marker


class End(Protocol):
    """A stream's end, as the flows see it."""

    gone: bool
    incoming: Flow

    def touch(self) -> None:
        """Something has changed: tasks that wait may have to wake earlier or later."""


class Flow:
    """One direction of a connection.

    Attributes:
        ends: the stream that sends and the one that receives.
        broken_at: when the receiver learns of a reset.
        receiver_gone: whether the receiver has closed.
    """

    ends: tuple[End, End]

    def __init__(self, path: Path, rng: random.Random) -> None:
        self.path = path
        self.broken_at = math.inf
        self.receiver_gone = False
        self._rng = rng
        self._segments: deque[_Segment] = deque()
        self._size = 0
        self._last = -math.inf
        self._dark = False
        self._stalled_since = math.inf
        path.flows[self] = None

    @property
    def room(self) -> int:
        """How many bytes the sender may send now."""
        return self.path.link.buffer_bytes - self._size

    @property
    def give_up_at(self) -> float:
        """When the sender gives up, unless something changes."""
        return self._stalled_since + self.path.link.give_up_seconds

    @property
    def first_arrival(self) -> float:
        """When the receiver has something to read."""
        return self._segments[0].arrival if self._segments else math.inf

    def push(self, data: bytes) -> None:
        """Send bytes; there must be room."""
        self._size += len(data)
        if self.receiver_gone and not (self._dark or self.path.is_cut):
            # The peer's system answers with a reset; until it comes, the sender cannot know.
            self.ends[0].incoming.push_marker(BREAK, self.path.delay(self._rng))
            return
        self._push(data, self.path.sent_at(len(data)))

    def push_marker(self, marker: Marker, after: float = 0.0) -> None:
        """End the direction, `after` this many seconds and the way of a segment."""
        self._push(marker, trio.current_time() + after)

    def _push(self, content: bytes | Marker, sent_at: float) -> None:
        if self._dark or self.path.is_cut:
            self._stalled_since = min(self._stalled_since, trio.current_time())
            self.ends[0].touch()
        if self._dark:
            return
        arrival = math.inf if self.path.is_cut else max(sent_at + self.path.delay(self._rng), self._last)
        if arrival < math.inf:
            self._last = arrival
        if content is BREAK:
            self.broken_at = min(self.broken_at, arrival)
        self._segments.append(_Segment(arrival, content))
        self.ends[1].touch()

    def hold(self) -> None:
        """The path was cut."""
        now = trio.current_time()
        for segment in self._segments:
            if segment.arrival > now:
                segment.arrival = math.inf
                self._stalled_since = min(self._stalled_since, now)
        if self.broken_at > now:
            self.broken_at = math.inf
        for end in self.ends:
            end.touch()

    def release(self) -> None:
        """The path was healed: what was held is sent again, in order."""
        now = trio.current_time()
        if self._dark:
            return
        self._stalled_since = math.inf
        if self.receiver_gone and self._segments:
            self._segments.clear()
            self.ends[0].incoming.push_marker(BREAK, self.path.delay(self._rng))
        again = self._rng.uniform(0, self.path.link.retransmit_seconds)
        for segment in self._segments:
            if segment.arrival == math.inf:
                self._last = max(now + again + self.path.delay(self._rng), self._last)
                segment.arrival = self._last
                if segment.content is BREAK:
                    self.broken_at = min(self.broken_at, self._last)
        for end in self.ends:
            end.touch()

    def go_dark(self) -> None:
        """Lose what is under way and whatever is sent from now on."""
        now = trio.current_time()
        self._dark = True
        self.broken_at = math.inf
        kept = [segment for segment in self._segments if segment.arrival <= now]
        if len(kept) < len(self._segments):
            self._stalled_since = min(self._stalled_since, now)
        self._segments = deque(kept)
        for end in self.ends:
            end.touch()

    def take(self, max_bytes: int) -> bytes | Marker | None:
        """Return what has arrived; None if nothing has. Markers stay."""
        if not self._segments or self.first_arrival > (now := trio.current_time()):
            return None
        first = self._segments[0].content
        if isinstance(first, Marker):
            return first
        if self.path.link.fragments and self._rng.random() < self.path.link.fragments:
            max_bytes = self._rng.randint(1, min(max_bytes, len(first)))
        pieces: list[bytes] = []
        while max_bytes and self._segments:
            segment = self._segments[0]
            content = segment.content
            if isinstance(content, Marker) or segment.arrival > now:
                break
            if len(content) > max_bytes:
                segment.content = content[max_bytes:]
                content = content[:max_bytes]
            else:
                self._segments.popleft()
            max_bytes -= len(content)
            self._size -= len(content)
            pieces.append(content)
        self.ends[0].touch()  # there is room again
        return b"".join(pieces)

    def stop_reading(self) -> tuple[bool, bool]:
        """The receiver closes; return whether bytes had arrived unread, and whether more are under way."""
        now = trio.current_time()
        data = [segment.arrival <= now for segment in self._segments if isinstance(segment.content, bytes)]
        self.receiver_gone = True
        self._segments.clear()
        self._size = 0
        if self.ends[0].gone:
            self.path.flows.pop(self, None)
        self.ends[0].touch()
        return any(data), not all(data)
