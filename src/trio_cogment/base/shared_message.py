"""Messages and payloads that are bytes only where somebody needs those; how fields of messages begin on the wire."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.message import Message

from trio_cogment.base.compiling import mypyc_attr

_LENGTH_DELIMITED: Final = 2


@mypyc_attr(allow_interpreted_subclasses=True)
class ObjectPayload:
    """A payload that crosses the process as an object; `bytes` encodes it where somebody needs that, and once.

    Its bytes are those of the moment at which it was made, whatever becomes of the object afterwards: a subclass that
    encodes later keeps a copy of what can be changed.

    Args:
        value: the object.
        content: its bytes, if they are known.

    Attributes:
        value: see above.
    """

    __slots__ = ("_content", "value")

    def __init__(self, value: Any, content: bytes | None = None) -> None:
        self.value = value
        self._content = content

    def __bytes__(self) -> bytes:
        content = self._content
        if content is None:
            content = self._content = self.encode()
        return content

    def __len__(self) -> int:
        return len(self.__bytes__())

    def __reduce__(self) -> tuple[type[bytes], tuple[bytes]]:
        return bytes, (self.__bytes__(),)  # for another process it is that

    def encode(self) -> bytes:
        """Return the bytes, which were not given."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class SharedMessage:
    """A message that stays as it is within the process; on the wire its last bytes may be those of others as well.

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
