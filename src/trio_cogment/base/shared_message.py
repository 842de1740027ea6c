"""Messages that have most of their bytes in common with others, and how fields of messages begin on the wire."""

from __future__ import annotations

from typing import Final

from google.protobuf.message import Message

from trio_cogment.base.compiling import mypyc_attr

_LENGTH_DELIMITED: Final = 2


@mypyc_attr(allow_interpreted_subclasses=True)
class SharedMessage:
    """A message whose last bytes on the wire are the same as those of others, and are kept once for all of them.

    Args:
        kind: its type.
        head: its first bytes.
        tails: the rest, in the pieces that others refer to as well.

    Attributes:
        kind: see above.
    """

    __slots__ = ("_head", "_tails", "kind")

    def __init__(self, kind: type[Message], head: bytes, *tails: bytes) -> None:
        self.kind = kind
        self._head = head
        self._tails = tails

    @property
    def head(self) -> bytes:
        """Its first bytes, which are its own."""
        return self._head

    @property
    def tails(self) -> tuple[bytes, ...]:
        """The rest, in the pieces that others refer to as well."""
        return self._tails

    def ByteSize(self) -> int:
        """Return its size; named as that of any other message is."""
        return len(self.head) + sum(map(len, self.tails))

    def payload(self) -> bytes:
        """Return it as it is on the wire, in one piece."""
        return b"".join((self.head, *self.tails))

    def whole(self) -> Message:
        """Return it as a message of its own."""
        return self.kind.FromString(self.payload())


def field_tag(kind: type[Message], name: str) -> bytes:
    """Return the tag of a field of a message that is a string, bytes or a message; its length follows, a `varint`."""
    return varint(kind.DESCRIPTOR.fields_by_name[name].number << 3 | _LENGTH_DELIMITED)


def varint(number: int) -> bytes:
    """Return a number of zero or more as a varint: seven bits a byte, the lowest first."""
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    digits.append(number)
    return bytes(digits)
