"""What stands for a message that is still compressed, from the frames it came in to the call that takes it."""

from __future__ import annotations


class CompressedMessage(bytes):
    """A message as it came, still compressed."""

    __slots__ = ()
