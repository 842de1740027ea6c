"""HPACK by the hpack package, which remembers what it has encoded and decoded.

Calls of one kind carry the same headers again and again, and hpack takes longer over them than all the rest of a unary
call. What it returns depends on its input and its dynamic table alone, so it can be kept until the table changes.
"""

from __future__ import annotations

from typing import TypeAlias

import hpack
from hpack.table import HeaderTable

RawHeaders: TypeAlias = list[tuple[bytes, bytes]]

#: Nothing larger is remembered, and not more than this: a peer chooses what we decode.
_MAX_REMEMBERED_BYTES = 512
_MAX_REMEMBERED = 64


class _Table(HeaderTable):  # type: ignore[misc]  # hpack ships no types
    """Counts its changes."""

    def __init__(self) -> None:
        super().__init__()
        self.changes = 0

    def add(self, name: bytes, value: bytes) -> None:
        self.changes += 1
        super().add(bytes(name), bytes(value))  # hpack would keep views, and with them whole frames


class Encoder(hpack.Encoder):  # type: ignore[misc]  # as above
    """Remembers the code of each header field."""

    def __init__(self) -> None:
        super().__init__()
        self.header_table = _Table()
        self._known: dict[tuple[bytes, bytes], bytes] = {}
        self._known_at = 0

    @property
    def header_table_size(self) -> int:
        """See hpack; the peer's settings set it."""
        return int(self.header_table.maxsize)

    @header_table_size.setter
    def header_table_size(self, value: int) -> None:
        if value != self.header_table_size:  # else hpack forgets that it has a change to announce
            self.header_table.changes += 1
            hpack.Encoder.header_table_size.fset(self, value)

    def encode(self, headers: RawHeaders, huffman: bool = True) -> bytes:
        """Return the block for a header list."""
        table = self.header_table
        known = self._known
        block: list[bytes] = []
        for header in headers:
            if table.changes != self._known_at:
                known.clear()
                self._known_at = table.changes
            code = known.get(header)
            if code is None:
                resized = table.resized  # then the next code begins with the new size, and only that one
                code = super().encode([header], huffman)
                # A field that may not be indexed is one that does not come again.
                if table.changes == self._known_at and not resized and type(header) is tuple:
                    if len(known) >= _MAX_REMEMBERED:
                        known.clear()
                    known[header] = code
            block.append(code)
        return b"".join(block)


class Decoder(hpack.Decoder):  # type: ignore[misc]  # as above
    """Remembers the header lists of short blocks; they must not be changed."""

    def __init__(self, max_header_list_size: int) -> None:
        super().__init__(max_header_list_size=max_header_list_size)
        self.header_table = _Table()
        self._known: dict[bytes, RawHeaders] = {}
        self._known_at = 0

    @property
    def header_table_size(self) -> int:
        """See hpack; the peer's blocks set it."""
        return int(self.header_table.maxsize)

    @header_table_size.setter
    def header_table_size(self, value: int) -> None:
        self.header_table.changes += 1
        hpack.Decoder.header_table_size.fset(self, value)

    def decode(self, data: bytes, raw: bool = True) -> RawHeaders:
        """Return the header list of a block, as bytes."""
        table = self.header_table
        if table.changes == self._known_at:
            headers = self._known.get(data)
            if headers is not None:
                return headers
        else:
            self._known.clear()
            self._known_at = table.changes
        # Plain pairs of bytes: hpack gives views of what was received, and pairs of a type of its own.
        headers = [(bytes(name), bytes(value)) for name, value in super().decode(data, True)]
        if table.changes == self._known_at and len(data) <= _MAX_REMEMBERED_BYTES:
            if len(self._known) >= _MAX_REMEMBERED:
                self._known.clear()
            self._known[data] = headers
        return headers


def unindexed(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Return a header field that is to stay out of the tables, for it will hardly come again."""
    field: tuple[bytes, bytes] = hpack.NeverIndexedHeaderTuple(name, value)
    return field
