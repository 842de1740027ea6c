"""A received message that has not been decompressed yet, from its frames to the call that takes it."""

from __future__ import annotations


class CompressedMessage(bytes):
    """A message as it came, still compressed."""

    __slots__ = ()
