"""HPACK (RFC 7541) with the hpack package's tables and codes, and a memory of what has been encoded and decoded.

Calls of one kind carry the same headers again and again, and hpack takes longer over them than all the rest of a unary
call. What it returns depends on its input and its dynamic table alone, so it is kept until the table changes.

Encoding is remembered by field, decoding by block: this end chooses the order of its fields, the peer that of its own.
Both forget everything when the table changes, since an index then names another entry. So what differs in every call
(`grpc-timeout`, `grpc-message`) is sent without being indexed (`unindexed`), and leaves the table as it is. So is
metadata of a name that has come with another value before, as a trial's id does.
"""

from __future__ import annotations

from typing import TypeAlias

import hpack
from hpack.exceptions import InvalidTableSizeError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

RawHeaders: TypeAlias = list[tuple[bytes, bytes]]

#: A peer chooses what is decoded, so what is remembered is bounded: 64 blocks of 512 bytes.
_MAX_REMEMBERED_BYTES = 512
_MAX_REMEMBERED = 64
#: Huffman's code is made bit by bit: it saves a fifth of a token's 170 bytes, and takes longer than all else of a call.
_LONG_VALUE_BYTES = 64
#: At the start of a block. RFC 7541 (4.2) has two at most, but encoders that announce each size they were told send
#: more; without a limit, a block of nothing else would cost time and mean nothing.
_MAX_TABLE_UPDATES = 64


class _Table(HeaderTable):  # type: ignore[misc]  # hpack ships no types
    """Counts its changes."""

    def __init__(self) -> None:
        super().__init__()
        self.changes = 0

    def add(self, name: bytes, value: bytes) -> None:
        had_entries = bool(self.dynamic_entries)
        super().add(bytes(name), bytes(value))  # hpack would keep views, and with them whole frames
        # A peer that has no room for a table leaves it empty.
        self.changes += had_entries or bool(self.dynamic_entries)


class Encoder(hpack.Encoder):  # type: ignore[misc]  # as above
    """Remembers the code of each header field."""

    def __init__(self) -> None:
        super().__init__()
        self.header_table = _Table()
        self._known: dict[tuple[bytes, bytes], bytes] = {}
        self._known_at = 0
        #: The first value of each name that was indexed.
        self._first_values: dict[bytes, bytes] = {}

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
                short = len(header[1]) < _LONG_VALUE_BYTES
                code = super().encode([self._as_it_varies(header)], huffman and short)
                # A field that may not be indexed is one that does not come again.
                if table.changes == self._known_at and not resized and type(header) is tuple:
                    if len(known) >= _MAX_REMEMBERED:
                        known.clear()
                    known[header] = code
            block.append(code)
        return b"".join(block)

    def _as_it_varies(self, header: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
        """Return a field as it is, or as one that is not indexed if its name comes with several values."""
        name, value = header
        if type(header) is not tuple or name.startswith(b":"):
            return header
        first = self._first_values.get(name)
        if first is None:
            if len(self._first_values) < _MAX_REMEMBERED:
                self._first_values[name] = value
            return header
        return header if first == value else unindexed(name, value)


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
        headers = self._decode_block(data)
        if table.changes == self._known_at and len(data) <= _MAX_REMEMBERED_BYTES:
            if len(self._known) >= _MAX_REMEMBERED:
                self._known.clear()
            self._known[data] = headers
        return headers

    def _decode_block(self, block: bytes) -> RawHeaders:
        """Do what hpack does, in time proportional to the block: its integers may be as long as what is sent."""
        headers: RawHeaders = []
        table = self.header_table
        size = updates = position = 0
        while position < len(block):
            first = block[position]
            if first & 0x80:
                index, position = _integer(block, position, 7)
                name, value = table.get_by_index(index)
            elif first & 0xE0 == 0x20:
                updates += 1
                if headers or updates > _MAX_TABLE_UPDATES:
                    raise hpack.HPACKDecodingError("table size update out of place")
                maximum, position = _integer(block, position, 5)
                self._resize_table(maximum)
                continue
            else:
                indexed = first & 0x40
                index, position = _integer(block, position, 6 if indexed else 4)
                if index:
                    name = table.get_by_index(index)[0]
                else:
                    name, position = _string(block, position)
                value, position = _string(block, position)
                if indexed:
                    table.add(name, value)
            headers.append((name, value))
            size += len(name) + len(value) + 32
            if size > self.max_header_list_size:
                raise hpack.OversizedHeaderListError(f"header list larger than {self.max_header_list_size}")
        if self.header_table_size > self.max_allowed_table_size:
            raise InvalidTableSizeError("the table has not been made smaller")
        return headers

    def _resize_table(self, maximum: int) -> None:
        if maximum > self.max_allowed_table_size:
            raise InvalidTableSizeError("table larger than allowed")
        if maximum != self.header_table_size:
            self.header_table_size = maximum


def _integer(block: bytes, position: int, bits: int) -> tuple[int, int]:
    """Return an integer (RFC 7541, 5.1) and where it ends; none that means anything has more than 35 bits."""
    most = (1 << bits) - 1
    value = block[position] & most
    position += 1
    if value < most:
        return value, position
    for shift in range(0, 35, 7):
        byte = block[position]
        position += 1
        value += (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise hpack.HPACKDecodingError("integer too long")


def _string(block: bytes, position: int) -> tuple[bytes, int]:
    """Return a string (RFC 7541, 5.2) and where it ends."""
    huffman = block[position] & 0x80
    size, position = _integer(block, position, 7)
    end = position + size
    if end > len(block):
        raise hpack.HPACKDecodingError("truncated header block")
    text = block[position:end]
    return (bytes(decode_huffman(text)) if huffman else text), end


def unindexed(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Return a header field that is to stay out of the tables, for it will hardly come again."""
    field: tuple[bytes, bytes] = hpack.NeverIndexedHeaderTuple(name, value)
    return field
