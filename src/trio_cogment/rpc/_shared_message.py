"""Messages that have most of their bytes in common with others."""

from __future__ import annotations

from google.protobuf.message import Message


class SharedMessage:
    """A message whose last bytes on the wire are the same as those of others, and are kept once for all of them.

    Args:
        kind: its type.
        head: its first bytes.
        tail: the rest.
    """

    __slots__ = ("head", "kind", "tail")

    def __init__(self, kind: type[Message], head: bytes, tail: bytes) -> None:
        self.kind = kind
        self.head = head
        self.tail = tail

    def ByteSize(self) -> int:
        """Return its size; named as that of any other message is."""
        return len(self.head) + len(self.tail)

    def whole(self) -> Message:
        """Return it as a message of its own."""
        return self.kind.FromString(self.head + self.tail)
